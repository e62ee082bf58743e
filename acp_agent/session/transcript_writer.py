"""The writer of one session: it makes one write after another and never delays a turn for long.

If the store cannot be written, events are held back and written with the next ones. After some seconds of failure the
user is told, and again when writing works.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf

import anyio
from anyio import to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import (
    PlanChanged,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UserMessage,
)
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.sessions import Change, HistoryState, SessionRepository
from acp_agent.core.types import Diff
from acp_agent.log import Log

_log = Log(__name__)
_PATIENCE = 0.5
"""Seconds that a write waits for other processes. At the end of a turn, the database's own limit applies."""
RETRY = 0.5
"""Seconds after a failed write before the next attempt."""
_BATCH = 256
"""The most held-back events in one write."""
_LASTING = 5.0
"""Seconds of failure after which the user is told that the store cannot be written."""
_MOST_HELD_BACK = 64 * 1024 * 1024
"""Approximate characters of events that are held back at most. With more, writing is given up for the session."""
_NOTHING = Change()
_SHORT = 32 * 1024
"""Characters that are redacted on the event loop; longer texts are redacted in a thread."""


class Care(Enum):
    """Why `write` is called without an event. What it stores then survives a power cut."""

    TURN_END = auto()  # it waits for other processes
    BACKGROUND = auto()  # it must not delay anything


@dataclass(slots=True)
class _Pieces:
    """The pieces of one message. The first `looked_through` pieces have been redacted as one text."""

    first: TextDelta | ThoughtDelta
    texts: list[str] = field(default_factory=list)
    looked_through: int = 0


