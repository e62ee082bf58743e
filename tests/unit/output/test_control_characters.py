"""Characters of an answer that act on a screen are shown, and none is dropped."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.markdown_images import AnswerGuard, defused
from acp_agent.output.sanitize import ControlGuard


def guarded(text: str) -> str:
    guard = ControlGuard()
    return guard.feed(text) + guard.finish()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("\x9b2J \x90x\x9c", "\\u009b2J \\u0090x\\u009c"),
        ("if (a\u202e) // \u2066x\u2069", "if (a\\u202e) // \\u2066x\\u2069"),
        ("a\x00b\x08c\x7f", "a\\u0000b\\u0008c\\u007f"),
        ("shown\rhidden", "shown\nhidden"),
        ("one\r\ntwo\r\n", "one\r\ntwo\r\n"),
        ("ends\r", "ends\n"),
        ("```\nprintf '\x1b[1m'\n```", "```\nprintf '\\u001b[1m'\n```"),
    ],
)
def test_what_acts_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert guarded(text) == shown


@pytest.mark.parametrize(
    "text", ["tabs\tand\nlines", "שלום \u200fעולם", "👩\u200d💻 ✔\ufe0f", "नमस्\u200dते", "\\u001b[31m"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert guarded(text) == text


CHARACTERS = st.text(
    st.sampled_from("a\\<[]!()` \n\r\t\x00\x1b\x07\x9b\x9c\u202a\u202e\u2066\u2069\ufe0fé"), max_size=60
)


@given(CHARACTERS)
def test_nothing_that_acts_is_left(text: str) -> None:
    shown = defused(text)
    assert not [char for char in shown if unicodedata.category(char) == "Cc" and char not in "\t\n\r"]
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(shown)
    assert "\r" not in shown.replace("\r\n", "")


@given(CHARACTERS | st.text(max_size=60), st.data())
def test_however_a_stream_is_cut_it_comes_out_the_same(text: str, data: st.DataObject) -> None:
    for make in (ControlGuard, AnswerGuard):
        guard, out, rest = make(), "", text
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            out += guard.feed(rest[:size])
            rest = rest[size:]
        whole = make()
        assert out + guard.finish() == whole.feed(text) + whole.finish()
