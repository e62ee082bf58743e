"""Read the output of pytest and of `python -m unittest`, including that of Django's test runner.

For pytest, every verbosity and --tb style, -x, xdist, interrupted runs and several consecutive runs are understood.
"""

from collections.abc import Sequence

from acp_agent.output.filters.test_summary import RUN_ENDED, Format, ParsedOutput, clipped, shorten
from acp_agent.text import lazy_regex, lines_left_out

_TITLE = lazy_regex(r"_+ (?!_ )(?P<title>\S(?:.*\S)?) _+$")
_TRACE_RULE = lazy_regex(r"(?:_ )+_?$")
_LINE_STYLE = lazy_regex(r"(?:\S.*:\d+: \S|\[XPASS\(strict\)\])")
_ERROR_LINE = "E  "
_PART = lazy_regex(r"E +(?:[?+-] |\+$|-$)")  # lines of a difference, and of where a value in the message came from
_WORKER = lazy_regex(r"\[gw\d+\] \w+ -- Python ")
_LISTED = lazy_regex(r"(?:FAILED|ERROR|SUBFAILED|SUBFAIL)\b")
_WARNING = lazy_regex(r"\s+(?P<place>\S.*?:\d+): (?P<message>\S.*)$")
_MESSAGE_LINES = 3
_MOST_WARNINGS = 20
_MOST_NOTES = 20
_SECTION_LINES = 40


def failures(lines: Sequence[str], parsed: ParsedOutput) -> None:
    """Take one failure for each heading `____ name ____`, or, with --tb=line, for each line `path:line: ...`."""
    block: list[str] = []
    titled = False
    for line in lines:
        first = line[:1]
        if first == "_" and _TITLE.match(line) and not _TRACE_RULE.match(line):
            _close(block, parsed)
            block, titled = [line], True
        elif not titled and _LINE_STYLE.match(line):
            _close([*block, line], parsed)
            block = []
        elif first != "[" or not _WORKER.match(line):
            block.append(line)
    _close(block, parsed)


def _close(block: list[str], parsed: ParsedOutput) -> None:
    if not any(line.strip() for line in block):
        return
    whole = "ERROR collecting" in block[0]
    said = [line for line in block if line.startswith(_ERROR_LINE) and not _PART.match(line)]
    said = [line for line in said if line[1:].strip()] or [line for line in block[1:] if line.strip()][-1:]
    parsed.fail(list(block), said[:_MESSAGE_LINES], whole=whole)


def short_summary(lines: Sequence[str], parsed: ParsedOutput) -> None:
    """Keep every line that names a failure, a few about skipped tests and none about passed ones."""
    notes: list[str] = []
    for line in lines:
        if _LISTED.match(line):
            parsed.keep(clipped(line))
        elif line.strip() and not line.startswith("PASSED"):
            notes.append(line)
    for line in notes[:_MOST_NOTES]:
        parsed.keep(clipped(line))
    if len(notes) > _MOST_NOTES:
        parsed.keep(lines_left_out(len(notes) - _MOST_NOTES))
        parsed.mark(cut=True)


def warnings(heading: str, lines: Sequence[str], parsed: ParsedOutput) -> None:
    """Keep the first line of each different message."""
    first: dict[str, str] = {}
    for line in lines:
        if warning := _WARNING.match(line):
            first.setdefault(warning["message"], line)
    if not first:
        other(heading, lines, parsed)
        return
    parsed.keep(heading)
    for line in list(first.values())[:_MOST_WARNINGS]:
        parsed.keep(clipped(line))
    if len(first) > _MOST_WARNINGS:
        parsed.keep(lines_left_out(len(first) - _MOST_WARNINGS))
        parsed.mark(cut=True)


def other(heading: str, lines: Sequence[str], parsed: ParsedOutput) -> None:
    """Take the section of a plugin, such as coverage. The middle of a long one is left out."""
    solid = [line for line in lines if line.strip()]
    kept, cut = shorten(solid, _SECTION_LINES)
    parsed.mark(cut=cut)
    for line in (heading, *kept):
        parsed.keep(line)


