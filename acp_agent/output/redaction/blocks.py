"""Secrets of many lines: PEM, OpenSSH and PGP private keys, PuTTY's, and Ansible vaults, also with an end cut off.

A block begins at its header and goes on while lines look like its body. It is taken out as one, header and footer
included; a header or footer without a body beside it (in code, in prose) is no secret. Lines may have a number or a
file before them, as our own `read` and `grep` write them, `cat -n`, `grep -n` and `diff` too.
"""

import re
from typing import NamedTuple

_FOOTER = re.compile(rb"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_HEADER = re.compile(
    rb"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|\$ANSIBLE_VAULT;[0-9.]+;|Private-Lines: [0-9]"
)
_RUN = re.compile(rb"[A-Za-z0-9+/=]{40,}")
_PIECE = re.compile(rb"[A-Za-z0-9+/=_-]{12,}")
_ATTRIBUTE = re.compile(rb"\W*(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash|X-[\w-]+): .*|\W*")
_ONE_WORD = re.compile(rb"\s*\S{1,200}\s*")
_LAST = re.compile(rb"\W*(?=[A-Za-z+/=]*[0-9])[A-Za-z0-9+/]{12,}={0,2}\W*|\W*[A-Za-z0-9+/]+=={0,1}\W*")
_PREFIX = re.compile(  # no base64 has a colon or a tab in it, nor a minus
    rb"[ \t]*+\d{1,7}(?:\t|[:|][ \t]?)|(?![ \t]*-{4})[^\n\t]{0,300}?[^\n\t:][:-]\d{1,7}[:-][ ]?|[-+>|](?!---)[ ]?"
)
_DIGIT = re.compile(rb"[0-9]")
_LONGEST_MARGIN = 300
_FILLERS = 8  # lines of attributes before the body
_SHORT = 200  # bytes of a last line at most
_WORDS = 3  # short lines in a row that may belong to a body
_ASIDE = 40  # bytes beside the base64 on a line of a block that has lost its header: a timestamp, a line number


class Block(NamedTuple):
    """A block at `start:end`; `end` is `start` while nothing secret was seen. `is_open`: the text ends inside."""

    start: int
    end: int
    is_open: bool = False


def block_at(data: bytes, start: int, end: int, after: int) -> Block | None:
    """The block whose header or footer lies at `start:end`; None when there is no body with it.

    What lies before `after` belongs to the block or footer before.
    """
    if _FOOTER.match(data, start):
        return None if start < after else _headless(data, start, end, after)
    block = walk(data, start, end)
    return block if block.start < block.end else None


def open_block(data: bytes) -> int | None:
    """Where a block begins that goes on after `data`, whole lines."""
    if b"PRIVATE KEY" not in data and b"$ANSIBLE_VAULT;" not in data and b"Private-Lines: " not in data:
        return None
    for header in _HEADER.finditer(data):
        block = walk(data, header.start(), header.end())
        if block.is_open:
            return block.start
    return None


def header_end(data: bytes, start: int) -> int:
    """Where the header that begins at `start` ends."""
    header = _HEADER.match(data, start)
    return header.end() if header else start


def headless_tail(data: bytes, start: int) -> int:
    """Where, not before `start`, the lines at the end begin that would be secret if a footer came next."""
    return _climb(data, len(data), start, b"")


def walk(data: bytes, start: int, header_end: int) -> Block:
    """The block of a header."""
    eol = _line_end(data, header_end)
    another = _HEADER.search(data, header_end, eol)
    here = another.start() if another else eol
    footer = _FOOTER.search(data, header_end, here)
    if footer:
        return Block(start, footer.end() if _PIECE.search(data, header_end, footer.start()) else start)
    runs = [run.end() for run in _RUN.finditer(data, header_end, here)]
    if runs or another:  # a whole key escaped on one line, cut
        return Block(start, runs[-1] if runs else start)
    end, fillers, words, seen, margin = start, 0, 0, False, _margin(data, start)
    while eol < len(data):
        if eol + 1 == len(data):
            break
        first, eol = eol + 1, _line_end(data, eol + 1)
        line = _text(data, first, margin)
        if footer := _FOOTER.search(data, line, eol):
            return Block(start, footer.end() if seen else start)
        if _HEADER.search(data, line, eol):
            return Block(start, end)
        runs = [run.end() for run in _RUN.finditer(data, line, eol)]
        if runs:
            end, seen, words = runs[-1], True, 0
        elif (_ATTRIBUTE.fullmatch(data, line, eol) or _ATTRIBUTE.fullmatch(data, first, eol)) and fillers < _FILLERS:
            fillers += 1
        elif _ONE_WORD.fullmatch(data, line, eol) and words < _WORDS:
            words += 1
            seen = seen or _PIECE.search(data, line, eol) is not None
            end = eol if end > start and _is_last(data, line, eol) else end
        else:
            return Block(start, end)
    return Block(start, end, is_open=True)


def _headless(data: bytes, start: int, end: int, after: int) -> Block | None:
    line = data.rfind(b"\n", after, start) + 1 or after
    margin = _margin(data, start)
    here = _PIECE.search(data, _text(data, line, margin), start)
    if here:
        return Block(here.start(), end)
    top = _climb(data, line, after, margin)
    return Block(top, end) if top < line else None


def _climb(data: bytes, bottom: int, top: int, margin: bytes) -> int:
    """The beginning of the base64 lines right above `bottom`, the last of which may be a short one."""
    first = bottom
    while first > top:
        line = max(top, data.rfind(b"\n", top, first - 1) + 1)
        text = _text(data, line, margin)
        is_short = first == bottom and _is_last(data, text, first - 1)
        if not (is_short or _is_body(data, text, first - 1)):
            break
        first = line
    return first


def _is_last(data: bytes, start: int, end: int) -> bool:
    """Whether a line may be the short one a body ends with."""
    return end - start <= _SHORT and _LAST.fullmatch(data, start, end) is not None


def _is_body(data: bytes, start: int, end: int) -> bool:
    run = _RUN.search(data, start, end)
    if run is None or end - start - len(run[0]) > _ASIDE:
        return False
    return not (run[0].islower() or run[0].isupper() or run[0].isdigit())


def _margin(data: bytes, start: int) -> bytes:
    """What stands before `start` on its line: a timestamp, a container, a mark of a comment; digits made alike."""
    line = data.rfind(b"\n", 0, start) + 1
    return _DIGIT.sub(b"0", data[line:start]) if start - line <= _LONGEST_MARGIN else b""


def _text(data: bytes, start: int, margin: bytes) -> int:
    """Where the text of the line that begins at `start` begins: behind the margin, its number or its file."""
    if margin and _DIGIT.sub(b"0", data[start : start + len(margin)]) == margin:
        return start + len(margin)
    prefix = _PREFIX.match(data, start, _line_end(data, start))
    return prefix.end() if prefix else start


def _line_end(data: bytes, position: int) -> int:
    end = data.find(b"\n", position)
    return len(data) if end < 0 else end
