"""One RE2 expression that says which part of a line is meant: by its first group, or the whole match."""

from collections.abc import Iterator
from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below


class _Match(Protocol):
    def start(self) -> int: ...
    def group(self, group: int) -> bytes | None: ...


class _Compiled(Protocol):
    groups: int

    def finditer(self, text: bytes) -> Iterator[_Match]: ...


class _Options(Protocol):
    log_errors: bool
    never_nl: bool


class _Engine(Protocol):
    error: type[Exception]

    def Options(self) -> _Options: ...  # noqa: N802 - re2's own name
    def compile(self, pattern: str, options: _Options) -> _Compiled: ...


_ENGINE = cast("_Engine", re2)


class Captures:
    """Raises ValueError when the pattern is no expression RE2 takes."""

    def __init__(self, pattern: str) -> None:
        options = _ENGINE.Options()
        options.log_errors = False
        options.never_nl = True
        try:
            _ENGINE.compile(pattern, options)  # the bare pattern first: its error quotes what the author wrote
            self._regex = _ENGINE.compile(f"(?m){pattern}", options)
        except _ENGINE.error as error:
            told: object = error.args[0] if error.args else error
            raise ValueError(told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)) from None
        self._group = min(1, self._regex.groups)

    def by_line(self, data: bytes) -> dict[int, str]:
        """The meant part of the first match in each line that has one, by the offset the line begins at."""
        found: dict[int, str] = {}
        for match in self._regex.finditer(data):
            meant = match.group(self._group)
            if meant is not None:
                found.setdefault(data.rfind(b"\n", 0, match.start()) + 1, meant.decode("utf-8", "surrogatepass"))
        return found
