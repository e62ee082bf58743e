"""Read the output of `go test`: plain, -v and -json. JSON events are turned back into the lines of `go test -v`."""

import re
from collections.abc import Sequence

from acp_agent.core.untrusted import json_value
from acp_agent.output.filters.test_summary import Format, ParsedOutput, UnknownLines
from acp_agent.text import lazy_regex

_EVENT = lazy_regex(r"=== (?P<what>RUN|PAUSE|CONT|NAME|FAIL)\s+(?P<test>\S.*)$")
_END = lazy_regex(r"(?P<indent>\s*)--- (?P<what>PASS|FAIL|SKIP|BENCH): (?P<test>\S+)(?: \([\d.]+s\))?$")
_PACKAGE = lazy_regex(r"(?P<what>ok  |FAIL|\?   |---)\t(?P<package>\S+)(?P<rest>.*)$")
_BUILD = lazy_regex(r"# \S+")
_PANIC = lazy_regex(
    r"(?:panic: |fatal error: |unexpected fault address|SIG[A-Z]+: |WARNING: DATA RACE|\*\*\* Test killed)"
)
_PANIC_LETTERS = frozenset("pfuSW*")  # with which a match of _PANIC begins
_EXIT = lazy_regex(r"(?:exit status \d+|signal: \w+)$")


class GoPlain:
    """A reader of the lines of `go test`.

    `_printed` holds the output of running tests: by the name of the test without subtests, then by the whole name. The
    output of a test is dropped when it passes.
    """

    def __init__(self) -> None:
        self._parsed = ParsedOutput()
        self._printed: dict[str, dict[str, list[str]]] = {}
        self._current = ""
        self._failure: list[str] = []
        self._crash: list[str] = []

    def parse(self, lines: Sequence[str]) -> ParsedOutput:
        for line in lines:
            if line.startswith("--- PASS: "):
                self._passed(line[len("--- PASS: ") :].partition(" ")[0])
            elif line.startswith("=== ") and (event := _EVENT.match(line)):
                self._close()
                self._current = event["test"]
                self._output(self._current)
            else:
                self._take(line)
        self._close()
        return self._parsed

    def _take(self, line: str) -> None:
        if "--- " in line and (end := _END.match(line)):
            self._test_ended(end, line)
        elif "\t" in line and (package := _PACKAGE.match(line)):
            self._package(package, line)
        elif line in {"PASS", "FAIL"} or (line.startswith(("exit ", "signal: ")) and _EXIT.match(line)):
            self._verdict(line)
        elif self._crash or (line[:1] in _PANIC_LETTERS and _PANIC.match(line)):
            self._crash_line(line)
        elif self._failure and (line.startswith((" ", "\t")) or not line):
            self._failure.append(line)
        elif self._current:
            self._output(self._current).append(line)
        else:
            self._outside(line)

    def _passed(self, test: str) -> None:
        self._close()
        self._parsed.mark(recognised=True)
        self._take_output(test)
        self._printed.pop(test, None)
        self._current = ""

    def _test_ended(self, end: re.Match[str], line: str) -> None:
        self._parsed.mark(recognised=True)
        indent, test, what = len(end["indent"]), end["test"], end["what"]
        printed = self._take_output(test)
        if what == "FAIL":
            if indent == 0 or not self._failure:
                self._close()
                self._failure = [line, *printed]
            else:
                self._failure += [line, *printed]
        if indent == 0:
            for subtest in self._printed.pop(test, {}).values():
                if what == "FAIL":
                    self._failure += subtest
            self._current = ""

    def _output(self, test: str) -> list[str]:
        """Return the output of a running test, to which lines can be added."""
        return self._printed.setdefault(test.partition("/")[0], {}).setdefault(test, [])

    def _take_output(self, test: str) -> list[str]:
        """Return the output of a test and forget it, but not that of its subtests."""
        return self._printed.get(test.partition("/")[0], {}).pop(test, [])

    def _package(self, package: re.Match[str], line: str) -> None:
        self._parsed.mark(recognised=True)
        self._close()
        what = package["what"].strip()
        if what == "ok":
            self._parsed.loose(line)
        elif what == "FAIL":
            self._parsed.keep(line)
        self._printed.clear()
        self._current = ""

    def _verdict(self, line: str) -> None:
        self._close()
        if not line.startswith(("exit status", "signal:")):
            return
        if self._parsed.recognised or self._current:
            self._parsed.keep(line)
        else:
            self._parsed.loose(line)

    def _crash_line(self, line: str) -> None:
        """Take a line of a panic or a timeout, after the output of the running test."""
        if not self._crash:
            self._close()
            self._parsed.mark(recognised=bool(self._current))
            running = [printed for tests in self._printed.values() for printed in tests.values()]
            self._crash = [line, *(said for printed in running if len(running) < 4 for said in printed)]
            return
        self._crash.append(line)

    def _outside(self, line: str) -> None:
        """Take a line outside of tests: compiler errors, which stay whole, coverage and other text."""
        self._close()
        if _BUILD.match(line) or re.match(r"\S+\.go:\d+(?::\d+)?: |too many errors|\tnote: ", line):
            self._parsed.keep(line)
        else:
            self._parsed.loose(line)

    def _close(self) -> None:
        if not self._failure and not self._crash:
            return
        for lines in (self._failure, self._crash):
            if lines:
                self._parsed.fail(list(lines), _messages(lines))
        self._failure, self._crash = [], []


def _messages(lines: list[str]) -> list[str]:
    if _PANIC.match(lines[0]):
        return []
    located = [line for line in lines[1:] if re.match(r"\s*\S+\.go:\d+: ", line)]
    return located[:1] or lines[1:2]


GO = Format(
    words=("go test",),
    signs=("ok  \t", "FAIL\t", "--- FAIL: ", "--- PASS: ", "--- SKIP: "),
    parse=lambda lines: GoPlain().parse(lines),
)


def _parse_json(lines: Sequence[str]) -> ParsedOutput:
    """Parse the events of one package after the other, since packages that run in parallel mix their events."""
    packages: dict[str, list[str]] = {}
    rest: list[str] = []
    for line in lines:
        event = _event(line)
        if event is None:
            rest.append(line)
        elif output := event.get("Output"):
            name = event.get("Package") or event.get("ImportPath", "").partition(" ")[0]
            packages.setdefault(name, []).append(output)
    plain = (line for outputs in packages.values() for line in "".join(outputs).removesuffix("\n").split("\n"))
    found = GoPlain().parse(list(plain))
    if any(line.strip() for line in rest):
        found.pieces.append(UnknownLines(rest))
    return found


def _event(line: str) -> dict[str, str] | None:
    """Return the string members of an event, or None if the line is not an event."""
    if not line.startswith("{") or '"Action":' not in line:
        return None
    try:
        event = json_value(line)
    except ValueError:
        return None
    return {name: value for name, value in event.items() if isinstance(value, str)} if isinstance(event, dict) else None


GO_JSON = Format(words=("-json",), signs=('"Action":',), parse=_parse_json)
