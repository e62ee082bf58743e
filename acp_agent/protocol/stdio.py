"""The stream to the editor: read lines from and write messages to the file descriptors that the editor passed.

There are no threads, and O_NONBLOCK is not set, because that flag belongs to the open file, which the editor may share.
Reading and writing happen only when `epoll` or `poll` says that they will not block. A regular file and /dev/null
cannot be polled; they never block.
"""

import asyncio
import contextlib
import json
import os
import select
import stat
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel

from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import now_ms, utc
from acp_agent.protocol.jsonrpc import writable
from acp_agent.text import map_texts

LINE_LIMIT = 32 * 1024 * 1024
"""The bytes of the longest line that is read."""
_READ_SIZE = 256 * 1024
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_BACKLOG_HIGH = 1024 * 1024
_WRITE_SIZE = select.PIPE_BUF
"""The bytes that can be written to a pipe without blocking if poll() reports that it is writable."""


class Overlong:
    """A line over LINE_LIMIT, which was read to its end and discarded."""


FRAMES_LIMIT = 32 * 1024 * 1024
"""The most bytes of a frame log. A full one is renamed to FILE.1, replacing an earlier one, and a new one is begun."""
_LONGEST_TEXT = 16 * 1024
"""The most characters of one text in the frame log."""


class FrameLog:
    """A file with every message of the stream, one JSON object a line: `{"time", "direction", "frame"}`.

    The direction is `in` (from the editor) or `out`. Secrets are removed, and long texts are cut in the middle. A line
    of the editor that is not JSON is in the member `text`, not `frame`. Errors of the file are ignored.

    redact   removes secrets from a whole JSON value
    """

    def __init__(self, file: str, redact: Callable[[Json], Json]) -> None:
        """Open the file for appending, readable by its owner only. Raises OSError."""
        self._file = file
        self._redact = redact
        self._fd = self._open()

    def received(self, line: bytes | Overlong) -> None:
        """Record a line of the editor."""
        self._record("in", b"(a line over 32 MiB)" if isinstance(line, Overlong) else line)

    def sent(self, line: bytes) -> None:
        """Record a message of ours."""
        self._record("out", line)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block
        fd = os.open(self._file, flags, 0o600)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            with contextlib.suppress(OSError):  # another user's file
                os.fchmod(fd, 0o600)
        return fd

    def _record(self, direction: str, line: bytes) -> None:
        entry: JsonObject = {"time": utc(now_ms() / 1000).isoformat(timespec="milliseconds"), "direction": direction}
        try:
            entry["frame"] = map_texts(self._redact(json.loads(line)), _shortened, keys=False)
        except (ValueError, RecursionError):
            entry["text"] = self._redact(line[:_LONGEST_TEXT].decode("utf-8", "replace"))
        data = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size + len(data) > FRAMES_LIMIT:
                self._begin_anew()
            os.write(self._fd, data)

    def _begin_anew(self) -> None:
        """Rename the full file, unless another agent that writes to it has done so, and open a new one."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._file), os.fstat(self._fd)):
                os.replace(self._file, f"{self._file}.1")
        full, self._fd = self._fd, self._open()
        os.close(full)


def _shortened(text: str) -> str:
    """Return a text, without its middle if it is long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}… {len(text) - 2 * half} characters left out …{text[-half:]}"


class LineReader:
    """A reader of the lines of a file descriptor, without their newline. The last line may end without one."""

    def __init__(self, fd: int, unread: bytes = b"", frames: FrameLog | None = None) -> None:
        self._fd = fd
        self._frames = frames
        self._buffer = bytearray(unread)
        self._skipping = False
        self._pollable = True

    async def lines(self) -> AsyncIterator[bytes | Overlong]:
        """Yield every line until the end of the stream."""
        chunk = bytes(self._buffer)
        self._buffer.clear()
        while chunk or (chunk := await self._read()):
            *ends, rest = chunk.split(b"\n")
            chunk = b""  # a line may be megabytes long, so no reference to it is held while it is handled
            for end in ends:
                yield self._finish(end)
            self._keep(rest)
        if self._skipping or self._buffer:
            yield self._finish(b"")

    def is_closed(self) -> bool:
        """Return whether the other end was closed, even if there is more to read. A file is never closed."""
        poll = select.poll()
        poll.register(self._fd, getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(0))

    def _finish(self, end: bytes) -> bytes | Overlong:
        self._keep(end)
        line = Overlong() if self._skipping else bytes(self._buffer)
        self._skipping = False
        self._buffer.clear()
        if self._frames is not None and line:
            self._frames.received(line)
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
        except OSError:  # EIO: the terminal was closed
            return b""


class MessageWriter:
    """A writer of messages to a file descriptor, whole and in the order in which they were posted."""

    def __init__(self, fd: int, frames: FrameLog | None = None) -> None:
        self._fd = fd
        self._frames = frames
        self._waiting = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._changed = asyncio.Event()
        self.broken = False

    def post(self, message: JsonObject, *, at_once: bool = True) -> None:
        """Queue a message, and write as much as the pipe takes. Drop it if the editor has stopped reading.

        at_once   False leaves the writing to `run`, which joins many small messages
        """
        if self.broken:
            return
        text = _JSON.encode(message)
        if r"\ud" in text:  # perhaps half of a surrogate pair, for which a reader may refuse the whole line
            text = _JSON.encode(writable(message))
        data = text.encode("ascii") + b"\n"
        if self._frames is not None:
            self._frames.sent(data)
        idle = not self._waiting
        self._waiting += data
        if at_once:
            self._write_ready()
        if (self._waiting and (at_once or idle)) or self.broken:
            self._announce()

    @property
    def unread(self) -> int:
        """The number of bytes that the editor has not read."""
        return len(self._waiting)

    async def room(self, backlog: int = _BACKLOG_HIGH) -> None:
        """Wait while the editor has more than `backlog` unread bytes."""
        while len(self._waiting) > backlog and not self.broken:
            await self._changed.wait()

    async def flush(self) -> None:
        """Wait until `run` has written everything, or the editor has stopped reading."""
        while self._waiting and not self.broken:
            await self._changed.wait()

    async def run(self) -> None:
        """Write the bytes that `post` could not write. Return when the editor has stopped reading."""
        while not self.broken:
            if not self._waiting:
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
        self._changed = asyncio.Event()

    def _write_ready(self) -> None:
        while self._waiting and self._poll.poll(0):
            try:
                written = os.write(self._fd, self._waiting[:_WRITE_SIZE])
            except OSError:  # EPIPE, EIO
                self.broken = True
                self._waiting.clear()
                return
            del self._waiting[:written]
