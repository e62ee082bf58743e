import pytest

from acp_agent.core.types import Confidence
from acp_agent.output.filters.group_by_rule import GroupByRule
from acp_agent.output.filters.strategy import CommandRun
from tests.unit.output.filters.samples import applied, sample, unchanged

CLIPPY = GroupByRule(r"^\s*--> (\S+:\d+:\d+)", r"#\[warn\(([\w:]+)\)\]")


def test_lints_are_grouped_under_their_rule_with_every_place():
    result = applied(CLIPPY, "clippy_warnings", "cargo clippy", 0)
    assert result.confidence is Confidence.FULL
    assert (
        "clippy::len_zero (2 warnings): length comparison to zero\n    src/lib.rs:26:40\n    src/lib.rs:27:41\n"
        in result.text
    )
    assert result.text.endswith("15 warnings total (12 rules)\n")


def test_no_place_of_a_lint_is_lost():
    raw = sample("clippy_warnings")
    text = applied(CLIPPY, "clippy_warnings", "cargo clippy", 0).text
    places = [line.partition("--> ")[2] for line in raw.splitlines() if "--> " in line]
    assert len(places) == 15
    assert all(f"    {place}" in text for place in places)
    assert "Finished" not in text
    assert "= note" not in text


@pytest.mark.parametrize("name", ["clippy_compile_error", "clippy_denied"])
def test_errors_are_given_back_unchanged(name: str):
    assert unchanged(applied(CLIPPY, name, "cargo clippy", 101), name, Confidence.FALLBACK)


@pytest.mark.parametrize("name", ["clippy_clean", "clippy_short"])
def test_output_without_lints_of_this_form_is_given_back_unchanged(name: str):
    assert unchanged(applied(CLIPPY, name, "cargo clippy", 0), name, Confidence.FALLBACK)


def warning(message: str, place: str, note: str = "") -> str:
    return f"warning: {message}\n --> {place}\n  |\n1 | some code here that takes room\n{note}\n"


def test_a_rule_named_only_once_covers_later_findings_with_other_names():
    text = warning("unused variable: `x`", "a.rs:1:1", "  = note: `#[warn(unused_variables)]` on by default\n")
    text += warning("unused variable: `y`", "b.rs:2:2")
    result = CLIPPY.apply(text, CommandRun("cargo clippy"))
    assert "unused_variables (2 warnings): unused variable: `x`" in result.text
    assert "    b.rs:2:2 unused variable: `y`" in result.text


def test_findings_without_a_rule_are_grouped_under_their_message():
    text = warning("something odd", "a.rs:1:1") + warning("something odd", "b.rs:2:2")
    result = CLIPPY.apply(text, CommandRun("cargo clippy")).text
    assert "something odd (2 warnings):\n    a.rs:1:1\n    b.rs:2:2\n1" not in result
    assert "something odd (2 warnings):\n    a.rs:1:1\n    b.rs:2:2\n2 warnings total (1 rule)" in result


def test_a_warning_without_a_place_stays():
    text = warning("something odd", "a.rs:1:1") * 3 + "warning: the manifest is old\n\nall done\n"
    result = CLIPPY.apply(text, CommandRun("cargo clippy")).text
    assert "warning: the manifest is old" in result
    assert "all done" in result


def test_other_linters_work_with_patterns_of_their_own():
    flake = GroupByRule(r"^(\S+:\d+:\d+):", r": ([A-Z]\d+) ")
    text = "".join(f"src/module_{i}.py:{i}:1: W291 trailing whitespace\n" for i in range(1, 30))
    result = flake.apply(text, CommandRun("flake8"))
    assert result.text.startswith("W291 (29 warnings):")
    assert all(f"src/module_{i}.py:{i}:1" in result.text for i in range(1, 30))


@pytest.mark.parametrize("pattern", ["(", "(?<=x)y", r"(a)\1"])
def test_a_pattern_that_re2_does_not_take_is_refused(pattern: str):
    with pytest.raises(ValueError, match=r".+"):
        GroupByRule(pattern, "x")
