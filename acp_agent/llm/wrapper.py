"""The base of what stands around a model: the same name and window, another way to ask it."""

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
    """A Provider that is another one to everybody who asks its name. A concern overrides `stream`."""

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
        """As the port says."""
        return self.wrapped.stream(request)


_T = TypeVar("_T")


@asynccontextmanager
async def closing(events: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T]]:
    """Close the inner stream, and so its connection, however the outer one ends."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


Spent: TypeAlias = Callable[[ModelRef, Usage | None], None]
"""Told of each call that a model began to answer: what it took, or None where it broke off and nobody said."""


class MeteredProvider(WrapperProvider):
    """A Provider that tells what each of its calls took. Goes inside retries and fallbacks: they make calls, too."""

    def __init__(self, wrapped: Provider, spent: Spent) -> None:
        super().__init__(wrapped)
        self._spent = spent

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says. A call that fails before its first word took nothing."""
        ref, began, usage = ModelRef(self.name, self.model), False, None
        try:
            async with closing(self.wrapped.stream(request)) as events:
                async for event in events:
                    began = True
                    usage = event.usage if isinstance(event, ModelDone) else usage
                    yield event
        finally:
            if began:
                self._spent(ref, usage)


class WithoutTools(WrapperProvider):
    """A Provider whose model is never shown a tool: most servers refuse such a request to it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says."""
        messages = tuple(map(_in_words, request.messages))
        async with closing(self.wrapped.stream(replace(request, messages=messages, tools=()))) as events:
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


class PresentableProvider(WrapperProvider):
    """A Provider whose deltas and errors are fit for an editor. The message for the history stays as the model said it.

    redact   takes secrets out of errors: some servers quote the key they refuse, or the request
    """

    def __init__(self, wrapped: Provider, redact: Redact) -> None:
        super().__init__(wrapped)
        self._redact = redact

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """As Provider says. An endpoint that does not stream has its whole text as one delta."""
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
