"""The output of `cargo test` and `cargo nextest run`, and of the build before them.

`cargo test` is read plain, quiet and with --nocapture, for any number of test binaries. It reads both layouts in
which nextest prints the output of failing tests.
"""

from collections.abc import Sequence

from acp_agent.output.filters.test_summary import RUN_ENDED, Format, ParsedOutput
from acp_agent.text import lazy_regex

_PROGRESS = lazy_regex(
    r" {0,11}(?:Compiling|Downloading|Downloaded|Updating|Fetching|Fresh|Packaging|Verifying|Archiving|Locking|Adding"
    r"|Removing|Checking|Documenting|Running|Loaded|Blocking|Unpacking|Finished|Doc-tests|Dirty|Executable|Building) "
    r"|\[[\d,]+ (?:other )?lines? left out\]$"
)
_FIRST_LETTERS = tuple(" [ABCDEFLPRUV")
_WARNING = lazy_regex(r"warning(?:\[\w+\])?: ")
_GENERATED = lazy_regex(r"warning: `[^`]+` \([^)]*\) generated \d+ warnings?\b")
_ARROW = lazy_regex(r"\s*--> ")
_ERROR = lazy_regex(r"error(?:\[E\d+\])?: ")


def _is_progress(line: str) -> bool:
    """Return whether a line is cargo's progress, or the note about progress that another filter removed."""
    return line.startswith(_FIRST_LETTERS) and _PROGRESS.match(line) is not None


def _diagnostic(lines: Sequence[str], start: int, parsed: ParsedOutput) -> int:
    """Take the compiler message that begins at `start`. Return the index behind it, or `start` if there is none.

    Errors are kept whole. Of a warning the first line and the place are kept.
    """
    line = lines[start]
    if not line.startswith(("error", "warning", "Caused by:")):
        return start
    if _ERROR.match(line) or line == "Caused by:":
        end = start + 1 if line == "Caused by:" else _block_end(lines, start)
        for kept in (*lines[start:end], *([""] if end > start + 1 else [])):
            parsed.keep(kept)
        return end if line != "Caused by:" else _indented(lines, end, parsed)
    if _GENERATED.match(line):
        return start + 1
    if _WARNING.match(line) and start + 1 < len(lines) and _ARROW.match(lines[start + 1]):
        parsed.keep(line)
        parsed.keep(lines[start + 1])
        return _block_end(lines, start)
    return start


def _block_end(lines: Sequence[str], start: int) -> int:
    """Return the index at which a message ends: at a blank line, or before cargo's next step."""
    return next((i for i in range(start, len(lines)) if not lines[i].strip() or _is_progress(lines[i])), len(lines))


def _indented(lines: Sequence[str], start: int, parsed: ParsedOutput) -> int:
    end = start
    while end < len(lines) and lines[end].startswith("  "):
        parsed.keep(lines[end])
        end += 1
    return end


_TEST = lazy_regex(r"test (?P<name>.+?) \.\.\. (?P<end>ok|FAILED|ignored|bench:)(?P<rest>.*)$")
_QUIET_FAILURE = lazy_regex(r"(\S.*) --- FAILED$")
_QUIET_DOTS = lazy_regex(r"[.Fia]+(?: \d+/\d+)?$")
_RUNNING = lazy_regex(r"running \d+ tests?$")
_RESULT = lazy_regex(
    r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; (?:\d+ measured; )?(\d+) filtered out"
)
_BLOCK = lazy_regex(r"---- (?P<name>.+) std(?:out|err) ----$")
_OLD_PANIC = lazy_regex(r"thread '.*' panicked at '.*', \S+$")
_CARGO_GAVE_UP = lazy_regex(r"error: (?:(?:doc)?test|bench) failed, to rerun")
_BEGINNINGS = ("test ", "running ", "error", "warning", "Caused by:", *_FIRST_LETTERS)
_SECTIONS = ("failures:", "successes:")
_MOST_PASSED = 5  # results of binaries whose tests all passed


