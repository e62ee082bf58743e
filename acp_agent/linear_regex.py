"""Regular expressions that run in linear time whatever the pattern: RE2 behind a typed face.

Python's own `re` can be made to run for hours by a pattern or a file name from outside, holding the interpreter
all the while (security.md 2.4).
"""

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
    def search(self, text: bytes, pos: int) -> _Match | None: ...
    def fullmatch(self, text: bytes) -> _Match | None: ...


class _Engine(Protocol):
    error: type[Exception]

    def Options(self) -> _Options: ...  # noqa: N802 - re2's own name
    def compile(self, pattern: str, options: _Options) -> _Compiled: ...


_ENGINE = cast("_Engine", re2)


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

    def find(self, data: bytes, start: int) -> int | None:
        """Where the first match at or after `start` begins, or None. `data` is UTF-8."""
        match = self._regex.search(data, start)
        return None if match is None else match.start()

    def found_in(self, text: str) -> bool:
        """Whether the expression matches anywhere in a text, half surrogate pairs read as "?"."""
        return self.find(text.encode(errors="replace"), 0) is not None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches, half surrogate pairs read as "?"."""
        return self._regex.fullmatch(text.encode(errors="replace")) is not None


def _reason(error: Exception) -> str:
    told: object = error.args[0] if error.args else error
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
