"""One session's way to the editor: everything in order, and what belongs to the conversation kept first (A29, A6.3).

What the editor was told is in the store, so that killing the process loses nothing anybody saw. Events that come while
a write is under way go with the next one: a fast stream costs one transaction for many pieces of text.

The store never holds up a turn for long. Where it cannot be written, events are sent all the same and kept back, to be
written with what comes next; the user hears of it once it has lasted, and when it is over.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any

import anyio

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import (
    Event,
    PlanChanged,
    TextDelta,
    ThoughtDelta,
    Told,
    ToolFinished,
    ToolProgress,
    UserMessage,
)
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.sessions import Change, HistoryState, Keeper
from acp_agent.core.types import JsonObject
from acp_agent.log import Log
from acp_agent.protocol.kept_events import as_kept

_log = Log(__name__)
_PACE = 0.02
"""Seconds between two writes of nothing but pieces of text. Editors draw no faster, and disks last longer."""
_PATIENCE = 0.5
"""Seconds a write under way waits for other processes; at the end of a turn the database's own patience holds."""
_LASTING = 5.0
"""Seconds after which a store that cannot be written is worth a word."""
_BACKLOG = 256
"""Events that wait to be sent before whoever tells more of them waits, too."""
_MOST_KEPT_BACK = 50_000
"""Events that are kept back for a store that cannot be written; then it is given up."""


class _Care(Enum):
    """How a write is made that nobody's event waits for."""

    AT_THE_END = auto()  # of a turn: what was written survives a power cut
    IN_A_HURRY = auto()  # the same, but nobody is waited for


Send = Callable[[JsonObject], Awaitable[None]]


