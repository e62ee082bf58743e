"""The outputs of the newest rounds alone are too long for the context: they are cut, and the turn goes on."""

import pytest

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import ImagePart, StopReason
from acp_agent.core.types import ToolCall, ToolResult
from tests.fakes.scripted_provider import Step, call, say
from tests.unit.agent.compacting import UNMEASURED, Compacting, says
from tests.unit.agent.conversation_rules import assert_acceptable

pytestmark = pytest.mark.anyio

REFERENCE = "[the whole output is overflow:1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed]"
LINE = "some words in a line\n"
TOO_LONG = ProviderError("prompt is too long", kind=ProviderErrorKind.CONTEXT_TOO_LONG)
ADVICE = "Ask for less at a time"


def output(received: ToolCall) -> str:
    """A text of as many characters as the call asks for."""
    size = int(str((received.arguments or {})["size"]))
    return "<first>\n" + LINE * (size // len(LINE)) + REFERENCE


def reading(*sizes: int) -> Step:
    return Step(calls=tuple(call("read", size=size) for size in sizes), usage=UNMEASURED)


async def test_outputs_of_the_first_round_that_do_not_fit_are_cut_and_the_turn_goes_on() -> None:
    talk = Compacting([reading(24_000, 24_000, 400), says("done")], {"read": output})
    assert await talk.prompt("look") is StopReason.END_TURN
    assert talk.said[-1] == "done"
    assert 5_000 < talk.history.estimate() < 9_000
    *cut, whole = [part.text for part in talk.results]
    for text in cut:
        assert text.startswith("<first>\nsome words")
        assert " characters left out here]\nsome words in a line\n" in text
        assert f"{REFERENCE}\n[This output was cut" in text
        assert ADVICE in text
    assert whole.endswith(REFERENCE)
    (told,) = talk.notices
    assert told.startswith("Cut 2 tool outputs to fit the context: about 12,")
    assert_acceptable(talk.provider.requests[-1].messages)


async def test_what_a_summary_leaves_too_long_is_cut_too() -> None:
    steps = [*(reading(200) for _ in range(4)), reading(12_000), reading(30_000), says("done")]
    talk = Compacting(steps, {"read": output}, summaries=[say("Looked.")])
    assert await talk.prompt("look") is StopReason.END_TURN
    assert "Looked." in talk.history.messages()[0].text
    older, newest = [part.text for part in talk.results]
    assert "was cleared" in older
    assert "<first>" in newest
    assert talk.history.estimate() < 9_000


async def test_an_output_may_be_cut_again_and_says_so_once() -> None:
    steps = [reading(40_000), reading(30_000), reading(30_000), says("done")]
    talk = Compacting(steps, {"read": output}, summaries=[say("Looked."), say("Looked on.")])
    assert await talk.prompt("look") is StopReason.END_TURN
    assert all(part.text.count(ADVICE) <= 1 for part in talk.results)
    assert ADVICE in talk.results[-1].text


async def test_pictures_that_do_not_fit_go_as_well() -> None:
    pictures = tuple(ImagePart("QUJD", "image/png") for _ in range(8))
    talk = Compacting([reading(0), says("done")], {"read": lambda _: ToolResult("Images", images=pictures)})
    assert await talk.prompt("look") is StopReason.END_TURN
    (part,) = talk.results
    assert part.images == ()
    assert "[8 images left out]" in part.text


async def test_a_first_round_that_the_model_refuses_as_too_long_is_cut_and_sent_again() -> None:
    talk = Compacting([reading(24_000), TOO_LONG, says("now")], {"read": output}, budget=100_000)
    assert await talk.prompt() is StopReason.END_TURN
    assert talk.said[-1] == "now"
    assert ADVICE in talk.results[0].text


async def test_a_summary_that_fails_does_not_end_a_turn_whose_outputs_can_be_cut() -> None:
    failed = ProviderError("it answered 500", kind=ProviderErrorKind.SERVER)
    script = [says("word " * 400), reading(40_000), reading(40_000), says("done")]
    talk = Compacting(script, {"read": output}, summaries=[failed])
    await talk.prompt("first")
    assert await talk.prompt("second") is StopReason.END_TURN
    assert [ADVICE in part.text or "was cleared" in part.text for part in talk.results] == [True, True]
    assert "first" in talk.history.messages()[0].text
    assert talk.history.estimate() < 9_000
