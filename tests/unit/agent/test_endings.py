"""Whatever ends a turn, at whatever point, the history stays one a model accepts, and the next prompt works."""

from collections.abc import Callable
from itertools import chain, repeat

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent import prompt as notes
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.turn import Limits
from acp_agent.core.errors import ProviderError, ProviderErrorKind, ToolErrorCategory, ToolFailure
from acp_agent.core.messages import ModelStop, Role, StopReason, TextPart, ToolUsePart, Usage
from acp_agent.core.types import ToolCall, ToolResult
from tests.fakes.fake_toolset import Tool
from tests.fakes.scripted_provider import Hang, Script, ScriptedProvider, Step, call, say, use
from tests.unit.agent.conversation import Conversation
from tests.unit.agent.conversation_rules import assert_acceptable

pytestmark = pytest.mark.anyio


class Canceller:
    """Counts the points where a turn waits, and cancels it at one of them."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._scope = anyio.CancelScope()

    async def pace(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()
        await anyio.lowlevel.checkpoint()

    async def run(self, talk: Conversation, text: str, cancel_at: int | None) -> StopReason:
        self._left = cancel_at
        with anyio.CancelScope() as self._scope:
            return await talk.prompt(text)
        return StopReason.CANCELLED


def tools(pace: Callable[[], object]) -> dict[str, Tool]:
    async def look(made: ToolCall) -> str:
        await pace()
        await pace()
        return f"seen {made.arguments}"

    async def fail(_: ToolCall) -> ToolResult:
        await pace()
        return ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "too slow"))

    return {"look": look, "peek": look, "write": look, "fail": fail}


async def test_a_turn_can_be_cancelled_at_every_point_where_it_waits() -> None:
    canceller = Canceller()
    cancelled = 0
    for cancel_at in range(1, 200):
        script = [
            use(call("look"), call("peek"), call("write"), call("fail"), call("look"), text="Now."),
            use(call("write"), call("nope")),
            Step(text=("It ", "is ", "done."), thought="Hm."),
            say("Again."),
        ]
        talk = Conversation(script, tools(canceller.pace), mutating=("write",), pace=canceller.pace)
        stop = await canceller.run(talk, "go", cancel_at)
        assert_acceptable(talk.history.messages())
        if stop is not StopReason.CANCELLED:
            break
        cancelled += 1
        ran = [made.id for made in talk.toolset.calls]
        assert len(ran) == len(set(ran))
        assert await canceller.run(talk, "again", None) is StopReason.END_TURN
        assert_acceptable(talk.history.messages())
    assert 20 < cancelled < 199


async def test_a_call_that_ran_when_the_turn_was_cancelled_is_told_from_one_that_did_not() -> None:
    hang = Hang()

    async def stuck(_: ToolCall) -> str:
        await hang.wait()
        return "never"

    calls = [call("quick"), call("stuck"), call("later")]
    talk = Conversation(
        [use(*calls)],
        {"quick": lambda _: "quick", "stuck": stuck, "later": lambda _: "late"},
        mutating=("quick", "stuck", "later"),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt)
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    quick, running, later = talk.results
    assert quick.text == "quick"
    assert "may have had effects" in running.text
    assert "was not run" in later.text
    assert running.text.startswith("[error] ")
    assert [made.name for made in talk.toolset.calls] == ["quick", "stuck"]


async def test_a_cancelled_answer_keeps_what_was_said_and_closes_the_stream() -> None:
    hang = Hang()
    talk = Conversation([Step(text=("Half ", "an ans"), hang=hang), say("ok")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt)
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    assert talk.said == ["Half an ans"]
    assert talk.provider.closed == 1
    assert await talk.prompt("next") is StopReason.END_TURN
    assert_acceptable(talk.history.messages())


async def test_the_model_learns_that_a_prompt_was_cancelled() -> None:
    hang = Hang()
    talk = Conversation([Step(hang=hang), say("ok")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt, "delete everything")
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    await talk.prompt("say hello")
    (only,) = talk.provider.requests[1].messages
    before, after = only.text.split("[This turn was cancelled here.")
    assert before == "delete everything"
    assert after.endswith("say hello")


async def test_the_model_learns_that_nobody_cancelled_a_turn_that_ended_with_its_session() -> None:
    hang = Hang()
    talk = Conversation([Step(text=("Half ", "an ans"), hang=hang)], hooks=Hooks(session_ended=lambda: True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt)
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    assert [message.text for message in talk.history.messages()][1:] == ["Half an ans", notes.INTERRUPTED]


class Work:
    """Work in the background of a turn. Its only result is that the turn has ended it."""

    def __init__(self) -> None:
        self.ended = False

    def news(self) -> str:
        return ""

    async def wait(self) -> str:
        return ""

    async def end(self) -> str:
        news, self.ended = "" if self.ended else "[the work was ended]", True
        return news


async def test_the_results_of_work_that_a_turn_has_ended_stay_with_the_conversation() -> None:
    hang = Hang()
    talk = Conversation([Step(text=("Half ", "an ans"), hang=hang)], hooks=Hooks(reports=Work()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt)
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    told = [part.text for part in talk.history.messages()[-1].parts if isinstance(part, TextPart)]
    assert told == ["[the work was ended]", notes.CANCELLED], "the user's next words follow the note"
    script = [use(call("look"), text="I look.")]
    talk = Conversation(script, {"look": lambda _: "seen"}, limits=Limits(1), hooks=Hooks(reports=Work()))
    assert await talk.prompt() is StopReason.MAX_TURN_REQUESTS
    assert talk.history.messages()[-1].text == "[the work was ended]"
    assert_acceptable(talk.history.messages())


async def test_a_native_task_cancellation_counts_too() -> None:
    import asyncio  # noqa: PLC0415 - the one test about what anyio does not do

    hang = Hang()
    talk = Conversation([Step(text="Half", hang=hang)])
    task = asyncio.ensure_future(talk.prompt())
    await hang.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert talk.said == ["Half"]
    assert_acceptable(talk.history.messages())


IDS = st.sampled_from(["", "a", "b", "call_0", None])
CALLS = st.builds(
    lambda name, id_, valid: call(name, id=id_) if valid else ToolUsePart(id_ or "", name, None, '{"x'),
    st.sampled_from(["look", "peek", "write", "fail", "nope"]),
    IDS,
    st.booleans(),
)
TEXTS = st.sampled_from(["", " \n", "One.", ("Two ", "pieces.")])
ERRORS = st.builds(lambda kind: ProviderError("it failed", kind=kind), st.sampled_from(ProviderErrorKind))
STEPS = st.builds(
    Step,
    text=TEXTS,
    thought=st.sampled_from(["", "Hm."]),
    calls=st.lists(CALLS, max_size=4).map(tuple),
    stop=st.sampled_from([None, None, None, *ModelStop]),
    usage=st.sampled_from([Usage(), Usage(input=500, output=5), Usage(input=900)]),
    failure=st.one_of(st.none(), st.none(), ERRORS),
    ends=st.sampled_from([True, True, True, False]),
)
TURNS = st.tuples(st.lists(st.one_of(STEPS, STEPS, ERRORS), max_size=4), st.one_of(st.none(), st.integers(1, 25)))


@given(st.lists(TURNS, min_size=1, max_size=5))
async def test_after_any_turns_the_history_is_valid_and_the_next_prompt_works(
    turns: list[tuple[list[Script], int | None]],
) -> None:
    canceller = Canceller()
    talk = Conversation(
        [],
        tools(canceller.pace),
        mutating=("write",),
        limits=Limits(max_tool_iterations=3, context_budget=10_000),
        pace=canceller.pace,
    )

    def script(steps: list[Script]) -> ScriptedProvider:
        provider = ScriptedProvider(chain(steps, repeat(Step(text="End."))), pace=canceller.pace)
        talk.agent.provider = provider
        return provider

    for number, (steps, cancel_at) in enumerate(turns):
        provider = script(steps)
        await canceller.run(talk, f"prompt {number}", cancel_at)
        assert_acceptable(talk.history.messages())
        for request in provider.requests:
            assert_acceptable(request.messages)
            assert request.messages[-1].role is Role.USER
    script([])
    assert await canceller.run(talk, "last", None) is StopReason.END_TURN
    assert talk.said[-1] == "End."
    ran = [made.id for made in talk.toolset.calls]
    assert len(ran) == len(set(ran))
