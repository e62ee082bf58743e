"""A pattern from the model, searched for line by line in linear time whatever it is: RE2 behind a typed face."""

from typing import Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none, hence the protocols below

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.tools.lines import cut
from acp_agent.tools.params import quote
from acp_agent.tools.visible import visible

_LONGEST_REASON = 200


class _Options(Protocol):
    log_errors: bool
    never_nl: bool
    never_capture: bool


class _Match(Protocol):
    def start(self) -> int: ...


class _Compiled(Protocol):
    def search(self, text: bytes, pos: int) -> _Match | None: ...


class _Engine(Protocol):
    error: type[Exception]

    def Options(self) -> _Options: ...  # noqa: N802 - re2's own name
    def compile(self, pattern: str, options: _Options) -> _Compiled: ...


_ENGINE = cast("_Engine", re2)


class LinePattern:
    """A compiled pattern: `^` and `$` mean lines, and a match lies within one line.

    Raises ToolError (invalid_parameters) with RE2's reason for what is no regular expression.
    """

    def __init__(self, pattern: str) -> None:
        options = _ENGINE.Options()
        options.log_errors = False
        options.never_nl = True
        options.never_capture = True
        try:
            _ENGINE.compile(pattern, options)  # the bare pattern first: its error quotes what the model wrote
            self._compiled = _ENGINE.compile(f"(?m){pattern}", options)
        except _ENGINE.error as error:
            msg = f"pattern = {quote(pattern)}: {cut(visible(_reason(error)), _LONGEST_REASON)}"
            hint = "RE2 has no look-around and no back-references; put a backslash before ( [ . and the like."
            raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg, hint) from None

    def find(self, data: bytes, start: int) -> int | None:
        """Where the first match at or after `start` begins, or None. `data` is UTF-8."""
        match = self._compiled.search(data, start)
        return None if match is None else match.start()


def _reason(error: Exception) -> str:
    told: object = error.args[0] if error.args else error
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
