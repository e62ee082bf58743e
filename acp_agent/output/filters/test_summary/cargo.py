"""`cargo test`: the standard harness, plain, quiet and with --nocapture, of any number of test binaries."""

import re
from collections.abc import Sequence

from acp_agent.output.filters.test_summary import cargo_build
from acp_agent.output.filters.test_summary.pieces import Format, Parsed, Totals

_TEST = re.compile(r"test (?P<name>.+?) \.\.\. (?P<end>ok|FAILED|ignored|bench:)(?P<rest>.*)$")
_QUIET_FAILURE = re.compile(r"(\S.*) --- FAILED$")
_QUIET_DOTS = re.compile(r"[.Fia]+(?: \d+/\d+)?$")
_RUNNING = re.compile(r"running (\d+) tests?$")
_RESULT = re.compile(
    r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; (?:\d+ measured; )?(\d+) filtered out"
)
_BLOCK = re.compile(r"---- (?P<name>.+) std(?:out|err) ----$")
_OLD_PANIC = re.compile(r"thread '.*' panicked at '(.*)', \S+$")
_CARGO_GAVE_UP = re.compile(r"error: (?:(?:doc)?test|bench) failed, to rerun")
_BEGINNINGS = ("test ", "running ", "error", "warning", "Caused by:", *cargo_build.FIRST_LETTERS)
_SECTIONS = ("failures:", "successes:")


class CargoTest:
    """Goes through the lines once. `_expected` is the size of the run under way, None outside of one."""

    def __init__(self) -> None:
        self._parsed = Parsed()
        self._expected: int | None = None
        self._seen = Totals()
        self._named: set[str] = set()
        self._recognised = False

    def parse(self, lines: Sequence[str]) -> Parsed | None:
        at, end = 0, len(lines)
        while at < end:
            line = lines[at]
            if not line:
                self._parsed.loose(line)
                at += 1
            elif self._expected is not None and line.endswith(" ... ok") and line.startswith("test "):
                self._seen.passed += 1
                at += 1
            else:
                at = self._take(lines, at)
        self._ended_early()
        return self._parsed if self._recognised else None

    def _take(self, lines: Sequence[str], at: int) -> int:
        """Take up what begins at a line; the line behind it."""
        line = lines[at]
        if self._expected is None and not line.startswith(_BEGINNINGS):
            self._parsed.loose(line)
            return at + 1
        if line.startswith("test ") and self._test(line):
            return at + 1
        if line in _SECTIONS and self._expected is not None:
            return self._section(lines, at)
        if self._harness(line):
            return at + 1
        if self._expected is None:
            if cargo_build.is_progress(line):
                return at + 1
            after = cargo_build.diagnostic(lines, at, self._parsed)
            if after > at:
                return after
        self._parsed.loose(line)
        return at + 1

    def _test(self, line: str) -> bool:
        """A line about one test that did not simply pass, or the totals of a binary."""
        if result := _RESULT.match(line):
            self._recognised = True
            self._parsed.totals.add(Totals(*map(int, result.groups())))
            self._expected, self._seen = None, Totals()
            return True
        if self._expected is None or (test := _TEST.match(line)) is None:
            return False
        end, rest = test["end"], test["rest"]
        if end == "FAILED":
            self._seen.failed += 1
            self._name(test["name"].removesuffix(" - should panic"), line)
        elif end == "ignored":
            self._seen.ignored += 1
        else:
            self._seen.passed += 1
            if end == "ok" and rest and not rest.startswith(" <"):
                self._parsed.loose(rest)  # with --nocapture a test's words can follow on the same line
        return True

    def _harness(self, line: str) -> bool:
        if line.startswith("error: ") and _CARGO_GAVE_UP.match(line):
            self._ended_early()
        if line.startswith("running ") and (running := _RUNNING.match(line)):
            self._ended_early()
            self._expected = int(running[1])
            return True
        if self._expected is None:
            return False
        if quiet := _QUIET_FAILURE.match(line):
            self._seen.failed += 1
            self._name(quiet[1], line)
            return True
        if _QUIET_DOTS.match(line):
            dots = line.partition(" ")[0]
            self._seen.passed += dots.count(".")
            self._seen.ignored += dots.count("i")
            return True
        return False

    def _section(self, lines: Sequence[str], at: int) -> int:
        """Details of failures, the list of their names, or what passing tests printed (--show-output)."""
        failing = lines[at] == "failures:"
        at += 1
        block: list[str] = []
        while at < len(lines) and lines[at] not in _SECTIONS and not lines[at].startswith("test result: "):
            line = lines[at]
            if _BLOCK.match(line):
                self._failure(block, failing=failing)
                block = [line]
            elif block:
                block.append(line)
            elif failing and line.startswith("    "):
                self._name(line.strip().removesuffix(" - should panic"), line)
            elif line.strip():
                self._parsed.loose(line)
            at += 1
        self._failure(block, failing=failing)
        return at

    def _failure(self, block: list[str], *, failing: bool) -> None:
        if not block:
            return
        if failing:
            self._parsed.fail(block, _message(block))
        elif any(line.strip() for line in block[1:]):
            self._parsed.cut = True

    def _name(self, name: str, line: str) -> None:
        if name not in self._named:
            self._named.add(name)
            self._parsed.keep(line)

    def _ended_early(self) -> None:
        """A run without totals: the process was killed, aborted or timed out."""
        if self._expected is None:
            return
        seen = self._seen.passed + self._seen.failed + self._seen.ignored
        if seen or self._recognised:
            self._recognised = self._parsed.broken = self._parsed.cut = True
            self._parsed.totals.add(self._seen)
            self._parsed.keep(f"(the run ended before its totals: {seen} of {self._expected} tests reported)")
        self._expected, self._seen = None, Totals()


def _message(block: list[str]) -> str:
    """What a panic said, with its place; else the first `Error: …` line."""
    for i, line in enumerate(block):
        if old := _OLD_PANIC.match(line):
            return old[1]
        if "panicked at " in line:
            said = block[i + 1] if i + 1 < len(block) else ""
            return f"{line.partition('panicked at ')[2]} {said}".strip()
    return next((line.strip() for line in block[1:] if line.startswith(("Error:", "error:", "note:"))), "")


FORMAT = Format(words=("cargo",), signs=("test result: ", "\nrunning ", "running "), parser=CargoTest)
