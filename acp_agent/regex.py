"""Regular expressions that take linear time for every pattern: RE2 with type annotations.

With Python's own `re`, a pattern or a file name from outside can make a search run for hours and block the interpreter.

Linear in the text is not always fast: RE2 may take a step for each byte and each instruction of the pattern, and a
bounded repeat has thousands of instructions. A call cannot be interrupted. So a search by lines takes several calls,
each for only as much text as takes a fraction of a second, and the caller's `check` may stop it between two calls.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below


class RegexMatch(Protocol):
    """A match. Spans are offsets into the searched bytes, (-1, -1) for a group without a match."""

    def start(self) -> int: ...
    def end(self) -> int: ...
    def span(self, group: int = 0) -> tuple[int, int]: ...


class Regex(Protocol):
    """A compiled expression. `programsize` counts its instructions."""

    groups: int

    @property
    def programsize(self) -> int: ...
    def search(self, text: bytes, pos: int = 0, endpos: int = ...) -> RegexMatch | None: ...
    def finditer(self, text: bytes, pos: int = 0, endpos: int = ...) -> Iterator[RegexMatch]: ...
    def fullmatch(self, text: bytes) -> RegexMatch | None: ...


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
    case_sensitive: bool
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
    def compile(self, pattern: str | bytes, options: _Options) -> Regex: ...
    def escape(self, pattern: bytes) -> bytes: ...


_ENGINE = cast("_Engine", re2)

RegexError = _ENGINE.error
"""The exception that RE2 raises for a pattern that it cannot compile."""

_MEMORY = 64 << 20  # bytes RE2 may use for one expression; it takes them only as it meets states
_STEPS = 1 << 25
"""The most bytes times instructions of one call. The slowest patterns take 10 ns for each, most take far less."""
_SMALLEST, _LARGEST = 4096, 1024 * 1024  # bytes of one call


def compiled(
    pattern: str | bytes,
    *,
    lines: bool = False,
    captures: bool = True,
    utf8: bool = True,
    case_sensitive: bool = True,
    memory: int = 0,
) -> Regex:
    """Compile an expression.

    lines     whether a match may contain line ends
    captures  whether its groups are captured; an expression without them is faster
    utf8      whether `.` matches a character instead of a byte
    memory    the most bytes that RE2 may use for the expression and its searches; 0 means RE2's default of 8 MiB

    Raises:
        ValueError: RE2 cannot compile the pattern. The text is RE2's reason.

    """
    try:
        options = _options(lines=lines, captures=captures, utf8=utf8, case_sensitive=case_sensitive, memory=memory)
        return _ENGINE.compile(pattern, options)
    except RegexError as error:
        told: object = error.args[0] if error.args else error
        raise ValueError(told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)) from None


def compiled_rule(pattern: str, *, lines: bool = False, captures: bool = True, utf8: bool = False) -> Regex:
    """Compile an expression for large texts, in which `^` and `$` match at lines. Raises ValueError as `compiled`."""
    return compiled(b"(?m)" + pattern.encode(), lines=lines, captures=captures, utf8=utf8, memory=_MEMORY)


def compiled_set(patterns: Sequence[bytes], *, by_line: bool = True, memory: int = _MEMORY) -> RegexSet:
    """Compile several expressions over bytes to one set. Raises RegexError.

    by_line   whether `^` and `$` match at lines and nothing matches a line feed
    memory    as for `compiled`
    """
    grown = _ENGINE.Set.SearchSet(_options(captures=False, lines=not by_line, utf8=False, memory=memory))
    for pattern in patterns:
        grown.Add((b"(?m)" if by_line else b"(?s)") + pattern)
    grown.Compile()
    return grown


def literals(values: Sequence[bytes], *, lines: bool, beside: str = "") -> Regex:
    """Compile a search for any of the values or the expression `beside`. `beside` and earlier values are preferred."""
    whole = b"|".join(((b"(?m)" + beside.encode(),) if beside else ()) + tuple(map(_ENGINE.escape, values)))
    return compiled(whole, lines=lines, captures=False, utf8=False, memory=_MEMORY)


def _options(*, lines: bool, captures: bool, utf8: bool, case_sensitive: bool = True, memory: int = 0) -> _Options:
    options = _ENGINE.Options()
    options.log_errors = False
    options.never_nl = not lines
    options.never_capture = not captures
    options.case_sensitive = case_sensitive
    if memory:
        options.max_mem = memory
    if not utf8:
        options.encoding = re2.Options.Encoding.LATIN1  # pyright: ignore[reportUnknownMemberType]
    return options


class LinearRegex:
    """One compiled expression for texts of any size. Raises ValueError with RE2's reason if it is invalid.

    by_line   True if `^` and `$` match at lines and nothing matches a line feed, so that a match is within one line
    """

    def __init__(self, pattern: str, *, case_sensitive: bool = True, by_line: bool = False) -> None:
        # Compile the pattern alone first, so that an error quotes it as it was written.
        self._regex = compiled(pattern, lines=not by_line, captures=False, case_sensitive=case_sensitive)
        if by_line:
            self._regex = compiled(f"(?m){pattern}", captures=False, case_sensitive=case_sensitive)
        self._pattern, self._case_sensitive = pattern, case_sensitive
        self._by_line = by_line
        self._window = min(max(_STEPS // max(self._regex.programsize, 1), _SMALLEST), _LARGEST)

    def find(self, data: bytes, start: int, check: Callable[[], None] = lambda: None) -> int | None:
        """Return where the first match at or after `start` begins, or None. `data` is UTF-8.

        With `by_line` the text is searched in windows of whole lines. In a line that is longer than a window, windows
        overlap by half, so a match that is longer than half a window may be missed.

        check   called between two windows; an exception from it ends the search
        """
        while True:
            end = min(start + self._window, len(data)) if self._by_line else len(data)
            lines = end if end == len(data) else data.rfind(b"\n", start, end) + 1
            match = self._regex.search(data, start, lines or end)
            if match is not None:
                return match.start()
            if end == len(data):
                return None
            start = lines or start + self._window // 2
            check()

    def found_in(self, text: str) -> bool:
        """Return whether the expression matches anywhere in a text. Lone surrogates are read as "?"."""
        return self.find(text.encode(errors="replace"), 0) is not None

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches. Lone surrogates are read as "?"."""
        return self._regex.fullmatch(text.encode(errors="replace")) is not None

    def matching(self, texts: Sequence[str], prefix: str = "") -> set[str]:
        """Return the texts that match as a whole, behind a prefix. This is much faster than `matches` for each text.

        A text with a lone surrogate does not match.
        """
        joined, longer = f"\n{prefix}".join(("", *texts)), set[str]()
        if joined.count("\n") != len(texts):  # there are texts of more than one line
            joined = "".join(f"\n{prefix}{text}" for text in texts if "\n" not in prefix + text)
            longer = {text for text in texts if "\n" in prefix + text and self.matches(prefix + text)}
        if not joined:
            return longer
        lines, start = joined.encode(errors="replace"), len(prefix.encode(errors="replace"))
        found = {lines[match.start() + start : match.end()].decode() for match in self._by_lines.finditer(lines, 1)}
        return found.intersection(texts) | longer if found else longer

    @cached_property
    def _by_lines(self) -> Regex:
        return compiled(f"(?m)^(?:{self._pattern})$", captures=False, case_sensitive=self._case_sensitive)
