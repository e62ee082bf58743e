"""Retry the same model after a temporary failure, and fall back to other models if one does not answer."""

import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import anyio

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import (
    ModelDone,
    ModelEvent,
    ModelText,
    ModelThought,
    Part,
    Role,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.secrets import Redact
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


class ClosingStream(Generic[_T]):
    """A context manager that closes a stream, and so its connection, at the end of the block."""

    def __init__(self, events: AsyncIterator[_T]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterator[_T]:
        return self._events

    async def __aexit__(self, *_: object) -> None:
        events = self._events
        if isinstance(events, AsyncGenerator):
            await events.aclose()


UsageListener: TypeAlias = Callable[[ModelRef, Usage | None], None]
"""Receives the usage of each call that a model began to answer; None if the call broke off before it was known."""


class MeteredProvider(WrapperProvider):
    """A Provider that reports the usage of each call.

    Retries and fallbacks wrap it, so that it reports each of their calls.
    """

    def __init__(self, wrapped: Provider, spent: UsageListener) -> None:
        super().__init__(wrapped)
        self._spent = spent

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says. A call that fails before its first event is not reported."""
        ref, began, usage = ModelRef(self.name, self.model), False, None
        try:
            async with ClosingStream(self.wrapped.stream(request)) as events:
                async for event in events:
                    began = True
                    usage = event.usage if isinstance(event, ModelDone) else usage
                    yield event
        finally:
            if began:
                self._spent(ref, usage)


class ToollessProvider(WrapperProvider):
    """A Provider for a model that takes no tools. Most servers refuse a request with tools for such a model.

    Earlier calls of other models and their results are sent as text.
    """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says."""
        messages = tuple(
            replace(message, parts=tuple(said for part in message.parts for said in _said(part)))
            for message in request.messages
        )
        async with ClosingStream(self.wrapped.stream(replace(request, messages=messages, tools=()))) as events:
            async for event in events:
                yield event


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
    """A Provider whose deltas and errors are safe to show in an editor. The final message stays unchanged.

    Images in the deltas are escaped, because an editor would fetch them.

    redact   removes secrets from errors: some servers quote the refused key or the request
    """

    def __init__(self, wrapped: Provider, redact: Redact) -> None:
        super().__init__(wrapped)
        self._redact = redact

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream an answer, as the port says. A server that does not stream gives its whole text as one delta."""
        text, thought, spoke = AnswerGuard(), AnswerGuard(), False
        try:
            async with ClosingStream(self.wrapped.stream(request)) as events:
                async for event in events:
                    match event:
                        case ModelText(delta):
                            spoke = spoke or bool(delta)
                            yield ModelText(text.feed(delta))
                        case ModelThought(delta):
                            yield ModelThought(thought.feed(delta))
                        case ModelDone():
                            if rest := thought.feed("", last=True):
                                yield ModelThought(rest)
                            if rest := text.feed("", last=True) if spoke else defused(event.message.text):
                                yield ModelText(rest)
                            yield event
        except ProviderError as error:
            if thought_rest := thought.feed("", last=True):
                yield ModelThought(thought_rest)
            if text_rest := text.feed("", last=True):
                yield ModelText(text_rest)
            error.args = (defused(self._redact(str(error))),)
            raise


class RetryPolicy(NamedTuple):
    """The rules for retries: when, and how often. Times are in seconds.

    attempts          requests in all, the first one included
    base, ceiling     the wait doubles from `base` up to `ceiling`
    jitter            the random share of the wait, in both directions
    longest_asked     the longest wait that a server may ask for; for a longer one it gives up
    budget            the time from the first attempt after which no further one is started
    """

    attempts: int = 3
    base: float = 0.3
    ceiling: float = 30.0
    jitter: float = 0.1
    longest_asked: float = 60.0
    budget: float = 120.0

    def wait(self, failures: int, error: ProviderError, chance: float) -> float | None:
        """Return the wait after the n-th failure, or None to give up. `chance` is in [0, 1)."""
        if not error.retryable or failures >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_asked else None
        wait = min(self.base * 2 ** (failures - 1), self.ceiling)
        return wait * (1 + self.jitter * (2 * chance - 1))


class RetryingProvider(WrapperProvider):
    """A Provider that repeats a failed request as long as no part of an answer has come through.

    After the first event a repetition would show text twice, so the error is raised instead. `on_retry` receives a
    text for the user that says why and when the request is repeated. Tests pass `sleep`, `clock` and `chance`.
    """

    def __init__(
        self,
        wrapped: Provider,
        *,
        on_retry: Callable[[str], Awaitable[None]],
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(wrapped)
        self._on_retry = on_retry
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._clock = clock
        self._chance = chance

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says. Raises the last ProviderError when it gives up."""
        started, failures = self._clock(), 0
        while True:
            silent = True
            try:
                async with ClosingStream(self.wrapped.stream(request)) as events:
                    async for event in events:
                        silent = False
                        yield event
                return
            except ProviderError as error:
                failures += 1
                wait = self._policy.wait(failures, error, self._chance()) if silent else None
                if wait is None or self._clock() - started + wait > self._policy.budget:
                    if failures == 1:
                        raise
                    told = f"{error} (tried {failures} times)"
                    raise ProviderError(
                        told, kind=error.kind, status=error.status, retry_after=error.retry_after
                    ) from error
                message = f"{error}; trying again in {wait:.1f} s ({failures + 1} of {self._policy.attempts})"
            await self._on_retry(message)
            await self._sleep(wait)


# Errors of a server, after which another model may answer. Other errors are raised: a conversation that is too long or
# refused fails at every model, and an answer in a wrong form is mostly due to a wrong base_url.
_ELSEWHERE: Final = frozenset(
    {
        ProviderErrorKind.AUTH,
        ProviderErrorKind.NOT_FOUND,
        ProviderErrorKind.RATE_LIMITED,
        ProviderErrorKind.OVERLOADED,
        ProviderErrorKind.SERVER,
        ProviderErrorKind.NETWORK,
        ProviderErrorKind.TIMEOUT,
        ProviderErrorKind.NOT_CONFIGURED,
    }
)
_STAY: Final = 300.0


class FallbackProvider:
    """A Provider made of several models, each with its own retries. A request goes to the first one that answers.

    It switches only before any part of an answer has arrived, since parts of two models' answers do not fit together. A
    fallback model stays in use for the rest of the turn and for `stay` seconds, because each change loses a prompt
    cache. The first turn after that begins with the first model again.

    on_switch   receives a text for the user that says which model did not answer and which is asked now
    stay        the seconds before the first model is asked again
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        on_switch: Callable[[str], Awaitable[None]],
        *,
        stay: float = _STAY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not providers:
            raise ValueError("no model to ask")
        self._providers = tuple(providers)
        self._on_switch = on_switch
        self._stay = stay
        self._clock = clock
        self._at = 0
        self._until = 0.0

    @property
    def name(self) -> str:
        return self._providers[self._at].name

    @property
    def model(self) -> str:
        return self._providers[self._at].model

    @property
    def context_window(self) -> int:
        """The window of the model in use."""
        return self._providers[self._at].context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream an answer, as the port says.

        Raises:
            ProviderError: No model answered. It is the first model's error, with those of the others in its message.

        """
        if self._at and self._clock() >= self._until and _begins_a_turn(request):
            self._at = 0
        errors: list[ProviderError] = []
        for place in (self._at, *(place for place in range(len(self._providers)) if place != self._at)):
            if errors:
                mute, self._at, self._until = f"{self.name}:{self.model}", place, self._clock() + self._stay
                await self._on_switch(f"{mute} did not answer ({errors[-1]}); asking {self.name}:{self.model}")
            silent = True
            try:
                async with ClosingStream(self._providers[place].stream(request)) as events:
                    async for event in events:
                        silent = False
                        yield event
                return
            except ProviderError as error:
                if not silent or error.kind not in _ELSEWHERE:
                    raise
                errors.append(error)
        self._at = 0
        first, *others = errors
        if not others:
            raise first
        told = f"{first}; nor did the fallback models answer: {'; '.join(map(str, others))}"
        raise ProviderError(told, kind=first.kind, status=first.status)


def _begins_a_turn(request: ModelRequest) -> bool:
    """Return True if the request ends with a prompt of the user, not with tool results."""
    last = request.messages[-1] if request.messages else None
    return last is None or (last.role is Role.USER and not any(isinstance(part, ToolResultPart) for part in last.parts))
