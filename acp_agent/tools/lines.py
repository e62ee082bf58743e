"""Lines of a file as a model sees them. A line ends with LF or CRLF and with nothing else (T4.11).

`str.splitlines` also splits at form feeds, U+2028 and more, and would number lines unlike every editor.
"""

import os
from collections.abc import Iterable

_COUNTED = 100_000  # missing characters that are worth a number


def split_lines(text: str) -> list[str]:
    """The lines without their ends. A text that ends with a line end has no empty last line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def cut(line: str, limit: int) -> str:
    """The line, or its first `limit` characters and how many are missing."""
    missing = len(line) - limit
    if missing <= 0:
        return line
    # Of a very long line only the beginning may have been read.
    return f"{line[:limit]}… [{missing if missing <= _COUNTED else f'over {_COUNTED}'} more characters]"


def numbered(lines: Iterable[str], first: int, limit: int) -> str:
    """Lines with their numbers, as T4.11 wants them; `first` is 1-based, long lines are cut."""
    return "\n".join(f"{number:>4}\t{cut(line, limit)}" for number, line in enumerate(lines, first))


def first_changed_line(old: str, new: str) -> int:
    """The 1-based line of the new text where it starts to differ; its last line when only the end is gone."""
    before, after = old.split("\n"), new.split("\n")
    for number, (left, right) in enumerate(zip(before, after, strict=False), 1):
        if left != right:
            return number
    return min(len(before) + 1, len(after)) if old != new else 1


def relative(path: str, base: str) -> str:
    """The absolute `path` seen from the absolute folder `base` when it is below it, else as it is."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path.removeprefix(prefix) if path != base else "."