_SECTION = lazy_regex(r"=+ (?P<title>\S.*?) =+$")
_TOTALS = lazy_regex(
    r"(?P<counts>no tests (?:ran|collected)|\d+ (?:tests? )?[a-z]+(?:, \d+ [a-z]+(?: [a-z]+)?)*)"
    r"(?: \(\d+ deselected\))? in \d+(?:\.\d+)?s.*$"
)
_COUNT = lazy_regex(r"(\d+) ([a-z]+)(?! passed)\b")
_HEADER = lazy_regex(
    r"(?:platform|rootdir|configfile|inifile|plugins|cachedir|testpaths|hypothesis profile|collecting|collected"
    r"|created|timeout|timeout method|timeout func_only|asyncio|metadata|benchmark|random-order|django"
    r"|\d+ workers? \[|scheduling tests via|gw\d+ |initialized: |bringing up nodes|Test session starts|cov\b)"
)
_WORDS = "PASSED|SKIPPED|XFAIL|XPASS|RERUN|FAILED|ERROR|SUBPASSED|SUBSKIPPED|SUBFAILED"
_VERBOSE = lazy_regex(
    rf"(?:[^\s:]+\.\w+::\S.*? )?(?P<word>{_WORDS})(?:\([^)]*\))?(?: \(.*\))?(?: +\[ *\d+%\])?$"
    rf"|\[gw\d+\] (?:\[ *\d+%\] )?(?P<worker>{_WORDS})(?:\([^)]*\))? [^\s:]+\.\w+::"
)
_PASSED = lazy_regex(r"\S+::.* PASSED +\[ *\d+%\]$")
_DOTS = lazy_regex(r"(?:\S+\.(?:py|md|rst|txt) )?(?P<dots>[.FEsxXRuUfp,-]+)(?:\s+\[ *(?:\d+%|\d+/\d+)\])?$")
_STOPPED = lazy_regex(r"!+ .* !+$")
# A section of a plugin that has no heading.
_PLUGIN = lazy_regex(r"-+ (?:coverage: |generated |benchmark )\S.* -+$")
_ENDS = frozenset("=-!0123456789")  # the first characters of lines that end a section
_PERCENT = lazy_regex(r"\s*\[ *(?:\d+%|\d+/\d+)\]$")
_STARTED = lazy_regex(r"[^\s:]+\.py::\S.*$")


class Pytest:
    """A reader of the lines of pytest, section by section."""

    def __init__(self) -> None:
        self._parsed = ParsedOutput()
        self._begun = False
        self._ended = True
        self._unlisted: list[str] = []  # progress with failures, until the summary names them

    def parse(self, lines: Sequence[str]) -> ParsedOutput:
        at, end = 0, len(lines)
        while at < end:
            line = lines[at]
            if line[:1] in _ENDS or line.startswith("no tests "):
                at = self._ruled(lines, at)
            elif line.endswith("%]") and (dots := _DOTS.match(line)):
                self._dots(dots["dots"], line)
                at += 1
            else:
                self._take(line)
                at += 1
        if self._begun and not self._ended:
            self._parsed.mark(recognised=True, cut=True)
            for line in self._unlisted:
                self._parsed.keep(line)
            self._parsed.keep(RUN_ENDED)
        return self._parsed

    def _ruled(self, lines: Sequence[str], at: int) -> int:
        """Take the totals or a section. Return the index of the line after it."""
        line = lines[at]
        if self._totals(line):
            return at + 1
        if line.startswith("=") and (section := _SECTION.match(line)):
            return self._section(section["title"], lines, at)
        if line.startswith("-") and _PLUGIN.match(line):
            return self._section("plugin", lines, at)
        if line.startswith("!") and _STOPPED.match(line):
            self._parsed.keep(line)
        else:
            self._take(line)
        return at + 1

    def _take(self, line: str) -> None:
        """Take a line outside of sections."""
        if line.endswith("%]") and _PASSED.match(line):
            return
        if self._begun and not self._ended and "::" not in line and _HEADER.match(line):
            if "error" in line:  # collected 1 item / 2 errors
                self._parsed.keep(line)
        elif not self._progress(line):
            self._parsed.loose(line)

    def _totals(self, line: str) -> bool:
        """Take a line of totals, `== 1 failed, 2 passed in 0.35s ==` (no `=` with -q). Return False for other lines."""
        bare = line.strip("= ") if line.startswith("=") else line
        if not bare[:1].isdigit() and not bare.startswith("no tests "):
            return False
        if (totals := _TOTALS.match(bare)) is None:
            return False
        counts = {what.removesuffix("s") for _, what in _COUNT.findall(totals["counts"])}
        known = {"passed", "failed", "error", "skipped", "deselected", "xfailed", "xpassed", "warning", "rerun"}
        if not counts & known and not bare.startswith("no tests "):
            return False
        self._parsed.mark(recognised=True)
        self._ended, self._unlisted = True, []
        self._parsed.keep(line)
        return True

    def _section(self, title: str, lines: Sequence[str], at: int) -> int:
        end = self._section_end(lines, at + 1)
        inside = lines[at + 1 : end]
        match title.lower():
            case "test session starts":
                self._begun, self._ended = True, False
                return at + 1
            case "failures" | "errors":
                self._parsed.mark(recognised=True)
                self._parsed.keep(lines[at])
                failures(inside, self._parsed)
            case "short test summary info":
                self._parsed.mark(recognised=True)
                self._unlisted = []
                self._parsed.keep(lines[at])
                short_summary(inside, self._parsed)
            case "passes" | "xpasses":
                self._parsed.mark(cut=True)
            case name if name.startswith("warnings summary"):
                warnings(lines[at], inside, self._parsed)
            case _:
                other(lines[at], inside, self._parsed)
        return end

    @staticmethod
    def _section_end(lines: Sequence[str], start: int) -> int:
        """Return the index where a section ends: at the next heading, at totals without `=`, or at an interruption."""
        for at in range(start, len(lines)):
            line = lines[at]
            if line[:1] not in _ENDS:  # true for most lines
                continue
            if (line.startswith("=") and _SECTION.match(line)) or (line.startswith("-") and _PLUGIN.match(line)):
                return at
            if _STOPPED.match(line) or (line[:1].isdigit() and " in " in line and _TOTALS.match(line)):
                return at
        return len(lines)

    def _progress(self, line: str) -> bool:
        """Take a line of dots or of -v. The line of a failure is used only if no summary repeats it."""
        if not line or line.isspace():
            return False
        dots = _DOTS.match(line)
        if dots and (len(dots["dots"]) > 3 or line.endswith("]") or ".py " in line):
            self._dots(dots["dots"], line)
            return True
        if ("::" in line or line.endswith("%]")) and (verbose := _VERBOSE.match(line)):
            if (verbose["word"] or verbose["worker"]) in {"FAILED", "ERROR", "SUBFAILED"}:
                self._unlisted.append(line)
            return True
        if _PERCENT.fullmatch(line):
            return True
        return self._begun and not self._ended and _STARTED.match(line) is not None and " " not in line.rstrip()

    def _dots(self, marks: str, line: str) -> None:
        """Remember a line of dots with a failure."""
        if "F" in marks or "E" in marks:
            self._unlisted.append(line)


