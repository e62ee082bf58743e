"""pytest's terminal: any verbosity and --tb style, -x, xdist, interrupted runs, several runs one after another."""

import re
from collections.abc import Sequence

from acp_agent.output.filters.test_summary.pieces import Format, Parsed, Totals
from acp_agent.output.filters.test_summary.pytest_sections import failures, other, short_summary, warnings

_SECTION = re.compile(r"=+ (?P<title>\S.*?) =+$")
_TOTALS = re.compile(
    r"(?P<counts>no tests (?:ran|collected)|\d+ (?:tests? )?[a-z]+(?:, \d+ [a-z]+(?: [a-z]+)?)*)"
    r"(?: \(\d+ deselected\))? in \d+(?:\.\d+)?s.*$"
)
_COUNT = re.compile(r"(\d+) ([a-z]+)(?! passed)\b")
_HEADER = re.compile(
    r"(?:platform|rootdir|configfile|inifile|plugins|cachedir|testpaths|hypothesis profile|collecting|collected"
    r"|created|timeout|timeout method|timeout func_only|asyncio|metadata|benchmark|random-order|django"
    r"|\d+ workers? \[|scheduling tests via|gw\d+ |initialized: |bringing up nodes|Test session starts|cov\b)"
)
_WORDS = "PASSED|SKIPPED|XFAIL|XPASS|RERUN|FAILED|ERROR|SUBPASSED|SUBSKIPPED|SUBFAILED"
_VERBOSE = re.compile(
    rf"(?:[^\s:]+\.\w+::\S.*? )?(?P<word>{_WORDS})(?:\([^)]*\))?(?: \(.*\))?(?: +\[ *\d+%\])?$"
    rf"|\[gw\d+\] (?:\[ *\d+%\] )?(?P<worker>{_WORDS})(?:\([^)]*\))? [^\s:]+\.\w+::"
)
_PASSED = re.compile(r"\S+::.* PASSED +\[ *\d+%\]$")
_DOTS = re.compile(r"(?:\S+\.(?:py|md|rst|txt) )?(?P<dots>[.FEsxXRuUfp,-]+)(?:\s+\[ *(?:\d+%|\d+/\d+)\])?$")
_STOPPED = re.compile(r"!+ .* !+$")
_PLUGIN = re.compile(
    r"-+ (?:coverage: |generated |benchmark )\S.* -+$"
)  # a plugin's section without a heading of its own
_ENDS = frozenset("=-!0123456789")  # what a line that ends a section begins with
_PERCENT = re.compile(r"\s*\[ *(?:\d+%|\d+/\d+)\]$")
_STARTED = re.compile(r"[^\s:]+\.py::\S.*$")


