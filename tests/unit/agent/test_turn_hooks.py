"""What takes part in a turn beside the model and the tools: when each is asked, and what becomes of its words."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import anyio
import anyio.lowlevel
import pytest

from acp_agent.agent.hooks import Hooks, Received, ToolSelection
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import Message, Role, StopReason, TextPart, ToolResultPart, ToolUsePart
from acp_agent.core.ports import Toolset
from acp_agent.core.types import ToolCall, ToolResult, ToolSpec
from tests.fakes.scripted_provider import Hang, Step, call, say, use
from tests.unit.agent.conversation import Conversation
from tests.unit.agent.conversation_rules import assert_acceptable
from tests.unit.agent.test_endings import Canceller

pytestmark = pytest.mark.anyio

Outcomes = Iterable[tuple[ToolUsePart, ToolResult]]
SKIPPED = ToolResult.failed(ToolFailure(ToolErrorCategory.INVALID_PARAMETERS, "only a thought"))


class ThinkingOffer(ToolSelection):
    """Hides `hidden`, takes the argument `think` off, answers calls that have nothing else; writes down its life."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.outcomes: list[tuple[str, str]] = []

    async def begin(self, prompt: Message, specs: Sequence[ToolSpec]) -> None:
        await anyio.lowlevel.checkpoint()
        self.log.append(f"begin {prompt.text} {[spec.name for spec in specs]}")

    def offered(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        self.log.append("offered")
        return [spec for spec in specs if spec.name != "hidden"]

    def received(self, message: Message) -> Received:
        self.log.append("received")
        answered: dict[str, ToolResult] = {}
        parts = []
        for part in message.parts:
            if isinstance(part, ToolUsePart) and part.arguments and "think" in part.arguments:
                rest = {key: value for key, value in part.arguments.items() if key != "think"}
                part = replace(part, arguments=rest)  # noqa: PLW2901 - the part as it goes on
                if not rest:
                    answered[part.id] = SKIPPED
            parts.append(part)
        return Received(replace(message, parts=tuple(parts)), answered)

    def finished(self, outcomes: Outcomes) -> None:
        self.log.append("finished")
        self.outcomes += [(use.name, result.text) for use, result in outcomes]


class Words:
    """An Observer and Phases with something to say; `log` is what they were asked, with the size of what they saw."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.hang: Hang | None = None

    def begin(self) -> None:
        self.log.append("begin")

    def finished(self, outcomes: Outcomes) -> str | None:
        self.log.append(f"finished {len(list(outcomes))}")
        return "[observed]"

    async def before_first_inference(self, prompt: Message, toolset: Toolset) -> str | None:
        result = await toolset.run(ToolCall("own", "look", {"by": "planner"}))
        self.log.append(f"before {prompt.text}")
        return f"[planned: {result.text}]"

    async def after_round(self, outcomes: Outcomes, toolset: Toolset) -> str | None:
        self.log.append(f"after {len(list(outcomes))}")
        if self.hang is not None:
            await self.hang.wait()
        return "[verified]"


def look(made: ToolCall) -> str:
    return f"seen {made.arguments}"


TOOLS = {"look": look, "hidden": look}


def texts(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart | ToolResultPart)]


async def test_the_offer_is_asked_in_order_and_the_model_sees_what_it_offers() -> None:
    offer = ThinkingOffer()
    talk = Conversation([use(call("look", at=1)), say("ok")], TOOLS, hooks=Hooks(selection=offer))
    await talk.prompt("please")
    around = ["offered", "received"]
    assert offer.log == ["begin please ['look', 'hidden']", *around, "finished", *around]
    assert [[spec.name for spec in request.tools] for request in talk.provider.requests] == [["look"]] * 2
    assert offer.outcomes == [("look", "seen {'at': 1}")]


async def test_what_the_offer_takes_off_is_neither_run_nor_kept() -> None:
    talk = Conversation(
        [use(call("look", think="aloud", at=1)), say("ok")], TOOLS, hooks=Hooks(selection=ThinkingOffer())
    )
    await talk.prompt()
    assert [made.arguments for made in talk.toolset.calls] == [{"at": 1}]
    assert "aloud" not in repr(talk.history.messages())


async def test_a_call_the_offer_answers_does_not_run_and_has_its_result_in_its_place() -> None:
    offer = ThinkingOffer()
    calls = [call("look", id="a", at=1), call("look", id="b", think="only"), call("look", id="a", at=2)]
    talk = Conversation([use(*calls), say("ok")], TOOLS, hooks=Hooks(selection=offer))
    assert await talk.prompt() is StopReason.END_TURN
    assert [made.arguments for made in talk.toolset.calls] == [{"at": 1}]
    first, second, third = talk.results
    assert (first.text, second.text) == ("seen {'at': 1}", SKIPPED.text)
    assert "id of another call" in third.text
    assert [name for name, _ in offer.outcomes] == ["look"] * 3
    assert_acceptable(talk.history.messages())


async def test_wherever_a_turn_is_cancelled_nothing_is_kept_of_what_the_offer_takes_off() -> None:
    cancelled = 0
    for cancel_at, streams in product(range(1, 20), (True, False)):
        canceller = Canceller()
        script = [Step(text="Hm.", calls=(call("look", think="aloud", at=1),), streams=streams), say("ok")]
        talk = Conversation(script, TOOLS, hooks=Hooks(selection=ThinkingOffer()), pace=canceller.pace)
        cancelled += await canceller.run(talk, "go", cancel_at) is StopReason.CANCELLED
        assert "aloud" not in repr(talk.history.messages())
        assert_acceptable(talk.history.messages())
    assert cancelled > 10


async def test_the_offer_learns_what_became_of_calls_when_the_turn_was_cancelled() -> None:
    hang, offer = Hang(), ThinkingOffer()

    async def stuck(_: ToolCall) -> str:
        await hang.wait()
        return "never"

    talk = Conversation(
        [use(call("look"), call("stuck"))],
        {"look": lambda _: "seen", "stuck": stuck},
        mutating=("look", "stuck"),
        hooks=Hooks(selection=offer),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt)
        await hang.reached.wait()
        tasks.cancel_scope.cancel()
    (_, seen), (_, interrupted) = offer.outcomes
    assert seen == "seen"
    assert "may have had effects" in interrupted


async def test_words_of_the_hooks_stand_behind_the_prompt_and_the_results_in_the_same_message() -> None:
    words = Words()
    talk = Conversation([use(call("look", at=1)), say("ok")], TOOLS, hooks=Hooks(observer=words, phases=words))
    await talk.prompt("please")
    prompt, _, results, _ = talk.history.messages()
    assert prompt.role is results.role is Role.USER
    assert texts(prompt) == ["please", "[planned: seen {'by': 'planner'}]"]
    assert texts(results) == ["seen {'at': 1}", "[observed]", "[verified]"]
    assert words.log == ["begin", "before please", "finished 1", "after 1"]
    assert_acceptable(talk.history.messages())


async def test_a_round_that_ends_the_turn_is_not_verified() -> None:
    words = Words()
    talk = Conversation([use(call("look"))] * 6, TOOLS, hooks=Hooks(observer=words, phases=words))
    await talk.prompt()
    assert words.log == ["begin", "before go", *["finished 1", "after 1"] * 5, "finished 1"]
    assert_acceptable(talk.history.messages())


async def test_a_verification_that_is_cancelled_leaves_the_results_of_the_round() -> None:
    words = Words()
    words.hang = Hang()
    talk = Conversation([use(call("look", at=1)), say("ok")], TOOLS, hooks=Hooks(observer=words, phases=words))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prompt)
        await words.hang.reached.wait()
        tasks.cancel_scope.cancel()
    assert texts(talk.history.messages()[-1])[:2] == ["seen {'at': 1}", "[observed]"]
    assert_acceptable(talk.history.messages())
    assert await talk.prompt("again") is StopReason.END_TURN


async def test_a_prompt_without_content_asks_no_hook() -> None:
    words, offer = Words(), ThinkingOffer()
    talk = Conversation([], TOOLS, hooks=Hooks(selection=offer, observer=words, phases=words))
    await talk.prompt(" ")
    assert words.log == offer.log == []
