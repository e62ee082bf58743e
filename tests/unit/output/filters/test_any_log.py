"""A long log of a command that no rule knows: its ends, its errors with their numbers, and nothing invented."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.pipeline import shortened
from tests.rows import each_row

ENGINE = FilterEngine()
NOTE = re.compile(r"\[[\d,]+ lines? left out\]|\[(?:errors|weaknesses) among the lines left out, by line number:\]")
NUMBERED = re.compile(r"(\d+): (.*)")
REPORTS = [
    "ERROR: module {} is broken",
    "error in step {}: no such table",
    "job {} failed",
    "FAILED unit_{}",
    "thread 'w{}' panicked at src/lib.rs:{}:1",
    "panic: index {} out of range",
    "Traceback (most recent call last): # {}",
    "ValueError: {} is too large",
    "worker {} aborted",
]


def read(text: str, command: str = "./run_all.sh", exit_code: int = 1) -> str:
    """Return what the model reads of the output of a command."""
    filtered = shortened(text, CommandRun(command, printing_commands(ShellText(command)), exit_code), ENGINE)
    return text if filtered is None else filtered.text


def log(reports: dict[int, str], lines: int = 10_000) -> str:
    return "\n".join(reports.get(at, f"[trace] step {at}: state {at * 7919 % 104729} ok") for at in range(1, lines + 1))


def test_a_log_of_ten_thousand_lines_costs_about_forty_and_tells_where_its_error_is():
    text = log({4321: "ledger.c:88: assertion `balance >= 0` failed"})
    shown = read(text).split("\n")
    assert len(shown) < 45
    assert shown[:10] == text.split("\n")[:10]
    assert shown[10] == "[9,965 lines left out]"
    assert shown[11:36] == text.split("\n")[-25:]
    assert shown[36:] == [
        "[errors among the lines left out, by line number:]",
        "4321: ledger.c:88: assertion `balance >= 0` failed",
    ]


@settings(max_examples=max(10, settings.default.max_examples // 5))
@given(st.dictionaries(st.integers(1, 2000), st.sampled_from(REPORTS), max_size=15))
def test_no_report_of_the_first_fifteen_is_lost_and_every_line_is_the_logs_own(kinds: dict[int, str]):
    reports = {at: kind.format(at, at) for at, kind in kinds.items()}
    text = log(reports, 2000)
    own = text.split("\n")
    shown = read(text).split("\n")
    for at, report in reports.items():
        assert report in shown or f"{at}: {report}" in shown
    for line in shown:
        numbered = NUMBERED.fullmatch(line)
        assert line in own or NOTE.fullmatch(line) or (numbered and own[int(numbered[1]) - 1] == numbered[2])
    assert len(shown) < 60


def test_a_log_below_sixteen_thousand_characters_stays():
    text = log({}, 300)
    assert len(text) < 16_000
    assert read(text) == text


@each_row(
    "command",
    [
        "cat app.log",
        "zcat app.log.gz",
        "tail -n 5000 build/out.log",
        "head -c 100000 x",
        "sed -n 1,4000p src/a.py",
        "grep -rn error src",
        "rg -n error | head -5000",
        "git diff main -- src",
        "git log -p",
        "git -C sub show HEAD~3",
        "python x.py --help",
        "make > log; cat log; ./unknown",
        "jq . big.json",
    ],
)
def test_what_prints_files_hits_or_diffs_is_no_log(command: str):
    text = log({at: f"error {at}" for at in range(0, 10_000, 100)})
    if not command.startswith("git diff"):
        assert read(text, command) == text
    else:
        assert read(f"diff --git a/x b/x\n{text}", command).endswith(text)


def test_lines_that_only_look_like_errors_do_not_fill_the_list():
    text = log({at: f"test_error_{at} ... ok" for at in range(100, 9000, 10)} | {9500: "2 errors"})
    assert read(text).split("\n")[36:] == ["[errors among the lines left out, by line number:]", "9500: 2 errors"]


def test_totals_of_nothing_do_not_keep_out_what_failed():
    totals = {at: f"{at % 9}: {at} Tests 0 Failures 0 Ignored" for at in range(100, 9000, 10)}
    failed = {
        8001: "2: tests/parse_number.c:77:test_large:FAIL: Expected 1 Was 2",
        8002: " 2/19 Test  #2: parse_number .....***Failed    0.00 sec",
        8003: "Errors while running CTest",
        8004: "9: 14 Tests 1 Failures 0 Ignored",
    }
    assert read(log(totals | failed)).split("\n")[36:] == [
        "[errors among the lines left out, by line number:]",
        *(f"{number}: {line}" for number, line in failed.items()),
    ]


def test_a_log_of_a_command_that_succeeded_has_no_list_of_lines_that_only_say_failed():
    text = log({at: f"retry of {at} failed softly" for at in range(100, 9000, 10)})
    assert len(read(text).split("\n")) == 36 + 1 + 15
    assert len(read(text, exit_code=0).split("\n")) == 36
    assert read(log({4321: "error: no such table"}), exit_code=0).endswith("4321: error: no such table")


def test_the_totals_of_nodes_own_test_runner_stay_although_it_prints_them_in_the_middle():
    passed = [f"✔ many {at} (0.05ms)" for at in range(150)]
    totals = ["ℹ tests 151", "ℹ suites 1", "ℹ pass 150", "ℹ fail 1", "ℹ duration_ms 223.2"]
    details = ["✖ failing tests:", "✖ async (54.5ms)", *(f"      at step{at} (a.js:{at})" for at in range(60))]
    shown = read("\n".join([*passed, "✖ async (54.5ms)", *totals, "", *details, ""]), "npm test").split("\n")
    assert [line for line in shown if line in totals] == ["ℹ tests 151", "ℹ pass 150", "ℹ fail 1"]
    assert "✖ async (54.5ms)" in "\n".join(shown)
