"""Characters that a reader does not see: shown as escapes, and restored exactly."""

from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.text import escaped, unescaped
from tests.rows import each_row

PIECES = st.sampled_from(
    [
        "a",
        "é",
        "日",
        " ",
        "\n",
        "\t",
        "\\",
        "\\u200b",
        "\\u005c",
        "u200b",
        "\x00",
        "\x0c",
        "\x1b",
        "\x85",
        "\u200b",
        "\u200d",
        "\u202e",
        "\ufeff",
        "\u2028",
        "\xad",
        "\U000e0041",
        "\U000e0101",
        "👩",
        "🏴",
        "\ufe0f",
        "[",
        "]",
        " [line 3 holds U+200B]",
        "12:",
        "  7\t",
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join) | st.text()


@given(TEXTS, st.booleans())
@example("a\u200b\\u200b [line 1 holds U+200B]", False)
@example("[line 1 holds U+200B] [line 1 holds U+200B]", True)
def test_every_text_is_restored_exactly(text: str, listed: bool):
    assert unescaped(escaped(text, listed=listed)) == text


@given(TEXTS)
def test_the_lines_stay_and_what_needs_no_note_is_unchanged(text: str):
    shown = escaped(text)
    assert shown.count("\n") == text.count("\n")
    for before, after in zip(text.split("\n"), shown.split("\n"), strict=True):
        assert before == after or after.endswith("]")


@given(st.text(st.characters(exclude_categories=["C", "Z", "M"]) | st.sampled_from(" \t\n\xa0")))
def test_ordinary_text_is_unchanged(text: str):
    if " holds U+" not in text and not set("\u115f\u1160\u3164\uffa0") & set(text):
        assert escaped(text) == text


@each_row(
    "text",
    [
        "می\u200cخواهم",
        "नमस्\u200dते",
        "👩\u200d💻",
        "👩🏽\u200d🚀",
        "❤️\u200d🔥",
        "✔\ufe0f",
        "葛\U000e0100",
        "e\u0301",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "a\xa0b",
        "\\u200b",
        "line 3 holds U+200B",
    ],
)
def test_what_belongs_to_a_word_or_an_emoji_stays(text: str):
    assert escaped(text) == text


@each_row(
    "text, shown",
    [
        ("a\u200bb", "a\\u200bb [line 1 holds U+200B]"),
        ("x\ny\u202e\u200b\u200b", "x\ny\\u202e\\u200b\\u200b [line 2 holds U+202E, U+200B]"),
        (" 329\ta\u200c b", " 329\ta\\u200c b [line 329 holds U+200C]"),
        ("\\u200b \u200b", "\\u005cu200b \\u200b [line 1 holds U+005C, U+200B]"),
        ("tag\U000e0041", "tag\\udb40\\udc41 [line 1 holds U+E0041]"),
        ("\ud800", "\\ud800 [line 1 holds U+D800]"),
    ],
)
def test_what_is_not_seen_is_shown_and_named(text: str, shown: str):
    assert escaped(text) == shown


def test_the_number_of_a_search_hit_is_the_number_of_its_line():
    assert escaped("12:a\u200b", listed=True) == "12:a\\u200b [line 12 holds U+200B]"
    assert escaped("12:a\u200b") == "12:a\\u200b [line 1 holds U+200B]", "a command may print a time"


def test_a_line_without_its_note_is_restored_only_when_asked():
    assert unescaped("a\\u200b") == "a\\u200b"
    assert unescaped("a\\u200b \\u00e9", every_line=True) == "a\u200b \\u00e9"
