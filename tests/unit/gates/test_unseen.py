"""A change that holds what no diff shows is said to, by name and line."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Diff
from acp_agent.gates.question import unseen
from tests.rows import each_row


def warned(new: str, old: str | None = None) -> str:
    return "".join(unseen((Diff("/w/x", old, new),)))


@each_row("code", [0x200B, 0x202E, 0x2066, 0x2069, 0xFEFF, 0x1B, 0, 0x7F, 0xAD, 0x2028, 0x3164, 0xE0041, 0xFE00])
def test_each_kind_of_unseen_character_is_named_with_its_lines(code: int):
    text = warned(f"one\nt{chr(code)}wo\nthree\n{chr(code)}four\n")
    assert f"U+{code:04X}" in text
    assert text.endswith("at lines 2, 4")


@given(
    st.text(
        st.characters(categories=("Cc", "Cf", "Zl", "Zp"), exclude_characters="\t\n\r\u200d"), min_size=1, max_size=8
    )
)
def test_none_of_them_goes_unsaid(hidden: str):
    text = warned(f"a{hidden}b")
    assert all(f"U+{ord(char):04X}" in text for char in hidden)


@each_row(
    "text",
    [
        "plain\ttext\n", "crlf\r\nlines\r\n", "é 漢 ñ\u00a0»\n", "✔\ufe0f done ❤\ufe0e 1\ufe0f\u20e3\n",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308\n", "\ue0b0 prompt\n",
    ],
)  # fmt: skip
def test_ordinary_text_and_pictures_are_no_reason_to_warn(text: str):
    assert not warned(text)


def test_a_line_that_was_there_before_is_not_warned_of():
    assert not warned("\ufeffhead\nnew\n", old="\ufeffhead\nold\n")
    assert "line 2" in warned("\ufeffhead\nn\u200bew\n", old="\ufeffhead\nold\n")


def test_a_carriage_return_inside_a_line_is_warned_of():
    assert "U+000D" in warned("harmless\revil\n")


def test_of_many_lines_and_kinds_the_first_are_named_and_the_rest_counted():
    text = warned(
        "".join(f"{chr(0x200B + kind)}\n" for kind in range(4) for _ in range(9)) + "".join(map(chr, range(1, 9)))
    )
    assert "lines 1, 2, 3, 4, 5 and 4 more" in text
    assert "and 2 more kinds" in text
