"""Lines, cuts and places in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.tool import cut, first_changed_line, relative, split_lines
from tests.rows import each_row

TEXT = st.text(alphabet="a\n\r\x0c\u2028")


@given(TEXT.filter(lambda text: "\r" not in text))
def test_lines_joined_again_are_the_text(text: str):
    assert "\n".join(split_lines(text)) == text.removesuffix("\n")


@pytest.mark.parametrize(
    ("missing", "said"),
    [(41, "41 more"), (100_000, "100000 more"), (100_001, "over 100000 more")],
)
def test_a_line_that_was_cut_says_how_much_is_missing_as_far_as_that_is_known(missing: int, said: str):
    assert cut("abc" + "x" * missing, 3) == f"abc… [{said} characters]"


def test_a_line_is_not_cut_where_the_note_would_cost_as_much_as_it_saves():
    assert cut("abc" + "x" * 40, 3) == "abc" + "x" * 40


@each_row(
    "old, new, line",
    [
        ("", "new\n", 1),
        ("a\nb\n", "a\nc\n", 2),
        ("a\n", "a\nb\n", 2),
        ("a", "a\nb", 2),
        ("a\nb\nc", "a\nb", 2),
        ("a\n", "", 1),
        ("a\nb\n", "a\nb\n", 1),
        ("a\nb", "a\r\nb", 1),
    ],
)
def test_the_first_changed_line(old: str, new: str, line: int):
    assert first_changed_line(old, new) == line


@given(TEXT, TEXT)
def test_the_first_changed_line_is_a_line_of_the_new_text_and_all_before_it_are_the_same(old: str, new: str):
    line = first_changed_line(old, new)

    assert 1 <= line <= len(new.split("\n"))
    assert old.split("\n")[: line - 1] == new.split("\n")[: line - 1]


@pytest.mark.parametrize(
    ("path", "base", "shown"),
    [
        ("/p/a/b", "/p", "a/b"),
        ("/p", "/p", "."),
        ("/pq/a", "/p", "/pq/a"),
        ("/a", "/", "a"),
    ],
)
def test_paths_below_the_folder_are_shown_from_it(path: str, base: str, shown: str):
    assert relative(path, base) == shown
