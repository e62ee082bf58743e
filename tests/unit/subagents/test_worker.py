"""A sub-agent's tools, a part of the session's with its maker on each call, and its report."""

import pytest

from acp_agent.agent.compaction import Compactor, SummarySettings, Thresholds
from acp_agent.agent.tool_calls import NOT_RUN
from acp_agent.agent.turn import Limits
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelStop
from acp_agent.core.ports import Provider
from acp_agent.core.session_options import Mode
from acp_agent.core.types import CallingAgent, ToolCall, ToolResult, Touches
from acp_agent.gates.selection import Selection, ToolChoice
from acp_agent.subagents.definitions import built_in
from acp_agent.subagents.worker import ModelDependencies, ModelWorker, NarrowedTools, WorkOutcome
from tests.fakes.fake_toolset import FakeToolset
from tests.fakes.scripted_provider import Script, ScriptedProvider, Step, call, say, use
from tests.rows import each_row

pytestmark = pytest.mark.anyio


def narrowed(*tools: str, mode: Mode = Mode.CODE, deny: tuple[str, ...] = ()) -> tuple[NarrowedTools, FakeToolset]:
    session = FakeToolset(dict.fromkeys(tools, lambda _: "done"), mutating=("write", "edit"))
    choice = Selection(ToolChoice(deny=("agent", *deny)))
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


def working(*script: Script) -> ModelWorker:
    """A worker whose model plays this script. It may read."""
    provider, tools = ScriptedProvider(script), FakeToolset({"read": lambda _: "one"})

    async def found(_: object) -> Provider:
        return provider

    async def prompt(*_: object) -> str:
        return ""

    needs = ModelDependencies(
        lambda: tools,
        found,
        prompt,
        tuple,
        Limits,
        lambda history, emit, budget: Compactor(
            history, emit, SummarySettings(lambda: found(None)), budget, Thresholds(automatic=False)
        ),
    )
    return ModelWorker(built_in()[0], needs)


async def did(worker: ModelWorker, words: str) -> WorkOutcome:
    async def progress(_: object) -> None:
        pass

    return await worker.work(words, CallingAgent("x-1", "x", "card"), progress)


@each_row("script", [[use(call("read"), text="I look."), say("")], [use(call("read"), text="I look.")] * 6])
async def test_words_before_its_last_calls_are_no_report(script: list[Script]):
    """The model ends without a word, and it repeats itself until the turn is ended."""
    fresh = (use(call("read"), text="I look.") if isinstance(each, Step) and each.calls else each for each in script)
    assert await did(working(*fresh), "count") == WorkOutcome("I look.", "it ended without a report")


REFUSED = ProviderError("no", kind=ProviderErrorKind.INVALID_REQUEST)
DOWN = ProviderError("down", kind=ProviderErrorKind.SERVER)


@each_row("last", [say(""), REFUSED, DOWN, Step(stop=ModelStop.REFUSAL)])
async def test_the_report_of_a_former_task_is_never_that_of_the_next_one(last: Script):
    worker = working(say("It is one."), last)
    assert await did(worker, "count") == WorkOutcome("It is one.")
    outcome = await did(worker, "count again")
    assert outcome.report == ""
    assert outcome.trouble
