"""`python -m unittest`, and Django's runner, which prints the same."""

import re
from collections.abc import Sequence

from acp_agent.output.filters.test_summary.pieces import Format, Parsed, Totals

_HEADING = re.compile(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): \S")
_RAN = re.compile(r"Ran (\d+) tests? in [\d.]+s$")
_VERDICT = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>[^)]*)\))?$")
_COUNT = re.compile(r"([a-z ]+)=(\d+)")
_DOTS = re.compile(r"[.FEsxu]+$")
_VERBOSE = re.compile(r".*\.\.\. (?P<end>ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")
_DOUBLE, _SINGLE = "=" * 70, "-" * 70


class Unittest:
    """Goes through the lines once. `_failure` is the one under way."""

    def __init__(self) -> None:
        self._parsed = Parsed()
        self._failure: list[str] = []
        self._ran: int | None = None
        self._recognised = False

    def parse(self, lines: Sequence[str]) -> Parsed | None:
        for at, line in enumerate(lines):
            self._take(line, lines[at + 1] if at + 1 < len(lines) else "")
        self._close()
        return self._parsed if self._recognised else None

    def _take(self, line: str, following: str) -> None:
        if (line == _DOUBLE and _HEADING.match(following)) or (line == _SINGLE and _RAN.match(following)):
            self._close()
        elif ran := _RAN.match(line):
            self._close()
            self._ran = int(ran[1])
        elif self._ran is not None and (verdict := _VERDICT.match(line)):
            self._end(verdict)
        elif _HEADING.match(line) and not self._failure:
            self._failure = [line]
        elif self._failure:
            self._failure += [] if line == _SINGLE else [line]
        elif verbose := _VERBOSE.match(line):
            if verbose["end"] in {"FAIL", "ERROR"}:
                self._parsed.keep(line)
        elif not _DOTS.match(line):
            self._parsed.loose(line)

    def _end(self, verdict: re.Match[str]) -> None:
        counts = {what.strip(): int(count) for what, count in _COUNT.findall(verdict["counts"] or "")}
        failed = counts.get("failures", 0) + counts.get("errors", 0) + counts.get("unexpected successes", 0)
        ignored = counts.get("skipped", 0) + counts.get("expected failures", 0)
        ran = self._ran or 0
        self._parsed.totals.add(Totals(max(0, ran - failed - ignored), failed, ignored))
        self._parsed.keep(f"Ran {ran} tests: {verdict[0]}")
        self._recognised, self._ran = True, None

    def _close(self) -> None:
        if self._failure:
            message = next((line for line in reversed(self._failure[1:]) if line.strip()), "")
            self._parsed.fail(self._failure, message)
        self._failure = []


FORMAT = Format(words=("unittest", "manage.py test"), signs=("\nRan ",), parser=Unittest)
