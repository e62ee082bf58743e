"""The strategy `test_summary`: which tests failed and why, and the totals, in the test runner's own lines.

Each test runner has a parser of its own. Its result has only lines of the output, and notes in brackets that say what
was left out.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, CommandRun, Strategy
from acp_agent.text import lazy_regex, lines_left_out, shortened_line


@frozen
class KeptLines:
    """Lines that are always kept: errors, names of failures, totals."""

    lines: list[str]


@frozen
class UnknownLines:
    """Lines that no parser knows: output of tests or of other commands. Together they are kept up to a limit."""

    lines: list[str]


@frozen
class Failure:
    """One failure as it was printed, its heading first.

    said      the lines that say what went wrong; for the list of failures without details
    whole     True for an error that kept tests from running, such as a compiler error. Its details are not cut
    """

    lines: list[str]
    said: Sequence[str] = ()
    whole: bool = False


Piece: TypeAlias = KeptLines | UnknownLines | Failure


@dataclass(slots=True)
class ParsedOutput:
    """A parsed text. Its pieces are in the order of the output.

    recognised   the text contains a run of this test runner
    cut          something that may matter was left out already
    """

    pieces: list[Piece] = field(default_factory=list[Piece])
    recognised: bool = False
    cut: bool = False

    def mark(self, *, recognised: bool = False, cut: bool = False) -> None:
        """Set what is True."""
        self.recognised |= recognised
        self.cut |= cut

    def refine(self, form: "Format") -> None:
        """Parse the unknown lines as the output of a test runner, if they hold any."""
        pieces, self.pieces = self.pieces, []
        for piece in pieces:
            text = "\n".join(piece.lines) if isinstance(piece, UnknownLines) else ""
            found = form.parse(piece.lines) if any(sign in text for sign in form.signs) else ParsedOutput()
            self.pieces += found.pieces if found.recognised else [piece]
            if found.recognised:
                self.mark(recognised=True, cut=found.cut)

    def keep(self, line: str) -> None:
        """Keep a line."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, KeptLines):
            last.lines.append(line)
        else:
            self.pieces.append(KeptLines([line]))

    def loose(self, line: str) -> None:
        """Add a line that was not recognised."""
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, UnknownLines):
            last.lines.append(line)
        elif line.strip():
            self.pieces.append(UnknownLines([line]))

    def fail(self, lines: list[str], said: Sequence[str] = (), *, whole: bool = False) -> None:
        """Add a failure, without the blank lines at its end."""
        while lines and not lines[-1].strip():
            lines.pop()
        self.pieces.append(Failure(lines, said, whole))


@frozen
class Format:
    """A test runner whose output can be parsed.

    words      words in the command that runs it. The format named by the command is tried first
    signs      literals; every output of the runner contains at least one of them
    """

    words: tuple[str, ...]
    signs: tuple[str, ...]
    parse: Callable[[Sequence[str]], ParsedOutput]


LONGEST_LINE = 2000
"""The longest line that is parsed, in characters. The limit bounds the cost of a regular expression."""

_TELLING = lazy_regex(
    r"""E\s | >\s | [\w./\\-]+:\d+:\s | \ *(?:left|right):\s | [\w.]*(?:Error|Exception)\b
      | \s+\S+_test\.go:\d+: | \s+(?:Error|expected|actual|Expected|Received)\b.*: | panic: | [Ff]atal | FATAL
      | [Ee]rror | ERROR | Caused\ by | -+\ Captured | TOTAL\b | \s+(?:at|●|\u276f|\u00d7|✕)\s.*\.test\.[jt]sx?
      | Failed: | worker\ '""",
    re.VERBOSE,
)
_PANIC = "panicked at"
_AFTER_PANIC = 4  # lines of the message below "thread '...' panicked at ...:"


