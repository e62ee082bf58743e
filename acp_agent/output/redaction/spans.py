"""The places of secrets in a text, in bytes, and their replacement by placeholders."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from acp_agent.core.redaction import placeholder

_MARK = b"[REDACTED"
_PLACEHOLDER = re.compile(rb"\[REDACTED(?::[a-z0-9_-]{1,40})?\]")
_LONGEST_PLACEHOLDER = 51
_BY_START = itemgetter(0, 3)  # start, rank


class Span(NamedTuple):
    """A secret at `start:end`. Its context, such as its key, begins at `context`.

    Overlapping spans are merged, and the lowest rank gives the name. It is a tuple, since there may be very many.
    """

    start: int
    end: int
    category: str
    rank: int
    context: int


def settled(data: bytes, spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, merged if they overlap, without placeholders, at borders of characters."""
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


def counted(spans: Iterable[Span]) -> Counter[str]:
    """Return the number of spans of each category."""
    return Counter(span.category for span in spans)


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
