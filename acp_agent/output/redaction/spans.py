"""Places of secrets in a text, in bytes, their replacement, and a typed face of RE2 for bytes.

RE2 takes linear time whatever the pattern is. Latin-1 rules see single bytes, so that a value may contain any or
invalid UTF-8; their spans end at ASCII characters. Patterns of the user see UTF-8.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below

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


_MEMORY = 64 << 20  # bytes RE2 may use for one expression; taken only as states are met


class RegexMatch(Protocol):
    """A match. Spans are offsets into the searched bytes, (-1, -1) for a group without a match."""

    def start(self) -> int: ...
    def end(self) -> int: ...
    def span(self, group: int = 0) -> tuple[int, int]: ...


class Regex(Protocol):
    """A compiled expression."""

    groups: int

    def search(self, text: bytes, pos: int, endpos: int) -> RegexMatch | None: ...
    def finditer(self, text: bytes, pos: int, endpos: int) -> Iterator[RegexMatch]: ...


class RegexSet(Protocol):
    """Several expressions that are searched at once."""

    def Match(self, text: bytes) -> list[int] | None:  # noqa: N802 - re2's own name
        """Return the indexes of the expressions that match anywhere in a text, or None."""
        ...


class _Options(Protocol):
    log_errors: bool
    max_mem: int
    never_nl: bool
    never_capture: bool
    encoding: object


class _GrowingSet(RegexSet, Protocol):
    def Add(self, pattern: bytes) -> int: ...  # noqa: N802
    def Compile(self) -> None: ...  # noqa: N802


class _Sets(Protocol):
    def SearchSet(self, options: _Options) -> _GrowingSet: ...  # noqa: N802


class _Engine(Protocol):
    error: type[Exception]
    Set: _Sets

    def Options(self) -> _Options: ...  # noqa: N802
    def compile(self, pattern: bytes, options: _Options) -> Regex: ...
    def escape(self, pattern: bytes) -> bytes: ...


_ENGINE = cast("_Engine", re2)


def compiled(pattern: str, *, lines: bool = False, captures: bool = True, utf8: bool = False) -> Regex:
    """Compile an expression in which `^` and `$` match at lines. Raises ValueError with RE2's reason.

    lines     whether a match may contain line ends
    captures  False is faster and has no groups
    utf8      whether `.` matches a character instead of a byte
    """
    try:
        return _ENGINE.compile(b"(?m)" + pattern.encode(), _options(lines=lines, captures=captures, utf8=utf8))
    except _ENGINE.error as error:
        told: object = error.args[0] if error.args else error
        raise ValueError(told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)) from None


def compiled_set(patterns: list[str]) -> RegexSet:
    """Compile several expressions to one set."""
    grown = _ENGINE.Set.SearchSet(_options(captures=False, lines=False, utf8=False))
    for pattern in patterns:
        grown.Add(b"(?m)" + pattern.encode())
    grown.Compile()
    return grown


def literals(values: list[bytes], *, lines: bool, beside: str = "") -> Regex:
    """Compile a search for any of the values, earlier ones preferred, or for the expression `beside`."""
    whole = b"|".join(((b"(?m)" + beside.encode(),) if beside else ()) + tuple(map(_ENGINE.escape, values)))
    return _ENGINE.compile(whole, _options(lines=lines, captures=False, utf8=False))


def _options(*, lines: bool, captures: bool, utf8: bool) -> _Options:
    options = _ENGINE.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.never_nl = not lines
    options.never_capture = not captures
    if not utf8:
        options.encoding = re2.Options.Encoding.LATIN1  # pyright: ignore[reportUnknownMemberType]
    return options
