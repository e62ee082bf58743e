"""Cuts a long text to its head and its tail, and counts what was left out."""

from typing import NamedTuple

from acp_agent.core.types import OutputStats

SMALLEST_LIMIT = 256
_RESERVED = 128  # room for the marker line, whatever the numbers in it
_SNAP = 8  # a cut moves to a line end if that costs at most this part (1/8) of the half


class Clipped(NamedTuple):
    """A text within the limit. `omitted` counts the characters left out; 0 means that the text is whole."""

    text: str
    omitted: int = 0


def clip(text: str, limit: int) -> Clipped:
    """Return `text` if it has at most `limit` characters, else its head, a marker line and its tail.

    The cuts fall on line ends if one is near. Raises ValueError for a limit under 256.
    """
    if limit < SMALLEST_LIMIT:
        raise ValueError(f"limit = {limit}: expected at least {SMALLEST_LIMIT} characters")
    if len(text) <= limit:
        return Clipped(text)
    half = (limit - _RESERVED) // 2
    head = _head(text, half)
    tail = _tail(text, half)
    omitted = len(text) - len(head) - len(tail)
    marker = f"... [truncated {omitted} chars, showing first and last ~{limit // 2} chars] ..."
    before = "" if head.endswith("\n") else "\n"
    return Clipped(f"{head}{before}{marker}\n{tail}", omitted)


def measure(raw: str, shown: str) -> OutputStats:
    """Return the lines and characters of `raw` and of what is shown of it."""
    return OutputStats(
        raw_lines=_lines(raw),
        shown_lines=_lines(shown),
        raw_chars=len(raw),
        shown_chars=len(shown),
    )


def _head(text: str, half: int) -> str:
    end = text.rfind("\n", half - half // _SNAP, half) + 1
    return text[: end or half]


def _tail(text: str, half: int) -> str:
    start = len(text) - half
    newline = text.find("\n", start - 1, start + half // _SNAP)
    return text[newline + 1 if newline >= 0 else start :]


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")
