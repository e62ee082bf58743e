"""Notices a model that goes round in circles (L2)."""

import hashlib
import json
import re
from collections.abc import Iterable

from acp_agent.core.messages import ToolUsePart
from acp_agent.core.types import ToolResult

LIMIT = 3
"""Rounds with equal output, one after the other, that make a doom loop."""

_LOOKED_AT = 4_000  # characters of an output's head and of its tail: enough to tell, and cheap for a hundred calls

_VOLATILE = re.compile(
    r"""
      [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}                 # UUID
    | \d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?  # ISO date and time
    | \b\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?\b                                         # time of day, stopwatch
    | \b\d+(?:\.\d+)?\s?(?:ns|[uµ]s|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b  # duration
    | \b0x[0-9a-f]+\b                                                              # address
    | \b[0-9a-f]{7,64}\b                                                           # commit, digest, epoch
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


class DoomLoop:
    """Watches the rounds of one turn."""

    def __init__(self) -> None:
        self._last = b""
        self._equal = 0

    def watch(self, calls: Iterable[tuple[ToolUsePart, ToolResult]]) -> bool:
        """Take in one round of calls with their results; whether the turn is caught in a loop.

        Rounds are equal when their outputs are, ids, digests, times and durations aside. A success counts together
        with its call: three commands that print nothing, or three searches without a match, are no loop unless they
        are the same. A failure counts by itself: trying in vain with ever new arguments is one.
        """
        digest = hashlib.sha256()
        for use, result in calls:
            digest.update(_stable(_significant(use, result)).encode("utf-8", "surrogatepass") + b"\0")
        self._equal = self._equal + 1 if digest.digest() == self._last else 1
        self._last = digest.digest()
        return self._equal >= LIMIT


def _significant(use: ToolUsePart, result: ToolResult) -> str:
    output = _ends(result.text)
    return output if result.failure is not None else "\n".join((use.name, _ends(_arguments(use)), output))


def _arguments(use: ToolUsePart) -> str:
    return use.raw_arguments if use.arguments is None else json.dumps(use.arguments, sort_keys=True)


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOKED_AT else f"{text[:_LOOKED_AT]}{text[-_LOOKED_AT:]}"


def _stable(text: str) -> str:
    return _VOLATILE.sub("~", text)
