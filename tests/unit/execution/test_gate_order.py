"""The order of a session's gates."""

from tests.unit.gates.chain import Chain

ORDER = [
    *("blocklist", "quota", "rate_limit", "mode", "selection", "autonomy", "policy", "trust", "verifiers", "sandbox"),
    *("protected", "anomaly", "permission"),
]


def test_denials_come_before_what_costs_attention_and_the_question_is_the_last(tmp_path):
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"))
    assert [gate.name for gate in chain.gates.in_order] == ORDER