class Outbox:
    """Keeps and sends what a session tells.

    translate    an event as updates
    send         sends one update; waits while the editor is far behind
    background   runs a task
    warn         told once when the conversation is not being kept, and when it is again
    """

    def __init__(
        self,
        translate: Callable[[Event], Sequence[JsonObject]],
        send: Send,
        background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
        warn: Callable[[str], None],
    ) -> None:
        self.keeper: Keeper | None = None
        """What is kept of the session; None where nothing is."""
        self.state: Callable[[], Change] | None = None
        """What else there is to be kept now, besides what is told: history, tally, model."""
        self.redact: Redact = verbatim
        """Takes secrets out of what is shown with them, but kept without: diffs."""
        self.translate = translate
        self._send = send
        self._background = background
        self._warn = warn
        self._waiting: list[Event] = []
        self._told = self._sent = 0  # how many events there were so far
        self._change = Change()
        self._kept_back: list[Told] = []
        self._written = Change()  # what `state` gave when it was last written
        self._draining = False
        self._pen = anyio.Lock()
        self._moved = anyio.Event()
        self._urgent = anyio.Event()
        self._writing: anyio.CancelScope | None = None
        self._failing_since: float | None = None
        self._told_failure = False

    def keep_with(self, keeper: Keeper) -> None:
        """What is kept is kept by this one from now on, which knows nothing of what was written before."""
        self.keeper, self._written = keeper, Change()

    @property
    def kept(self) -> bool:
        """Whether all that was to be kept is: nothing waits, and the last attempt went well."""
        if self.keeper is None or self._writing is not None or self._failing_since is not None:
            return False
        return not self._kept_back and self._change == Change()

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Keep and send one event. Returns once it was sent; pieces of text and output only wait their turn."""
        self._waiting.append(event)
        self._told += 1
        mine = self._told
        if _is_piece(event):
            mine -= _BACKLOG
        if self._sent < mine:  # also where there are so many pieces that it would wait itself
            self._urgent.set()
        self._drain_soon()
        while self._sent < mine:
            await self._moved.wait()

    def keep(self, change: Change) -> None:
        """Keep something nobody needs to be told, with the next events or at the next `flush`."""
        self._change = _merged(self._change, change)

    async def flush(self, *, within: float | None = None) -> None:
        """Send and keep all there is. Afterwards nothing is under way.

        within   seconds to wait for the store; then what is not kept yet is kept back, and sent all the same
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(within) as limit:
                await self._settle()
            if limit.cancelled_caught:
                if self._writing is not None:
                    self._writing.cancel()
                await self._settle()
            await self._write((), _Care.AT_THE_END if within is None else _Care.IN_A_HURRY)

    async def _settle(self) -> None:
        self._urgent.set()
        while not self._idle:
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
                self._urgent = anyio.Event()
                batch, self._waiting = self._waiting, []
                await self._deliver(batch)
                self._sent += len(batch)
                self._move()
                if all(isinstance(event, TextDelta | ThoughtDelta) for event in batch):
                    with anyio.move_on_after(_PACE):
                        await self._urgent.wait()
        finally:
            self._draining = False
            self._move()

    async def _deliver(self, batch: Sequence[Event]) -> None:
        try:
            await self._write([await as_kept(event, self.redact) for event in batch if isinstance(event, Told)])
            for event in batch:
                if not isinstance(event, UserMessage):  # the editor has drawn it itself
                    for update in self.translate(event):
                        await self._send(update)
        except Exception:  # noqa: BLE001 - a task of its own: a bug costs these updates, not the agent
            _log.error("updates lost", exc_info=True)

    def _move(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    # -------------------------------------------------------------------------------------- keeping

    async def _write(self, told: Sequence[Told], care: _Care | None = None) -> None:
        """Write what was told and what has changed, one write after another. Raises nothing but cancellation."""
        async with self._pen:
            state = self._news()
            change = _merged(_merged(self._change, state), Change(told=(*self._kept_back, *told)))
            if self.keeper is None or change == Change():
                return
            pending, self._change = self._change, Change()
            writing = self._writing = anyio.CancelScope()
            try:
                with writing:
                    await self.keeper.write(change, durable=_is_durable(told, care), patience=self._patience(care))
            except StoreUnavailable as error:
                self._hold_back(pending, told)
                self._note_failure(error, lasting=care is _Care.AT_THE_END)
                return
            finally:
                self._writing = None
            if writing.cancelled_caught:
                self._hold_back(pending, told)
                return
            self._kept_back.clear()
            self._written = _merged(self._written, state)
            self._note_success()

    def _patience(self, care: _Care | None) -> float | None:
        """Seconds to wait for other processes; None for as long as the database does. Who has failed waits no more."""
        if care is _Care.IN_A_HURRY or self._failing_since is not None:
            return 0.0
        return None if care is _Care.AT_THE_END else _PATIENCE

    def _news(self) -> Change:
        """What has changed of what `state` gives since it was last written."""
        if self.state is None:
            return Change()
        now, before = self.state(), self._written
        return Change(
            history=None if _same(now.history, before.history) else now.history,
            tally=None if now.tally == before.tally else now.tally,
            model=None if now.model == before.model else now.model,
        )

    def _hold_back(self, pending: Change, told: Sequence[Told]) -> None:
        self._change = _merged(pending, self._change)
        self._kept_back += told

    def _note_failure(self, error: StoreUnavailable, *, lasting: bool) -> None:
        now = anyio.current_time()
        if self._failing_since is None:
            _log.warning("conversation not kept for now", reason=str(error))
            self._failing_since = now
        if not self._told_failure and (lasting or now - self._failing_since > _LASTING):
            self._told_failure = True
            self._warn(f"this conversation is not being kept for now: {error}")
        if len(self._kept_back) > _MOST_KEPT_BACK:
            self.keeper = None
            self._kept_back.clear()
            self._warn("this conversation is not kept any more: the database could not be written for too long")

    def _note_success(self) -> None:
        if self._told_failure:
            self._warn("this conversation is being kept again, and nothing of it was lost")
        self._failing_since, self._told_failure = None, False


def _is_piece(event: Event) -> bool:
    """Whether more of the same will follow, and nobody depends on it having arrived."""
    return isinstance(event, TextDelta | ThoughtDelta) or (isinstance(event, ToolProgress) and not event.terminal_id)


def _is_durable(told: Sequence[Told], care: _Care | None) -> bool:
    return care is not None or any(isinstance(each, UserMessage | ToolFinished | PlanChanged) for each in told)


def _same(one: HistoryState | None, two: HistoryState | None) -> bool:
    """Whether nothing has changed; never looks into messages: a conversation may be long."""
    if one is None or two is None:
        return one is two
    return one.messages is two.messages and (one.knowledge, one.tokens) == (two.knowledge, two.tokens)


def _merged(one: Change, two: Change) -> Change:
    """Both as one change, the second after the first."""
    return Change(
        told=(*one.told, *two.told),
        history=two.history or one.history,
        conduct=two.conduct or one.conduct,
        tally=two.tally or one.tally,
        title=one.title if two.title is None else two.title,
        model=two.model or one.model,
        prompted=one.prompted or two.prompted,
        touch=one.touch or two.touch,
        cwd=two.cwd or one.cwd,
        additional=one.additional if two.additional is None else two.additional,
    )