PYTEST = Format(
    words=("pytest", "py.test", "tox", "nox"),
    signs=("test session starts", " passed", " failed", " error", "no tests ran", " deselected", " skipped"),
    parse=lambda lines: Pytest().parse(lines),
)


_HEADING = lazy_regex(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): \S")
_RAN = lazy_regex(r"Ran \d+ tests? in [\d.]+s$")
_VERDICT = lazy_regex(r"(?:OK|FAILED|NO TESTS RAN)(?: \([^)]*\))?$")
_UNITTEST_DOTS = lazy_regex(r"[.FEsxu]+$")
_UNITTEST_VERBOSE = lazy_regex(r".*\.\.\. (?P<end>ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")
_DOUBLE, _SINGLE = "=" * 70, "-" * 70


class Unittest:
    """A reader of the lines of unittest. `_failure` is the current failure."""

    def __init__(self) -> None:
        self._parsed = ParsedOutput()
        self._failure: list[str] = []
        self._ran = False

    def parse(self, lines: Sequence[str]) -> ParsedOutput:
        for at, line in enumerate(lines):
            self._take(line, lines[at + 1] if at + 1 < len(lines) else "")
        self._close()
        return self._parsed

    def _take(self, line: str, following: str) -> None:
        if (line == _DOUBLE and _HEADING.match(following)) or (line == _SINGLE and _RAN.match(following)):
            self._close()
        elif _RAN.match(line):
            self._close()
            self._parsed.keep(line)
            self._ran = True
        elif self._ran and _VERDICT.match(line):
            self._parsed.keep(line)
            self._parsed.mark(recognised=True)
            self._ran = False
        elif _HEADING.match(line) and not self._failure:
            self._failure = [line]
        elif self._failure:
            self._failure += [] if line == _SINGLE else [line]
        elif verbose := _UNITTEST_VERBOSE.match(line):
            if verbose["end"] in {"FAIL", "ERROR"}:
                self._parsed.keep(line)
        elif not _UNITTEST_DOTS.match(line):
            self._parsed.loose(line)

    def _close(self) -> None:
        if self._failure:
            self._parsed.fail(self._failure, [line for line in self._failure[1:] if line.strip()][-1:])
        self._failure = []


UNITTEST = Format(words=("unittest", "manage.py test"), signs=("\nRan ",), parse=lambda lines: Unittest().parse(lines))
