"""What writes a session down, one write after another; none holds up a turn for long (A12.15; security.md 2.9).

Where the store cannot be written, what was told is kept back and written with what comes next. The user hears of it
once it has lasted, and when it is over.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.sessions import Change, HistoryState, SessionRepository
from acp_agent.core.types import Diff
from acp_agent.log import Log

_MOMENT = 32 * 1024
"""Characters that nobody has to wait for."""


async def as_kept(event: TranscriptEvent, redact: Redact) -> TranscriptEvent:
    """An event without the secrets of its diffs, which are whole files: long ones are looked through in a thread."""
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
    return work() if length <= _MOMENT else await to_thread.run_sync(work, abandon_on_cancel=True)


_log = Log(__name__)
_PATIENCE = 0.5
"""Seconds a write under way waits for other processes; at the end of a turn the database's own patience holds."""
AGAIN = 0.5
"""Seconds after which a store that has failed is tried again."""
_AT_ONCE = 256
"""Events in one write, of those that were kept back."""
_LASTING = 5.0
"""Seconds after which a store that cannot be written is worth a word."""
_MOST_KEPT_BACK = 64 * 1024 * 1024
"""Characters that are kept back for a store that cannot be written, or so; then it is given up."""


class Care(Enum):
    """How a write is made that no event waits for. What it writes survives a power cut."""

    AT_THE_END = auto()  # of a turn: other processes are waited for
    BESIDE = auto()  # what goes on: nobody shall have to wait for it


@dataclass(slots=True)
class _Pieces:
    """Of one message; in the first so many of `texts` a secret was looked for."""

    first: TextDelta | ThoughtDelta
    texts: list[str] = field(default_factory=list)
    looked_through: int = 0


