"""The lines of one open file that match, in bounded memory however large it is (T4.15, T4.24)."""

import os
from collections.abc import Callable, Iterable, Iterator

from anyio.from_thread import check_cancelled

from acp_agent.core.backends import GrepMatch
from acp_agent.execution.text_files import BOM, binary_error, is_binary
from acp_agent.linear_regex import LinearRegex

_BLOCK = 1024 * 1024
_LONGEST_SHOWN = 64 * 1024


def text_blocks(fd: int, longest: int, given: str) -> Iterator[bytes]:
    """A file's bytes in blocks of whole lines, CRLF as LF, without its BOM.

    A line of more than `longest` bytes ends its block although it goes on. Raises ToolError at the first NUL, OSError
    as read does. Runs in a worker thread and stops when its task is cancelled.
    """
    held, size, bom = list[bytes](), 0, BOM
    wanted = min(os.fstat(fd).st_size + 1, _BLOCK)  # little for a little file
    while chunk := os.read(fd, wanted):
        check_cancelled()
        if is_binary(chunk):
            raise binary_error(given)
        cut, size, wanted = chunk.rfind(b"\n") + 1, size + len(chunk), _BLOCK
        if cut or size > longest:
            cut = cut or len(chunk)
            yield b"".join((*held, chunk[:cut])).removeprefix(bom).replace(b"\r\n", b"\n")
            chunk, bom = chunk[cut:], b""
            held, size = [], len(chunk)
        held.append(chunk)
    if size:
        yield b"".join(held).removeprefix(bom)


def matching_lines(
    path: str, blocks: Iterable[bytes], regex: LinearRegex, context: int, check: Callable[[], None]
) -> Iterator[GrepMatch]:
    """The lines that match and `context` lines around each, in order and none twice.

    Raises what `blocks` raises, and what `check` raises, which is called again and again.
    """
    before, first = b"", 1  # what of the block before is needed; the number of the line the new block starts in
    given, after = 0, 0  # the number of the last line that was given; how many lines to give after a match
    for block in blocks:
        data, at, number = before + block, len(before), first
        check()
        while (start := _next_match(regex, data, at, check)) is not None or after:
            stop = len(data) if start is None else start
            while after and at < stop:
                if number > given:  # else it is the rest of a very long line
                    yield _line(path, number, data, at, matched=False)
                given, at, number, after = number, _end(data, at) + 1, number + 1, after - 1
            if start is None:
                break
            number += data.count(b"\n", at, start)
            yield from _lines_before(path, number, data, start, min(context, number - given - 1))
            if number > given:
                yield _line(path, number, data, start, matched=True)
            given, at, number, after = number, _end(data, start) + 1, number + 1, context
        first += block.count(b"\n")
        # One byte at least, or the next block would look like the beginning of the file.
        before = data[min(_back(data, len(data), context), len(data) - 1) :]


def _next_match(regex: LinearRegex, data: bytes, at: int, check: Callable[[], None]) -> int | None:
    """Where the next line with a match starts, at or after `at`, itself the start of a line or the end."""
    found = regex.find(data, at, check) if at < len(data) else None
    if found is None or (found == len(data) and data.endswith(b"\n")):  # an empty match behind the last line
        return None
    return data.rfind(b"\n", at, found) + 1 or at


def _lines_before(path: str, number: int, data: bytes, start: int, count: int) -> Iterator[GrepMatch]:
    at = _back(data, start, count)
    for each in range(number - data.count(b"\n", at, start), number):
        yield _line(path, each, data, at, matched=False)
        at = _end(data, at) + 1


def _back(data: bytes, at: int, count: int) -> int:
    """Where the line starts that is `count` lines before the one that starts at `at`, or the first there is."""
    for _ in range(count):
        at = data.rfind(b"\n", 0, max(at - 1, 0)) + 1
    return at


def _end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _line(path: str, number: int, data: bytes, at: int, *, matched: bool) -> GrepMatch:
    shown = data[at : min(_end(data, at), at + _LONGEST_SHOWN)]
    return GrepMatch(path, number, shown.rstrip(b"\r").decode("utf-8", "replace"), matched)