class CargoTest:
    """A reader of the lines of `cargo test`.

    _running   whether a binary with tests runs
    _seen      whether one of its tests has ended
    _passed    the number of binaries whose tests all passed
    """

    def __init__(self) -> None:
        self._parsed = ParsedOutput()
        self._running = False
        self._seen = False
        self._passed = 0
        self._named: set[str] = set()

    def parse(self, lines: Sequence[str]) -> ParsedOutput:
        at, end = 0, len(lines)
        while at < end:
            line = lines[at]
            if not line:
                self._parsed.loose(line)
                at += 1
            elif self._running and line.endswith(" ... ok") and line.startswith("test "):
                self._seen = True
                at += 1
            else:
                at = self._take(lines, at)
        self._ended_early()
        return self._parsed

    def _take(self, lines: Sequence[str], at: int) -> int:
        """Take what begins at the line with this index. Return the index behind it."""
        line = lines[at]
        if not self._running and not line.startswith(_BEGINNINGS):
            self._parsed.loose(line)
            return at + 1
        if line.startswith("test ") and self._test(line):
            return at + 1
        if line in _SECTIONS and self._running:
            return self._section(lines, at)
        if self._harness(line):
            return at + 1
        if not self._running:
            if _is_progress(line):
                return at + 1
            after = _diagnostic(lines, at, self._parsed)
            if after > at:
                return after
        self._parsed.loose(line)
        return at + 1

    def _test(self, line: str) -> bool:
        """Take a line about one test that did not simply pass, or the totals of a binary. Return whether it was one."""
        if result := _RESULT.match(line):
            if line.startswith("test result: ok."):
                self._passed += any(map(int, result.groups())) or not self._passed
                if self._passed <= _MOST_PASSED:
                    self._parsed.keep(line)
                elif self._passed == _MOST_PASSED + 1:
                    self._parsed.keep(f"[of the results that are ok, only the first {_MOST_PASSED} are shown]")
            else:
                self._parsed.keep(line)
            self._parsed.mark(recognised=True)
            self._running = self._seen = False
            return True
        if not self._running or (test := _TEST.match(line)) is None:
            return False
        end, rest = test["end"], test["rest"]
        self._seen = True
        if end == "FAILED":
            self._name(test["name"].removesuffix(" - should panic"), line)
        elif end == "ok" and rest and not rest.startswith(" <"):
            self._parsed.loose(line)  # with --nocapture the test's output can follow on the same line
        return True

    def _harness(self, line: str) -> bool:
        if line.startswith("error: ") and _CARGO_GAVE_UP.match(line):
            self._ended_early()
        if line.startswith("running ") and _RUNNING.match(line):
            self._ended_early()
            self._running = True
            return True
        if not self._running:
            return False
        quiet = _QUIET_FAILURE.match(line)
        if quiet:
            self._name(quiet[1], line)
        elif not _QUIET_DOTS.match(line):
            return False
        self._seen = True
        return True

    def _section(self, lines: Sequence[str], at: int) -> int:
        """Take details of failures, the list of their names, or the output of passing tests (--show-output)."""
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
            self._parsed.fail(block, _said(block))
        elif any(line.strip() for line in block[1:]):
            self._parsed.mark(cut=True)

    def _name(self, name: str, line: str) -> None:
        if name not in self._named:
            self._named.add(name)
            self._parsed.keep(line)

    def _ended_early(self) -> None:
        """Note a run without totals: the process was killed, aborted or timed out."""
        if self._running and (self._seen or self._parsed.recognised):
            self._parsed.mark(recognised=True, cut=True)
            self._parsed.keep(RUN_ENDED)
        self._running = self._seen = False


def _said(lines: list[str]) -> list[str]:
    """Return the lines of a panic with its place, else the first `Error: ...` line."""
    for i, line in enumerate(lines):
        if "panicked at " in line:
            return lines[i : i + 1 + (_OLD_PANIC.match(line) is None)]
    return [line for line in lines[1:] if line.lstrip().startswith(("Error:", "error:", "note:"))][:1]


CARGO = Format(
    words=("cargo",), signs=("test result: ", "\nrunning ", "running "), parse=lambda lines: CargoTest().parse(lines)
)


