"""From the pieces of a test run to the text the model reads."""

from acp_agent.output.filters.test_summary.pieces import Failure, Kept, Loose, Parsed, Totals
from acp_agent.output.filters.test_summary.shorten import clipped, shorten

_LOOSE_LINES = 60  # of what was not recognised, all stretches together


def rendered(parsed: Parsed, max_failures: int, trace_lines: int) -> tuple[str, bool]:
    """The text, ending with the totals, and whether anything was left out that may matter."""
    page = _Page(parsed, max_failures, trace_lines)
    lines = page.lines()
    lines.append(totals_line(parsed.totals, broken=parsed.broken))
    return "\n".join(lines) + "\n", page.cut


def totals_line(totals: Totals, *, broken: bool) -> str:
    """`test result: ok|FAILED. a passed; b failed; c ignored; d filtered out`."""
    word = "FAILED" if broken or totals.failed else "ok"
    counts = f"{totals.passed} passed; {totals.failed} failed; {totals.ignored} ignored; {totals.filtered} filtered out"
    return f"test result: {word}. {counts}"


class _Page:
    """Writes the pieces in their order."""

    def __init__(self, parsed: Parsed, max_failures: int, trace_lines: int) -> None:
        self._parsed = parsed
        self._max_failures = max_failures
        self._trace_lines = trace_lines
        self._loose_over = sum(_solid(piece) for piece in parsed.pieces if isinstance(piece, Loose)) - _LOOSE_LINES
        self._lines: list[str] = []
        self.cut = False

    def lines(self) -> list[str]:
        shown = short = 0
        for piece in self._parsed.pieces:
            match piece:
                case Kept(lines):
                    self._write(lines)
                case Loose(lines):
                    self._loose(lines)
                case Failure() if shown < self._max_failures:
                    shown += 1
                    self._failure(piece)
                case Failure():
                    if not short:
                        self._write([f"(failures after the first {self._max_failures}, in short:)"])
                    short += 1
                    self._in_short(piece)
        return self._lines

    def _failure(self, failure: Failure) -> None:
        lines, cut = (list(map(clipped, failure.lines)), False) if failure.whole else self._short(failure.lines)
        self.cut |= cut
        self._lines += [*lines, ""]

    def _short(self, lines: list[str]) -> tuple[list[str], bool]:
        heading, *trace = lines
        kept, cut = shorten(trace, self._trace_lines)
        return [heading, *kept], cut

    def _in_short(self, failure: Failure) -> None:
        self.cut = True
        heading = failure.lines[0]
        if failure.whole:
            self._lines += [heading, *(line for line in failure.lines[1:] if line.startswith("E  "))]
        else:
            name = heading.strip("_").strip() if heading.startswith("__") else heading
            self._lines.append(clipped(name if failure.message in name else f"{name} {failure.message}"))

    def _loose(self, lines: list[str]) -> None:
        if self._loose_over > 0:
            own = len(lines)
            kept, _ = shorten(lines, max(4, own - self._loose_over))
            self._loose_over -= max(0, own - len(kept))
            self.cut |= len(kept) < own
            lines = kept if len(kept) < own else lines
        self._write(list(map(clipped, lines)))

    def _write(self, lines: list[str]) -> None:
        """Lines, of blank ones no two in a row and none at the beginning."""
        for line in lines:
            if line.strip() or (self._lines and self._lines[-1].strip()):
                self._lines.append(line)


def _solid(piece: Loose) -> int:
    return sum(1 for line in piece.lines if line.strip())
