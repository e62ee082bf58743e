"""Find the failures and summary lines in the output of jest, vitest and mocha."""

from collections.abc import Sequence

from acp_agent.output.filters.test_summary import Format, ParsedOutput
from acp_agent.text import lazy_regex

_SUMMARY = lazy_regex(r"\s*Tests:?\s+\d+ [a-z]+\b.*$")
_MOCHA = lazy_regex(r"\s+\d+ (?:passing|failing|pending)\b")
_DETAIL = lazy_regex(r"\s*(?:● \S.*|⎯+ .*⎯+|FAIL\s+\S.* > .*|\d+\) \S.*)$")
_NOTE = lazy_regex(r"\s*(?:Test Suites|Test Files|Snapshots|Time|Duration|Errors|Unhandled Errors?)\b:?\s")
_PASSED = lazy_regex(r"\s*(?:PASS\b|○|↓|RUN\s+v\d|Start at|Ran all test suites|\[\d+/\d+\]⎯)")
_TICKS = frozenset("✓√✔")
_FIRST = frozenset("TSDEUFPR[0123456789●⎯○↓✕\u00d7✗\u276f")  # the first characters that `_take` looks for
_FAILED = lazy_regex(r"\s*(?:✕|\u00d7|✗|\u276f|FAIL\b)\s*\S")
_TROUBLE = lazy_regex(r"(?i:error|warn|fail|exception|reject)")
_LEVEL = 2  # columns by which these runners indent what is in a suite


class JavaScript:
    """A reader of the lines of these runners.

    `_failure` has the lines of the current failure. `_indented` has the last lines if they may be headings of suites.
    Headings above a passed test are dropped together with it.
    """

    def __init__(self) -> None:
        self._parsed = ParsedOutput()
        self._failure: list[str] = []
        self._indented: list[str] = []

    def parse(self, lines: Sequence[str]) -> ParsedOutput:
        for line in lines:
            first = line.lstrip()[:1]
            if first in _TICKS:  # true for most lines
                if self._failure:
                    self._close()
                elif self._indented:
                    self._drop_headings(line)
            elif first in _FIRST:
                self._take(line)
            elif self._failure:
                self._failure.append(line)
            else:
                self._loose(line)
        self._close()
        return self._parsed

    def _take(self, line: str) -> None:
        if _SUMMARY.match(line) or (line.startswith("  ") and _MOCHA.match(line)):
            self._close()
            self._parsed.mark(recognised=True)
            self._parsed.keep(line)
        elif _NOTE.match(line):
            self._close()
            self._parsed.keep(line)
        elif _DETAIL.match(line):
            self._detail(line)
        elif self._failure and not _PASSED.match(line) and not line.startswith(("FAIL ", " FAIL ")):
            self._failure.append(line)
        elif _FAILED.match(line):
            self._close()
            self._parsed.keep(line)
        elif _PASSED.match(line):
            self._close()
        else:
            self._loose(line)

    def _loose(self, line: str) -> None:
        if line[:2] == "  " or (self._indented and not line.strip()):
            self._indented.append(line)
        else:
            self._close()
            self._parsed.loose(line)

    def _drop_headings(self, passed: str) -> None:
        """Drop the headings above a passed test: lines that are indented one level less than what is below them."""
        depth = _depth(passed)
        while self._indented and (not self._indented[-1].strip() or _is_heading(self._indented[-1], depth)):
            if self._indented.pop().strip():
                depth -= _LEVEL
        self._close()

    def _detail(self, line: str) -> None:
        """Begin a failure. A heading of a test that follows the heading of its file belongs to the same failure."""
        if self._failure and not any(text.strip() for text in self._failure[1:]) and "⎯" not in line:
            self._failure.append(line)
            return
        self._close()
        self._failure = [line]

    def _close(self) -> None:
        """End the current failure, and keep the lines that are no headings of passed tests."""
        for line in self._indented:
            self._parsed.loose(line)
        self._indented = []
        if not self._failure:
            return
        if any(line.strip("⎯ \t") for line in self._failure):
            said = [line for line in self._failure[1:] if "rror" in line or "xpect" in line]
            self._parsed.fail(self._failure, said[:1])
        self._failure = []


def _is_heading(line: str, below: int) -> bool:
    return _depth(line) == below - _LEVEL and _TROUBLE.search(line) is None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


JAVASCRIPT = Format(
    words=("jest", "vitest", "mocha", "npm test", "npm run"),
    signs=("Tests:", "  Tests ", " passing ("),
    parse=lambda lines: JavaScript().parse(lines),
)
