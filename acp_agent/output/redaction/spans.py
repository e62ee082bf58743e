"""Spans of secrets in a text, in bytes, and their replacement by placeholders.

A private key (PEM, OpenSSH, PGP or PuTTY) or an Ansible vault, which has several lines, is one span, even if its
beginning or end is missing. Such a block begins at its header and continues while lines look like its body. It is
removed whole, with header and footer. A header or footer without a body, as in code or prose, is not a secret. Lines
may begin with a number or a file name, as `read`, `grep`, `cat -n`, `grep -n` and `diff` write them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from acp_agent.core.secrets import placeholder
from acp_agent.text import lazy_regex

_MARK = b"[REDACTED"
_PLACEHOLDER = lazy_regex(rb"\[REDACTED(?::[a-z0-9_-]{1,40})?\]")
_LONGEST_PLACEHOLDER = 51
_REMOVED = placeholder("private-key").encode()  # a block that an earlier round has removed: no other contains it
_BY_START = itemgetter(0, 3)  # start, rank


class Span(NamedTuple):
    """A secret at `start:end`. Its context, such as its key, begins at `context`.

    Overlapping spans are merged and get the name of the one with the lowest rank. There may be very many spans, so they
    are tuples.
    """

    start: int
    end: int
    category: str
    rank: int
    context: int


def settled(data: bytes, spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, merged if they overlap, without placeholders, and extended to whole characters."""
    merged = list[Span]()
    for span in sorted(spans, key=_BY_START):
        last = merged[-1] if merged else None
        if last is not None and span.start < last.end:
            first = min(last, span, key=lambda each: each.rank)
            context = min(last.context, span.context)
            merged[-1] = Span(last.start, max(last.end, span.end), first.category, first.rank, context)
        elif span.start < span.end:
            merged.append(span)
    return [piece for span in merged for piece in _without_placeholders(data, _whole_characters(data, span))]


def replaced(data: bytes, spans: Sequence[Span]) -> bytes:
    """Return the text with a placeholder for each span. The spans come from `settled`."""
    pieces, position = list[bytes](), 0
    for span in spans:
        pieces += (data[position : span.start], placeholder(span.category).encode())
        position = span.end
    return b"".join((*pieces, data[position:]))


def _whole_characters(data: bytes, span: Span) -> Span:
    start, end = span.start, span.end
    while start > 0 and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    if (start, end) == (span.start, span.end):
        return span
    return Span(start, end, span.category, span.rank, min(start, span.context))


def _without_placeholders(data: bytes, span: Span) -> Iterator[Span]:
    """Yield the parts of a span that are not placeholders, so that a second redaction finds nothing."""
    low = max(0, min(span.context, span.start) - _LONGEST_PLACEHOLDER)
    high = span.end + _LONGEST_PLACEHOLDER
    if _MARK not in data[low:high]:
        yield span
        return
    position = span.start
    for found in _PLACEHOLDER.finditer(data, low, high):
        if found.start() < span.context < found.end():
            return  # the key is part of a placeholder
        if found.start() >= span.end:
            break
        if position < found.start():
            yield span._replace(start=position, end=found.start())
        position = max(position, found.end())
    if position < span.end:
        yield span._replace(start=position)


_FOOTER = lazy_regex(rb"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_HEADER = lazy_regex(
    rb"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|\$ANSIBLE_VAULT;[0-9.]+;|Private-Lines: [0-9]"
)
_BOUND = lazy_regex(rb"-{4,5} ?(?:BEGIN|END) [A-Z0-9 ]{1,40}-{4,5}\s{0,8}\Z")  # what stands behind it has no body
_LONGEST_BOUND = 68
_RUN = lazy_regex(rb"[A-Za-z0-9+/=]{40,}")
_PIECE = lazy_regex(rb"[A-Za-z0-9+/=_-]{12,}")
_ATTRIBUTE = lazy_regex(rb"\W*(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash|X-[\w-]+): .*|\W*")
_ONE_WORD = lazy_regex(rb"\s*\S{1,200}\s*")
_LAST = lazy_regex(rb"\W*(?=[A-Za-z+/=]*[0-9])[A-Za-z0-9+/]{12,}={0,2}\W*|\W*[A-Za-z0-9+/]+=={0,1}\W*")
_MAY_BE_LAST = lazy_regex(rb"[A-Za-z0-9+/=]{12}|[A-Za-z0-9+/]=")  # matches in every line that `_climb` accepts
_PREFIX = lazy_regex(  # base64 contains no colon, tab or minus
    rb"[ \t]*+\d{1,7}(?:\t|[:|][ \t]?)|(?![ \t]*-{4})[^\n\t]{0,300}?[^\n\t:][:-]\d{1,7}[:-][ ]?|[-+>|](?!---)[ ]?"
)
_DIGIT = lazy_regex(rb"[0-9]")
_LONGEST_MARGIN = 300
_FILLERS = 8  # lines of attributes before the body
_SHORT = 200  # most bytes of a last line
_WORDS = 3  # short lines in a row that may belong to a body
_ASIDE = 40  # most bytes of a line of a block without header that are not base64: a timestamp, a line number


class Block(NamedTuple):
    """A block at `start:end`. `end` equals `start` if it has no secret. `is_open`: the text ends inside it."""

    start: int
    end: int
    is_open: bool = False


def block_at(data: bytes, start: int, end: int, after: int) -> Block | None:
    """Return the block whose header or footer is at `start:end`. None if it has no body.

    Bytes before `after` belong to the previous block.
    """
    if _FOOTER.match(data, start):
        return None if start < after else _headless(data, start, end, after)
    block = walk(data, start, end)
    return block if block.start < block.end else None


