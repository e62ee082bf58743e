"""The mode of a session decides what kinds of tools run at all."""

import pytest

from acp_agent.core.conduct import Mode, SessionOptions
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.types import CommandSubject
from acp_agent.gates.mode import ModeGate
from tests.unit.gates.chain import SPECS, Judged, call

pytestmark = pytest.mark.anyio
READING = {"read", "grep", "fetch", "list_directory"}


@pytest.mark.parametrize(("mode", "allowed"), [(Mode.CODE, set(SPECS)), (Mode.ASK, READING), (Mode.ARCHITECT, READING)])
async def test_a_mode_allows_its_kinds_and_the_catalogue_says_the_same(mode: Mode, allowed: set[str]):
    gate = ModeGate(SessionOptions(mode=mode))
    assert {name for name, spec in SPECS.items() if gate.allows(spec)} == allowed
    for name in SPECS:
        assert ((await Judged(gate).execute(call(name))).failure is None) == (name in allowed)


async def test_a_refusal_is_policy_blocked_and_names_tool_and_mode():
    result = await Judged(ModeGate(SessionOptions(mode=Mode.ASK))).execute(call("bash"))
    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert "'bash'" in result.failure.message
    assert "ask mode" in result.failure.message


async def test_the_mode_is_read_anew_for_each_call():
    conduct = SessionOptions(mode=Mode.ASK)
    gate = Judged(ModeGate(conduct))
    assert (await gate.execute(call("write"))).failure is not None
    conduct.mode = Mode.CODE
    assert (await gate.execute(call("write"))).failure is None


async def test_a_reading_tool_that_starts_a_command_runs_in_code_mode_only():
    invocation = call("list_directory", CommandSubject("tree"))
    for mode in Mode:
        result = await Judged(ModeGate(SessionOptions(mode=mode))).execute(invocation)
        assert (result.failure is None) == (mode is Mode.CODE)
