"""What to tell a model whose `old_string` is not in the file: what looks most like it, and where.

Linear in the length of the file: a window of as many lines as wanted slides over it and counts the words it
shares with them. Blanks are no words, so wrong indentation is found as the same words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.redaction import placeholders
from acp_agent.tools.lines import numbered, split_lines

_MAX_TEXT = 1_000_000  # characters; above, looking costs more than it helps
_MAX_SHOWN_LINES = 12
_MAX_SHOWN_CHARS = 200
_LIKE_ENOUGH = 0.5
_WORD = re.compile(r"\w+|[^\w\s]")
_NUMBERED = re.compile(r" *\d+\t")


class _Window(NamedTuple):
    """Some lines of the file: how much they are like the wanted ones (0..1), and the index of the first."""

    likeness: float
    first: int


class NoMatch(ToolError):
    """The wanted string is not in the text. `nearest` is what looks most like it, numbered, or empty."""

    def __init__(self, where: str, advice: str, nearest: str = "") -> None:
        super().__init__(ToolErrorCategory.PERMANENT_FAILURE, f"old_string was not found{where}", advice)
        self.nearest = nearest


def no_match(text: str, wanted: str) -> NoMatch:
    """The error for a string that is not there, with the most helpful advice there is.

    A redaction placeholder that the text has too seldom was copied from redacted text: it can match nothing (S9.9).
    """
    hidden = placeholders(wanted) - placeholders(text)
    if hidden:
        stands = f"{', '.join(sorted(hidden))} stands for a value you were not shown; the file has the real one."
        return NoMatch("", f"You saw redacted text: {stands} Leave it out of old_string and edit around it.")
    lines = wanted.strip("\r\n").split("\n")
    if all(_NUMBERED.match(line) for line in lines):
        return NoMatch("", "Leave out the line numbers and tabs that read puts before each line.")
    unlike = NoMatch("", "Read the file again and copy the text exactly.")
    if len(text) > _MAX_TEXT or not any(line.strip() for line in lines):
        return unlike
    there = split_lines(text)
    best = _best(there, lines)
    if best.likeness < _LIKE_ENOUGH:
        return unlike
    found = there[best.first : best.first + len(lines)]
    how = "differs only in blanks" if _squeezed(found) == _squeezed(lines) else "is the nearest"
    block = numbered(found[:_MAX_SHOWN_LINES], best.first + 1, _MAX_SHOWN_CHARS)
    return NoMatch(f"; the text at line {best.first + 1} {how}", "Copy it exactly, blanks included.", block)


def _best(there: Sequence[str], wanted: Sequence[str]) -> _Window:
    """The window most like the wanted lines; the first of several."""
    words = Counter(_words(wanted))
    size = len(wanted)
    sides = [_WORD.findall(line) for line in there]
    seen: Counter[str] = Counter()
    shared = inside = 0
    best = _Window(0.0, 0)
    for last, entering in enumerate(sides):
        leaving = sides[last - size] if last >= size else ()
        for word in leaving:
            seen[word] -= 1
            shared -= seen[word] < words[word]
        for word in entering:
            shared += seen[word] < words[word]
            seen[word] += 1
        inside += len(entering) - len(leaving)
        likeness = 2 * shared / (words.total() + inside) if inside else 0.0
        if likeness > best.likeness:
            best = _Window(likeness, max(0, last - size + 1))
    return best


def _squeezed(lines: Iterable[str]) -> str:
    return "".join("".join(lines).split())


def _words(lines: Iterable[str]) -> list[str]:
    return [word for line in lines for word in _WORD.findall(line)]
