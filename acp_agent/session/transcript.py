"""The transcript of one session: every event is stored first and then shown, in the order of the events.

Killing the process loses nothing that the user saw. Events that arrive during a write are stored by the next one, where
the pieces of a message become one: a fast stream costs one transaction and one update for many pieces. If the store
cannot be written, events are shown anyway and stored later. See `transcript_writer.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

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
from acp_agent.core.secrets import Redact
from acp_agent.core.sessions import Change, SessionRecord, SessionRepository, SessionSnapshot, StoredEvent
from acp_agent.core.types import ToolKind
from acp_agent.log import Log
from acp_agent.session.transcript_writer import RETRY, Care, TranscriptWriter

if TYPE_CHECKING:
    from acp_agent.core.ports import Background

_log = Log(__name__)
_PACE = 0.02
"""Seconds between two writes that contain only pieces of text. Editors draw no faster, and disks last longer.

A UsageChanged event waits as long for the next event, so that one write stores both.
"""
_BACKLOG = 256
"""The number of events that may wait to be shown. With more, `tell` waits as well."""
_SELDOM = 1.0
"""Seconds between two writes of the state while calls only show their progress, which itself is not stored."""
_READING = (ToolKind.READ, ToolKind.SEARCH)
"""Kinds of calls that change nothing. They need not wait for the disk."""
ANSWER_BEGINS = 0.25
"""Seconds after which a fast model has begun to answer."""

Show = Callable[[Event], Awaitable[None]]


class EventQueue:
    """The events of one session on their way to the store and to the editor.

    show         shows one event; waits while the editor is far behind
    background   starts a task
    """

    def __init__(self, writer: TranscriptWriter, show: Show, background: "Background") -> None:
        self._writer = writer
        self._show = show
        self._background = background
        self._waiting: list[Event] = []
        self._told = self._shown = 0  # numbers of events so far
        self._wanted = 0  # the number of events that a caller waits for
        self._draining = False
        self._written = 0.0  # the time of the last write
        self._moved = asyncio.Event()
        self._urgent = asyncio.Event()
        self._retrying = False
        self._ended = asyncio.Event()

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Store and show an event. If a later step may depend on the event, return only after it was shown.

        After `end` nothing is stored or shown, even if a turn still runs.
        """
        if self._ended.is_set():
            return
        self._waiting.append(event)
        self._told += 1
        # `lag` is how many events may still be unshown on return. The first `wanted` events are shown without a pause.
        lag, wanted = 0, self._told
        match event:
            case TextDelta() | ThoughtDelta():
                lag = _BACKLOG
                wanted -= lag  # end the pause only if this caller has to wait
            case UserMessage():  # nothing depends on it before the first request to the model
                lag = _BACKLOG
            case UsageChanged():
                lag = _BACKLOG
                wanted -= 1  # this event may wait for the next one; the events before it are shown at once
            case ToolStarted(kind=kind):  # a call that changes something is stored before it begins
                lag = _BACKLOG if kind in _READING else 0
            case ToolProgress(terminal_id=terminal_id) if terminal_id:  # a terminal is shown before it is used
                pass
            case ToolProgress():
                lag = _BACKLOG
                wanted -= lag
            case ToolFinished():  # its terminal is released after this update in any case, so no caller needs to wait
                lag = _BACKLOG
            case _:
                pass
        mine = self._told - lag
        self._want(wanted)
        if not self._draining:
            self._draining = True
            self._background(self._drain)
        while self._shown < mine:
            await self._moved.wait()

    @property
    def is_behind(self) -> bool:
        """Whether events wait to be shown."""
        return self._shown < self._told

    async def shown(self) -> None:
        """Wait until all events so far were shown. Call it before sending a message that must follow them."""
        count = self._told
        self._want(count)
        while self._shown < count:
            await self._moved.wait()

    def _want(self, count: int) -> None:
        """Request that the first `count` events are shown at once."""
        if count > max(self._shown, self._wanted):
            self._wanted = count
            self._urgent.set()

    async def flush(self, *, within: float | None = None, patience: float | None = None) -> None:
        """Show and store all events, then store the state. No event is pending afterwards.

        within     seconds to wait for the store. After that, the remaining events are shown first and stored later
        patience   seconds that the last write waits for other processes, also after a write that failed
        """
        with anyio.CancelScope(shield=True):
            if within is not None:
                with anyio.move_on_after(within):
                    await self._drained()
            self._writer.hurry(on=within is not None)
            try:
                await self._drained()
                await self._writer.write((), Care.TURN_END, patience=patience)
            finally:
                self._writer.hurry(on=False)
            self._retry_soon()

    async def save(self) -> None:
        """Store the changes that the writer has noted, without delaying anything else."""
        await self._writer.write((), Care.BACKGROUND)
        self._retry_soon()

    async def end(self) -> None:
        """Stop storing and showing, because the session is closed. Another process may write it now."""
        self._ended.set()
        await self._writer.close()

    def _retry_soon(self) -> None:
        """Retry a failed write as soon as possible, even without further events."""
        if self._writer.failing and not self._retrying:
            self._retrying = True
            self._background(self._retry)

    async def _retry(self) -> None:
        try:
            while self._writer.failing:  # a writer that `end` has closed does not count as failing
                with anyio.move_on_after(RETRY):
                    await self._ended.wait()
                await self._writer.write((), Care.BACKGROUND)
        finally:
            self._retrying = False

    async def _drained(self) -> None:
        while self._draining:
            self._want(self._told)
            self._urgent.set()  # also ends the pause after the last event
            await self._moved.wait()

    # ------------------------------------------------------------------------------------- draining

    async def _drain(self) -> None:
        try:
            while self._waiting:
                if set(map(type, self._waiting)) == {UsageChanged}:
                    await self._pause()
                batch, self._waiting = self._waiting, []
                events = tuple(joined(batch, self._writer.redact))
                try:
                    await self._write(events)
                    for event in events:
                        if not isinstance(event, UserMessage):  # the editor has drawn it itself
                            await self._show(event)
                except Exception:  # noqa: BLE001 - a task of its own: a bug costs these updates, not the agent
                    _log.error("updates lost", exc_info=True)
                self._shown += len(batch)
                self._move()
                if {TextDelta, ThoughtDelta}.issuperset(map(type, batch)):
                    await self._pause()
        finally:
            self._draining = False
            self._move()

    async def _write(self, events: Sequence[Event]) -> None:
        """Store events and the state. While events only show progress, store the state once in `_SELDOM` seconds."""
        now = anyio.current_time()
        if now - self._written < _SELDOM and set(map(type, events)) == {ToolProgress}:
            return
        self._written = now
        await self._writer.write([event for event in events if isinstance(event, TranscriptEvent)])

    async def _pause(self) -> None:
        """Wait for more events, unless a caller waits for an event that is not shown yet."""
        if self._wanted > self._shown:
            return
        self._urgent = asyncio.Event()
        with anyio.move_on_after(_PACE):
            await self._urgent.wait()

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def joined(events: Sequence[Event], redact: Redact) -> Iterator[Event]:
    """Yield the events, adjacent pieces of one message as one piece.

    redact   removes a secret whose parts came in several pieces
    """
    for message, run in groupby(events, _message):
        if message is None:
            yield from run
        else:
            pieces = [event for event in run if isinstance(event, TextDelta | ThoughtDelta)]
            text = "".join(piece.text for piece in pieces)
            yield pieces[0] if len(pieces) == 1 else replace(pieces[0], text=redact(text))


