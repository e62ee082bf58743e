"""What holds for every strategy whatever it is given."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.git import GitDiff, GitStatus
from acp_agent.output.filters.line_rules import GroupByRule
from acp_agent.output.filters.strategy import CommandRun, Strategy
from acp_agent.output.filters.test_summary import SummaryOfTests
from tests.rows import each_row
from tests.unit.output.filters.samples import sample

STRATEGIES: list[Strategy] = [
    SummaryOfTests(),
    SummaryOfTests(max_failures=0, truncate_stack_trace=1),
    GitStatus(),
    GitDiff(),
    GitDiff(0),
    GroupByRule(r"^\s*--> (\S+:\d+:\d+)", r"#\[warn\(([\w:]+)\)\]"),
]
SUMMARIES = STRATEGIES[:2]
RUN = CommandRun("pytest; cargo test", (), 1)
NOTE = re.compile(r"\[(?:[\d,]+ lines? left out(?: in all)?|of the .* only .*|the run ended before its totals)\]")
SAMPLES = [
    "cargo_test_no_fail_fast",
    "cargo_test_nocapture",
    "cargo_test_compile_error",
    "pytest_fail_line",
    "pytest_fail_short",
    "pytest_xdist_v",
    "unittest_fail_v",
    "handwritten_nextest_old",
    "handwritten_nextest_new",
    "handwritten_go_fail",
    "handwritten_go_verbose",
    "handwritten_go_json",
    "handwritten_jest_fail",
    "handwritten_vitest_fail",
    "handwritten_mocha_fail",
    "clippy_warnings",
    "git_status_verbose",
    "git_diff_small",
    "git_diff_combined",
]
LINES = sorted({line for name in SAMPLES for line in sample(name).splitlines()} | {"", "free words", "ümlaut ✓ ☃"})


def holds(strategy: Strategy, text: str) -> bool:
    result = strategy.apply(text, CommandRun("pytest; cargo test; git diff", (), 1))
    unchanged = result.confidence is not Confidence.FALLBACK or result.text == text
    return unchanged and len(result.text) <= len(text)


FOUND = [f"src/part_{at}.py:{at}:1: E501 Line too long ({at} > 88)" for at in range(150)]
TESTS = {
    "cargo_test_no_fail_fast": "cargo test",
    "pytest_fail": "pytest",
    "pytest_fail_v": "pytest -v",
    "pytest_xdist_v": "pytest -v -n 4",
    "unittest_fail_v": "python3 -m unittest -v",
    "handwritten_go_verbose": "go test -v ./...",
    "handwritten_jest_fail": "npx jest",
    "handwritten_vitest_fail": "npx vitest run",
    "handwritten_mocha_fail": "npx mocha",
}


@each_row("name, command", TESTS.items())
def test_a_summary_beside_a_linter_keeps_every_line_of_the_linter(name: str, command: str):
    found = "\n".join(FOUND)
    text = f"{found}\n{sample(name)}\n{found}\n"
    result = SUMMARIES[0].apply(
        text, CommandRun(f"ruff check .; {command}; mypy .", ("ruff check .", command, "mypy ."))
    )
    assert [line for line in result.text.split("\n") if line in FOUND] == FOUND + FOUND
    assert len(result.text) <= len(text)


@settings(max_examples=settings.default.max_examples * 3)
@given(st.sampled_from(STRATEGIES), st.lists(st.sampled_from(LINES), max_size=60))
def test_lines_in_any_order_never_fail_and_never_grow(strategy: Strategy, lines: list[str]):
    assert holds(strategy, "\n".join(lines))


@settings(max_examples=settings.default.max_examples * 2)
@given(st.sampled_from(STRATEGIES), st.sampled_from(SAMPLES), st.integers(0, 4000), st.integers(0, 4000))
def test_output_cut_anywhere_never_fails_and_never_grows(strategy: Strategy, name: str, head: int, tail: int):
    text = sample(name)
    assert holds(strategy, text[head : len(text) - tail])


def own(text: str, lines: list[str]) -> list[str]:
    """Return the lines of a summary that are neither notes nor lines of the output."""
    return [line for line in text.split("\n") if line and not NOTE.fullmatch(line) and line not in lines]


@settings(max_examples=settings.default.max_examples * 3)
@given(st.sampled_from(SUMMARIES), st.lists(st.sampled_from(LINES), max_size=60))
def test_a_summary_of_tests_is_lines_of_the_output_and_notes(strategy: Strategy, lines: list[str]):
    lines = [line for line in lines if '"Action"' not in line]  # the lines are inside of these
    assert own(strategy.apply("\n".join(lines), RUN).text, lines) == []


@each_row("strategy, name", product(SUMMARIES, [name for name in SAMPLES if "json" not in name]))
def test_a_summary_of_each_sample_is_lines_of_the_output(strategy: Strategy, name: str):
    text = sample(name)
    shown = strategy.apply(text, RUN).text
    assert own(shown, text.split("\n")) == []


@given(st.sampled_from(STRATEGIES), st.text())
def test_any_text_never_fails_and_never_grows(strategy: Strategy, text: str):
    assert holds(strategy, text)


HOSTILE = [
    "--- STDOUT: x" + " " * 200_000,
    "t.py::t " + "FAILED(" * 30_000,
    "thread 'x" + "' panicked at '" * 15_000,
    "_ " * 100_000,
    "= " * 100_000,
    "= x" + " =" * 100_000 + " y",
    "nothing to commit " * 10_000,
    "rust-clippy/" * 20_000,
    "    at " + "x.test.js" * 20_000,
    "1 passed, " * 20_000,
    "@@ " + "-1 " * 60_000,
    " " * 200_000 + "x",
]


@pytest.mark.timeout(20)
@each_row("line, strategy", product(HOSTILE, STRATEGIES))
def test_a_line_made_to_keep_a_regex_busy_does_not(strategy: Strategy, line: str):
    around = "running 1 test\ntest x ... FAILED\n=== test session starts ===\nOn branch main\ndiff --git a/x b/x\n"
    assert holds(strategy, f"{around}{line}\nwarning: x\n --> a.rs:1:1\n=== FAILURES ===\n{line}\n1 failed in 0.10s\n")
