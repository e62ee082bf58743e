"""The strategy that keeps the ends of a long text (requirements O2, `truncate`)."""

from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_patterns import LinePatterns, decoded, encoded
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied


class Truncate:
    """Of a text with more than `max_lines` lines, keeps the first `head` and the last `tail`.

    keep   expressions: of the lines between, the first that match stay, up to `max_lines` lines in all

    Raises ValueError if `head` and `tail` are more than `max_lines`, or none; or if RE2 does not take `keep`.
    """

    def __init__(self, max_lines: int, head: int = 20, tail: int = 20, keep: Sequence[str] = ()) -> None:
        if not 0 < head + tail <= max_lines or min(head, tail) < 0:
            raise ValueError(f"head = {head} and tail = {tail}: expected 1 to max_lines = {max_lines} in all")
        self._max_lines = max_lines
        self._head = head
        self._tail = tail
        self._keep = LinePatterns(keep) if keep else None

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Head, a line that says how many lines are left out, and tail: Partial. A short text: Fallback."""
        del run
        if lines_of(text) <= self._max_lines:
            return Applied(text, Confidence.FALLBACK)
        start, stop = _between(text, self._head, self._tail)
        kept = self._kept(text[start:stop])
        omitted = lines_of(text[start:stop]) - len(kept)
        around = f" around the next {len(kept)}" if kept else ""
        told = f"... ({omitted} line{'' if omitted == 1 else 's'} omitted{around}) ..."
        return Applied(text[:start] + "\n".join((told, *kept, "")) + text[stop:], Confidence.PARTIAL)

    def _kept(self, between: str) -> list[str]:
        room = self._max_lines - self._head - self._tail
        if self._keep is None or not room:
            return []
        data = encoded(between)
        kept: list[str] = []
        for start, end in self._keep.runs(data):
            kept += decoded(data[start:end]).removesuffix("\n").split("\n")
            if len(kept) >= room:
                break
        return kept[:room]


def ends(text: str, head: int, tail: int) -> str:
    """The first and last so many lines of a text that has more, and between them how many are left out."""
    start, stop = _between(text, head, tail)
    omitted = lines_of(text[start:stop])
    return f"{text[:start]}... ({omitted} line{'' if omitted == 1 else 's'} omitted) ...\n{text[stop:]}"


def _between(text: str, head: int, tail: int) -> tuple[int, int]:
    """Where the first `head` lines of a text that has more end, and where the last `tail` begin."""
    start = 0
    for _ in range(head):
        start = text.index("\n", start) + 1
    end = len(text.removesuffix("\n"))
    stop = end + 1 if tail == 0 else end
    for _ in range(tail):
        stop = text.rindex("\n", 0, stop)
    return start, stop + (tail > 0)


def lines_of(text: str) -> int:
    """Lines, the last one whether or not it ends with a line feed."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))
