"""pytest and unittest."""

import pytest

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.filters.test_summary import SummaryOfTests
from tests.rows import each_row
from tests.unit.output.filters.samples import applied, sample, unchanged

SUMMARY = SummaryOfTests()
TOTALS = "10 failed, 50 passed, 1 skipped, 1 xfailed, 1 xpassed, 11 warnings, 2 errors"
NAMES = (
    "test_param[1-x y]",
    "test_param[2-[z]]",
    "test_nested",
    "test_dicts",
    "test_xpass_strict",
    "TestUnit::test_equal",
    "TestUnit::test_sub",
    "test_deep",
    "test_chatty",
    "test_uses_broken",
    "test_teardown",
)
STYLES = ("fail", "fail_v", "fail_q", "fail_short", "fail_line", "fail_native", "fail_no", "fullv", "s", "xdist_v")


def summed(name: str, exit_code: int = 1) -> str:
    return applied(SUMMARY, f"pytest_{name}", "pytest", exit_code).text


@each_row("style", STYLES)
def test_every_failure_is_named_and_counted_whatever_the_style(style: str):
    text = summed(style)
    for name in NAMES:
        assert f"{name}" in text
    assert TOTALS in text.splitlines()[-2]
    assert "PASSED" not in text
    assert "rootdir:" not in text
    assert "the run ended" not in text


@each_row("style", [style for style in STYLES if style != "fail_no"])
def test_every_failure_says_what_went_wrong_whatever_the_style(style: str):
    text = summed(style)
    for message in (
        "RuntimeError: fixture broke",
        "RuntimeError: teardown broke",
        "assert 1 == 'x y'",
        "KeyError: 'missing key'",
        "1 != 2 : numbers differ",
        "RecursionError: deep",
        "chatty failed",
    ):
        assert message in text


def test_a_failure_keeps_its_source_place_and_captured_output():
    text = summed("fail")
    for kept in ('>       inner("key")', "tests/test_ledger.py:20: KeyError", "stderr of nested", "ERROR level log"):
        assert kept in text


@pytest.mark.parametrize("style", ["fail", "fail_v", "fail_q", "xdist_v"])
def test_only_ten_failures_have_details(style: str):
    text = summed(style)
    assert "RecursionError: deep\n" in text
    assert "AssertionError: assert 2 == '[z]'" in text
    assert text.count("def test_param(a, b):") == 1
    assert "line 99" not in text
    assert text.count("\n") < 240


def test_errors_in_fixtures_are_kept_with_their_phase():
    text = summed("fail")
    assert "ERROR at setup of test_uses_broken" in text
    assert "ERROR at teardown of test_teardown" in text


def test_each_different_warning_is_shown_once():
    text = summed("fail")
    assert text.count("UserWarning: other thing") == 1


@pytest.mark.parametrize("name", ["ok", "ok_v", "ok_q"])
def test_a_run_that_passes_is_its_totals_and_its_warnings(name: str):
    result = applied(SUMMARY, f"pytest_{name}", "pytest", 0)
    assert result.confidence is Confidence.FULL
    heading, warning, totals, note = result.text.splitlines()
    assert "= warnings summary =" in heading
    assert warning.endswith("UserWarning: old")
    assert "301 passed, 1 skipped, 1 warning in " in totals
    assert note.endswith(" lines left out in all]")


def test_of_twenty_five_failures_ten_have_details_and_all_their_message():
    text = summed("many")
    assert text.count("    limit = 100") == 10
    for i in range(25):
        assert f"FAILED many/test_many.py::test_n[{i}]" in text
        assert f"assert {i} > 100" in text


def test_in_short_a_failure_is_its_name_and_what_was_compared_not_where_the_values_came_from():
    blocks = "".join(
        f"____ test_{i} ____\n\n>       assert f({i}) == 1\nE       assert {i} == 1\nE        +  where {i} = f({i})\n\n"
        for i in range(6)
    )
    text = f"==== FAILURES ====\n{blocks}==== 6 failed in 0.01s ====\n"
    shown = SummaryOfTests(max_failures=1).apply(text, CommandRun("pytest", ("pytest",), 1)).text
    assert "+  where 0 = f(0)" in shown
    assert "\n____ test_1 ____\nE       assert 1 == 1\n____ test_2 ____\n" in shown


def test_each_test_has_its_details_before_a_second_set_of_parameters_has_them():
    names = [*(f"test_many[{i}-x]" for i in range(30)), "test_other", "test_last[a b]"]
    blocks = "".join(f"____ {name} ____\n\n    source of {name}\nE       assert 0\n\n" for name in names)
    text = f"==== FAILURES ====\n{blocks}==== 32 failed in 0.01s ====\n"
    shown = SummaryOfTests(max_failures=4).apply(text, CommandRun("pytest", ("pytest",), 1)).text
    with_source = ["test_many[0-x]", "test_many[1-x]", "test_other", "test_last[a b]"]
    assert [name for name in names if f"source of {name}\n" in shown] == with_source
    assert shown.count("E       assert 0") == 32
    assert shown.count("[of the 32 failures 4 in full, of the others only the messages]\n") == 1


