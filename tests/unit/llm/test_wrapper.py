"""What an editor is given of a model's words: nothing it would load, nothing that steers its screen."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    Role,
    TextPart,
    Usage,
)
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.secrets import verbatim
from acp_agent.llm.retry import SanitizingProvider
from acp_agent.output.markdown_images import defused
from tests.rows import each_row

pytestmark = pytest.mark.anyio

SAID = 'Hi \x1b[31m\u202e <img src="https://e.example/?q=secret"> ![x](https://e.example)'
SHOWN = 'Hi \\u001b[31m\\u202e <\\img src="https://e.example/?q=secret"> ![x]\\(https://e.example)'
DONE = ModelDone(Message(Role.ASSISTANT, (TextPart(SAID),)), ModelStop.END, Usage())


class Saying:
    """A provider that gives these events."""

    def __init__(self, *events: ModelEvent) -> None:
        self._events = events

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        del request
        for event in self._events:
            yield event


async def shown(*events: ModelEvent) -> tuple[str, str]:
    """The text and the thoughts that come out; the message for the history must be as it was said."""
    provider = SanitizingProvider(cast("Provider", Saying(*events, DONE)), verbatim)
    text = thoughts = ""
    async for event in provider.stream(cast("ModelRequest", None)):
        match event:
            case ModelText(delta):
                text += delta
            case ModelThought(delta):
                thoughts += delta
            case ModelDone():
                assert event.message == DONE.message
    return text, thoughts


@each_row("size", range(1, len(SAID) + 1))
async def test_text_and_thoughts_are_made_harmless_however_they_are_cut(size: int) -> None:
    pieces = [SAID[at : at + size] for at in range(0, len(SAID), size)]
    both = [event for piece in pieces for event in (ModelText(piece), ModelThought(piece))]
    assert await shown(*both) == (SHOWN, SHOWN)


async def test_an_answer_that_comes_whole_is_made_harmless_too() -> None:
    assert await shown() == (SHOWN, "")


class BreakingOff(Saying):
    """A provider that gives these events and then fails."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            yield event
        raise ProviderError("acme is gone", kind=ProviderErrorKind.NETWORK)


@each_row("end", ("<im", "![x](https://e.exam", "[l]:", "a\r", '<b title="half'))
async def test_what_is_held_back_is_shown_when_the_stream_breaks_off(end: str) -> None:
    said = (ModelText(f"Hi {end}"), ModelThought(f"Hm {end}"))
    provider = SanitizingProvider(cast("Provider", BreakingOff(*said)), verbatim)
    shown: list[ModelEvent] = []

    async def read() -> None:
        async for event in provider.stream(cast("ModelRequest", None)):
            shown.append(event)

    with pytest.raises(ProviderError, match="acme is gone"):
        await read()
    text = "".join(event.text for event in shown if isinstance(event, ModelText))
    thoughts = "".join(event.text for event in shown if isinstance(event, ModelThought))
    assert (text, thoughts) == (defused(f"Hi {end}"), defused(f"Hm {end}"))


async def test_a_stream_that_breaks_off_before_its_first_word_shows_nothing() -> None:
    provider = SanitizingProvider(cast("Provider", BreakingOff()), verbatim)
    with pytest.raises(ProviderError, match="acme is gone"):
        await anext(aiter(provider.stream(cast("ModelRequest", None))))