class Pytest:
    """Goes through the lines once, section by section."""

    def __init__(self) -> None:
        self._parsed = Parsed()
        self._recognised = False
        self._begun = False
        self._ended = True
        self._unlisted: list[str] = []  # failures of -v, until the summary names them
        self._seen = Totals()  # by the dots and words of progress, for a run without totals
        self._totalled = False

    def parse(self, lines: Sequence[str]) -> Parsed | None:
        at, end = 0, len(lines)
        while at < end:
            line = lines[at]
            if line[:1] in _ENDS or line.startswith("no tests "):
                at = self._ruled(lines, at)
            elif line.endswith("%]") and (dots := _DOTS.match(line)):
                self._count(dots["dots"])
                at += 1
            else:
                self._take(line)
                at += 1
        if self._begun and not self._ended:
            self._recognised = self._parsed.broken = self._parsed.cut = True
            for line in self._unlisted:
                self._parsed.keep(line)
            self._parsed.keep("(the run ended before its totals)")
        if not self._ended or not self._totalled:
            self._parsed.totals.add(self._seen)
        return self._parsed if self._recognised else None

    def _ruled(self, lines: Sequence[str], at: int) -> int:
        """Take up what may be totals, or begin a section; the line behind it."""
        line = lines[at]
        if self._totals(line):
            return at + 1
        if line.startswith("=") and (section := _SECTION.match(line)):
            return self._section(section["title"], lines, at)
        if line.startswith("-") and _PLUGIN.match(line):
            return self._section("plugin", lines, at)
        if line.startswith("!") and _STOPPED.match(line):
            self._parsed.keep(line)
            self._parsed.broken |= "Interrupt" in line or "!!! _pytest" in line
        else:
            self._take(line)
        return at + 1

    def _take(self, line: str) -> None:
        """Any other line."""
        if line.endswith("%]") and _PASSED.match(line):
            self._seen.passed += 1
        elif self._begun and not self._ended and "::" not in line and _HEADER.match(line):
            if "error" in line:  # collected 1 item / 2 errors
                self._parsed.keep(line)
        elif not self._progress(line):
            self._parsed.loose(line)

    def _totals(self, line: str) -> bool:
        """`== 1 failed, 2 passed in 0.35s ==`, without the rules under -q."""
        bare = line.strip("= ") if line.startswith("=") else line
        if not bare[:1].isdigit() and not bare.startswith("no tests "):
            return False
        if (totals := _TOTALS.match(bare)) is None:
            return False
        counts = {what.removesuffix("s"): int(count) for count, what in _COUNT.findall(totals["counts"])}
        known = {"passed", "failed", "error", "skipped", "deselected", "xfailed", "xpassed", "warning", "rerun"}
        if not counts.keys() & known and not bare.startswith("no tests "):
            return False
        self._recognised = self._ended = self._totalled = True
        self._unlisted, self._seen = [], Totals()
        passed = counts.get("passed", 0) + counts.get("xpassed", 0)
        ignored = counts.get("skipped", 0) + counts.get("xfailed", 0)
        failed = counts.get("failed", 0) + counts.get("error", 0)
        self._parsed.totals.add(Totals(passed, failed, ignored, counts.get("deselected", 0)))
        self._parsed.keep(bare)
        return True

    def _section(self, title: str, lines: Sequence[str], at: int) -> int:
        end = self._section_end(lines, at + 1)
        inside = lines[at + 1 : end]
        match title.lower():
            case "test session starts":
                self._begun, self._ended = True, False
                return at + 1
            case "failures" | "errors":
                self._recognised = True
                self._parsed.keep(f"{title.lower()}:")
                failures(inside, self._parsed)
            case "short test summary info":
                self._unlisted, self._recognised = [], True
                short_summary(inside, self._parsed)
            case "passes" | "xpasses":
                self._parsed.cut = True
            case name if name.startswith("warnings summary"):
                warnings(inside, self._parsed)
            case _:
                other(lines[at], inside, self._parsed)
        return end

    @staticmethod
    def _section_end(lines: Sequence[str], start: int) -> int:
        """The next heading as wide as pytest's. Totals without rules end a section too, as does an interruption."""
        for at in range(start, len(lines)):
            line = lines[at]
            if line[:1] not in _ENDS:  # most lines
                continue
            if (line.startswith("=") and _SECTION.match(line)) or (line.startswith("-") and _PLUGIN.match(line)):
                return at
            if _STOPPED.match(line) or (line[:1].isdigit() and " in " in line and _TOTALS.match(line)):
                return at
        return len(lines)

    def _progress(self, line: str) -> bool:
        """Dots and `-v` lines. A failure of `-v` is told by the summary; without one its line stays."""
        if not line or line.isspace():
            return False
        dots = _DOTS.match(line)
        if dots and (len(dots["dots"]) > 3 or line.endswith("]") or ".py " in line):
            self._count(dots["dots"])
            return True
        if ("::" in line or line.endswith("%]")) and (verbose := _VERBOSE.match(line)):
            word = verbose["word"] or verbose["worker"]
            self._count(word[0])
            if word in {"FAILED", "ERROR", "SUBFAILED"}:
                self._unlisted.append(line.rstrip())
            return True
        if _PERCENT.fullmatch(line):
            return True
        return self._begun and not self._ended and _STARTED.match(line) is not None and " " not in line.rstrip()

    def _count(self, marks: str) -> None:
        """`P` and `.` have passed, `F` and `E` failed."""
        passed = marks.count(".") + marks.count("P")
        self._seen.passed += passed
        if passed == len(marks):  # most often
            return
        self._seen.failed += marks.count("F") + marks.count("E")
        self._seen.ignored += marks.count("s") + marks.count("x") + (marks == "S")


FORMAT = Format(
    words=("pytest", "py.test", "tox", "nox"),
    signs=("test session starts", " passed", " failed", " error", "no tests ran", " deselected", " skipped"),
    parser=Pytest,
)
