"""Keeping a command's output in bounded memory, whatever its length (T2.2, T2.4, security.md 3)."""

import codecs
from collections import deque
from enum import Enum

_BLOCK = 64 * 1024
_APART = 64 * 1024
_SPARE = 64
"""One part in so many stays free: what stands for unprintable characters and secrets can be longer than they are."""
_LONGEST_WORD = 8 * 1024
_SPACES = (b"\n", b" ", b"\t")
_CONTINUES = range(0x80, 0xC0)  # bytes that cannot begin a UTF-8 character


class Stream(Enum):
    """Where output came from."""

    STDOUT = 1
    STDERR = 2


class HeadTail:
    """The first and the last half of `limit` bytes of a text; what was between them is only counted.

    The tail is kept in blocks, so that neither a byte at a time nor a gigabyte at once costs more than the limit.
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head = bytearray()
        self._blocks: deque[bytes | bytearray] = deque()
        self._tail_size = 0
        self._dropped = 0

    @property
    def truncated(self) -> bool:
        """Whether anything was left out."""
        return self._dropped > 0 or self._tail_size > self._tail_limit

    def add(self, text: bytes) -> None:
        """Append whole characters of UTF-8."""
        if not self._blocks and len(self._head) < self._head_limit:
            cut = _boundary(text, self._head_limit - len(self._head))
            self._head += text[:cut]
            text = text[cut:]
        if text:
            self._grow_tail(text)

    def text(self) -> str:
        """What was kept, with a line in between that tells how much was not.

        Beside that line stand whole words, for half of a secret is one that nobody recognises.
        """
        head, tail = bytes(self._head), b"".join(self._blocks)
        dropped = self._dropped
        if len(tail) > self._tail_limit:
            start = len(tail) - self._tail_limit
            start += next((n for n, byte in enumerate(tail[start : start + 4]) if byte not in _CONTINUES), 0)
            dropped += start
            tail = tail[start:]
        if not dropped:
            return (head + tail).decode()
        kept, start = _last_gap(head), _first_gap(tail)
        dropped += len(head) - kept + start
        return f"{head[:kept].decode()}\n[... {dropped} bytes left out ...]\n{tail[start:].decode()}"

    def _grow_tail(self, text: bytes) -> None:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, bytearray) and len(last) + len(text) <= _BLOCK:
            last += text
        else:
            self._blocks.append(bytearray(text) if len(text) < _BLOCK else text)
        self._tail_size += len(text)
        while len(self._blocks) > 1 and self._tail_size - len(self._blocks[0]) >= self._tail_limit:
            gone = len(self._blocks.popleft())
            self._tail_size -= gone
            self._dropped += gone


class Transcript:
    """What a command wrote: both streams as they came, well within `limit` bytes, and the ends of each apart.

    The whole is for the model and for keeping; apart they are for machines, who are shown a few KiB anyway.
    """

    def __init__(self, limit: int) -> None:
        self._both = HeadTail(limit - limit // _SPARE)
        self._apart = {stream: HeadTail(min(limit, _APART)) for stream in Stream}
        self._decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in Stream}

    @property
    def truncated(self) -> bool:
        """Whether anything was left out of the two together."""
        return self._both.truncated

    def add(self, stream: Stream, data: bytes, *, final: bool = False) -> bytes:
        """Take in what was read; returns it as whole characters of valid UTF-8.

        An incomplete character waits for its rest, or for `final`.
        """
        text = self._decoders[stream].decode(data, final).encode()
        if text:
            self._both.add(text)
            self._apart[stream].add(text)
        return text

    def texts(self) -> tuple[str, str, str]:
        """Both streams as they came, stdout, stderr."""
        return self._both.text(), self._apart[Stream.STDOUT].text(), self._apart[Stream.STDERR].text()


def _last_gap(head: bytes) -> int:
    """Behind the last white space, or the end where the last word is too long to be one."""
    found = max(head.rfind(space, -_LONGEST_WORD) for space in _SPACES)
    return found + 1 or len(head)


def _first_gap(tail: bytes) -> int:
    """At the first white space, likewise."""
    return min((at for space in _SPACES if (at := tail.find(space, 0, _LONGEST_WORD)) >= 0), default=0)


def _boundary(text: bytes, room: int) -> int:
    """How many bytes of `text` fit into `room` without cutting a character in two."""
    if len(text) <= room:
        return len(text)
    cut = room
    while cut > 0 and text[cut] in _CONTINUES:
        cut -= 1
    return cut
