"""Regular expressions that run in linear time whatever the pattern: RE2 behind a typed face.

Python's own `re` can be made to run for hours by a pattern or a file name from outside, holding the interpreter
all the while (security.md 2.4).

Linear in the text is not always fast: RE2 may take a step for each byte and each instruction of the pattern, and a call
cannot be ended from outside. A bounded repeat has thousands of instructions. So one call gets no more text than it can
search in a fraction of a second, and the caller is asked between two calls whether to go on.
"""

from collections.abc import Callable
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below


class _Options(Protocol):
    log_errors: bool
    never_nl: bool
    never_capture: bool
    case_sensitive: bool


class _Match(Protocol):
    def start(self) -> int: ...


class _Compiled(Protocol):
    @property
    def programsize(self) -> int: ...
    def search(self, text: bytes, pos: int, endpos: int) -> _Match | None: ...
    def fullmatch(self, text: bytes) -> _Match | None: ...


class _Engine(Protocol):
    error: type[Exception]

    def Options(self) -> _Options: ...  # noqa: N802 - re2's own name
    def compile(self, pattern: str, options: _Options) -> _Compiled: ...


_ENGINE = cast("_Engine", re2)

_STEPS = 1 << 25
"""Bytes times instructions of one call. The slowest patterns take 10 nanoseconds for a step, most take far less."""
_SMALLEST, _LARGEST = 4096, 1024 * 1024  # bytes of one call


def _go_on() -> None:
    """Let a search go on, whatever time it takes."""


class LinearRegex:
    """One compiled expression. Raises ValueError with RE2's reason when it is none.

    by_line   `^` and `$` mean lines, and nothing matches a line feed, so that a match lies within one line
    """

    def __init__(self, pattern: str, *, case_sensitive: bool = True, by_line: bool = False) -> None:
        options = _ENGINE.Options()
        options.log_errors = False
        options.never_nl = by_line
        options.never_capture = True
        options.case_sensitive = case_sensitive
        try:
            # The bare pattern first: its error quotes what the author wrote.
            self._regex = _ENGINE.compile(pattern, options)
            if by_line:
                self._regex = _ENGINE.compile(f"(?m){pattern}", options)
        except _ENGINE.error as error:
            raise ValueError(_reason(error)) from None
        self._by_line = by_line
        self._window = min(max(_STEPS // max(self._regex.programsize, 1), _SMALLEST), _LARGEST)

    def find(self, data: bytes, start: int, check: Callable[[], None] = _go_on) -> int | None:
        """Return where the first match at or after `start` begins, or None. `data` is UTF-8.

        An expression by line gets the text in windows of whole lines. Of a line that is longer than a window, windows
        overlap by half: a match that is longer than half a window may be missed. `check` is called between two windows
        and ends the search by raising.
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
        """Whether the expression matches anywhere in a text, half surrogate pairs read as "?"."""
        return self.find(text.encode(errors="replace"), 0) is not None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches, half surrogate pairs read as "?"."""
        return self._regex.fullmatch(text.encode(errors="replace")) is not None


def _reason(error: Exception) -> str:
    told: object = error.args[0] if error.args else error
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
