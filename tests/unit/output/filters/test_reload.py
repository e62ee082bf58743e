"""Which rules are in force, and when a changed file takes effect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.filters.rule_file import BUILT_IN, built_in
from acp_agent.output.filters.strategy import CommandRun

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
    assert source.current().warnings == (f"{file}: expected a file of filter rules; the built-in rules are in force",)


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
    assert warning.endswith("; the built-in rules stay in force")
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
    assert str(logged[0]["problem"]).endswith(f"; {file} stay in force")
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
        "import sys; from acp_agent.output.filters import FilterEngine, RuleSource;"
        f"print(FilterEngine(RuleSource({str(tmp_path / 'filters.toml')!r})).warnings, FilterEngine().warnings,"
        " 'acp_agent.output.filters.rule_file' in sys.modules)"
    )
    probe = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60)
    assert probe.stdout.split() == ["()", "()", "False"]
