"""What is told and kept of one session: its record, and its conversation."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio
from anyio import to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import (
    Event,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import TextPart
from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import Change, SessionRecord, SessionRepository, SessionSnapshot, StoredEvent
from acp_agent.core.types import JsonObject, ToolKind
from acp_agent.log import Log
from acp_agent.protocol.replay import replayed
from acp_agent.protocol.updates import Updates
from acp_agent.session.transcript_writer import AGAIN, Care, Pen

_log = Log(__name__)
_PACE = 0.02
"""Seconds between two writes of nothing but pieces of text. Editors draw no faster, and disks last longer.

How full the window is waits as long for what comes next, to be written with it.
"""
_BACKLOG = 256
"""Events that wait to be sent before whoever tells more of them waits, too."""
_LOOKING = (ToolKind.READ, ToolKind.SEARCH, ToolKind.THINK)
"""Calls that leave nothing behind which nobody was told of: they need not wait for the disk."""

Send = Callable[[JsonObject], Awaitable[None]]


class Outbox:
    """Keeps and sends what a session tells.

    translate    an event as updates
    send         sends one update; waits while the editor is far behind
    background   runs a task
    warn         told what becomes of the keeping
    """

    def __init__(
        self,
        translate: Callable[[Event], Sequence[JsonObject]],
        send: Send,
        background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
        warn: Callable[[str], None],
    ) -> None:
        self.pen = Pen(warn)
        self.translate = translate
        self._send = send
        self._background = background
        self._waiting: list[Event] = []
        self._told = self._sent = 0  # how many events there were so far
        self._wanted = 0  # up to which of them somebody waits
        self._embedding: set[str] = set()  # calls that show a terminal of the editor's
        self._draining = False
        self._moved = anyio.Event()
        self._urgent = anyio.Event()
        self._retrying = False
        self._ended = anyio.Event()

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Keep and send one event. Returns once it was sent, where anybody could depend on that."""
        self._waiting.append(event)
        self._told += 1
        mine = self._told - self._lag(event)
        match event:
            case UsageChanged():  # what was before it is on its way now
                self._want(self._told - 1)
            case TextDelta() | ThoughtDelta() | ToolProgress():  # so many of them that it would wait itself
                self._want(mine)
            case _:
                self._want(self._told)
        self._drain_soon()
        await self._reach(mine)

    async def shown(self) -> None:
        """Wait until all that was told so far was sent: for what must come after it, and goes another way."""
        self._want(self._told)
        await self._reach(self._told)

    async def _reach(self, count: int) -> None:
        while self._sent < count:
            await self._moved.wait()

    def _want(self, count: int) -> None:
        """So many events shall be sent at once."""
        if count > max(self._sent, self._wanted):
            self._wanted = count
            self._urgent.set()

    def _lag(self, event: Event) -> int:
        """How many of the last events, this one included, may be on their way when its teller goes on.

        None where something may follow that must not come before it: a terminal is shown first, and given back last.
        What changes anything is on record before it begins.
        """
        match event:
            case TextDelta() | ThoughtDelta() | UsageChanged():
                return _BACKLOG
            case ToolStarted(kind=kind):
                return _BACKLOG if kind in _LOOKING else 0
            case ToolProgress(call_id, terminal_id):
                if terminal_id:
                    self._embedding.add(call_id)
                return 0 if terminal_id else _BACKLOG
            case ToolFinished(call_id):
                embeds = call_id in self._embedding
                self._embedding.discard(call_id)
                return 0 if embeds else _BACKLOG
            case _:
                return 0

    async def flush(self, *, within: float | None = None, patience: float | None = None) -> None:
        """Send and keep all there is. Afterwards nothing is under way.

        within     seconds to wait for the store; then what is not kept yet is kept back, and sent all the same
        patience   seconds the last write waits for other processes, also if that was in vain before
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(within) as limit:
                await self._settle()
            self.pen.hurry(on=within is not None)
            try:
                if limit.cancelled_caught:
                    await self._settle()
                await self.pen.write((), Care.AT_THE_END, patience=patience)
            finally:
                self.pen.hurry(on=False)
            self._retry_soon()

    async def save(self) -> None:
        """Keep what the pen has noted, beside whatever goes on."""
        await self.pen.write((), Care.BESIDE)
        self._retry_soon()

    async def end(self) -> None:
        """What is not kept by now never will be: others may write it afterwards."""
        self._ended.set()
        await self.pen.put_down()

    def _retry_soon(self) -> None:
        """What could not be kept is kept as soon as it can be, also when nothing more is told."""
        if self.pen.failing and not self._retrying and not self._ended.is_set():
            self._retrying = True
            self._background(self._retry)

    async def _retry(self) -> None:
        try:
            while self.pen.failing and not self._ended.is_set():
                with anyio.move_on_after(AGAIN):
                    await self._ended.wait()
                    return
                await self.pen.write((), Care.BESIDE)
        finally:
            self._retrying = False

    async def _settle(self) -> None:
        while not self._idle:
            self._want(self._told)
            self._urgent.set()  # also where all was sent, and only the pace goes on
            await self._moved.wait()

    @property
    def _idle(self) -> bool:
        return not self._waiting and not self._draining

    # ------------------------------------------------------------------------------------- draining

    def _drain_soon(self) -> None:
        if not self._draining:
            self._draining = True
            self._background(self._drain)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                if all(isinstance(event, UsageChanged) for event in self._waiting):
                    await self._pause()
                batch, self._waiting = self._waiting, []
                await self._deliver(batch)
                self._sent += len(batch)
                self._move()
                if all(isinstance(event, TextDelta | ThoughtDelta) for event in batch):
                    await self._pause()
        finally:
            self._draining = False
            self._move()

    async def _pause(self) -> None:
        """Let more come, unless somebody waits for what there is. Who waited for what is out by now does not count."""
        if self._wanted > self._sent:
            return
        self._urgent = anyio.Event()
        with anyio.move_on_after(_PACE):
            await self._urgent.wait()

    async def _deliver(self, batch: Sequence[Event]) -> None:
        try:
            await self.pen.write([event for event in batch if isinstance(event, TranscriptEvent)])
            for event in batch:
                if not isinstance(event, UserMessage):  # the editor has drawn it itself
                    for update in self.translate(event):
                        await self._send(update)
        except Exception:  # noqa: BLE001 - a task of its own: a bug costs these updates, not the agent
            _log.error("updates lost", exc_info=True)

    def _move(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


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
