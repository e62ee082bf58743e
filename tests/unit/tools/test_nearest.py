"""What a model is told when its string is not in the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.tools.edit import no_match

FILE = "".join(f"def f{n}(a, b):\n    value = compute_{n}(a, b)\n    return value\n\n" for n in range(50))


def test_the_block_that_shares_most_words_is_shown():
    miss = no_match(FILE, "def f7(a, b):\n    value = compute_7(a, b, c)\n    return value")

    assert str(miss) == "old_string was not found; the text at line 29 is the nearest"
    assert miss.nearest == "  29\tdef f7(a, b):\n  30\t    value = compute_7(a, b)\n  31\t    return value"


def test_the_same_words_in_another_order_are_not_called_the_same():
    assert str(no_match("a b c\n", "c b a")).endswith("is the nearest")


def test_a_difference_in_blanks_is_named():
    miss = no_match("if x:\n\tgo(1)\n", "if x:\n    go(1)")

    assert str(miss).endswith("the text at line 1 differs only in blanks")
    assert "blanks" in miss.failure.suggestion


def test_a_redaction_placeholder_the_text_lacks_is_the_reason_given():
    miss = no_match("TOKEN=sk-not-a-real-key\n", "TOKEN=[REDACTED:token]")

    assert str(miss) == "old_string was not found"
    assert "[REDACTED:token] stands for a value you were not shown" in miss.failure.suggestion
    assert miss.nearest == ""


def test_a_long_block_is_shown_in_part():
    text = "".join(f"line number {n}\n" for n in range(100))

    miss = no_match(text, "\n".join(f"line number  {n}" for n in range(40)))

    assert len(miss.nearest.split("\n")) == 12


@pytest.mark.parametrize("wanted", ["nothing like it whatsoever", "\n\n", "   "])
@pytest.mark.parametrize("text", [FILE, "", "\n"])
def test_where_nothing_is_like_it_no_place_is_named(text: str, wanted: str):
    miss = no_match(text, wanted)

    assert (str(miss), miss.nearest) == ("old_string was not found", "")


def test_a_huge_file_is_not_searched():
    assert no_match("wanted!\n" + "x\n" * 600_000, "wanted?").nearest == ""


@given(st.text(), st.text())
def test_any_two_texts_give_one_line_and_advice(text: str, wanted: str):
    miss = no_match(text, wanted)

    assert "\n" not in str(miss)
    assert miss.failure.suggestion