def open_block(data: bytes) -> int:
    """Return where a block begins that may continue after these whole lines, or their length if there is none."""
    if b"PRIVATE KEY" in data or b"$ANSIBLE_VAULT;" in data or b"Private-Lines: " in data:
        for header in _HEADER.finditer(data):
            block = walk(data, header.start(), header.end())
            if block.is_open:
                return block.start
    return len(data)


def header_end(data: bytes, start: int) -> int:
    """Return where the header that begins at `start` ends."""
    header = _HEADER.match(data, start)
    return header.end() if header else start


def headless_tail(data: bytes, start: int) -> int:
    """Return where the last lines begin that would be secret if a footer came next. Look at nothing before `start`.

    A footer shows what stands before each line of the key, such as a file name. As there is none yet, the two last
    lines show it.
    """
    last = data.rfind(b"\n", start, len(data) - 1) + 1 or start
    if not _MAY_BE_LAST.search(data, last):
        return len(data)
    top = max(start, _last_end(data))
    run = _RUN.search(data, max(top, data.rfind(b"\n", top, max(top, last - 1)) + 1))
    margins = {b"", _margin(data, run.start()) if run else b""}
    return min(_climb(data, len(data), top, margin) for margin in margins)


def _removed_end(data: bytes, start: int, end: int) -> int:
    """Return where the last private key in `start:end` that was already removed ends, or `start` if there is none."""
    removed = data.rfind(_REMOVED, start, end)
    return start if removed < 0 else removed + len(_REMOVED)


def _behind_marks(data: bytes, start: int, end: int) -> int:
    """Return where the last header or footer in `start:end` ends, or `start` if there is none."""
    if data.find(b"PRIVATE KEY", start, end) < 0:
        return start
    marks = (*_FOOTER.finditer(data, start, end), *_HEADER.finditer(data, start, end))
    return max((mark.end() for mark in marks), default=start)


def _last_end(data: bytes) -> int:
    """Return where the last private key with a header ends, or that header if no key follows it. 0 without a header."""
    after = _removed_end(data, 0, len(data))
    for header in deque(_HEADER.finditer(data, after), maxlen=1):
        return max(header.end(), walk(data, *header.span()).end)
    return after


def walk(data: bytes, start: int, header_end: int) -> Block:
    """Return the block that a header begins."""
    eol = _line_end(data, header_end)
    another = _HEADER.search(data, header_end, eol)
    here = another.start() if another else eol
    removed = data.find(_REMOVED, header_end, here)
    here = here if removed < 0 else removed
    footer = _FOOTER.search(data, header_end, here)
    if footer:
        return Block(start, footer.end() if _PIECE.search(data, header_end, footer.start()) else start)
    runs = [run.end() for run in _RUN.finditer(data, header_end, here)]
    if runs or here < eol:  # a key on one line, with escaped line ends, that is cut off
        return Block(start, runs[-1] if runs else start)
    end, fillers, words, seen, margin = start, 0, 0, False, _margin(data, start)
    while eol < len(data):
        if eol + 1 == len(data):
            break
        first, eol = eol + 1, _line_end(data, eol + 1)
        if _REMOVED in data[first:eol]:
            return Block(start, end)
        line = _text(data, first, margin)
        if footer := _FOOTER.search(data, line, eol):
            return Block(start, footer.end() if seen else start)
        another = _HEADER.search(data, line, eol)
        runs = [run.end() for run in _RUN.finditer(data, line, another.start() if another else eol)]
        if another:
            return Block(start, runs[-1] if runs else end)
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
    after = _removed_end(data, after, start)
    line = data.rfind(b"\n", after, start) + 1 or after
    behind = _behind_marks(data, line, start)
    if behind > line:
        line = after = behind
    if _BOUND.search(data, max(line, start - _LONGEST_BOUND), start):
        return None
    margin = _margin(data, start)
    here = _PIECE.search(data, _text(data, line, margin), start)
    if here:
        return Block(here.start(), end)
    top = _climb(data, line, after, margin)
    return Block(top, end) if top < line else None


def _climb(data: bytes, bottom: int, top: int, margin: bytes) -> int:
    """Return where the base64 lines right above `bottom` begin. The last one may be short."""
    first = bottom
    while first > top:
        line = max(top, data.rfind(b"\n", top, first - 1) + 1)
        behind = _behind_marks(data, line, first - 1)
        if behind > line:  # another block ends on this line
            line = top = behind
        text = _text(data, line, margin)
        if not (first == bottom and _is_last(data, text, first - 1)):
            run = _RUN.search(data, text, first - 1)
            if run is None or first - 1 - text - len(run[0]) > _ASIDE:
                break
            if run[0].islower() or run[0].isupper() or run[0].isdigit():
                break
        first = line
    return first


def _is_last(data: bytes, start: int, end: int) -> bool:
    """Return whether a line may be the short last line of a body."""
    return end - start <= _SHORT and _LAST.fullmatch(data, start, end) is not None


def _margin(data: bytes, start: int) -> bytes:
    """Return the text before `start` on its line: a timestamp, a container, a comment mark. All digits become equal."""
    line = data.rfind(b"\n", 0, start) + 1
    return _DIGIT.sub(b"0", data[line:start]) if start - line <= _LONGEST_MARGIN else b""


def _text(data: bytes, start: int, margin: bytes) -> int:
    """Return where the text of the line at `start` begins, after the margin and its number or file name."""
    if margin and _DIGIT.sub(b"0", data[start : start + len(margin)]) == margin:
        return start + len(margin)
    prefix = _PREFIX.match(data, start, _line_end(data, start))
    return prefix.end() if prefix else start


def _line_end(data: bytes, position: int) -> int:
    end = data.find(b"\n", position)
    return len(data) if end < 0 else end
