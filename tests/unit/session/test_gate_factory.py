"""What the gates remember of a session outlives its engines: no rest, load or move makes it undone."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acp_agent.config.call_settings import AdversarialSettings, AnomalySettings
from acp_agent.config.load import Flags, load
from acp_agent.config.settings import Settings
from acp_agent.config.tool_settings import RateLimitSettings, ToolSettings
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Access, PathSubject, ToolCall
from acp_agent.gates.adversarial import AdversarialGate
from acp_agent.gates.gate import Gate
from acp_agent.gates.limits import Outcome
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.session.toolset.gate_factory import GateMemories, GateMemory, _adversarial
from tests.unit.gates.chain import Chain, call

TWO_AN_HOUR = ToolSettings(rate_limit=RateLimitSettings(calls_per_hour=2))


class Servers:
    def trust(self, invocation: Invocation) -> TrustLevel:
        del invocation
        return TrustLevel.PROVISIONAL


def test_calls_alarms_and_what_the_user_refused_stay_and_the_conversation_does_not() -> None:
    memories = GateMemories()
    before = memories.of("s", "/work", TWO_AN_HOUR)
    for number in range(2):
        before.rate.take(ToolCall(str(number), "bash", {}))
    for _ in range(20):
        before.anomalies.record("bash", Outcome.BROKEN)
    before.trust.tools["fetch"] = TrustLevel.BLOCKED
    before.trust.workspace = TrustLevel.UNTRUSTED
    before.learn("https://example.com/")

    after = memories.of("s", "/work", TWO_AN_HOUR)
    assert after.rate.wait(ToolCall("2", "bash", {})) > 0
    assert after.anomalies.blocked("bash")
    assert (after.trust.tools, after.trust.workspace) == ({"fetch": TrustLevel.BLOCKED}, TrustLevel.UNTRUSTED)
    assert after.urls is not before.urls, "the store gives back what was typed"
    assert after.quota.use.calls == 0, "so it does what was counted"

    assert memories.of("s", "/work", ToolSettings()).rate.calls_per_hour == ToolSettings().rate_limit.calls_per_hour
    other = memories.of("other", "/work", TWO_AN_HOUR)
    assert (other.rate.used, other.anomalies.alarms, other.trust.tools) == (0, (), {})


def test_whether_failing_tools_are_blocked_is_what_the_configuration_says() -> None:
    for auto_block in (True, False):
        memory = GateMemory.new(ToolSettings(anomaly=AnomalySettings(auto_block=auto_block)))
        for _ in range(20):
            memory.anomalies.record("bash", Outcome.BROKEN)
        assert (memory.anomalies.blocked("bash") is not None) is auto_block


def test_what_the_user_said_of_one_folder_does_not_count_in_another() -> None:
    memories = GateMemories()
    memories.of("s", "/trusted", ToolSettings()).trust.workspace = TrustLevel.TRUSTED
    assert memories.of("s", "/other", ToolSettings()).trust.workspace is TrustLevel.PROVISIONAL


def test_servers_that_are_gone_are_not_held_and_nothing_of_theirs_is_trusted(collect_new: Callable[[], int]) -> None:
    memory, servers = GateMemories().of("s", "/work", ToolSettings()), Servers()
    memory.trust_served(servers.trust)
    assert memory.trust.served(call("bash")) is TrustLevel.PROVISIONAL
    del servers
    collect_new()
    assert memory.trust.served(call("bash")) is TrustLevel.UNTRUSTED


def test_of_very_many_sessions_the_least_recently_used_is_forgotten() -> None:
    memories = GateMemories()
    for name in ("old", "used"):
        memories.of(name, "/work", ToolSettings()).trust.tools["x"] = TrustLevel.BLOCKED
    for number in range(999):
        memories.of(str(number), "/work", ToolSettings())
        memories.of("used", "/work", ToolSettings())
    assert memories.of("used", "/work", ToolSettings()).trust.tools
    assert not memories.of("old", "/work", ToolSettings()).trust.tools


@pytest.mark.anyio
async def test_the_policy_of_a_session_goes_by_the_trust_in_its_turn(tmp_path: Path) -> None:
    on = '[tools.policy]\nenabled = true\ndefault_effect = "allow"\n'
    rule = '[[tools.policy.rules]]\neffect = "deny"\ntool = "read"\ntrust_level = "provisional"\n'
    (tmp_path / "config.toml").write_text(on + rule)
    loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(tmp_path / "config.toml")})
    chain = Chain(str(tmp_path), str(tmp_path / "grants.toml"), loaded=loaded)
    reading = call("read", PathSubject("a", Access.READ))
    assert (await chain.run(reading)).failure is None
    chain.trust.turn = TrustLevel.PROVISIONAL
    refused = await chain.run(reading)
    assert refused.ruling is not None
    assert refused.ruling.gate == "policy"


def test_a_list_of_tools_that_names_an_unknown_one_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[tools]\ndeny = ['raed']\n[tools.by_model.'x:*']\nalso_allow = ['bash']\n")
    loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(tmp_path / "config.toml")})
    (problem,) = Chain(str(tmp_path), str(tmp_path / "grants.toml"), loaded=loaded).warnings.lines
    assert "raed" in problem


def test_the_second_model_is_asked_behind_the_gates_that_there_are() -> None:
    policies = AdversarialSettings(enabled=True, policies=("Nothing leaves the folder.",))
    settings = Settings(tools=ToolSettings(adversarial_policy=policies))
    state: Any = SimpleNamespace(opinion=lambda *_: None, redact=str)
    behind = cast("Gate", SimpleNamespace())
    (made,) = _adversarial(settings, state, (None, behind), print)
    assert cast("AdversarialGate", made)._later == (behind,)
