"""One session's way to the editor: everything in order, and what belongs to the conversation kept first (A29, A6.3).

What the editor was told is in the store, so that killing the process loses nothing anybody saw. Events that come while
a write is under way go with the next one: a fast stream costs one transaction for many pieces of text. What cannot be
kept for now is sent all the same (protocol/pen.py).
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import anyio

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
from acp_agent.core.types import JsonObject, ToolKind
from acp_agent.log import Log
from acp_agent.protocol.pen import AGAIN, Care, Pen

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
