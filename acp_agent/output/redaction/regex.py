"""RE2 behind a typed face, on bytes: linear time whatever the pattern, and no mapping of offsets (security.md 2.6).

Latin-1 rules see single bytes, so that a value may hold any UTF-8, half of it, or none; their spans end at ASCII
characters. Patterns of the user see UTF-8.
"""

from collections.abc import Iterator
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below

_MEMORY = 64 << 20  # bytes RE2 may use for one expression; taken only as states are met


class Match(Protocol):
    """A match; spans are offsets into the searched bytes, (-1, -1) for a group that took no part."""

    def start(self) -> int: ...
    def end(self) -> int: ...
    def span(self, group: int = 0) -> tuple[int, int]: ...


class Regex(Protocol):
    """A compiled expression."""

    groups: int

    def search(self, text: bytes, pos: int, endpos: int) -> Match | None: ...
    def finditer(self, text: bytes, pos: int, endpos: int) -> Iterator[Match]: ...


class RegexSet(Protocol):
    """Several expressions, searched at once."""

    def Match(self, text: bytes) -> list[int] | None:  # noqa: N802 - re2's own name
        """Which of them match anywhere in a text, or None."""
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
    """An expression; `^` and `$` mean lines. Raises ValueError with RE2's reason when it is none.

    lines     whether a match may reach over a line end
    captures  False is faster, without groups
    utf8      whether `.` is a character instead of a byte
    """
    try:
        return _ENGINE.compile(b"(?m)" + pattern.encode(), _options(lines=lines, captures=captures, utf8=utf8))
    except _ENGINE.error as error:
        told: object = error.args[0] if error.args else error
        raise ValueError(told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)) from None


def compiled_set(patterns: list[str]) -> RegexSet:
    """Tells which of the expressions match somewhere in a text."""
    grown = _ENGINE.Set.SearchSet(_options(captures=False, lines=False, utf8=False))
    for pattern in patterns:
        grown.Add(b"(?m)" + pattern.encode())
    grown.Compile()
    return grown


def literals(values: list[bytes], *, lines: bool, beside: str = "") -> Regex:
    """Any of the values, earlier ones preferred; or a match of the expression `beside`."""
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