class Pen:
    """Writes one session down.

    warn   told once when the conversation is not being kept, and when it is again
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.repository: SessionRepository | None = None
        """What is kept of the session; None where nothing is."""
        self.state: Callable[[], Awaitable[Change]] | None = None
        """What else there is to be kept now, besides what is told: history, tally, model."""
        self.redact: Redact = verbatim
        """Takes secrets out of what is shown with them, but kept without."""
        self._warn = warn
        self._change = Change()
        self._kept_back: list[TranscriptEvent] = []
        self._weight = 0
        self._messages: dict[tuple[type, str], _Pieces] = {}  # that are being told: thoughts may come between
        self._telling: tuple[type, str] | None = None  # the one of them that was told last
        self._written = Change()  # what `state` gave when it was last written
        self._one_at_a_time = anyio.Lock(fast_acquire=True)
        self._writing: anyio.CancelScope | None = None
        self._failing_since: float | None = None
        self._told_failure = False
        self._next_try = 0.0  # until then a store that has failed is left alone
        self._hurried = False

    def take(self, repository: SessionRepository) -> None:
        """What is kept is kept by this one from now on, which knows nothing of what was written before."""
        self.repository, self._written = repository, Change()

    @property
    def done(self) -> bool:
        """Whether all that was to be kept is: nothing waits, and the last attempt went well."""
        if self.repository is None or self._writing is not None or self._failing_since is not None:
            return False
        return not self._kept_back and self._change == Change()

    def note(self, change: Change) -> None:
        """Keep something with the next write."""
        self._change = _merged(self._change, change)

    def hurry(self, *, on: bool = True) -> None:
        """From now on nobody waits for the store: a write under way is broken off, and made again later."""
        self._hurried = on
        if on and self._writing is not None:
            self._writing.cancel()

    async def put_down(self) -> None:
        """Write nothing any more. Waits for the write under way."""
        async with self._one_at_a_time:
            self.repository = None

    @property
    def waiting(self) -> Sequence[TranscriptEvent]:
        """What was told and is not kept yet."""
        return tuple(self._kept_back)

    @property
    def failing(self) -> bool:
        """Whether something waits because the store could not be written."""
        return self.repository is not None and self._failing_since is not None

    async def write(
        self, told: Sequence[TranscriptEvent], care: Care | None = None, *, patience: float | None = None
    ) -> None:
        """Write what was told and what has changed. Raises nothing but cancellation.

        What is kept back goes in pieces: to make rows of it takes time, and all sessions share the loop.

        patience   seconds to wait for other processes, also if that was in vain before; inf: as long as the database
                   does; None: as the care says
        """
        async with self._one_at_a_time:
            if self.repository is None:
                return
            for event in told:
                await self._follow(event)
                self._kept_back.append(await as_kept(event, self.redact))
                self._weight += _weight(event)
            if care is Care.AT_THE_END:
                await self._look_through()
            if care is None and anyio.current_time() < self._next_try:
                return
            going_on = True
            while going_on:
                piece = self._kept_back[:_AT_ONCE]
                whole = len(piece) == len(self._kept_back)
                going_on = await self._write_piece(piece, care, patience, whole=whole) and not whole

    async def _follow(self, event: TranscriptEvent) -> None:
        """Gather the pieces of a message, and look it through when something else is told."""
        piece = event if isinstance(event, TextDelta | ThoughtDelta) else None
        name = None if piece is None else (type(piece), piece.message_id)
        if name != self._telling:
            await self._look_through()
        self._telling = name
        if piece is None or name is None:
            self._messages.clear()
        else:
            self._messages.setdefault(name, _Pieces(piece)).texts.append(piece.text)

    async def _look_through(self) -> None:
        """Look at all there is of messages: a secret may stand in one that came in several pieces (S9.6).

        More of it may follow: then all of it is looked at once more, for what is written takes the place of all pieces.
        """
        for message in self._messages.values():
            if len(message.texts) > message.looked_through:
                message.looked_through = len(message.texts)
                text = "".join(message.texts)
                clean = self.redact(text) if len(text) <= _MOMENT else await to_thread.run_sync(self.redact, text)
                if clean != text:
                    self.note(Change(replacements=(replace(message.first, text=clean),)))

    async def _write_piece(
        self, told: Sequence[TranscriptEvent], care: Care | None, patience: float | None, *, whole: bool
    ) -> bool:
        """Write the oldest of what is kept back, with the last of it all else; whether it was."""
        state = await self._news() if whole else Change()
        pending = self._change if whole else Change()
        change = _merged(_merged(pending, state), Change(events=told))
        if change == Change() or self.repository is None:
            return True
        if whole:
            self._change = Change()
        writing = self._writing = anyio.CancelScope()
        try:
            with writing:
                await self.repository.write(
                    change, durable=_is_durable(told, care), patience=self._patience(care, patience)
                )
        except StoreUnavailable as error:
            self._change = _merged(pending, self._change)
            self._note_failure(error, lasting=care is Care.AT_THE_END and not self._hurried)
            return False
        finally:
            self._writing = None
        if writing.cancelled_caught:
            self._change = _merged(pending, self._change)
            return False
        del self._kept_back[: len(told)]
        self._weight -= sum(map(_weight, told))
        self._written = _merged(self._written, state)
        self._note_success()
        return True

    def _patience(self, care: Care | None, asked: float | None) -> float | None:
        """Seconds to wait for other processes; None for as long as the database does. Who has failed waits no more."""
        if asked is not None:
            return None if asked == inf else asked
        if self._hurried or self._failing_since is not None:
            return 0.0
        return None if care is Care.AT_THE_END else _PATIENCE

    async def _news(self) -> Change:
        """What has changed of what `state` gives since it was last written."""
        if self.state is None:
            return Change()
        now, before = await self.state(), self._written
        return Change(
            history=None if _same(now.history, before.history) else now.history,
            usage=None if now.usage == before.usage else now.usage,
            model=None if now.model == before.model else now.model,
        )

    def _note_failure(self, error: StoreUnavailable, *, lasting: bool) -> None:
        now = anyio.current_time()
        self._next_try = now + AGAIN
        if self._failing_since is None:
            _log.warning("conversation not kept for now", reason=str(error))
            self._failing_since = now
        if not self._told_failure and (lasting or now - self._failing_since > _LASTING):
            self._told_failure = True
            self._warn(f"this conversation is not being kept for now: {error}")
        if self._weight > _MOST_KEPT_BACK:
            self.repository = None
            self._kept_back.clear()
            self._weight = 0
            self._warn("this conversation is not kept any more: the database could not be written for too long")

    def _note_success(self) -> None:
        if self._told_failure:
            self._warn("this conversation is being kept again, and nothing of it was lost")
        self._failing_since, self._told_failure, self._next_try = None, False, 0.0


def _weight(event: TranscriptEvent) -> int:
    """About how many characters of memory an event takes."""
    return 500 + sum(_lengths(event))


def _lengths(event: TranscriptEvent) -> Iterator[int]:
    match event:
        case TextDelta(text) | ThoughtDelta(text):
            yield len(text)
        case ToolStarted(diffs=diffs):
            yield from (len(diff.old_text or "") + len(diff.new_text) for diff in diffs)
        case ToolFinished(result=result):
            yield len(result.text) + len(result.shown)
            yield from (len(diff.old_text or "") + len(diff.new_text) for diff in result.diffs)
            yield from (len(image.data) for image in result.images)
        case _:
            pass


def _is_durable(told: Sequence[TranscriptEvent], care: Care | None) -> bool:
    return care is not None or any(isinstance(each, UserMessage | ToolFinished | PlanChanged) for each in told)


def _same(one: HistoryState | None, two: HistoryState | None) -> bool:
    """Whether nothing has changed; never looks into messages: a conversation may be long."""
    if one is None or two is None:
        return one is two
    return one.messages is two.messages and (one.knowledge, one.tokens) == (two.knowledge, two.tokens)


def _merged(one: Change, two: Change) -> Change:
    """Both as one change, the second after the first."""
    return Change(
        events=(*one.events, *two.events),
        history=two.history or one.history,
        conduct=two.conduct or one.conduct,
        usage=two.usage or one.usage,
        title=one.title if two.title is None else two.title,
        model=two.model or one.model,
        prompted=one.prompted or two.prompted,
        touch=one.touch or two.touch,
        cwd=two.cwd or one.cwd,
        additional=one.additional if two.additional is None else two.additional,
        replacements=(*one.replacements, *two.replacements),
    )