def test_in_short_a_failure_has_no_parts_of_a_comparison():
    compared = "E       AssertionError: assert 'a' == 'b'\nE         \nE         - b\nE         ?  ^\nE         + a\n"
    blocks = "".join(
        f"____ test_{i} ____\n>       assert f({i}) == 'b'\n{compared}\na.py:7: AssertionError\n" for i in range(6)
    )
    text = f"==== FAILURES ====\n{blocks}==== 6 failed in 0.01s ====\n"
    shown = SummaryOfTests(max_failures=1).apply(text, CommandRun("pytest", ("pytest",), 1)).text
    assert "\n____ test_1 ____\nE       AssertionError: assert 'a' == 'b'\n____ test_2 ____\n" in shown


def test_collection_errors_stay_whole():
    result = applied(SUMMARY, "pytest_collect", "pytest", 2)
    raw = sample("pytest_collect")
    begin, end = raw.index("____ ERROR collecting"), raw.index("\n=========================== short test summary")
    for line in raw[begin:end].splitlines()[1:]:
        assert line in result.text
    assert "Interrupted: 2 errors during collection" in result.text
    assert "collected 1 item / 2 errors" in result.text
    assert "= 2 errors in 0.30s =" in result.text


def test_collection_errors_keep_their_error_lines_when_there_are_too_many():
    blocks = "".join(
        f"____ ERROR collecting t{i}.py ____\nt{i}.py:1: in <module>\n    import m{i}\n"
        f"E   ModuleNotFoundError: No module named 'm{i}'\n"
        for i in range(30)
    )
    text = f"==== test session starts ====\n==== ERRORS ====\n{blocks}==== 30 errors in 0.30s ====\n"
    result = SUMMARY.apply(text, CommandRun("pytest", ("pytest",), 2)).text
    for i in range(30):
        assert f"No module named 'm{i}'" in result


@pytest.mark.parametrize("name", ["conftest", "usage"])
def test_a_run_that_never_began_is_given_back_unchanged(name: str):
    result = applied(SUMMARY, f"pytest_{name}", "pytest", 4)
    assert unchanged(result, f"pytest_{name}", Confidence.FALLBACK)


def test_an_interrupted_run_says_where():
    text = summed("interrupted", 2)
    assert "!!! KeyboardInterrupt !!!" in text
    assert "test_i.py:2: KeyboardInterrupt" in text
    assert "= 1 failed in 0.43s =" in text


@pytest.mark.parametrize(("name", "words"), [("timeout", "Timeout (>1.0s)"), ("timeout_thread", "+++ Timeout +++")])
def test_a_test_that_timed_out_is_a_failure(name: str, words: str):
    text = summed(name)
    assert words in text
    assert "test_t.py" in text
    assert "1 failed, 1 passed in 1.20s" in text or "[the run ended before its totals]" in text


@pytest.mark.parametrize("name", ["crash", "crash_xdist"])
def test_a_crash_keeps_the_place_it_happened_in(name: str):
    text = summed(name, 139)
    assert "Fatal Python error: Segmentation fault" in text
    assert 'crash/test_c.py", line 3 in test_b' in text
    assert "1 failed, 2 passed in 2.15s" in text or "[the run ended before its totals]" in text


def test_a_run_killed_in_its_middle_lists_the_failures_it_had_shown():
    lines = sample("pytest_fail_v").splitlines(keepends=True)
    head = "".join(lines[: next(i for i, line in enumerate(lines) if "test_dicts" in line) + 1])
    result = SUMMARY.apply(head, CommandRun("pytest -v", ("pytest -v",), 137))
    assert "[the run ended before its totals]" in result.text
    assert "test_nested FAILED" in result.text
    assert result.confidence is Confidence.PARTIAL


@pytest.mark.parametrize(
    ("name", "words"), [("none", "302 deselected"), ("no_tests_dir", "file or directory not found")]
)
def test_a_run_of_no_tests_that_failed_does_not_read_as_a_success(name: str, words: str):
    text = summed(name, 5)
    assert words in text
    assert "passed" not in text


@pytest.mark.parametrize(("name", "count"), [("fail_x", 1), ("maxfail", 2)])
def test_a_run_stopped_at_its_first_failures_says_so(name: str, count: int):
    text = summed(name)
    assert f"stopping after {count} failures" in text


@pytest.mark.parametrize(
    "heading",
    ["---------- coverage: platform linux, python 3.11.7-final-0 -----------", "==== tests coverage ===="],
)
def test_the_total_of_a_coverage_table_stays_and_its_middle_goes(heading: str):
    rows = "".join(f"ledger/m{i}.py     100      3    97%\n" for i in range(200))
    text = sample("pytest_ok_v").replace(
        "-- Docs:", f"-- Docs: x\n\n{heading}\nName   Stmts   Miss  Cover\n{rows}TOTAL   20000   600   97%\n\n-- Docs:"
    )
    result = SUMMARY.apply(text, CommandRun("pytest --cov", ("pytest --cov",), 0))
    assert "TOTAL   20000   600   97%" in result.text
    assert "Name   Stmts   Miss  Cover" in result.text
    assert "UserWarning: old" in result.text
    assert result.text.count("97%") < 50
    assert result.confidence is Confidence.PARTIAL


@pytest.mark.parametrize("name", ["unittest_fail_v", "unittest_ok"])
def test_unittest_keeps_tracebacks_and_totals(name: str):
    text = applied(SUMMARY, name, "python -m unittest", 1 if "fail" in name else 0).text
    if "fail" in name:
        assert "AssertionError: 1 != 2 : differ" in text
        assert "KeyError: 'gone'" in text
        assert "\nRan 6 tests in 0.001s\nFAILED (failures=2, errors=1, skipped=1, expected failures=1)\n" in text
    else:
        assert "\nRan 1 test in 0.000s\nOK\n" in text
