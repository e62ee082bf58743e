"""What is told in one session: every event is stored first, then shown, in the order in which it was told.

Killing the process loses nothing that the user saw. Events that come while a write is under way go with the next one,
so a fast stream costs one transaction for many pieces of text. What cannot be stored for now is shown all the same; see
`transcript_writer.py`.
"""

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
from acp_agent.core.types import ToolKind
from acp_agent.log import Log
from acp_agent.session.transcript_writer import RETRY, Care, TranscriptWriter

_log = Log(__name__)
_PACE = 0.02
"""Seconds between two writes of nothing but pieces of text. Editors draw no faster, and disks last longer.

A UsageChanged waits as long for the next event, to be written with it.
"""
_BACKLOG = 256
"""Events that may wait to be shown before `tell` waits, too."""
_READING = (ToolKind.READ, ToolKind.SEARCH, ToolKind.THINK)
"""Kinds of calls that change nothing: they need not wait for the disk."""
_ANSWER_BEGINS = 0.25
"""Seconds in which a fast model has begun to answer."""

Show = Callable[[Event], Awaitable[None]]
Background = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


class EventQueue:
    """The events of one session on their way to the store and to the editor.

    show         shows one event; waits while the editor is far behind
    background   starts a task
    """

    def __init__(self, writer: TranscriptWriter, show: Show, background: Background) -> None:
        self._writer = writer
        self._show = show
        self._background = background
        self._waiting: list[Event] = []
        self._told = self._shown = 0  # how many events there were so far
        self._wanted = 0  # up to which of them somebody waits
        self._embedding: set[str] = set()  # calls that show a terminal of the editor's
        self._draining = False
        self._moved = anyio.Event()
        self._urgent = anyio.Event()
        self._retrying = False
        self._ended = anyio.Event()

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Store and show an event. Returns once it was shown, where anything could depend on that."""
        self._waiting.append(event)
        self._told += 1
        mine = self._told - self._lag(event)
        match event:
            case UsageChanged():  # what was before it is on its way now
                self._want(self._told - 1)
            case TextDelta() | ThoughtDelta() | ToolProgress():  # hurry only where its teller would wait
                self._want(mine)
            case _:
                self._want(self._told)
        self._drain_soon()
        await self._until_shown(mine)

    async def shown(self) -> None:
        """Wait until all events so far were shown: for what must come after them and goes another way."""
        self._want(self._told)
        await self._until_shown(self._told)

    async def _until_shown(self, count: int) -> None:
        while self._shown < count:
            await self._moved.wait()

    def _want(self, count: int) -> None:
        """Have the first `count` events shown at once."""
        if count > max(self._shown, self._wanted):
            self._wanted = count
            self._urgent.set()

    def _lag(self, event: Event) -> int:
        """Return how many of the last events, this one included, may be on their way when its teller goes on.

        0 where something may follow that must not come first: a terminal is shown before it is used, and given back
        after. What changes anything is stored before it begins.
        """
        match event:
            case TextDelta() | ThoughtDelta() | UsageChanged():
                return _BACKLOG
            case ToolStarted(kind=kind):
                return _BACKLOG if kind in _READING else 0
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
        """Show and store all events. Afterwards nothing is under way.

        within     seconds to wait for the store; then events that are not stored yet are shown all the same, and stored
                   later
        patience   seconds the last write waits for other processes, even if an earlier write waited in vain
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(within) as limit:
                await self._drained()
            self._writer.hurry(on=within is not None)
            try:
                if limit.cancelled_caught:
                    await self._drained()
                await self._writer.write((), Care.TURN_END, patience=patience)
            finally:
                self._writer.hurry(on=False)
            self._retry_soon()

    async def save(self) -> None:
        """Store what the writer has noted, without delaying anything else."""
        await self._writer.write((), Care.BACKGROUND)
        self._retry_soon()

    async def end(self) -> None:
        """Store nothing any more: another process may write the session now."""
        self._ended.set()
        await self._writer.close()

    def _retry_soon(self) -> None:
        """Store as soon as possible what could not be stored, even if nothing more is told."""
        if self._writer.failing and not self._retrying and not self._ended.is_set():
            self._retrying = True
            self._background(self._retry)

    async def _retry(self) -> None:
        try:
            while self._writer.failing and not self._ended.is_set():
                with anyio.move_on_after(RETRY):
                    await self._ended.wait()
                    return
                await self._writer.write((), Care.BACKGROUND)
        finally:
            self._retrying = False

    async def _drained(self) -> None:
        while self._waiting or self._draining:
            self._want(self._told)
            self._urgent.set()  # also where all was shown, and only the pause goes on
            await self._moved.wait()

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
                self._shown += len(batch)
                self._move()
                if all(isinstance(event, TextDelta | ThoughtDelta) for event in batch):
                    await self._pause()
        finally:
            self._draining = False
            self._move()

    async def _pause(self) -> None:
        """Wait for more events, unless somebody waits for those that are not shown yet."""
        if self._wanted > self._shown:
            return
        self._urgent = anyio.Event()
        with anyio.move_on_after(_PACE):
            await self._urgent.wait()

    async def _deliver(self, batch: Sequence[Event]) -> None:
        try:
            await self._writer.write([event for event in batch if isinstance(event, TranscriptEvent)])
            for event in batch:
                if not isinstance(event, UserMessage):  # the editor has drawn it itself
                    await self._show(event)
        except Exception:  # noqa: BLE001 - a task of its own: a bug costs these updates, not the agent
            _log.error("updates lost", exc_info=True)

    def _move(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


class Transcript:
    """The record and the conversation of one session. Nothing else writes what is shown and stored.

    record       what lists say of the session
    show         shows one event
    background   starts a task
    warn         tells the user a problem
    clock        milliseconds since 1970
    """

    def __init__(
        self,
        record: SessionRecord,
        show: Show,
        background: Background,
        warn: Callable[[str], None],
        clock: Callable[[], int],
    ) -> None:
        self.record = record
        self._clock = clock
        self._background = background
        self._writer = TranscriptWriter(warn)
        self._queue = EventQueue(self._writer, show, background)

    def store_in(self, repository: SessionRepository) -> None:
        """Store the conversation in a repository from now on."""
        self._writer.store_in(repository)

    @property
    def stored(self) -> bool:
        """Whether everything is in the store, as far as this process knows."""
        return self._writer.done

    @property
    def failing(self) -> bool:
        """Whether something is not stored because the store could not be written."""
        return self._writer.failing

    def follow(self, state: Callable[[], Awaitable[Change]] | None, redact: Redact | None = None) -> None:
        """Store, whenever it has changed, what `state` gives: history, usage, model.

        redact   removes the secrets from diffs; None to go on with the last one
        """
        self._writer.follow(state, redact)

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Store and show one event."""
        if isinstance(event, UserMessage):
            self.record = replace(self.record, prompts=self.record.prompts + 1)
            self._touch(Change(prompted=True, touch=True))
        await self._queue.tell(event)

    def store(self, change: Change) -> None:
        """Store a change in the background."""
        self._writer.note(change)
        self._background(self._queue.save)

    async def save(self) -> None:
        """Store what has been noted, if the store can be written within a moment."""
        await self._queue.save()

    def save_soon(self) -> None:
        """Store a moment from now what is changing, even if nothing is told for long. An event takes it along."""

        async def save() -> None:
            await anyio.sleep(_ANSWER_BEGINS)
            await self._queue.save()

        self._background(save)

    async def shown(self) -> None:
        """Wait until all events so far were shown."""
        await self._queue.shown()

    async def flush(self, *, within: float | None = None, patience: float | None = None, touch: bool = False) -> None:
        """Show and store all events; see EventQueue.flush. `touch` counts the session as used now."""
        if touch:
            self._touch(Change(touch=True))
        await self._queue.flush(within=within, patience=patience)

    async def end(self) -> None:
        """Show and store nothing any more."""
        await self._queue.end()

    def _touch(self, change: Change) -> None:
        """Move the session to the head of the list."""
        self.record = replace(self.record, updated_at=max(self.record.updated_at, self._clock()))
        self._writer.note(change)

    # ------------------------------------------------------------------------------------- changing

    async def set_title(self, title: str) -> None:
        """Give the conversation a title, and store it."""
        self.record = replace(self.record, title=title)
        self._writer.note(Change(title=title))
        await self._queue.save()

    def move(self, cwd: str) -> None:
        """Go on in another folder. No tool call is under way."""
        self.record = replace(self.record, cwd=cwd)
        self.store(Change(cwd=cwd))

    async def redact_unfinished(self, cut: Sequence[TextDelta | ThoughtDelta], redact: Redact) -> None:
        """Remove the secrets from messages that were cut off: only their pieces have been redacted so far."""
        clean = await to_thread.run_sync(lambda: [replace(each, text=redact(each.text)) for each in cut])
        changed = tuple(new for new, old in zip(clean, cut, strict=True) if new != old)
        self._writer.note(Change(replacements=changed))
        await self._queue.save()

    async def clear(self) -> None:
        """Remove what was said, and the title, from the store; the session stays. Raises StoreUnavailable."""
        await self._queue.flush()
        if self._writer.repository is not None:
            await self._writer.repository.clear()
        self.record = replace(self.record, title="")

    # -------------------------------------------------------------------------------------- reading

    async def reload(self) -> SessionSnapshot | None:
        """Return what the store has of the session, whichever process wrote it; None where nothing is stored.

        Raises StoreUnavailable: a session that went on without it would write over it.
        """
        saved = None if self._writer.repository is None else await self._writer.repository.snapshot()
        if saved is not None:
            self.record = saved.record
        return saved

    async def events(self) -> AsyncGenerator[StoredEvent]:
        """Yield the conversation so far, including what is not stored yet. Raises StoreUnavailable at the end."""
        if self._writer.repository is None:
            return
        trouble: StoreUnavailable | None = None
        waiting = [StoredEvent(0, self._clock(), event) for event in self._writer.waiting]
        async with aclosing(self._writer.repository.events()) as stored:
            try:
                async for event in stored:
                    yield event
            except StoreUnavailable as error:
                trouble = error
        for event in waiting:
            yield event
        if trouble is not None:
            raise trouble

    async def prompts(self) -> AsyncGenerator[str]:
        """Yield the text of each prompt in the store, oldest first. Raises StoreUnavailable."""
        if self._writer.repository is not None:
            async with aclosing(self._writer.repository.events()) as stored:
                async for each in stored:
                    if isinstance(each.event, UserMessage):
                        texts = (part.text for part in each.event.parts if isinstance(part, TextPart))
                        yield "\n".join(texts)