class TranscriptWriter:
    """The writer of one session.

    repository   the store of the session; None if it is not stored
    warn         shows the user a problem
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.repository: SessionRepository | None = None
        self._state: Callable[[], Awaitable[Change]] | None = None
        self._redact: Redact = verbatim
        self._warn = warn
        self._change = _NOTHING
        self._held_back: list[TranscriptEvent] = []
        self._weight = 0
        self._messages: dict[type, _Pieces] = {}  # the last answer and the last thought; both may be unfinished
        self._telling: type | None = None  # the type of the last event
        self._has_news = False  # whether pieces were added since the messages were redacted
        self._written = Change()  # the result of `state` at the last write
        self._lock = anyio.Lock(fast_acquire=True)
        self._writing: anyio.CancelScope | None = None
        self._failing_since: float | None = None
        self._told_failure = False
        self._next_try = 0.0  # no attempt before this time after a failure
        self._hurried = False

    def store_in(self, repository: SessionRepository) -> None:
        """Write to another repository from now on. It contains nothing of the earlier writes."""
        self.repository, self._written = repository, Change()

    def follow(self, state: Callable[[], Awaitable[Change]] | None, redact: Redact | None = None) -> None:
        """Write the result of `state` whenever it has changed. None ends that.

        redact   removes secrets from texts before they are stored; None to keep the last function
        """
        self._state = state
        self._redact = redact or self._redact

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redact(text)

    @property
    def done(self) -> bool:
        """Whether everything is written: no event waits, and the last attempt succeeded."""
        if self.repository is None or self._writing is not None or self._failing_since is not None:
            return False
        return not self._held_back and self._change == _NOTHING

    @property
    def waiting(self) -> Sequence[TranscriptEvent]:
        """The events that are not written yet."""
        return tuple(self._held_back)

    @property
    def failing(self) -> bool:
        """Whether events wait because a write failed."""
        return self.repository is not None and self._failing_since is not None

    def note(self, change: Change) -> None:
        """Add a change to the next write."""
        self._change = _merged(self._change, change)

    def hurry(self, *, on: bool = True) -> None:
        """Stop all waiting for the store. A running write is cancelled and repeated later."""
        self._hurried = on
        if on and self._writing is not None:
            self._writing.cancel()

    async def close(self) -> None:
        """Stop writing, after the running write has ended."""
        async with self._lock:
            self.repository = None

    async def write(
        self, told: Sequence[TranscriptEvent], care: Care | None = None, *, patience: float | None = None
    ) -> None:
        """Write events and the changed state. Raises only cancellation.

        Events that were held back are written in batches, because making rows takes time and all sessions share the
        event loop.

        patience   seconds to wait for other processes, even if an earlier write waited without success. inf waits as
                   long as the database does. None decides by `care`
        """
        async with self._lock:
            if self.repository is None:
                return
            for event in told:
                await self._collect(event)
                may_have_diffs = isinstance(event, ToolStarted | ToolFinished)
                stored = await redacted_event(event, self._redact) if may_have_diffs else event
                self._held_back.append(stored)
                self._weight += _weight(stored)
            if care is Care.TURN_END:
                await self._redact_messages()
            if care is None and anyio.current_time() < self._next_try:
                return
            going_on = True
            while going_on:
                batch = self._held_back[:_BATCH]
                last = len(batch) == len(self._held_back)
                going_on = await self._write_batch(batch, care, patience, last=last) and not last

    async def _collect(self, event: TranscriptEvent) -> None:
        """Collect the pieces of a message, and redact the whole message when another event follows.

        More pieces may follow that event: a thought may interrupt an answer, and so may a call of a sub-agent.
        """
        kind = type(event)
        if kind is not self._telling and self._has_news:
            await self._redact_messages()
        self._telling = kind
        if not isinstance(event, TextDelta | ThoughtDelta):
            return
        message = self._messages.get(kind)
        if message is None or message.first.message_id != event.message_id:
            await self._redact_messages()
            message = self._messages[kind] = _Pieces(event)
        message.texts.append(event.text)
        self._has_news = True

    async def _redact_messages(self) -> None:
        """Redact whole messages, because a secret may be spread over several pieces.

        If more pieces follow, the message is redacted again. The written message replaces all its pieces.
        """
        for message in self._messages.values():
            if len(message.texts) == message.looked_through:
                continue
            message.looked_through, text = len(message.texts), "".join(message.texts)
            short = len(text) <= _SHORT
            clean = self._redact(text) if short else await to_thread.run_sync(self._redact, text)
            if clean != text:
                self.note(Change(replacements=(replace(message.first, text=clean),)))
        self._has_news = False

    async def _write_batch(
        self, told: Sequence[TranscriptEvent], care: Care | None, patience: float | None, *, last: bool
    ) -> bool:
        """Write events that were held back. The last batch includes the changed state. Return False on failure."""
        state = await self._state_change() if last else _NOTHING
        pending = self._change if last else _NOTHING
        change = _merged(_merged(pending, state), Change(events=tuple(told)) if told else _NOTHING)
        if change == _NOTHING or self.repository is None:
            return True
        if last:
            self._change = _NOTHING
        written, writing = False, anyio.CancelScope()
        self._writing = writing
        try:
            with writing:
                durable = change.touch or _is_durable(told, care)  # a turn begins or ends
                await self.repository.write(change, durable=durable, patience=self._patience(care, patience))
            written = not writing.cancelled_caught
        except StoreUnavailable as error:
            self._note_failure(error, lasting=care is Care.TURN_END and not self._hurried)
        finally:
            self._writing = None
            if not written:  # also if the caller was cancelled
                self._change = _merged(pending, self._change)
        if not written:
            return False
        del self._held_back[: len(told)]
        self._weight -= sum(map(_weight, told))
        self._written = _merged(self._written, state)
        if self._told_failure:
            self._warn("this conversation is stored again, and nothing of it was lost")
        self._failing_since, self._told_failure, self._next_try = None, False, 0.0
        return True

    def _patience(self, care: Care | None, asked: float | None) -> float | None:
        """Return the seconds to wait for other processes; None for as long as the database does. 0 after a failure."""
        if asked is not None:
            return None if asked == inf else asked
        if self._hurried or self._failing_since is not None:
            return 0.0
        return None if care is Care.TURN_END else _PATIENCE

    async def _state_change(self) -> Change:
        """Return the parts of the state that have changed since the last write."""
        if self._state is None:
            return _NOTHING
        now, before = await self._state(), self._written
        history = None if _same(now.history, before.history) else now.history
        usage = None if now.usage == before.usage else now.usage
        model = None if now.model == before.model else now.model
        seen = None if now.seen is before.seen else now.seen
        if history is None and usage is None and model is None and seen is None:
            return _NOTHING
        return Change(history=history, usage=usage, model=model, seen=seen)

    def _note_failure(self, error: StoreUnavailable, *, lasting: bool) -> None:
        now = anyio.current_time()
        self._next_try = now + RETRY
        if self._failing_since is None:
            _log.warning("conversation not stored for now", reason=str(error))
            self._failing_since = now
        if not self._told_failure and (lasting or now - self._failing_since > _LASTING):
            self._told_failure = True
            self._warn(f"this conversation is not stored for now: {error}")
        if self._weight > _MOST_HELD_BACK:
            self.repository = None
            self._held_back.clear()
            self._weight = 0
            self._warn("this conversation is no longer stored: the database could not be written for too long")


def _weight(event: TranscriptEvent) -> int:
    """Return roughly how many characters of memory an event takes."""
    weight, diffs = 500, ()
    match event:
        case TextDelta(text) | ThoughtDelta(text):
            weight += len(text)
        case ToolStarted(diffs=diffs):
            pass
        case ToolFinished(result=result):
            diffs = result.diffs
            weight += len(result.text) + len(result.shown)
            for image in result.images:
                weight += len(image.data)
        case _:
            pass
    for diff in diffs:
        weight += len(diff.old_text or "") + len(diff.new_text)
    return weight


def _is_durable(told: Sequence[TranscriptEvent], care: Care | None) -> bool:
    return care is not None or any(isinstance(each, UserMessage | ToolFinished | PlanChanged) for each in told)


def _same(one: HistoryState | None, two: HistoryState | None) -> bool:
    """Return whether two states are equal. Messages are compared by identity, because a conversation may be long."""
    if one is None or two is None:
        return one is two
    return one.messages is two.messages and (one.knowledge, one.tokens) == (two.knowledge, two.tokens)


def _merged(one: Change, two: Change) -> Change:
    """Return two changes as one, in this order."""
    if one is _NOTHING or two is _NOTHING:
        return two if one is _NOTHING else one
    return Change(
        events=(*one.events, *two.events),
        history=two.history or one.history,
        options=two.options or one.options,
        usage=two.usage or one.usage,
        title=one.title if two.title is None else two.title,
        model=two.model or one.model,
        prompted=one.prompted + two.prompted,
        touch=one.touch or two.touch,
        cwd=two.cwd or one.cwd,
        additional=one.additional if two.additional is None else two.additional,
        replacements=(*one.replacements, *two.replacements),
        seen=one.seen if two.seen is None else two.seen,
    )


async def redacted_event(event: TranscriptEvent, redact: Redact) -> TranscriptEvent:
    """Return an event without the secrets in its diffs, which are whole files.

    The editor shows diffs unchanged, because the user judges the new content of their own file. The store is a record
    and needs no secrets.
    """
    match event:
        case ToolStarted(diffs=diffs) if diffs:
            return replace(event, diffs=await _redacted(diffs, redact))
        case ToolFinished(result=result) if result.diffs:
            return replace(event, result=replace(result, diffs=await _redacted(result.diffs, redact)))
        case _:
            return event


async def _redacted(diffs: Sequence[Diff], redact: Redact) -> tuple[Diff, ...]:
    def work() -> tuple[Diff, ...]:
        return tuple(
            Diff(redact(diff.path), None if diff.old_text is None else redact(diff.old_text), redact(diff.new_text))
            for diff in diffs
        )

    length = sum(len(diff.old_text or "") + len(diff.new_text) for diff in diffs)
    return work() if length <= _SHORT else await to_thread.run_sync(work, abandon_on_cancel=True)
