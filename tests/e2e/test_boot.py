"""What the first answer may cost."""

from tests.bench.modules import HEAVY, at_initialize


def test_nothing_heavy_is_loaded_when_initialize_is_answered():
    loaded, answer = at_initialize()
    assert answer["result"]["protocolVersion"] == 1
    assert "acp_agent.boot" in loaded
    assert [name for name in HEAVY if name in loaded] == []
