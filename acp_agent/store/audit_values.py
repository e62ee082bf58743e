"""A call's arguments as the audit keeps them: secrets taken out first, then cut to a size that fits a line."""

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from acp_agent.core.types import Json, JsonObject

Redact: TypeAlias = Callable[[str], str]
"""Takes secrets out of a text."""

LONGEST = 4096
"""Characters of one string that are kept."""

_MARGIN = 16 * 1024  # characters redacted beyond those, so that no secret is cut in two before it is seen
_MOST = 256  # values of one call, those inside others counted
_DEEPEST = 8
_WIDEST_NUMBER = 256  # bits; Python writes no number of any size, and nobody reads one


def without(secrets: Iterable[str]) -> Redact:
    """A Redact for values known to be secret."""
    known = sorted(filter(None, secrets), key=len, reverse=True)  # one may be a part of another

    def redact(text: str) -> str:
        for secret in known:
            text = text.replace(secret, "[REDACTED]")
        return text

    return redact


def redacted(text: str, redact: Redact, longest: int = LONGEST) -> str:
    """A text without secrets, cut with a mark. Of a text of any length only the beginning is looked at."""
    seen = text[: longest + _MARGIN]
    clean = redact(seen)
    if len(seen) < len(text):
        clean = clean[: max(0, len(clean) - _MARGIN)]  # half a secret may stand at its end
    if len(clean) <= longest and len(seen) == len(text):
        return clean
    return f"{clean[:longest]} [cut: {len(text)} characters in all]"


def recordable(arguments: JsonObject, redact: Redact) -> JsonObject:
    """Arguments as they may be recorded: valid JSON, names included, whatever a model has sent."""
    return _Budget(redact).table(arguments, 0)


class _Budget:
    """Copies values until there are enough."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._left = _MOST

    def table(self, table: JsonObject, depth: int) -> JsonObject:
        copy: JsonObject = {}
        for number, (name, value) in enumerate(table.items()):
            if self._left <= 0:
                copy["[left out]"] = f"{len(table) - number} more"
                break
            key = redacted(name, self._redact, 100)
            copy[f"{key}#{number}" if key in copy else key] = self._value(value, depth)
        return copy

    def _row(self, row: list[Json], depth: int) -> list[Json]:
        copy: list[Json] = []
        for number, value in enumerate(row):
            if self._left <= 0:
                copy.append(f"[left out: {len(row) - number} more]")
                break
            copy.append(self._value(value, depth))
        return copy

    def _value(self, value: Json, depth: int) -> Json:
        self._left -= 1
        match value:
            case str():
                return redacted(value, self._redact)
            case dict() | list() if depth == _DEEPEST:
                return "[left out: too deep]"
            case dict():
                return self.table(value, depth + 1)
            case list():
                return self._row(value, depth + 1)
            case float() if not math.isfinite(value):
                return str(value)
            case int() if value.bit_length() > _WIDEST_NUMBER:
                return f"[a number of {value.bit_length()} bits]"
            case _:
                return value
