"""Providers that wrap another one: they count usage, leave out tools, or sanitize what the editor gets."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TypeAlias, TypeVar, cast

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelText,
    ModelThought,
    Part,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.redaction import Redact
from acp_agent.llm.models import ModelRef
from acp_agent.output.markdown_images import AnswerGuard, defused


class WrapperProvider:
    """A Provider with the name and the window of another one. A subclass overrides `stream`."""

    def __init__(self, wrapped: Provider) -> None:
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        return self.wrapped.name

    @property
    def model(self) -> str:
        return self.wrapped.model

    @property
    def context_window(self) -> int:
        return self.wrapped.context_window

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream an answer, as the port says."""
        return self.wrapped.stream(request)


_T = TypeVar("_T")


@asynccontextmanager
async def closing_stream(events: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T]]:
    """Close the inner stream, and so its connection, however the outer one ends."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


UsageListener: TypeAlias = Callable[[ModelRef, Usage | None], None]
"""Receives the usage of each call that a model began to answer, or None if the call broke off before it was known."""


class MeteredProvider(WrapperProvider):
    """A Provider that reports the usage of each call.

    It stands inside retries and fallbacks, because they make calls, too.
    """

    def __init__(self, wrapped: Provider, spent: UsageListener) -> None:
        super().__init__(wrapped)
        self._spent = spent

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says. A call that fails before its first event used nothing."""
        ref, began, usage = ModelRef(self.name, self.model), False, None
        try:
            async with closing_stream(self.wrapped.stream(request)) as events:
                async for event in events:
                    began = True
                    usage = event.usage if isinstance(event, ModelDone) else usage
                    yield event
        finally:
            if began:
                self._spent(ref, usage)


class ToollessProvider(WrapperProvider):
    """A Provider whose model is never shown a tool, because most servers refuse tools for a model that knows none.

    Earlier calls and results of other models are put into words.
    """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says."""
        messages = tuple(map(_in_words, request.messages))
        async with closing_stream(self.wrapped.stream(replace(request, messages=messages, tools=()))) as events:
            async for event in events:
                yield event


def _in_words(message: Message) -> Message:
    if not any(isinstance(part, ToolUsePart | ToolResultPart) for part in message.parts):
        return message
    return replace(message, parts=tuple(said for part in message.parts for said in _said(part)))


def _said(part: Part) -> Iterator[Part]:
    match part:
        case ToolUsePart():
            arguments = part.raw_arguments or json.dumps(part.arguments or {}, ensure_ascii=False)
            yield TextPart(f"[called {part.name} with {arguments}]\n")
        case ToolResultPart():
            yield TextPart(f"[it gave]\n{part.text}\n")
            yield from part.images
        case _:
            yield part


class SanitizingProvider(WrapperProvider):
    """A Provider whose deltas and errors are safe to show in an editor. The message for the history stays unchanged.

    Deltas lose the images that an editor would fetch.

    redact   removes secrets from errors: some servers quote the refused key or the request
    """

    def __init__(self, wrapped: Provider, redact: Redact) -> None:
        super().__init__(wrapped)
        self._redact = redact

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream an answer, as the port says. A server that does not stream gives its whole text as one delta."""
        try:
            async with aclosing(_harmless(self.wrapped.stream(request))) as events:
                async for event in events:
                    yield event
        except ProviderError as error:
            error.args = (defused(self._redact(str(error))),)
            raise


async def _harmless(stream: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent]:
    text, thought, spoke = AnswerGuard(), AnswerGuard(), False
    async with aclosing(cast("AsyncGenerator[ModelEvent]", stream)) as events:
        async for event in events:
            match event:
                case ModelText(delta):
                    spoke = spoke or bool(delta)
                    yield ModelText(text.feed(delta))
                case ModelThought(delta):
                    yield ModelThought(thought.feed(delta))
                case ModelDone():
                    yield ModelThought(thought.finish())
                    yield ModelText(text.finish() if spoke else defused(event.message.text))
                    yield event
