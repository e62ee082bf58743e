"""cargo's own harness, nextest, and what is common to all formats."""

import pytest

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.filters.test_summary import SummaryOfTests
from tests.rows import each_row
from tests.unit.output.filters.samples import applied, sample, unchanged

SUMMARY = SummaryOfTests()


def cargo(name: str) -> str:
    return applied(SUMMARY, name, "cargo test", 101).text


def test_a_run_that_passes_becomes_its_result():
    result = applied(SUMMARY, "cargo_test_ok", "cargo test", 0)
    assert result.text == (
        "test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 19 filtered out; finished in 0.00s\n"
        "[13 lines left out in all]\n"
    )
    assert result.confidence is Confidence.FULL


def test_failures_keep_their_name_message_values_and_place():
    text = cargo("cargo_test_failures")
    for kept in (
        "test tests::adds_wrongly ... FAILED",
        "panicked at src/lib.rs:21:59:",
        "assertion `left == right` failed: sums differ",
        "  left: 4\n right: 5",
        'called `Result::unwrap()` on an `Err` value: "division by zero"',
        'Error: "division by zero"',
        "note: test did not panic as expected",
        "index out of bounds: the len is 0 but the index is 3",
        "error: test failed, to rerun pass `--lib`",
    ):
        assert kept in text
    assert "t00" not in text
    assert "Finished" not in text


def test_each_test_binary_keeps_its_own_result():
    text = cargo("cargo_test_no_fail_fast")
    raw = sample("cargo_test_no_fail_fast").splitlines()
    results = [line for line in raw if line.startswith("test result: ")]
    assert [line for line in text.splitlines() if line.startswith("test result: ")] == results
    assert len(results) > 1
    assert "`--test integration`" in text


def test_the_output_of_a_failing_test_is_cut_to_fifty_lines_around_its_panic():
    result = applied(SUMMARY, "cargo_test_failures", "cargo test", 101)
    assert result.confidence is Confidence.PARTIAL
    block = result.text.partition("---- tests::chatty stdout ----\n")[2].partition("---- tests::divides")[0]
    assert len(block.strip().split("\n")) == 51  # and the line that says how many are missing
    assert "[73 lines left out]" in block


def test_quiet_and_uncaptured_runs_name_every_failure_too():
    for name in ("cargo_test_fail_quiet", "cargo_test_nocapture"):
        text = cargo(name)
        for test in ("adds_wrongly", "chatty", "divides_by_zero", "returns_err", "should_have_panicked"):
            assert f"tests::{test}" in text
        assert "test result: FAILED. 23 passed; 5 failed; 1 ignored; 0 measured; 0 filtered out; " in text


def test_a_process_that_aborted_is_reported_as_a_run_that_ended_early():
    text = cargo("cargo_test_abort")
    assert "[the run ended before its totals]" in text
    assert "signal: 6, SIGABRT" in text


def test_after_the_rule_for_builds_a_run_that_passes_is_still_its_result():
    text = sample("cargo_test_ok") + "[2 other lines left out]\n"
    assert SUMMARY.apply(text, CommandRun("cargo test", ("cargo test",), 0)).text.count("\n") == 2


def test_compiler_warnings_keep_their_first_line_and_place():
    text = cargo("cargo_test_all_ok")
    assert "warning: unused variable: `x`\n  --> src/lib.rs:12:26\n" in text
    assert "= note:" not in text


def test_compile_errors_without_a_run_stay_as_they_are():
    result = applied(SUMMARY, "cargo_test_compile_error", "cargo test", 101)
    assert unchanged(result, "cargo_test_compile_error", Confidence.FALLBACK)


def test_compile_errors_beside_a_run_stay_whole():
    text = sample("cargo_test_ok") + sample("cargo_test_compile_error")
    result = SUMMARY.apply(text, CommandRun("cargo test -p a; cargo test -p b", (), 101)).text
    errors = sample("cargo_test_compile_error").partition("error[E0425]")[2].partition("\nwarning:")[0]
    assert "error[E0425]" + errors.rstrip() in result
    assert "error: could not compile `ledger` (lib test) due to 2 previous errors" in result


def many_failures(count: int) -> str:
    names = "".join(f"test t{i:03} ... FAILED\n" for i in range(count))
    blocks = "".join(
        f"---- t{i:03} stdout ----\n\nthread 't' panicked at src/a.rs:{i}:1:\nbroken {i}\n\n" for i in range(count)
    )
    listed = "".join(f"    t{i:03}\n" for i in range(count))
    return (
        f"running {count} tests\n{names}\nfailures:\n\n{blocks}\nfailures:\n{listed}\n"
        f"test result: FAILED. 0 passed; {count} failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
    )


def test_of_more_failures_than_shown_the_names_and_messages_stay():
    result = SummaryOfTests(max_failures=3).apply(many_failures(40), CommandRun("cargo test", ("cargo test",), 101))
    assert result.confidence is Confidence.PARTIAL
    for i in range(40):
        assert f"test t{i:03} ... FAILED" in result.text
        assert f"broken {i}" in result.text
    assert result.text.count("\n\nthread") == 3
    assert "40 failed" in result.text


