"""A sub-agent's tools: a part of the session's, each call with its maker on it."""

import pytest

from acp_agent.agent.tool_calls import NOT_RUN
from acp_agent.core.session_options import Mode
from acp_agent.core.types import CallingAgent, ToolCall, ToolResult, Touches
from acp_agent.gates.selection import Selection, ToolChoice
from acp_agent.subagents.worker import NarrowedTools
from tests.fakes.fake_toolset import FakeToolset
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def narrowed(*tools: str, mode: Mode = Mode.CODE, deny: tuple[str, ...] = ()) -> tuple[NarrowedTools, FakeToolset]:
    session = FakeToolset(dict.fromkeys(tools, lambda _: "done"), mutating=("write", "edit"))
    choice = Selection(ToolChoice(deny=("agent", *deny)), {})
    return NarrowedTools(session, choice, CallingAgent("x-1", "x", "card", mode)), session


async def test_a_call_has_its_maker_and_no_id_of_the_sessions_conversation():
    tools, session = narrowed("read")
    await tools.run(ToolCall("1", "read", {}, use_id="call_0"))
    (call,) = session.calls
    assert (call.agent, call.parent, call.use_id) == (CallingAgent("x-1", "x", "card"), "card", "")


@each_row("name", ["agent", "Agent", "AGENT", "task", "nothing", "write"])
async def test_what_it_does_not_have_never_reaches_the_session_whatever_it_is_called(name: str):
    tools, session = narrowed("read", "agent", "write", deny=("write",))
    result = await tools.run(ToolCall("1", name, {}))
    assert result.failure is not None
    assert f"x has no tool '{name}'" in result.text
    assert session.calls == []
    assert session.log == [("refused", name)]


async def test_what_it_does_not_have_is_shown_as_refused_and_never_as_a_call_that_was_understood():
    tools, session = narrowed("read", "write", deny=("write",))
    call = ToolCall("1", "write", {})
    assert await tools.announce(call) == Touches()
    await tools.run(call, announced=True)
    await tools.refuse(call, ToolResult.failed(NOT_RUN), announced=True)
    assert session.log == [("refused", "write")], "once, and nothing of it is announced"
    assert session.announced == []


async def test_one_that_only_reads_is_offered_nothing_that_changes_anything():
    tools, _ = narrowed("read", "write", "edit", mode=Mode.ASK)
    assert [spec.name for spec in tools.specs()] == ["read"]


async def test_other_names_of_a_tool_mean_it():
    tools, session = narrowed("read")
    await tools.run(ToolCall("1", "Read", {}))
    await tools.run(ToolCall("2", "cat", {}))
    assert len(session.calls) == 2
