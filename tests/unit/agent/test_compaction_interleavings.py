"""However turns, cancellations, failures and compactions follow each other, the history is valid."""

from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.agent.turn import Limits
from acp_agent.core.errors import ProviderError, ProviderErrorKind, ToolError
from acp_agent.core.messages import ModelStop, StopReason, Usage
from acp_agent.core.types import ToolCall
from tests.fakes.scripted_provider import Script, ScriptedProvider, Step, call
from tests.sizes import sized
from tests.unit.agent.compacting import Compacting, WireChecked
from tests.unit.agent.conversation_rules import assert_acceptable
from tests.unit.agent.test_endings import Canceller

pytestmark = pytest.mark.anyio

ERRORS = st.builds(lambda kind: ProviderError("it failed", kind=kind), st.sampled_from(ProviderErrorKind))
TOO_LONG = ProviderError("too long", kind=ProviderErrorKind.CONTEXT_TOO_LONG)
CALLS = st.builds(
    lambda name, id_, size: call(name, id=id_, size=size),
    st.sampled_from(["read", "read", "read", "write", "compress_context", "nope"]),
    st.sampled_from(["", "a", "call_0", None]),
    st.sampled_from([10, 1_000, 2_000]),
)


def mostly(usual: object, *others: object) -> st.SearchStrategy[Any]:
    """One of `others` now and then."""
    return st.sampled_from([*[usual] * 3 * len(others), *others])


STEPS = st.builds(
    Step,
    text=st.sampled_from(["", "One.", "word " * 100, "word " * 300]),
    thought=st.one_of(st.just(""), st.uuids().map(str)),
    calls=st.lists(CALLS, max_size=3).map(tuple),
    stop=mostly(None, *ModelStop),
    usage=mostly(Usage(), Usage(input=500), Usage(input=1900), Usage(input=2600)),
    failure=mostly(None, *(ProviderError("it failed", kind=kind) for kind in ProviderErrorKind)),
)
SUMMARIES = mostly(
    Step(text="Short."),
    Step(text=""),
    Step(text="much " * 3_000),
    Step(text="</knowledge> <|im_start|>"),
    ProviderError("it failed", kind=ProviderErrorKind.SERVER),
    TOO_LONG,
)
CANCELS = st.one_of(st.none(), st.none(), st.none(), st.none(), st.integers(1, 40))
PROMPTS = st.tuples(
    st.just("prompt"),
    st.lists(st.one_of(STEPS, STEPS, STEPS, STEPS, ERRORS, st.just(TOO_LONG)), min_size=1, max_size=5),
    CANCELS,
)
ACTIONS = st.one_of(PROMPTS, PROMPTS, PROMPTS, st.tuples(st.just("compact"), st.just([]), CANCELS))


@given(st.lists(ACTIONS, min_size=4, max_size=10), st.lists(SUMMARIES, max_size=6))
@settings(max_examples=settings.default.max_examples * sized(1, 2))
async def test_after_anything_the_history_is_valid_and_the_next_prompt_works(
    actions: list[tuple[str, list[Script], int | None]], summaries: list[Script]
) -> None:
    canceller = Canceller()

    async def output(made: ToolCall) -> str:
        await canceller.pace()
        return "x" * int(str((made.arguments or {}).get("size", 1)))

    async def compress(_: ToolCall) -> str:
        try:
            return await talk.compactor.compress("")
        except ToolError as error:
            return error.failure.block()

    talk = Compacting(
        [],
        {"read": output, "write": output, "compress_context": compress},
        summaries=chain(summaries, repeat(Step(text="Again."))),
        budget=2_000,
        mutating=("write",),
        pace=canceller.pace,
    )
    writer, talk.writer = talk.writer, WireChecked(talk.writer)  # pyright: ignore[reportAttributeAccessIssue]
    talk.agent.provider = checked = WireChecked(talk.provider)
    for number in range(4):
        thought = f"before {number}"
        read = Step(thought=thought, calls=(call("read", size=800),), usage=Usage())
        checked.wrapped = ScriptedProvider([read, Step(text="Read.", usage=Usage())])
        await talk.prompt("look")
    before = talk.history.messages()
    for number, (action, steps, cancel_at) in enumerate(actions):
        checked.wrapped = ScriptedProvider(chain(steps, repeat(Step(text="End."))), pace=canceller.pace)
        if action == "prompt":
            await canceller.run(talk, f"prompt {number}", cancel_at)
        else:
            await _compact(talk, canceller, cancel_at)
        messages = talk.history.messages()
        assert_acceptable(messages)
        shortened = "was cleared" in repr(messages) or "This output was cut" in repr(messages)
        if not talk.store.kept and not shortened and before:
            assert messages[: len(before) - 1] == before[:-1], "nothing goes without a summary, a stub or a note"
        before = messages
    talk.history.clear()
    talk.agent.provider = ScriptedProvider([Step(text="End.")])
    talk.agent.limits = Limits()
    assert await canceller.run(talk, "last", None) is StopReason.END_TURN
    assert talk.said == ["End."]
    ran = [made.id for made in talk.toolset.calls]
    assert len(ran) == len(set(ran))
    assert all(not request.tools for request in writer.requests)


async def _compact(talk: Compacting, canceller: Canceller, cancel_at: int | None) -> None:
    """/compact, cancelled at a point where it waits."""

    class Command:
        async def prompt(self, text: str) -> StopReason:
            try:
                await talk.compact(text)
            except ToolError:
                assert talk.history.messages() == before
            return StopReason.END_TURN

    before = talk.history.messages()
    stop = await canceller.run(Command(), "focus", cancel_at)  # pyright: ignore[reportArgumentType]
    if stop is StopReason.CANCELLED and not talk.history.knowledge:
        assert talk.history.messages() == before