@pytest.mark.parametrize("name", ["handwritten_nextest_old", "handwritten_nextest_new"])
def test_nextest_failures_keep_their_output_without_the_harness_around_it(name: str):
    text = applied(SUMMARY, name, "cargo nextest run", 100).text
    assert "panicked at src/lib.rs:" in text
    assert "Summary [" in text
    assert "error: test run failed" in text
    assert "running 1 test" not in text
    assert "PASS" not in text


def test_nextest_counts_timeouts_and_crashes_and_keeps_flaky_tests():
    text = applied(SUMMARY, "handwritten_nextest_old", "cargo nextest run", 100).text
    assert "SIGSEGV [   0.011s] ledger tests::crashes" in text
    assert "TIMEOUT [  60.007s] ledger tests::sleepy" in text
    assert "FLAKY 2/3" in text
    assert "8 tests run: 5 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 1 skipped\n" in text


def test_a_nextest_run_that_was_cancelled_says_so():
    text = applied(SUMMARY, "handwritten_nextest_new", "cargo nextest run", 100).text
    assert "Cancelling due to test failure" in text
    assert "23/27 tests were not run" in text


def test_a_nextest_run_that_passes_is_two_lines():
    text = applied(SUMMARY, "handwritten_nextest_ok", "cargo nextest run", 0).text
    assert text.count("\n") == 2


NEXTEST_OUTPUT = """\
    Starting 2 tests across 1 binary
        PASS [   0.004s] ledger tests::adds
  stdout ───

    running 1 test
    two and two
    test tests::adds ... ok

        FAIL [   0.005s] ledger tests::divides
{failed}────────────
     Summary [   0.009s] 2 tests run: 1 passed, 1 failed, 0 skipped
        FAIL [   0.005s] ledger tests::divides
{failed}error: test run failed
"""
PANIC = """\
  stderr ───

    thread 'tests::divides' panicked at src/lib.rs:9:5:
    attempt to divide by zero

"""


def test_nextest_leaves_the_output_of_passing_tests_out():
    text = NEXTEST_OUTPUT.format(failed="")
    result = SUMMARY.apply(text, CommandRun("cargo nextest run --success-output immediate", (), 100))
    assert "two and two" not in result.text
    assert "FAIL [   0.005s] ledger tests::divides\n" in result.text
    assert result.confidence is Confidence.PARTIAL


def test_nextest_keeps_the_output_of_a_failure_that_stands_below_its_name_at_the_end():
    immediate, _, end = NEXTEST_OUTPUT.partition("{failed}")
    text = immediate + end.format(failed=PANIC)
    result = SUMMARY.apply(text, CommandRun("cargo nextest run --failure-output final", (), 100)).text
    assert "panicked at src/lib.rs:9:5:\n    attempt to divide by zero\n" in result
    assert "two and two" not in result


@each_row("text", ["", "\n", "hello\n", "running 3 laps\n", "test of nothing ... ok\n", "Tests: none passed\n"])
def test_text_without_a_test_run_is_given_back_unchanged(text: str):
    result = SUMMARY.apply(text, CommandRun("cargo test", ("cargo test",), 0))
    assert (result.text, result.confidence) == (text, Confidence.FALLBACK)


def test_other_commands_around_a_run_keep_their_words():
    text = "deploying to staging\n" + sample("cargo_test_ok") + "deployed in 3 s\n"
    result = SUMMARY.apply(text, CommandRun("./deploy.sh && cargo test && ./done.sh", (), 0)).text
    assert "deploying to staging" in result
    assert "deployed in 3 s" in result
    assert "test result: ok. 10 passed; " in result


def test_two_runners_in_one_text_are_both_summarised():
    text = sample("cargo_test_ok") + sample("pytest_ok_v")
    result = SUMMARY.apply(text, CommandRun("cargo test && pytest -v", (), 0)).text
    assert "PASSED" not in result
    assert "... ok" not in result
    assert "test result: ok. 10 passed; " in result
    assert "301 passed, 1 skipped, 1 warning in " in result


def test_of_many_binaries_that_pass_five_results_stay():
    ran = (
        "running 2 tests\ntest a ... ok\ntest b ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; "
    )
    binaries = "".join(f"{ran}{number} filtered out; finished in 0.00s\n\n" for number in range(9))
    shown = SUMMARY.apply(binaries, CommandRun("cargo test", ("cargo test",), 0)).text.splitlines()
    assert [line.partition("measured; ")[2][:1] for line in shown[:5]] == ["0", "1", "2", "3", "4"]
    assert shown[5:] == ["[of the results that are ok, only the first 5 are shown]", "[31 lines left out in all]"]


def test_a_line_of_a_megabyte_loses_its_middle():
    text = many_failures(1).replace("broken 0", "start" + "x" * 1_000_000 + "end")
    result = SUMMARY.apply(text, CommandRun("cargo test", ("cargo test",), 101))
    assert len(result.text) < 5000
    assert "startxxx" in result.text
    assert "xxxend" in result.text
    assert result.confidence is Confidence.PARTIAL