def _message(event: Event) -> tuple[type, str] | None:
    """Return which message an event is a piece of; None if it is no piece."""
    return (type(event), event.message_id) if isinstance(event, TextDelta | ThoughtDelta) else None


class Transcript(EventQueue):
    """The record and the events of one session. No other object stores or shows its events.

    record       the session's entry in lists of sessions
    show         shows one event
    background   starts a task
    warn         tells the user a problem
    clock        milliseconds since 1970
    """

    def __init__(
        self,
        record: SessionRecord,
        show: Show,
        background: "Background",
        warn: Callable[[str], None],
        clock: Callable[[], int],
    ) -> None:
        super().__init__(TranscriptWriter(warn), show, background)
        self.record = record
        self._clock = clock
        self._flushes = 0

    def store_in(self, repository: SessionRepository) -> None:
        """Store the conversation in a repository from now on."""
        self._writer.store_in(repository)

    @property
    def stored(self) -> bool:
        """Whether this process has stored everything."""
        return self._writer.done

    @property
    def failing(self) -> bool:
        """Whether something is not stored because a write failed."""
        return self._writer.failing

    def follow(self, state: Callable[[], Awaitable[Change]] | None, redact: Redact | None = None) -> None:
        """Store the result of `state` (history, usage, model) whenever it has changed.

        redact   removes secrets from stored diffs and from messages that came in pieces; None to keep the last function
        """
        self._writer.follow(state, redact)

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Store and show one event."""
        if isinstance(event, UserMessage):
            self._touch(Change(prompted=1, touch=True))
        await super().tell(event)

    def store(self, change: Change) -> None:
        """Store a change in the background."""
        self._writer.note(change)
        self._background(self.save)

    def save_soon(self) -> None:
        """Store pending changes after a short pause, even without further events, unless a flush stores them before."""
        flushes = self._flushes

        def save() -> None:
            if self._flushes == flushes:
                self._background(self.save)

        asyncio.get_running_loop().call_later(ANSWER_BEGINS, save)

    async def flush(self, *, within: float | None = None, patience: float | None = None, touch: bool = False) -> None:
        """Show and store all events. See EventQueue.flush. `touch` marks the session as used now."""
        if touch:
            self._touch(Change(touch=True))
        self._flushes += 1
        await super().flush(within=within, patience=patience)

    def _touch(self, change: Change) -> None:
        """Move the session to the head of the list."""
        record, now = self.record, self._clock()
        prompts = record.prompts + change.prompted
        self.record = replace(record, prompts=prompts, updated_at=max(record.updated_at, now))
        self._writer.note(change)

    # ------------------------------------------------------------------------------------- changing

    def rename(self, title: str) -> None:
        """Set the title of the conversation. The next write stores it."""
        if title != self.record.title:
            self.record = replace(self.record, title=title)
            self._writer.note(Change(title=title))

    async def set_title(self, title: str) -> None:
        """Set and store the title of the conversation."""
        self.rename(title)
        await self.save()

    def move(self, cwd: str) -> None:
        """Change the folder of the session. No tool call may be running."""
        self.record = replace(self.record, cwd=cwd)
        self.store(Change(cwd=cwd))

    async def redact_unfinished(self, cut: Sequence[TextDelta | ThoughtDelta], redact: Redact) -> None:
        """Remove the secrets from unfinished messages, because only their pieces were redacted before."""
        with anyio.CancelScope(shield=True):  # only the first prompt after a load does this
            clean = await to_thread.run_sync(lambda: [replace(each, text=redact(each.text)) for each in cut])
            changed = tuple(new for new, old in zip(clean, cut, strict=True) if new != old)
            self._writer.note(Change(replacements=changed))
        await self.save()

    async def clear(self) -> None:
        """Remove the conversation and the title from the store. The session stays. Raises StoreUnavailable."""
        await self.flush()
        if self._writer.repository is not None:
            await self._writer.repository.clear()
        self.record = replace(self.record, title="")

    # -------------------------------------------------------------------------------------- reading

    async def reload(self) -> SessionSnapshot | None:
        """Return the stored session, which another process may have written; None if nothing is stored.

        Raises StoreUnavailable, because a session that continued without the stored part would overwrite it.
        """
        saved = None if self._writer.repository is None else await self._writer.repository.snapshot()
        if saved is not None:
            self.record = saved.record
        return saved

    async def events(self) -> AsyncGenerator[StoredEvent]:
        """Yield the events so far, including those that are not stored yet. Raises StoreUnavailable at the end."""
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
