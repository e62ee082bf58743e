"""Lines of a file of any size, in bounded memory (T4.24).

The file is gone through once to count its lines, undecoded, and read again from the chunk that holds the first
line wanted. What it grows by meanwhile is not looked at; one that shrinks gives fewer lines.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acp_agent.core.backends import Lines
from acp_agent.core.errors import ToolError
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.roots import Place
from acp_agent.execution.text_files import BOM, is_binary, no_utf_8_error

LONGEST_LINE = 1024 * 1024
"""Bytes of a line that are kept."""
MOST_KEPT = 16 * 1024 * 1024
"""Bytes of lines after which no further line is begun, however many were asked for."""
_CHUNK = 256 * 1024  # stays in a processor's cache while it is read, searched and counted
_SIZE_UNKNOWN = 32 * 1024 * 1024  # bytes that are read of a file which claims to be empty, as those of /proc do
_CONTINUES = 0b1000_0000  # a byte of UTF-8 that is not the first of its character, under the mask 0b1100_0000


def read_lines(place: Place, offset: int, limit: int, check: Callable[[], None], *, chunk: int = _CHUNK) -> Lines:
    """See TextFiles.read_lines. Raises ToolError or Refused, and what `check` raises between chunks of `chunk` bytes.

    Gives what `text_files.stretch` gives, within the two bounds above. NUL anywhere makes a file binary, bytes
    that are no UTF-8 only where they are asked for.
    """
    fd = place.open_regular()
    try:
        with told_as(place.given):
            return _Reading(fd, os.fstat(fd).st_size, place.given, check, chunk).lines(offset, limit)
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Reading:
    """One look at an open file of `size` bytes."""

    fd: int
    size: int
    given: str
    check: Callable[[], None]
    chunk: int

    def lines(self, offset: int, limit: int) -> Lines:
        starts, ends, total = self._count()
        first = min(offset, total) if offset >= 0 else max(total + offset, 0)
        wanted = min(limit, total - first)
        kept = self._keep(self._position(first, starts, ends), wanted) if wanted > 0 else []
        try:
            return Lines(tuple(line.decode() for line in kept), first, total)
        except UnicodeDecodeError:
            raise self._unreadable(b"") from None

    def _unreadable(self, chunk: bytes) -> ToolError:
        """What to raise for a file with this chunk in it: its first bytes may say more than it does."""
        return no_utf_8_error(self.given, os.pread(self.fd, len(BOM), 0) + chunk, self.size)

    def _count(self) -> tuple[list[int], list[int], int]:
        """Where each chunk starts, how many line ends come before it, and the number of lines."""
        starts, ends, seen, last = list[int](), list[int](), 0, b"\n"
        position = len(BOM) if os.pread(self.fd, len(BOM), 0) == BOM else 0
        for chunk in self._chunks(position):
            if is_binary(chunk):
                raise self._unreadable(chunk)
            starts.append(position)
            ends.append(seen)
            position += len(chunk)
            seen += chunk.count(b"\n")
            last = chunk
        return starts, ends, seen + (not last.endswith(b"\n"))

    def _position(self, line: int, starts: list[int], ends: list[int]) -> int:
        """The byte where a line starts, of those there are."""
        if line == 0:
            return starts[0]
        number = bisect_left(ends, line) - 1  # the last chunk with fewer line ends before it
        chunk = os.pread(self.fd, self.chunk, starts[number])
        return starts[number] + len(chunk) - len(chunk.split(b"\n", line - ends[number])[-1])

    def _keep(self, position: int, wanted: int) -> list[bytes]:
        """At most `wanted` lines from a byte on."""
        kept, size, line = list[bytes](), 0, b""
        for chunk in self._chunks(position):
            *ended, rest = chunk.split(b"\n", wanted - len(kept))
            for piece in ended:
                kept.append(_cut(line + piece))
                size, line = size + len(kept[-1]), b""
                if len(kept) == wanted or size >= MOST_KEPT:
                    return kept
            if len(line) <= LONGEST_LINE:
                line += rest
        return [*kept, _cut(line)] if line else kept

    def _chunks(self, position: int) -> Iterator[bytes]:
        end = self.size or _SIZE_UNKNOWN
        while position < end and (chunk := os.pread(self.fd, min(self.chunk, end - position), position)):
            self.check()
            yield chunk
            position += len(chunk)


def _cut(line: bytes) -> bytes:
    """A line without its CR, or what of a long one is kept: whole characters."""
    line = line.removesuffix(b"\r")
    end = min(len(line), LONGEST_LINE)
    while LONGEST_LINE - 3 <= end < len(line) and line[end] & 0b1100_0000 == _CONTINUES:
        end -= 1
    return line[:end]
