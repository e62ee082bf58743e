"""The stream to the editor: lines in, messages out, on whatever fd the editor gave us.

No threads and no O_NONBLOCK (the flag belongs to the open file, which the editor may share): reading and
writing happen only when `epoll` or `poll` says they will not block. What cannot be polled - a regular file,
/dev/null - never blocks, and is read straight away.
"""

import json
import os
import select
from collections import deque
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel

from acp_agent.core.types import JsonObject

LINE_LIMIT = 32 * 1024 * 1024
_READ_SIZE = 256 * 1024
_BACKLOG_HIGH = 1024 * 1024
# poll() promises room for this much on a pipe, and no more
_WRITE_SIZE = select.PIPE_BUF


class Overlong:
    """Stands in for a line over LINE_LIMIT, which was read to its end and thrown away."""


class LineReader:
    """Lines of an fd, without their newline; the last one may lack it."""

    def __init__(self, fd: int, unread: bytes = b"") -> None:
        self._fd = fd
        self._buffer = bytearray(unread)
        self._skipping = False
        self._pollable = True

    async def lines(self) -> AsyncIterator[bytes | Overlong]:
        """Every line until the end of the stream."""
        chunk = bytes(self._buffer)
        self._buffer.clear()
        while chunk or (chunk := await self._read()):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield self._finish(end)
            self._keep(rest)
            chunk = b""
        if self._skipping or self._buffer:
            yield self._finish(b"")

    def _finish(self, end: bytes) -> bytes | Overlong:
        self._keep(end)
        line = Overlong() if self._skipping else bytes(self._buffer)
        self._skipping = False
        self._buffer.clear()
        return line

    def _keep(self, piece: bytes) -> None:
        if len(self._buffer) + len(piece) > LINE_LIMIT:
            self._skipping = True
            self._buffer.clear()
        if not self._skipping:
            self._buffer += piece

    async def _read(self) -> bytes:
        if self._pollable:
            try:
                await anyio.wait_readable(self._fd)
            except OSError:  # a regular file or /dev/null
                self._pollable = False
        if not self._pollable:
            await anyio.lowlevel.checkpoint()
        try:
            return os.read(self._fd, _READ_SIZE)
        except OSError:  # EIO: the terminal behind us is gone
            return b""


class MessageWriter:
    """Messages to an fd, whole and in the order they were posted."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: deque[memoryview] = deque()
        self._queued = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._changed = anyio.Event()
        self.broken = False

    def post(self, message: JsonObject) -> None:
        """Queue a message; what the pipe has room for goes out at once. Dropped when nobody reads."""
        if self.broken:
            return
        data = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        self._queue.append(memoryview(data))
        self._queued += len(data)
        self._write_ready()
        if self._queue or self.broken:
            self._announce()

    async def room(self, backlog: int = _BACKLOG_HIGH) -> None:
        """Wait while the editor is more than `backlog` bytes behind in reading."""
        while self._queued > backlog and not self.broken:
            await self._changed.wait()

    async def flush(self) -> None:
        """Wait until everything posted is written, or nobody reads any more. `run` does the writing."""
        while self._queue and not self.broken:
            await self._changed.wait()

    async def run(self) -> None:
        """Write what did not fit at once. Ends when nobody reads any more."""
        while not self.broken:
            if not self._queue:
                await self._changed.wait()
                continue
            try:
                await anyio.wait_writable(self._fd)
            except OSError:  # cannot be polled, so it never blocks
                await anyio.lowlevel.checkpoint()
            self._write_ready()
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _write_ready(self) -> None:
        while self._queue and self._poll.poll(0):
            data = self._queue[0]
            try:
                written = os.write(self._fd, data[:_WRITE_SIZE])
            except OSError:  # EPIPE, EIO
                self.broken = True
                self._queue.clear()
                return
            self._queued -= written
            if written == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = data[written:]
