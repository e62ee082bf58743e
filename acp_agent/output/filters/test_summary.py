"""The strategy `test_summary`: which tests failed and why, and the totals."""

from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, CommandRun
from acp_agent.output.filters.test_output import (
    LONGEST_LINE,
    Failure,
    Format,
    KeptLines,
    ParsedOutput,
    Piece,
    Totals,
    UnknownLines,
    clipped,
    shorten,
)

_LOOSE_LINES = 60  # of unrecognised lines, in all places together


def rendered(parsed: ParsedOutput, max_failures: int, trace_lines: int) -> tuple[str, bool]:
    """Return the text, which ends with the totals, and whether anything that may matter was left out."""
    page = _Page(parsed, max_failures, trace_lines)
    lines = page.lines()
    lines.append(totals_line(parsed.totals, broken=parsed.broken))
    return "\n".join(lines) + "\n", page.cut


def totals_line(totals: Totals, *, broken: bool) -> str:
    """Return the line `test result: ok|FAILED. a passed; b failed; c ignored; d filtered out`."""
    word = "FAILED" if broken or totals.failed else "ok"
    counts = f"{totals.passed} passed; {totals.failed} failed; {totals.ignored} ignored; {totals.filtered} filtered out"
    return f"test result: {word}. {counts}"


class _Page:
    """Writes the parts in their order."""

    def __init__(self, parsed: ParsedOutput, max_failures: int, trace_lines: int) -> None:
        self._parsed = parsed
        self._max_failures = max_failures
        self._trace_lines = trace_lines
        self._loose_over = (
            sum(_solid(piece) for piece in parsed.pieces if isinstance(piece, UnknownLines)) - _LOOSE_LINES
        )
        self._lines: list[str] = []
        self.cut = False

    def lines(self) -> list[str]:
        shown = short = 0
        for piece in self._parsed.pieces:
            match piece:
                case KeptLines(lines):
                    self._write(lines)
                case UnknownLines(lines):
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
        """Add lines, without blank ones at the beginning and without two blank ones in a row."""
        for line in lines:
            if line.strip() or (self._lines and self._lines[-1].strip()):
                self._lines.append(line)


def _solid(piece: UnknownLines) -> int:
    return sum(1 for line in piece.lines if line.strip())


class SummaryOfTests:
    """Writes failures with message, place and trace, then `test result: ...`, summed over all runs in the text.

    max_failures           number of failures with details. Of the others name and message are kept
    truncate_stack_trace   lines of details for each failure

    The confidence is Full if only passed tests and progress were left out, Partial if details of a failure or other
    output were, and Fallback if no test run was recognised.
    """

    def __init__(self, max_failures: int = 10, truncate_stack_trace: int = 50) -> None:
        self._max_failures = max_failures
        self._trace_lines = truncate_stack_trace

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`. The result is never longer than the text."""
        parsed = _taken_apart(text, run)
        if parsed is None:
            return Applied(text, Confidence.FALLBACK)
        parsed.broken |= run.failed and len(run.printing) <= 1  # pytest exits with an error if there was nothing to run
        summary, cut = rendered(parsed, self._max_failures, self._trace_lines)
        if len(summary) >= len(text):
            return Applied(text, Confidence.FULL)
        return Applied(summary, Confidence.PARTIAL if cut or parsed.cut else Confidence.FULL)


def _taken_apart(text: str, run: CommandRun) -> ParsedOutput | None:
    """Return the parts of all test runs in a text, None if there are none."""
    lines = text.split("\n")
    too_long = max(map(len, lines)) > LONGEST_LINE
    whole = ParsedOutput(pieces=[UnknownLines(list(map(clipped, lines)) if too_long else lines)])
    whole.cut = too_long
    recognised = False
    for form in _in_order(run):
        pieces: list[Piece] = []
        for piece in whole.pieces:
            found = (
                form.parser().parse(piece.lines) if isinstance(piece, UnknownLines) and _may_hold(form, piece) else None
            )
            if found is None:
                pieces.append(piece)
                continue
            recognised = True
            pieces += found.pieces
            whole.totals.add(found.totals)
            whole.broken |= found.broken
            whole.cut |= found.cut
        whole.pieces = pieces
    return whole if recognised else None


def _may_hold(form: Format, piece: UnknownLines) -> bool:
    text = "\n".join(piece.lines)
    return any(sign in text for sign in form.signs)


def _in_order(run: CommandRun) -> Sequence[Format]:
    """Return all formats, that of the command first: the other parsers then have less text to search."""
    # The parsers are loaded when the output of tests is first read.
    from acp_agent.output.filters.cargo_tests import CARGO, NEXTEST  # noqa: PLC0415
    from acp_agent.output.filters.go_tests import GO, GO_JSON  # noqa: PLC0415
    from acp_agent.output.filters.javascript_tests import JAVASCRIPT  # noqa: PLC0415
    from acp_agent.output.filters.python_tests import PYTEST, UNITTEST  # noqa: PLC0415

    # The output of nextest contains that of cargo's own harness, so nextest comes first.
    formats = (NEXTEST, CARGO, PYTEST, GO_JSON, GO, UNITTEST, JAVASCRIPT)
    commands = " ".join((*run.printing, run.command))
    return sorted(formats, key=lambda form: not any(word in commands for word in form.words))
