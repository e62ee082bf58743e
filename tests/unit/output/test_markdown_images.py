"""What a text may not make an editor fetch."""

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.markdown_images import AnswerGuard, ImageGuard, defused
from tests.rows import each_row

REMOTE = [
    ("![a](https://e.example/?q=1)", r"![a]\(https://e.example/?q=1)"),
    ("![](//e.example/x)", r"![]\(//e.example/x)"),
    ("![`]`](http://e.example)", r"![`]`]\(http://e.example)"),
    ("![a\nb](\n<https://e.example>)", "![a\nb]\\(\n<https://e.example>)"),
    ("![](&#104;ttps://e.example)", r"![]\(&#104;ttps://e.example)"),
    (r"![](\\e.example\x)", r"![]\(\\e.example\x)"),
    ("[![badge](https://e.example/b)](docs/x.md)", r"[![badge]\(https://e.example/b)](docs/x.md)"),
    ("![x]\n\n[x]: https://e.example/x.png", "![x]\n\n[x]\\: https://e.example/x.png"),
]
HARMLESS = [
    "![a](img/x.png) and ![b](./y.svg)",
    "![a](data:image/png;base64,iVBORw0KGgo=)",
    "[docs](https://docs.example/page) and <https://docs.example>",
    "#![allow(dead_code)]\n\nSee [docs](https://docs.example).",
    "let v = vec![1, 2]; if (![1].includes(x)) { call(a[0](b)); }",
    "def f(x: dict[str, int]): return x[1:]",
    "a < b, <b>bold</b>, <T>, List<image_id>, x <imgx",
    "wow! (really) [1]: no",
]
PIECES = st.sampled_from(
    [
        "![",
        "a",
        "](",
        "https://e.example",
        "img.png",
        ")",
        "]",
        "]:",
        " ",
        "\n",
        "\n\n",
        "<",
        "img",
        " src=x>",
        "!",
        "(",
        "//e",
        "\t",
    ]
)


@pytest.mark.parametrize(("text", "broken"), REMOTE)
def test_what_a_renderer_would_fetch_is_broken(text: str, broken: str):
    assert defused(text) == broken


@pytest.mark.parametrize("text", HARMLESS)
def test_what_fetches_nothing_stays_as_it_is(text: str):
    assert defused(text) == text


@given(st.lists(PIECES, max_size=40).map("".join), st.data())
def test_however_a_stream_is_cut_it_comes_out_the_same(text: str, data: st.DataObject):
    guard, out, rest = AnswerGuard(), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += guard.feed(rest[:size])
        rest = rest[size:]
    assert out + guard.finish() == defused(text)


def test_other_threads_get_their_turn_while_a_long_text_is_looked_through():
    text, over, turns = "a line like any other of a log\n" * 150_000, threading.Event(), 0

    def look() -> None:
        assert defused(text) == text
        over.set()

    thread = threading.Thread(target=look)
    thread.start()
    while not over.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 5


@each_row("before", range(64 * 1024 - 24, 64 * 1024 + 2))
def test_what_stands_across_two_pieces_of_a_long_text_is_broken(before: int):
    assert defused("x" * before + "![a](https://e.example)") == "x" * before + r"![a]\(https://e.example)"


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_paragraph_keeps_a_picture_with_a_target_elsewhere(text: str):
    for paragraph in re.split(r"\n[ \t]*(?=\n)", defused(text)):
        picture = paragraph.find("![")
        assert picture < 0 or not re.search(r"\]\(\s*<?(?:https:|//)", paragraph[picture:])


@given(st.lists(PIECES, max_size=40).map("".join))
def test_nothing_but_backslashes_is_added(text: str):
    assert defused(text).replace("\\", "") == text


def test_a_stream_holds_back_no_more_than_the_beginning_of_a_construct():
    guard = ImageGuard()
    assert guard.feed("![alt text") == "![alt text"
    assert guard.feed("](") == ""
    assert guard.feed("x" * 1000) != ""
