"""Properties of an exact replacement: nothing but the match changes, byte for byte."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError
from acp_agent.tools.edit import replace_exactly

# Few letters, so that matches, repeats and overlaps are common.
LF_TEXT = st.text(alphabet="ab \n", max_size=30)
ANY_TEXT = st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n", "\r", "é"]), max_size=30).map("".join)
LF_PIECE = st.text(alphabet="ab \n", min_size=1, max_size=4)


def occurrences(text: str, wanted: str) -> int:
    """How often a text holds another, overlaps counted."""
    return len(re.findall(f"(?={re.escape(wanted)})", text))


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def lf(text: str) -> str:
    return text.replace("\r\n", "\n")


@given(LF_TEXT, LF_PIECE, LF_TEXT)
@example("aaa", "aa", "b")
def test_an_edit_replaces_its_only_match_or_is_refused(text: str, old: str, new: str):
    assume(old != new)
    if occurrences(text, old) == 1:
        assert replace_exactly(text, old, new) == (text.replace(old, new), 1)
    else:
        with pytest.raises(ToolError):
            replace_exactly(text, old, new)


@given(LF_TEXT, LF_PIECE, LF_TEXT)
def test_replace_all_is_what_a_plain_replacement_does(text: str, old: str, new: str):
    assume(old != new and old in text)

    assert replace_exactly(text, old, new, every=True) == (text.replace(old, new), text.count(old))


@given(LF_TEXT, LF_PIECE, LF_TEXT, st.booleans())
def test_editing_a_crlf_file_is_editing_the_lf_file_and_keeping_crlf(text: str, old: str, new: str, every: bool):
    assume(old != new and "\n" in text)
    try:
        wanted, count = replace_exactly(text, old, new, every=every)
    except ToolError:
        with pytest.raises(ToolError):
            replace_exactly(crlf(text), old, new, every=every)
    else:
        assert replace_exactly(crlf(text), old, new, every=every) == (crlf(wanted), count)


@given(ANY_TEXT, ANY_TEXT, LF_PIECE, LF_TEXT)
def test_whatever_the_line_ends_everything_around_the_match_stays(before: str, after: str, old: str, new: str):
    """The match is put between two arbitrary texts; their bytes must come back as they were."""
    text = before + old + after
    assume(old != new and not before.endswith("\r"))
    try:
        changed, count = replace_exactly(text, old, new)
    except ToolError:
        assert occurrences(lf(text), old) != 1
        return

    assert count == 1
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert lf(changed[len(before) : len(changed) - len(after)]) == lf(new)


@given(ANY_TEXT, ANY_TEXT.filter(lambda piece: "\r" in piece), ANY_TEXT)
def test_a_string_with_a_carriage_return_is_taken_literally(text: str, old: str, new: str):
    assume(old != new)
    if occurrences(text, old) == 1:
        assert replace_exactly(text, old, new) == (text.replace(old, new), 1)
    else:
        with pytest.raises(ToolError):
            replace_exactly(text, old, new)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x\r\nmid\ny\n", "x\r\n1\n2\ny\n"),  # the line end of the matched line itself counts
        ("x\nmid\r\ny\n", "x\n1\r\n2\r\ny\n"),
        ("x\r\nmid", "x\r\n1\r\n2"),  # none follows: the last one counts
        ("mid", "1\n2"),
    ],
)
def test_in_a_mixed_file_new_lines_take_the_line_end_found_there(text: str, wanted: str):
    assert replace_exactly(text, "mid", "1\n2")[0] == wanted


def test_in_a_mixed_file_each_of_many_replacements_takes_its_own_line_end():
    assert replace_exactly("x\r\nx x\nx\r\nx", "x", "1\n2", every=True) == (
        "1\r\n2\r\n1\n2 1\n2\n1\r\n2\r\n1\r\n2",
        5,
    )
