"""A Peer with a test on the other end of real pipes."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from acp_agent.protocol.peer import NotificationHandler, Peer, RequestHandler
from acp_agent.protocol.stdio import LineReader, MessageWriter


class OtherEnd:
    """The client's side: sends frames, receives frames."""

    def __init__(self, read: int, write: int) -> None:
        self._lines = LineReader(read).lines()
        self._read = read
        self._write = write
        self.ended = False

    def send(self, **message: Any) -> None:
        self.send_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        os.write(self._write, data)

    async def receive(self) -> Any:
        with anyio.fail_after(20):
            line = await anext(self._lines)
        assert isinstance(line, bytes)
        return json.loads(line)

    async def begins(self) -> None:
        """Wait until there is something to receive."""
        with anyio.fail_after(20):
            await anyio.wait_readable(self._read)

    async def rest(self) -> list[Any]:
        """Every frame until the agent closes; only after the agent is done."""
        with anyio.fail_after(20):
            return [json.loads(line) async for line in self._lines if isinstance(line, bytes)]

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            os.close(self._write)


def at_once(session_id: str) -> None:
    """Let a request go without waiting for updates of its session."""


@asynccontextmanager
async def connected(
    requests: Mapping[str, RequestHandler] | None = None,
    notifications: Mapping[str, NotificationHandler] | None = None,
    before_request: Callable[[str], Awaitable[None] | None] = at_once,
    one_by_one: Collection[str] = (),
) -> AsyncIterator[tuple[Peer, OtherEnd]]:
    """A serving Peer and its other end; leaving ends the stream and waits for the peer to end."""
    to_agent, from_agent = os.pipe(), os.pipe()
    peer = Peer(LineReader(to_agent[0]), MessageWriter(from_agent[1]), before_request)
    other = OtherEnd(from_agent[0], to_agent[1])
    try:
        async with anyio.create_task_group() as tasks:
            ours = requests or {}, notifications or {}
            tasks.start_soon(peer.serve, *ours, lambda _method: None, lambda: None, one_by_one)
            await anyio.lowlevel.checkpoint()
            yield peer, other
            other.end()
    finally:
        other.end()
        for fd in (to_agent[0], from_agent[0], from_agent[1]):
            os.close(fd)