def shorten(lines: Sequence[str], limit: int) -> tuple[list[str], bool]:
    """Return at most `limit` lines, with marks for what was left out, and whether anything was.

    Lines that say what went wrong come first. If they alone are too many, their first and last ones stay. The remaining
    room goes to the beginning and the end. Lines over 2,000 characters lose their middle.
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
    """Return the indexes of the lines that say what went wrong, in order."""
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
            yield lines_left_out(i - expected)
        if i < len(lines):
            yield clipped(lines[i])
        expected = i + 1


def clipped(line: str) -> str:
    """Return a line without its middle if it is very long."""
    return shortened_line(line, LONGEST_LINE)


_LOOSE_LINES = 60  # of unrecognised lines, in all places together


RUN_ENDED = "[the run ended before its totals]"


def rendered(
    parsed: ParsedOutput,
    max_failures: int,
    trace_lines: int,
    whole: Sequence[str],
    *,
    loose_lines: int = _LOOSE_LINES,
) -> tuple[str, bool]:
    """Return the text, which ends with the number of lines left out, and whether any of them may matter.

    `loose_lines` is the number of unrecognised lines that are kept.
    """
    page = _Page(parsed, max_failures, trace_lines, loose_lines)
    lines = page.lines()
    missing = sum(map(bool, whole)) - sum(bool(line) and not _NOTE.fullmatch(line) for line in lines)
    note = [f"{lines_left_out(missing)[:-1]} in all]"] if missing > 0 else []
    return "\n".join((*lines, *note, "")), page.cut


_NOTE = lazy_regex(rf"\[[\d,]+ lines? left out\]|\[of the .*\]|{re.escape(RUN_ENDED)}")


_PARAMETERS = lazy_regex(r"\[.*\]|\d+")


def _one_of_each_test(failures: Sequence[Failure], most: int) -> frozenset[int]:
    """Return the indexes of at most `most` failures: the first of each test, then the first of all.

    Headings that differ only in parameters and numbers are those of one test.
    """
    first: dict[str, int] = {}
    for index, failure in enumerate(failures):
        first.setdefault(_PARAMETERS.sub("", failure.lines[0]), index)
    return frozenset(list(dict.fromkeys((*first.values(), *range(len(failures)))))[:most])


class _Page:
    """The text that is made of the parts, in their order."""

    def __init__(self, parsed: ParsedOutput, max_failures: int, trace_lines: int, loose_lines: int) -> None:
        self._parsed = parsed
        self._max_failures = max_failures
        self._trace_lines = trace_lines
        unknown = (line for piece in parsed.pieces if isinstance(piece, UnknownLines) for line in piece.lines)
        self._loose_over = sum(1 for line in unknown if line.strip()) - loose_lines
        self._lines: list[str] = []
        self.cut = False

    def lines(self) -> list[str]:
        failures = [piece for piece in self._parsed.pieces if isinstance(piece, Failure)]
        in_full = _one_of_each_test(failures, self._max_failures)
        note = [f"[of the {len(failures):,} failures {len(in_full)} in full, of the others only the messages]"]
        seen = 0
        for piece in self._parsed.pieces:
            match piece:
                case KeptLines(lines):
                    self._write(lines)
                case UnknownLines(lines):
                    self._loose(lines)
                case Failure():
                    if seen in in_full:
                        self._failure(piece)
                    else:
                        self._write(note)
                        self._in_short(piece)
                        note = []
                    seen += 1
        return self._lines

    def _failure(self, failure: Failure) -> None:
        if failure.whole:
            self._lines += [*map(clipped, failure.lines), ""]
            return
        kept, cut = shorten(failure.lines[1:], self._trace_lines)
        self.cut |= cut
        self._lines += [failure.lines[0], *kept, ""]

    def _in_short(self, failure: Failure) -> None:
        self.cut = True
        heading = failure.lines[0]
        said = [line for line in failure.lines[1:] if line.startswith("E  ")] if failure.whole else failure.said
        self._lines += map(clipped, (heading, *(line for line in said if line != heading)))

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


class SummaryOfTests:
    """The strategy `test_summary`: failures with message, place and trace, and the totals, in the runner's own lines.

    max_failures           number of failures with details, one of each test first. Of the others name and message are
                           kept
    truncate_stack_trace   lines of details for each failure
    fallback               what to do with a text without test runs

    If other commands print too, none of this counts: only passed tests and progress are left out.

    The confidence is Full if only passed tests and progress were left out, Partial if details of a failure or other
    output were, and Fallback if no test run was recognised.
    """

    def __init__(
        self, max_failures: int = 10, truncate_stack_trace: int = 50, fallback: Strategy | None = None
    ) -> None:
        self._max_failures = max_failures
        self._trace_lines = truncate_stack_trace
        self._fallback = fallback

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`. The result is never longer than the text."""
        lines = text.split("\n")
        too_long = max(map(len, lines)) > LONGEST_LINE
        parsed = ParsedOutput([UnknownLines(list(map(clipped, lines)) if too_long else lines)], cut=too_long)
        for form in _in_order(run):
            parsed.refine(form)
        mixed = len(run.printing) > 1  # lines of the other commands are among the unknown ones and in failures
        if not parsed.recognised:
            strategy = None if mixed else self._fallback
            return strategy.apply(text, run) if strategy is not None else Applied(text, Confidence.FALLBACK)
        if mixed:
            summary, cut = rendered(parsed, len(lines), len(lines), lines, loose_lines=len(lines))
        else:
            summary, cut = rendered(parsed, self._max_failures, self._trace_lines, lines)
        if len(summary) >= len(text):
            return Applied(text, Confidence.FULL)
        return Applied(summary, Confidence.PARTIAL if cut or parsed.cut else Confidence.FULL)


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
