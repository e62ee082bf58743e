"""What is told and kept of one session: its record, and its conversation."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio
from anyio import to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import Event, TextDelta, ThoughtDelta, UserMessage
from acp_agent.core.messages import TextPart
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import Change, SessionRecord, SessionRepository, SessionSnapshot, StoredEvent
from acp_agent.core.types import JsonObject
from acp_agent.protocol.outbox import Outbox, Send
from acp_agent.protocol.replay import replayed
from acp_agent.protocol.updates import Updates

_MOMENT = 0.25
"""Seconds in which a fast model has begun to answer."""


class Story:
    """A session as it goes on, and as it can be taken up again.

    record       what lists say of it
    updates      makes a translator of events; each begins without any open card
    send         sends one update
    background   runs a task
    warn         told what the user should hear of
    clock        milliseconds since 1970
    """

    def __init__(
        self,
        record: SessionRecord,
        updates: Callable[[], Updates],
        send: Send,
        background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
        warn: Callable[[str], None],
        clock: Callable[[], int],
    ) -> None:
        self.record = record
        self._clock = clock
        self._updates = updates
        self._background = background
        self._outbox = Outbox(updates().translate, send, background, warn)

    def keep_with(self, repository: SessionRepository) -> None:
        """From now on all that belongs to the conversation is kept."""
        self._outbox.pen.take(repository)

    @property
    def kept(self) -> bool:
        """Whether all there is to keep is in the store, as far as anybody knows."""
        return self._outbox.pen.done

    @property
    def failing(self) -> bool:
        """Whether something is not kept because the store could not be written."""
        return self._outbox.pen.failing

    def follow(self, state: Callable[[], Awaitable[Change]] | None, redact: Redact | None = None) -> None:
        """Keep this, too, whenever it has changed: history, tally, model; `redact` takes the secrets out of diffs."""
        self._outbox.pen.state = state
        self._outbox.pen.redact = redact or self._outbox.pen.redact

    async def tell(self, event: Event) -> None:
        """Keep and send one event."""
        if isinstance(event, UserMessage):
            self.record = replace(self.record, prompts=self.record.prompts + 1)
            self._touch(Change(prompted=True, touch=True))
        await self._outbox.tell(event)

    def keep(self, change: Change) -> None:
        """Keep something nobody waits for."""
        self._outbox.pen.note(change)
        self._background(self._outbox.save)

    async def save(self) -> None:
        """Write what is to be kept now, beside whatever goes on, if that can be done within a moment."""
        await self._outbox.save()

    def keep_soon(self) -> None:
        """Keep what changes just now, though nothing may be told for long; what is told takes it along for nothing."""

        async def keep() -> None:
            await anyio.sleep(_MOMENT)
            await self._outbox.save()

        self._background(keep)

    async def shown(self) -> None:
        """Wait until all that was told so far was sent."""
        await self._outbox.shown()

    async def settle(self, *, within: float | None = None, patience: float | None = None, touch: bool = False) -> None:
        """Send and keep all there is; see Outbox.flush."""
        if touch:
            self._touch(Change(touch=True))
        await self._outbox.flush(within=within, patience=patience)

    async def end(self) -> None:
        """Nothing more is told or kept."""
        await self._outbox.end()

    async def look_through(self, cut: Sequence[TextDelta | ThoughtDelta], redact: Redact) -> None:
        """Take the secrets out of messages that were cut off: nobody has looked at more than pieces of them (S9.6)."""
        clean = await to_thread.run_sync(lambda: [replace(each, text=redact(each.text)) for each in cut])
        self._outbox.pen.note(
            Change(replacements=tuple(new for new, old in zip(clean, cut, strict=True) if new != old))
        )
        await self._outbox.save()

    def _touch(self, change: Change) -> None:
        """It is used just now, and moves to the head of the list."""
        self.record = replace(self.record, updated_at=max(self.record.updated_at, self._clock()))
        self._outbox.pen.note(change)

    async def name(self, title: str) -> None:
        """Give the conversation a title, and keep it."""
        self.record = replace(self.record, title=title)
        self._outbox.pen.note(Change(title=title))
        await self._outbox.save()

    def move(self, cwd: str) -> None:
        """It goes on in another folder. No card is open."""
        self.record = replace(self.record, cwd=cwd)
        self._outbox.translate = self._updates().translate
        self.keep(Change(cwd=cwd))

    async def before(self) -> SessionSnapshot | None:
        """What there is to go on with, whoever has written it; None where nothing is kept.

        Raises StoreUnavailable: who went on without it would write over it.
        """
        saved = None if self._outbox.pen.repository is None else await self._outbox.pen.repository.snapshot()
        if saved is not None:
            self.record = saved.record
        return saved

    async def told(self) -> AsyncGenerator[JsonObject]:
        """The conversation so far, as updates, also what waits to be kept (A6.3). Raises StoreUnavailable."""
        pen = self._outbox.pen
        if pen.repository is not None:
            every = _and_then(pen.repository.events(), [StoredEvent(0, self._clock(), event) for event in pen.waiting])
            async with aclosing(replayed(every, self._updates())) as past:
                async for update in past:
                    yield update

    async def prompts(self) -> AsyncGenerator[str]:
        """What the user has sent so far as text, as it is kept, oldest first. Raises StoreUnavailable."""
        if self._outbox.pen.repository is not None:
            async with aclosing(self._outbox.pen.repository.events()) as past:
                async for told in past:
                    if isinstance(told.event, UserMessage):
                        texts = (part.text for part in told.event.parts if isinstance(part, TextPart))
                        yield "\n".join(texts)

    async def forget(self) -> None:
        """Remove what was said, and the title, from the store; the session stays (A17.3). Raises StoreUnavailable."""
        await self._outbox.flush()
        if self._outbox.pen.repository is not None:
            await self._outbox.pen.repository.clear()
        self.record = replace(self.record, title="")


async def _and_then(kept: AsyncGenerator[StoredEvent], waiting: Sequence[StoredEvent]) -> AsyncGenerator[StoredEvent]:
    """Yield what is kept, as far as it can be read, and what is not kept yet. Raises StoreUnavailable at the end."""
    trouble: StoreUnavailable | None = None
    async with aclosing(kept):
        try:
            async for told in kept:
                yield told
        except StoreUnavailable as error:
            trouble = error
    for told in waiting:
        yield told
    if trouble is not None:
        raise trouble