_STATUS = lazy_regex(r"\s*(?P<word>[A-Z][A-Z0-9 /+-]*?) \[[^\]]*\] +(?:\([^)]*\) +)?(?P<test>\S.*)$")
_SUMMARY = lazy_regex(r"\s*Summary \[[^\]]*\]\s+\d+(?:/\d+)? tests? run: ")
_OLD_OUTPUT = lazy_regex(r"-{3,}\s*(?:TRY \d+ )?(?:STDOUT|STDERR|OUTPUT):\s+(?P<test>\S+(?: \S+)*)\s*-{3,}$")
_NEW_OUTPUT = lazy_regex(r"\s*(?:TRY \d+ )?(?:stdout|stderr|output) ─+$")
_RULE = lazy_regex(r"\s*(?:─{4,}|-{4,})$")
_START = lazy_regex(r"\s*(?:Starting \d+ tests? across|Nextest run ID|Running \[|Canceling|Cancelling|Cancell?ed)")
_HARNESS = lazy_regex(r"\s*(?:running \d+ tests?$|failures:$|test result: |-{4} .* stdout -{4}$)")
_GOOD = {"PASS", "SLOW", "LEAK", "SKIP", "START", "SETUP PASS", "RETRY", "DELAY"}


class Nextest:
    """A reader of the lines of nextest.

    _failure    the failure whose output may follow
    _repeated   the line of a failure that was reported before, whose output may follow only now
    """

    def __init__(self) -> None:
        self._parsed = ParsedOutput()
        self._failure: list[str] = []
        self._repeated = ""
        self._in_output = False
        self._reported: set[str] = set()

    def parse(self, lines: Sequence[str]) -> ParsedOutput:
        at = 0
        while at < len(lines):
            at = self._take(lines, at)
        self._close()
        return self._parsed

    def _take(self, lines: Sequence[str], at: int) -> int:
        line = lines[at]
        if line.lstrip().startswith("PASS ["):
            self._close()
            return at + 1
        if self._summary(line) or self._status(line) or self._output_begins(line) or self._of_output(line):
            return at + 1
        if _RULE.match(line) or _is_progress(line):
            self._close()
            return at + 1
        if _START.match(line):
            self._close()
            if "Cancel" in line:
                self._parsed.keep(line)
            return at + 1
        self._close()
        after = _diagnostic(lines, at, self._parsed)
        if after > at:
            return after
        self._parsed.loose(line)
        return at + 1

    def _summary(self, line: str) -> bool:
        if "Summary [" not in line or not _SUMMARY.match(line):
            return False
        self._close()
        self._parsed.mark(recognised=True)
        self._parsed.keep(line)
        return True

    def _status(self, line: str) -> bool:
        """Take a status line such as `PASS [   0.004s] crate tests::name`. The summary repeats the failures."""
        if "[" not in line or (status := _STATUS.match(line)) is None:
            return False
        self._close()
        word, test = status["word"].strip(), status["test"]
        if word in _GOOD or word.startswith("RETRY"):
            return True
        if word.startswith("FLAKY"):
            self._parsed.keep(line)
        elif test not in self._reported or word.startswith("TRY"):
            self._reported.add(test)
            self._failure = [line]
        else:
            self._repeated = line
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
            if self._repeated and not self._failure:
                self._failure = [self._repeated]
            return True
        return False

    def _of_output(self, line: str) -> bool:
        """Take a line of a test's output. Return whether it was one.

        Left out are the lines of the harness and the output of tests that passed.
        """
        if not self._in_output or _RULE.match(line) or _START.match(line):
            return not line.strip() and bool(self._failure)
        bare = line.strip()
        if not self._failure:
            self._parsed.mark(cut=True)
            return True
        if _HARNESS.match(line) or (bare and self._failure[0].endswith(f" {bare}")):
            return True
        if not bare and not self._failure[-1].strip():
            return True
        self._failure.append(line)
        return True

    def _close(self, *, in_output: bool = False) -> None:
        if self._failure:
            self._parsed.fail(self._failure, _said(self._failure))
        self._failure, self._repeated, self._in_output = [], "", in_output


NEXTEST = Format(words=("nextest",), signs=("Summary [",), parse=lambda lines: Nextest().parse(lines))
