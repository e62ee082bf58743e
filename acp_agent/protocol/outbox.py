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
    Told,
    ToolFinished,
    ToolProgress,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.types import JsonObject
from acp_agent.log import Log
from acp_agent.protocol.pen import Care, Pen

_log = Log(__name__)
_PACE = 0.02
"""Seconds between two writes of nothing but pieces of text. Editors draw no faster, and disks last longer.

How full the window is waits as long for what comes next, to be written with it.
"""
_BACKLOG = 256
"""Events that wait to be sent before whoever tells more of them waits, too."""


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
        self._embedding: set[str] = set()  # calls that show a terminal of the editor's
        self._draining = False
        self._moved = anyio.Event()
        self._urgent = anyio.Event()

    # -------------------------------------------------------------------------------------- telling

    async def tell(self, event: Event) -> None:
        """Keep and send one event. Returns once it was sent, where anybody could depend on that."""
        self._waiting.append(event)
        self._told += 1
        mine = self._told - self._lag(event)
        if self._sent < mine:  # also where there are so many pieces that it would wait itself
            self._urgent.set()
        self._drain_soon()
        while self._sent < mine:
            await self._moved.wait()

    def _lag(self, event: Event) -> int:
        """How many of the last events, this one included, may be on their way when its teller goes on.

        None where something may follow that must not come before it: a terminal is shown first, and given back last.
        """
        match event:
            case TextDelta() | ThoughtDelta():
                return _BACKLOG
            case UsageChanged():  # waits for company itself, but what was before it is out
                return 1
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

    async def flush(self, *, within: float | None = None) -> None:
        """Send and keep all there is. Afterwards nothing is under way.

        within   seconds to wait for the store; then what is not kept yet is kept back, and sent all the same
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(within) as limit:
                await self._settle()
            self.pen.hurry(on=within is not None)
            try:
                if limit.cancelled_caught:
                    await self._settle()
                await self.pen.write((), Care.AT_THE_END)
            finally:
                self.pen.hurry(on=False)

    async def save(self) -> None:
        """Keep what the pen has noted, beside whatever goes on."""
        await self.pen.write((), Care.BESIDE)

    async def _settle(self) -> None:
        while not self._idle:
            self._urgent.set()
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
                self._urgent = anyio.Event()
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
        """Let more come, unless somebody waits for what there is."""
        with anyio.move_on_after(_PACE):
            await self._urgent.wait()

    async def _deliver(self, batch: Sequence[Event]) -> None:
        try:
            await self.pen.write([event for event in batch if isinstance(event, Told)])
            for event in batch:
                if not isinstance(event, UserMessage):  # the editor has drawn it itself
                    for update in self.translate(event):
                        await self._send(update)
        except Exception:  # noqa: BLE001 - a task of its own: a bug costs these updates, not the agent
            _log.error("updates lost", exc_info=True)

    def _move(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
