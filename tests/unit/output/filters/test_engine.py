"""The engine: rules one after another, the worst confidence, and nothing lost that somebody else printed."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.filters.rule_file import BUILT_IN, built_in
from acp_agent.output.filters.strategy import CommandRun, Filtered
from tests.rows import each_row

FULL = 'name = "full"\nmatch = { prefix = "x" }\nstrategy = { type = "strip_noise", patterns = ["^noise"] }'
PARTIAL = (
    'name = "partial"\nmatch = { prefix = "x" }\nstrategy = { type = "truncate", max_lines = 9, head = 4, tail = 5 }'
)
FALLBACK = 'name = "fallback"\nmatch = { prefix = "x" }\nstrategy = { type = "strip_noise", patterns = ["^nothing"] }'
TEXT = "noise\n" * 5 + "".join(f"line {number}\n" for number in range(30))


def run_of(command: str, exit_code: int = 0) -> CommandRun:
    return CommandRun(command, printing_commands(ShellText(command)), exit_code)


def applied(text: str, command: str, exit_code: int = 0) -> Filtered:
    filtered = FilterEngine().apply(text, run_of(command, exit_code))
    assert filtered is not None
    return filtered


@pytest.mark.parametrize("order", list(permutations((FULL, PARTIAL, FALLBACK))))
def test_the_worst_confidence_wins_in_any_order(
    order: tuple[str, ...], engine_of: Callable[[str], FilterEngine]
) -> None:
    engine = engine_of("".join(f"[[rules]]\n{rule}\n" for rule in order))
    filtered = engine.apply(TEXT, run_of("x"))
    assert filtered is not None
    assert filtered.confidence is Confidence.FALLBACK
    assert filtered.removed


@pytest.mark.parametrize(
    ("rules", "confidence"),
    [
        ((FULL,), Confidence.FULL),
        ((PARTIAL,), Confidence.PARTIAL),
        ((FALLBACK,), Confidence.FALLBACK),
        ((FULL, PARTIAL), Confidence.PARTIAL),
        ((PARTIAL, FULL), Confidence.FALLBACK),  # truncated first, nothing is left to strip
    ],
)
def test_the_confidence_is_that_of_the_rules_as_they_were_applied(
    rules: tuple[str, ...], confidence: Confidence, engine_of: Callable[[str], FilterEngine]
) -> None:
    kept = "".join(f"line {number}\n" for number in range(20))
    text = kept + "noise\n" * 9 + kept
    filtered = engine_of("".join(f"[[rules]]\n{rule}\n" for rule in rules)).apply(text, run_of("x"))
    assert filtered is not None
    assert filtered.confidence is confidence


def test_rules_are_applied_in_their_order_each_to_what_the_one_before_left(
    engine_of: Callable[[str], FilterEngine],
) -> None:
    filtered = engine_of(f"[[rules]]\n{FULL}\n[[rules]]\n{PARTIAL}\n").apply(TEXT, run_of("x"))
    assert filtered is not None
    assert filtered.rules == ("full", "partial")
    assert filtered.text.startswith("line 0\nline 1\nline 2\nline 3\n[21 lines left out]\nline 25\n")


def test_no_rule_no_answer() -> None:
    assert FilterEngine().apply("a\n", run_of("uptime")) is None
    assert FilterEngine().apply("", run_of("make")) is None


def test_what_a_rule_would_make_longer_stays_as_it_was() -> None:
    filtered = applied("build\n", "ls")
    assert filtered.text == "build\n"
    assert not filtered.removed


def test_a_cargo_build_keeps_warnings_errors_and_the_end() -> None:
    text = (
        "    Updating crates.io index\n"
        "  Downloaded serde v1.0.1\n"
        "   Compiling serde v1.0.1\n"
        "   Compiling app v0.1.0 (/srv/app)\n"
        "error[E0308]: mismatched types\n"
        " --> src/main.rs:3:5\n"
        "warning: unused variable: `x`\n" * 40
    )
    filtered = applied(text, "cargo build 2>&1", 101)
    assert "Compiling" not in filtered.text
    assert filtered.text.count("error[E0308]") == 40
    assert filtered.text.count("warning: unused") == 40


def test_a_listing_loses_the_folders_nobody_reads_and_no_other_name() -> None:
    names = ["Makefile", "build", "build.gradle", "dist", "distance.py", "node_modules", "src", "target", "targets"]
    text = "".join(f"{name}\n" for name in names)
    assert (
        applied(text, "ls -1").text == "Makefile\nbuild.gradle\ndistance.py\nsrc\ntargets\n[4 other lines left out]\n"
    )
    found = "./src/a.py\n./node_modules/x/index.js\n./web/node_modules/y.js\n./.git/HEAD\n./.github/ci.yml\n"
    assert applied(found, "find .").text == "./src/a.py\n./.github/ci.yml\n[3 other lines left out]\n"
    long = "drwxr-xr-x 2 u u 4096 Nov 21 10:00 target\ndrwxr-xr-x 2 u u 4096 Nov 21 10:00 .venv\n"
    scripts = "-rwxr-xr-x 1 u u 40 Nov 21 10:00 build\nlrwxrwxrwx 1 u u 4 Nov 21 10:00 now -> out/dist\n"
    assert applied(long + scripts, "ls -la").text == scripts + "[2 other lines left out]\n"


def test_the_words_of_an_echo_around_a_command_stay_where_they_are() -> None:
    body = "".join(f"{number}\n" for number in range(200))
    text = f"== build ==\n{body}exit: 2\n"
    filtered = applied(text, 'echo "== build =="; make; echo "exit: $?"')
    assert filtered.rules == ("make",)
    assert filtered.text.startswith("== build ==\n0\n1\n")
    assert filtered.text.endswith("199\nexit: 2\n")
    assert "[160 lines left out]" in filtered.text


def test_a_command_and_the_echo_behind_it_may_have_a_summary() -> None:
    text = "Enumerating objects: 5, done.\nTo example.com:a.git\n   1..2  main -> main\ndone\n"
    filtered = applied(text, "git push && echo done || echo failed")
    assert filtered.text == "To example.com:a.git\n   1..2  main -> main\ndone\n"


@pytest.mark.parametrize("command", ["echo $X; git push", "git push; echo -n x", "git push; date", "pwd; git push"])
def test_a_summary_waits_when_another_commands_words_cannot_be_told(command: str) -> None:
    assert FilterEngine().apply("To x\nother\n", run_of(command)) is None


def test_pytest_without_a_summary_is_truncated() -> None:
    text = "".join(f"odd line {number}\n" for number in range(200))
    filtered = applied(text, "pytest --fixtures")
    assert filtered.confidence is Confidence.PARTIAL
    assert "[150 lines left out]" in filtered.text


COMMANDS = [
    *("cargo test", "cargo clippy", "git status", "git diff", "git log", "git push", "ls", "journalctl", "make"),
    *("docker build .", "docker compose up", "npm ci", "pip install x", "pytest", "go test", "terraform plan"),
    *("kubectl get x", "brew install x", "", "((", "echo a; make; echo b"),
]
PIECES = [
    *("\n", "a", "   Compiling x\n", "diff --git a/x b/x\n", "@@ -1 +1 @@\n", "On branch main\n", "FAILED", "\ud800"),
    *("test result: ok. 1 passed;", "=== 1 failed in 0.1s ===\n", "--- FAIL: TestX (0.00s)\n", "warning: x\n"),
    *("  --> src/a.rs:1:1\n", "npm warn x\n", "10:00:00 x\n", "-> x\n", "... \n", "\t", "x" * 300, "é" * 9),
]


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(st.characters(), max_size=5)), max_size=40).map("".join),
    st.sampled_from(COMMANDS),
    st.sampled_from([None, 0, 1, 137]),
)
def test_no_text_makes_any_rule_raise_and_what_is_called_whole_is_whole(
    text: str, command: str, exit_code: int | None
) -> None:
    run = CommandRun(command, printing_commands(ShellText(command)), exit_code)
    filtered = FilterEngine().apply(text, run)
    if filtered is not None:
        assert filtered.removed == (filtered.text != text)


@each_row("command", ["cargo build", "ls", "journalctl", "make", "pip install x", "git push"])
def test_one_line_of_ten_megabytes_is_no_trouble(command: str) -> None:
    line = "x" * 10_000_000
    assert applied(line, command).text == line


def test_the_metrics_count_commands_characters_and_confidence(engine_of: Callable[[str], FilterEngine]) -> None:
    engine = engine_of(f"[[rules]]\n{FULL}\n")
    engine.apply("noise\nkept\n", run_of("x"))
    engine.apply("kept\n", run_of("x"))
    engine.apply("kept\n", run_of("y"))
    assert engine.metrics.counts == {
        "commands": 3,
        "filtered": 1,
        "skipped": 1,
        "raw_chars": 21,
        "shown_chars": 15,
        Confidence.FULL: 1,
        Confidence.PARTIAL: 0,
        Confidence.FALLBACK: 1,
    }


def test_every_fiftieth_command_leaves_a_line_in_the_debug_log(logged: list[dict[str, object]]) -> None:
    engine = FilterEngine()
    for _ in range(120):
        engine.apply("a\n", run_of("uptime"))
    lines = [entry for entry in logged if entry["event"] == "output filters"]
    assert lines[0].items() >= {"filtered": 0, "skipped": 50, "saved": "0.0%", "full": 0}.items()
    assert [(entry["level"], entry["commands"]) for entry in lines] == [("debug", 50), ("debug", 100)]


RULE = (
    '[[rules]]\nname = "{}"\nmatch = {{ prefix = "x" }}\nstrategy = {{ type = "strip_noise", patterns = ["^noise"] }}\n'
)


def names(source: RuleSource) -> list[str]:
    return [rule.name for rule in source.current().rules]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "filters.toml"


def test_without_a_file_the_built_in_rules_are_in_force() -> None:
    assert RuleSource().current() is built_in()


def test_a_users_file_replaces_the_built_in_rules(file: Path) -> None:
    file.write_text(RULE.format("mine"))
    assert names(RuleSource(str(file))) == ["mine"]


def test_the_path_may_be_the_folder_the_file_is_in(file: Path) -> None:
    file.write_text(RULE.format("mine"))
    assert names(RuleSource(str(file.parent))) == ["mine"]


def test_an_empty_file_means_no_rules(file: Path) -> None:
    file.write_text("")
    assert names(RuleSource(str(file))) == []


def test_a_changed_file_takes_effect_at_the_next_command(file: Path) -> None:
    file.write_text(RULE.format("one"))
    engine = FilterEngine(RuleSource(str(file)))
    run = CommandRun("x", ("x",))
    for name in ("one", "two", "three"):
        file.write_text(RULE.format(name))
        filtered = engine.apply("noise\na\n", run)
        assert filtered is not None
        assert filtered.rules == (name,)


def test_a_file_that_comes_and_goes_is_followed(file: Path) -> None:
    source = RuleSource(str(file))
    assert source.current().source == BUILT_IN
    file.write_text(RULE.format("mine"))
    assert names(source) == ["mine"]
    file.unlink()
    assert source.current().source == BUILT_IN
    assert source.current().warnings == ()


def test_a_file_the_user_named_is_missed(file: Path) -> None:
    source = RuleSource(str(file), required=True)
    assert source.current().rules == built_in().rules
    assert source.current().warnings == (f"{file}: expected a file of filter rules; the built-in rules are in use",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[[rules]\n", "expected TOML: "),
        (b"\xff\xfe", "expected TOML in UTF-8"),
        (b"#" * (1024 * 1024 + 1), "expected a file of at most 1 MiB"),
        (b"x = " + b"[" * 5000, "expected TOML"),
    ],
)
def test_a_file_that_cannot_be_used_leaves_the_built_in_rules_and_says_why(
    file: Path, data: bytes, said: str, logged: list[dict[str, object]]
) -> None:
    file.write_bytes(data)
    source = RuleSource(str(file))
    assert source.current().rules == built_in().rules
    assert source.current().rules == built_in().rules
    (warning,) = source.current().warnings
    assert warning.startswith(str(file))
    assert said in warning
    assert warning.endswith("; the built-in rules stay in use")
    assert [entry["problem"] for entry in logged] == [warning]


def test_a_broken_change_keeps_the_rules_as_they_were_and_warns_once(
    file: Path, logged: list[dict[str, object]]
) -> None:
    file.write_text(RULE.format("mine"))
    source = RuleSource(str(file))
    assert names(source) == ["mine"]
    file.write_text("[[rules")
    for _ in range(5):
        assert names(source) == ["mine"]
    assert len(logged) == 1
    assert str(logged[0]["problem"]).endswith(f"; {file} stay in use")
    file.write_text(RULE.format("mended"))
    assert names(source) == ["mended"]
    assert source.current().warnings == ()
    file.write_text("[[rules")
    assert names(source) == ["mended"]
    assert len(logged) == 2


def test_a_pipe_in_the_files_place_keeps_nobody_waiting(file: Path) -> None:
    os.mkfifo(file)
    source = RuleSource(str(file))
    assert source.current().rules == built_in().rules
    assert "expected a regular file" in source.current().warnings[0]


def test_a_name_no_file_can_have_is_a_warning() -> None:
    source = RuleSource("/nowhere\0", required=True)
    assert source.current().rules == built_in().rules
    assert source.current().warnings


def test_an_unchanged_file_is_not_read_again(file: Path) -> None:
    file.write_text(RULE.format("mine"))
    os.utime(file, (1_000_000_000, 1_000_000_000))
    source = RuleSource(str(file))
    before = source.current()
    while source.current() is not before:  # within a file system's tick a change would go unseen, so it is read again
        before = source.current()
    assert source.current() is before


def test_where_the_user_has_no_rules_none_are_read_to_say_that_nothing_is_wrong(tmp_path: Path):
    code = (
        "import sys; from acp_agent.output.filters.engine import FilterEngine, RuleSource;"
        f"print(FilterEngine(RuleSource({str(tmp_path / 'filters.toml')!r})).warnings, FilterEngine().warnings,"
        " 'acp_agent.output.filters.rule_file' in sys.modules)"
    )
    probe = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    assert probe.stdout.split() == ["()", "()", "False"]
