"""Server-sent events from bytes, however the network cut them.

Lines end at CR, LF or CRLF and nowhere else: `str.splitlines` and httpx's `aiter_lines` also cut at U+2028,
which is legal inside JSON (dependencies.md, condition 1). Lines are split as bytes and decoded whole, so a
character split over two chunks survives. Source: WHATWG HTML, "Server-sent events".
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Final

EVENT_LIMIT: Final = 32 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name ("message" unless the server named it) and its data lines, joined by LF."""

    name: str
    data: str


class EventTooLarge(ValueError):
    """One event is larger than `EVENT_LIMIT` bytes: the stream is not a model's answer."""


class EventSplitter:
    """Bytes in, events out. The same bytes give the same events under every chunking."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []  # the unfinished line, in pieces
        self._size = 0  # bytes held for the event under way
        self._after_cr = False  # a LF right now belongs to the CR that ended the last chunk
        self._first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterable[ServerEvent]:
        """The events this chunk completes. Raises EventTooLarge."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if chunk.endswith(b"\r"):
            self._after_cr = True
        *ends, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            self._grow(len(end))
            line = b"".join((*self._pending, end)) if self._pending else end
            self._pending.clear()
            event = self._line(line)
            if event is not None:
                yield event
        if rest:
            self._pending.append(rest)
            self._grow(len(rest))

    def _line(self, line: bytes) -> ServerEvent | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None  # comments, id, retry and unknown fields mean nothing here

    def _dispatch(self) -> ServerEvent | None:
        name, data = self._name or "message", self._data
        self._name, self._data, self._size = "", [], 0
        return ServerEvent(name, "\n".join(data)) if data else None

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > EVENT_LIMIT:
            message = f"an event of more than {EVENT_LIMIT} bytes"
            raise EventTooLarge(message)


async def server_events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[ServerEvent]:
    """The events of a byte stream. An event the end of the stream cut off is dropped, as the standard says.

    Raises EventTooLarge, and whatever `chunks` raises.
    """
    splitter = EventSplitter()
    async for chunk in chunks:
        for event in splitter.feed(chunk):
            yield event
