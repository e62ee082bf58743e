"""A long trace, without its middle: the lines that say what went wrong stay."""

import re
from collections.abc import Iterator, Sequence

LONGEST_LINE = 2000
"""Characters of a line; the formats are told nothing by longer ones, which bounds what a regex can cost."""

_HEAD, _TAIL = 1500, 400

_TELLING = re.compile(
    r"""E\s | >\s | [\w./\\-]+:\d+:\s | \ *(?:left|right):\s | [\w.]*(?:Error|Exception)\b
      | \s+\S+_test\.go:\d+: | \s+(?:Error|expected|actual|Expected|Received)\b.*: | panic: | [Ff]atal | FATAL
      | [Ee]rror | ERROR | Caused\ by | -+\ Captured | TOTAL\b | \s+(?:at|●|\u276f|\u00d7|✕)\s.*\.test\.[jt]sx?
      | Failed: | worker\ '""",
    re.VERBOSE,
)
_PANIC = "panicked at"
_AFTER_PANIC = 4  # lines of message below "thread '…' panicked at …:"


def shorten(lines: Sequence[str], limit: int) -> tuple[list[str], bool]:
    """At most `limit` lines and the marks for what is left out between them, and whether anything is.

    What says what went wrong comes first (its own first and last when that alone is too much); the rest of the room
    is for the beginning and the end. Lines over 2,000 characters lose their middle.
    """
    chosen = range(len(lines)) if len(lines) <= limit else _chosen(lines, limit)
    cut = len(chosen) < len(lines) or any(len(lines[i]) > LONGEST_LINE for i in chosen)
    return list(_with_marks(lines, chosen)) if cut else list(lines), cut


def _chosen(lines: Sequence[str], limit: int) -> list[int]:
    telling = _telling(lines)
    most = limit * 3 // 4
    if len(telling) > most:
        telling = telling[: most // 2] + telling[len(telling) - (most - most // 2) :]
    kept = set(telling)
    others = [i for i in range(len(lines)) if i not in kept]
    room = limit - len(kept)
    kept.update(others[: (room + 1) // 2])
    kept.update(others[len(others) - room // 2 :])
    return sorted(kept)


def _telling(lines: Sequence[str]) -> list[int]:
    """Where it says what went wrong, in order."""
    found: set[int] = set()
    for i, line in enumerate(lines):
        if _TELLING.match(line):
            found.add(i)
        if _PANIC in line:
            found.update(range(i, min(i + 1 + _AFTER_PANIC, len(lines))))
    return sorted(found)


def _with_marks(lines: Sequence[str], chosen: Sequence[int]) -> Iterator[str]:
    expected = 0
    for i in (*chosen, len(lines)):
        if i > expected:
            yield f"    ... ({i - expected} lines left out)"
        if i < len(lines):
            yield clipped(lines[i])
        expected = i + 1


def clipped(line: str) -> str:
    """A line without its middle when it is very long."""
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:_HEAD]} ... ({len(line) - _HEAD - _TAIL} characters left out) ... {line[-_TAIL:]}"
