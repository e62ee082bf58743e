"""Finding lines: the same lines as looking at each of them alone, in few steps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.filters.strategy import LinePatterns, command_pattern, decoded, encoded, line_count
from tests.rows import each_row

PATTERNS = ["^a+$", r"^\s*$", "b", "日本", r"x\s+y", "^$", "c$"]
TEXTS = st.lists(st.sampled_from([*"abcxy", " ", "\n", "\n\n", "日本", "aa\n", "x  y", "\ud800"]), max_size=30)


@given(TEXTS.map("".join), st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4))
def test_runs_are_the_lines_that_hold_an_expression_and_the_others_the_rest(text: str, patterns: list[str]) -> None:
    text = text.replace("\ud800", "")
    lines = LinePatterns(patterns)
    data = encoded(text)
    held = "".join(decoded(data[start:end]) for start, end in lines.runs(data))
    rest = "".join(decoded(data[start:end]) for start, end in lines.other_runs(data))
    each = text.splitlines(keepends=True) if "\n" in text else [text] * bool(text)
    matching = [line for line in each if any(re.search(pattern, line.removesuffix("\n")) for pattern in patterns)]
    assert held == "".join(matching)
    assert rest == "".join(line for line in each if line not in matching)
    assert lines.found_in(text) == bool(matching)


@given(st.text(st.characters(), max_size=50))
def test_any_text_survives_the_way_to_bytes_and_back(text: str) -> None:
    assert decoded(encoded(text)) == text
    lines = LinePatterns(["x", "^.y"])
    data = encoded(text)
    runs = sorted((*lines.runs(data), *lines.other_runs(data)))
    assert b"".join(data[start:end] for start, end in runs) == data


def test_many_lines_that_match_are_one_run() -> None:
    data = b"Compiling a\n" * 100_000
    assert list(LinePatterns(["^Compiling"]).runs(data)) == [(0, len(data))]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", r"(.*,){11}P", r"^(\w+\s?)*$"])
def test_an_expression_that_would_run_for_ever_elsewhere_does_not(pattern: str) -> None:
    line = "a" * 100_000 + "!"
    assert not LinePatterns([pattern]).found_in(line)
    assert command_pattern(pattern).search(encoded(line)) is None


@each_row("pattern", ["(", "a)(b", "(?=a)", r"(a)\1", "[z-a]", "*"])
def test_what_re2_does_not_take_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        LinePatterns(["fine", pattern])
    with pytest.raises(ValueError, match=r"\S"):
        command_pattern(pattern)


def test_expressions_that_are_known_to_be_good_are_compiled_when_they_are_first_searched() -> None:
    lines = LinePatterns(["("], checked=True)
    assert not lines.found_in("")
    with pytest.raises(ValueError, match=r"\S"):
        lines.found_in("x")


def test_lines_are_counted_with_or_without_a_last_line_feed() -> None:
    assert [line_count(data) for data in (b"", b"\n", b"a", b"a\n", b"a\nb")] == [0, 1, 1, 1, 2]
