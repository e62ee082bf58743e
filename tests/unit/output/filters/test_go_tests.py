"""go test in its three forms, and the runners of JavaScript. All inputs are written by hand."""

import sys
from types import FrameType

from acp_agent.core.types import Confidence
from acp_agent.output.filters.go_tests import GoPlain
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.filters.test_summary import SummaryOfTests
from tests.unit.output.filters.samples import applied

SUMMARY = SummaryOfTests()


def go(name: str, command: str = "go test ./...", exit_code: int = 1) -> str:
    return applied(SUMMARY, f"handwritten_go_{name}", command, exit_code).text


def test_failures_of_go_keep_their_messages_subtests_and_packages():
    text = go("fail")
    for kept in (
        "--- FAIL: TestAdd (0.00s)\n    add_test.go:8: got 4, want 5",
        "--- FAIL: TestTable/zero (0.00s)",
        "expected: 1",
        "FAIL\texample.com/ledger\t0.004s",
    ):
        assert kept in text
    assert "no test files" not in text


def test_a_build_that_failed_keeps_every_compiler_error():
    text = go("fail")
    assert (
        "# example.com/ledger/broken\nbroken/a.go:5:9: undefined: missing\nbroken/a.go:6:2: declared and not used: x"
        in text
    )
    assert "FAIL\texample.com/ledger/broken [build failed]" in text


def test_a_panic_keeps_its_message_and_the_place_in_the_test():
    text = go("fail")
    assert "panic: runtime error: index out of range [3] with length 2" in text
    assert "crash_test.go:9" in text


def test_with_v_what_passing_tests_logged_goes_and_what_failing_ones_logged_stays():
    text = go("verbose", "go test -v ./...")
    assert "add_test.go:7: computing" in text
    assert "add_test.go:19: zero is wrong" in text
    assert "handled as it should be" not in text
    assert "hello from stdout" not in text
    assert "=== RUN" not in text
    assert "ok  \texample.com/ledger/ok\t0.002s\n" in text


def test_a_go_test_that_timed_out_names_the_test():
    text = go("timeout", "go test -v ./...")
    assert "panic: test timed out after 1s" in text
    assert "TestHangs (1s)" in text


def calls_for(lines: list[str]) -> int:
    """The number of calls that reading these lines takes."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        GoPlain().parse(lines)
    finally:
        sys.setprofile(None)
    return count


def test_twice_as_many_parallel_tests_take_twice_the_work():
    def lines(number: int) -> list[str]:
        names = [f"Test{each}" for each in range(number)]
        begun = [f"=== {what} {name}" for name in names for what in ("RUN  ", "PAUSE")]
        ended = [f"--- {('PASS', 'SKIP', 'FAIL')[each % 3]}: {name} (0.00s)" for each, name in enumerate(names)]
        return begun + ended

    assert calls_for(lines(400)) < 2.1 * calls_for(lines(200))


def test_what_unfinished_subtests_print_joins_the_failure_of_their_own_parent():
    lines = [
        *("=== RUN   TestA", "=== RUN   TestA/sub", "a.go:1: lost", "=== RUN   TestAB", "=== RUN   TestAB/sub"),
        *("ab.go:1: other", "=== RUN   TestC", "c.go:1: passes", "--- PASS: TestC (0.00s)"),
        *("--- FAIL: TestA (0.00s)", "    a.go:2: wrong", "--- PASS: TestAB (0.00s)"),
    ]
    text = SUMMARY.apply("\n".join([*lines, "FAIL", ""]), CommandRun("go test -v", (), 1)).text
    assert "--- FAIL: TestA (0.00s)\na.go:1: lost\n    a.go:2: wrong" in text
    assert "other" not in text
    assert "passes" not in text


def test_packages_that_pass_keep_their_line():
    result = applied(SUMMARY, "handwritten_go_ok", "go test ./...", 0)
    assert result.text.splitlines()[:2] == ["ok  \texample.com/a\t0.002s", "ok  \texample.com/b\t(cached)"]
    assert result.confidence is Confidence.FULL


def test_json_events_of_packages_tested_side_by_side_are_told_apart():
    text = go("json", "go test -json ./...")
    assert "--- FAIL: TestOne (0.00s)\n    a_test.go:5: got 1" in text
    assert "b_test.go:9" not in text
    assert "c/c_test.go:4:2: undefined: x" in text
    assert '"Action"' not in text
    assert "ok  \texample.com/b\t0.002s\n" in text


def test_a_line_that_nests_too_deep_is_no_event():
    text = '{"Action":' + "[" * 1500 + "\n" + '{"Action":"output","Package":"a","Output":"FAIL\\ta\\t0.1s\\n"}\n' * 2
    assert "FAIL\ta\t0.1s" in SUMMARY.apply(text, CommandRun("go test -json ./...", (), 1)).text


def test_jest_keeps_the_failing_test_and_its_expectation():
    text = applied(SUMMARY, "handwritten_jest_fail", "npx jest", 1).text
    for kept in (
        "● sum › adds two numbers",
        "Expected: 4\n    Received: 5",
        "src/sum.test.js:4:21",
        "Tests:       1 failed",
    ):
        assert kept in text
    assert "adds zero" not in text


def test_vitest_and_mocha_keep_the_failing_test_and_its_place():
    vitest = applied(SUMMARY, "handwritten_vitest_fail", "npx vitest run", 1).text
    assert "AssertionError: expected 5 to be 4" in vitest
    assert "src/sum.test.ts:5:22" in vitest
    mocha = applied(SUMMARY, "handwritten_mocha_fail", "npx mocha", 1).text
    assert "AssertionError [ERR_ASSERTION]: 5 == 4" in mocha
    assert "test/sum.test.js:5:14" in mocha


def test_the_headings_above_passed_tests_go_with_them_and_what_a_test_printed_stays():
    text = (
        "\n  Router\n    .use\n      ✔ takes one\n      ✔ takes two\n\n    .param\n      ✔ needs one\n"
        "        cache miss for /a\n        cache miss for /b\n      ✔ is called\n\n  Route\n    - is skipped\n\n\n"
        "  4 passing (12ms)\n  1 pending\n\n"
    )
    shown = SUMMARY.apply(text, CommandRun("npx mocha", ("npx mocha",), 0)).text
    assert shown.split("\n")[:2] == ["        cache miss for /a", "        cache miss for /b"]
    assert not [line for line in shown.split("\n") if "✔" in line or line in ("  Router", "    .use", "    .param")]
    assert "    - is skipped" in shown
    assert "  4 passing (12ms)\n  1 pending\n[" in shown


def test_an_indented_line_above_a_passed_test_that_is_no_heading_stays():
    lines = (
        "  Error: connect ECONNREFUSED 127.0.0.1:5432",
        "  (node:12) UnhandledPromiseRejectionWarning: boom",
        "  WARN deprecated option",
        "  12:5  warning  unused variable  no-unused-vars",
        "  The request failed",
        "   three spaces are no level of a suite",
    )
    for line in lines:
        text = f"  Router\n{line}\n    ✔ takes one\n    ✔ takes two\n\n  2 passing (12ms)\n\n"
        shown = SUMMARY.apply(text, CommandRun("npx mocha", ("npx mocha",), 0)).text
        assert line in shown.split("\n"), line
