"""`cargo nextest run`: status lines, the output of failing tests in both layouts, the summary (2.11)."""

import re
from collections.abc import Sequence

from acp_agent.output.filters.test_summary import cargo_build
from acp_agent.output.filters.test_summary.pieces import Format, Parsed, Totals

_STATUS = re.compile(r"\s*(?P<word>[A-Z][A-Z0-9 /+-]*?) \[[^\]]*\] +(?:\([^)]*\) +)?(?P<test>\S.*)$")
_SUMMARY = re.compile(r"\s*Summary \[[^\]]*\]\s+(?P<run>\d+)(?:/(?P<of>\d+))? tests? run: (?P<counts>.*)$")
_COUNT = re.compile(r"(\d+) ([a-z][a-z ]*)")
_OLD_OUTPUT = re.compile(r"-{3,}\s*(?:TRY \d+ )?(?:STDOUT|STDERR|OUTPUT):\s+(?P<test>\S+(?: \S+)*)\s*-{3,}$")
_NEW_OUTPUT = re.compile(r"\s*(?:TRY \d+ )?(?:stdout|stderr|output) ─+$")
_RULE = re.compile(r"\s*(?:─{4,}|-{4,})$")
_START = re.compile(r"\s*(?:Starting \d+ tests? across|Nextest run ID|Running \[|Canceling|Cancelling|Cancell?ed)")
_HARNESS = re.compile(r"\s*(?:running \d+ tests?$|failures:$|test result: |-{4} .* stdout -{4}$)")
_GOOD = {"PASS", "SLOW", "LEAK", "SKIP", "START", "SETUP PASS", "RETRY", "DELAY"}
_FAILED = {"failed", "timed out", "exec failed", "failed to execute", "setup script failed"}


class Nextest:
    """Goes through the lines once. `_failure` is the failure whose output may follow."""

    def __init__(self) -> None:
        self._parsed = Parsed()
        self._failure: list[str] = []
        self._in_output = False
        self._reported: set[str] = set()
        self._recognised = False

    def parse(self, lines: Sequence[str]) -> Parsed | None:
        at = 0
        while at < len(lines):
            at = self._take(lines, at)
        self._close()
        return self._parsed if self._recognised else None

    def _take(self, lines: Sequence[str], at: int) -> int:
        line = lines[at]
        if line.lstrip().startswith("PASS ["):
            self._close()
            return at + 1
        if self._summary(line) or self._status(line) or self._output_begins(line) or self._of_output(line):
            return at + 1
        if _RULE.match(line) or cargo_build.is_progress(line):
            self._close()
            return at + 1
        if _START.match(line):
            self._close()
            if "Cancel" in line:
                self._parsed.keep(line)
            return at + 1
        self._close()
        after = cargo_build.diagnostic(lines, at, self._parsed)
        if after > at:
            return after
        self._parsed.loose(line)
        return at + 1

    def _summary(self, line: str) -> bool:
        if "Summary [" not in line or (summary := _SUMMARY.match(line)) is None:
            return False
        self._close()
        self._recognised = True
        counts = {
            what.strip(): int(count) for count, what in _COUNT.findall(re.sub(r"\([^)]*\)", "", summary["counts"]))
        }
        failed = sum(count for what, count in counts.items() if what in _FAILED)
        self._parsed.totals.add(Totals(counts.get("passed", 0), failed, counts.get("skipped", 0)))
        self._parsed.broken |= summary["of"] is not None
        self._parsed.keep(line.strip())
        return True

    def _status(self, line: str) -> bool:
        """`PASS [   0.004s] crate tests::name` and its kin; the summary repeats those that failed."""
        if "[" not in line or (status := _STATUS.match(line)) is None:
            return False
        self._close()
        word, test = status["word"].strip(), status["test"]
        if word in _GOOD or word.startswith("RETRY"):
            return True
        if word.startswith("FLAKY"):
            self._parsed.keep(line.strip())
        elif test not in self._reported or word.startswith("TRY"):
            self._reported.add(test)
            self._failure = [line.strip()]
        return True

    def _output_begins(self, line: str) -> bool:
        if old := _OLD_OUTPUT.match(line):
            self._in_output = True
            if not self._failure or not self._failure[0].endswith(old["test"]):
                self._close(in_output=True)
                self._failure = [line]
            return True
        if _NEW_OUTPUT.match(line):
            self._in_output = True
            return True
        return False

    def _of_output(self, line: str) -> bool:
        """A line of a failing test's output: the harness around it is left out."""
        if not self._in_output or _RULE.match(line) or _START.match(line):
            return not line.strip() and bool(self._failure)
        bare = line.strip()
        if _HARNESS.match(line) or (bare and self._failure[0].endswith(f" {bare}")):
            return True
        if not bare and not self._failure[-1].strip():
            return True
        self._failure.append(line)
        return True

    def _close(self, *, in_output: bool = False) -> None:
        if self._failure:
            self._parsed.fail(self._failure, _message(self._failure))
        self._failure, self._in_output = [], in_output


def _message(lines: list[str]) -> str:
    for i, line in enumerate(lines):
        if "panicked at " in line:
            said = lines[i + 1].strip() if i + 1 < len(lines) else ""
            return f"{line.partition('panicked at ')[2]} {said}".strip()
    return next((line.strip() for line in lines if line.lstrip().startswith(("Error:", "error:"))), "")


FORMAT = Format(words=("nextest",), signs=("Summary [",), parser=Nextest)
