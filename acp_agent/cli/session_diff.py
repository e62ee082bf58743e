"""A change to a file, line by line: what came, what went, and a little of what is around."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from acp_agent.core.types import Diff

_CONTEXT = 3
_COMPARED = 1_000_000
"""Pairs of lines: of two texts with more, one is shown for the other. Comparing would take seconds."""


class Fate(StrEnum):
    """What became of a line; SKIP stands for lines that stayed, and are not shown."""

    CAME = "came"
    WENT = "went"
    STAYED = "stayed"
    SKIP = "skip"


SIGNS = {Fate.CAME: "+", Fate.WENT: "-", Fate.STAYED: " ", Fate.SKIP: "⋯"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. `number` counts from 1, in the old file for one that went, else in the new one."""

    fate: Fate
    number: int
    text: str


def changed_lines(diff: Diff) -> Iterator[Line]:
    """The lines worth showing, in order. Takes time linear in the files' length and that of what changed."""
    old, new = _lines(diff.old_text or ""), _lines(diff.new_text)
    start, end = _same_ends(old, new)
    yield from _around(new, max(start - _CONTEXT, 0), start)
    went, came = old[start : len(old) - end], new[start : len(new) - end]
    if len(went) * len(came) > _COMPARED:
        yield from _each(Fate.WENT, went, 0, len(went), start)
        yield from _each(Fate.CAME, came, 0, len(came), start)
    else:
        yield from _compared(went, came, start)
    yield from _around(new, len(new) - end, min(len(new) - end + _CONTEXT, len(new)))


def _lines(value: str) -> list[str]:
    lines = value.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _same_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning and at the end: most of a file, and no work to find."""
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    end = next((n for n in range(most - start) if old[-1 - n] != new[-1 - n]), most - start)
    return start, end


def _compared(went: list[str], came: list[str], start: int) -> Iterator[Line]:
    matcher = difflib.SequenceMatcher(None, went, came)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            yield from _each(Fate.WENT, went, old_from, old_to, start)
            yield from _each(Fate.CAME, came, new_from, new_to, start)
        elif new_to - new_from <= 2 * _CONTEXT:
            yield from _each(Fate.STAYED, came, new_from, new_to, start)
        else:
            yield from _each(Fate.STAYED, came, new_from, new_from + _CONTEXT, start)
            yield Line(Fate.SKIP, start + new_from + _CONTEXT + 1, "")
            yield from _each(Fate.STAYED, came, new_to - _CONTEXT, new_to, start)


def _each(fate: Fate, lines: list[str], first: int, end: int, start: int) -> Iterator[Line]:
    return (Line(fate, start + n + 1, lines[n]) for n in range(first, end))


def _around(new: list[str], first: int, end: int) -> Iterator[Line]:
    return _each(Fate.STAYED, new, first, end, 0)
