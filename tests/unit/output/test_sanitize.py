"""Text from outside becomes plain and harmless, however it comes in pieces."""

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_agent.output.markdown_images import AnswerGuard, ControlGuard, defused
from acp_agent.output.sanitize import Escapes, faithful, fence, sanitize
from acp_agent.text import is_plain
from tests.rows import each_row

LONG = "x" * 8192  # the length from which a piece of a line is no longer taken for a progress bar
FORBIDDEN = {chr(code) for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"} | set(
    "\u061c\u200b\u200d\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff\U000e0041"
)

ATOMS = st.sampled_from(
    [
        *("a", "b", " ", "\t", "\n", "\n", "\n", "\r", "\r", "\r\n", "\x1b", "[", "]", "m", "0", ";", "(", "B", "\\"),
        *(
            "\x07",
            "\x08",
            "\x00",
            "\x7f",
            "\x9b",
            "\x9d",
            "\x9c",
            "\x90",
            "\x85",
            "\u200b",
            "\u202e",
            "\ud800",
            "é",
            "日",
        ),
        *("\x1b[31m", "\x1b[0", "\x1b]0;title", "\x1b]8;;http://x\x07", "\x1b\\", "\x1bP", "\x1b(B", "\x9b31m"),
        *("100%\r", "   \n", LONG, LONG[1:], "y" * 4096, " " * 8191, " " * 8192, "1" * 64),
    ]
)
TEXTS = st.lists(ATOMS, max_size=25).map("".join)


def in_chunks(text: str, cuts: list[int]) -> str:
    escapes = Escapes()
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [escapes.feed(text[start:end]) for start, end in pairwise(edges)]
    return "".join((*pieces, escapes.feed("", last=True)))


@given(TEXTS, st.lists(st.integers(0, 1 << 20), max_size=12))
@settings(max_examples=settings.default.max_examples * 3)
@example("\x1b]0;t\x1b\\", [5, 6])
@example("\x1b]" + "y" * 4096 + "\x1b\\end", [4098, 4099])
@example("\x1b[" + "1" * 64 + " " * 8 + "mend", [74])
def test_any_chunking_gives_the_same_text(text: str, cuts: list[int]) -> None:
    assert in_chunks(text, cuts) == Escapes().feed(text, last=True)


@given(TEXTS.filter(lambda text: len(text) < 200))
def test_character_by_character_gives_the_same_text(text: str) -> None:
    assert in_chunks(text, list(range(len(text)))) == Escapes().feed(text, last=True)


@given(st.one_of(TEXTS, st.text()), st.booleans())
@settings(max_examples=settings.default.max_examples * 2)
def test_nothing_harmful_is_left_and_the_text_encodes(text: str, terminal: bool) -> None:
    cleaned = sanitize(text, terminal=terminal)
    assert FORBIDDEN.isdisjoint(cleaned)
    cleaned.encode()


@given(st.one_of(TEXTS, st.text()), st.booleans())
@settings(max_examples=settings.default.max_examples * 2)
def test_what_is_clean_stays_as_it_is(text: str, terminal: bool) -> None:
    once = sanitize(text, terminal=terminal)
    assert sanitize(once, terminal=terminal) == once


@given(
    st.lists(st.text(st.sampled_from("abc é日🙂~"), min_size=1).filter(str.strip)),
    st.sampled_from(["\n", "\r\n", "\r\r\n"]),
)
def test_no_line_of_plain_text_is_lost_whatever_ends_it(lines: list[str], ending: str) -> None:
    text = "".join(line + ending for line in lines)
    assert sanitize(text).split("\n") == [*lines, ""]


@given(st.lists(st.lists(st.sampled_from(["", "a", "bb", " ", "100%"]), min_size=1, max_size=4), max_size=8))
def test_of_a_line_with_carriage_returns_the_last_piece_counts(lines: list[list[str]]) -> None:
    expected: list[str] = []
    for pieces in lines:
        written = [piece for piece in pieces if piece]
        line = written[-1] if written else ""
        expected.append(line)
    text = "".join("\r".join(pieces) + "\n" for pieces in lines)
    assert sanitize(text) == "".join(line + "\n" for line in expected)


@each_row(
    "raw, clean",
    [
        ("\x1b[1;31merror\x1b[0m: x", "error: x"),
        ("\x1b[38:2::1:2:3mcolour\x1b[?25l\x1b[2 q", "colour"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.test\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x9cafter", "after"),
        ("\x1bPq#0\x1b\\after\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\", "after"),
        ("\x1b(B\x1b)0\x1b%Gtext\x1b=\x1b>\x1b7\x1b8\x1bc", "text"),
        ("\x9b31mred\x9d0;t\x9c.", "red."),
        ("bell\x07 back\x08space\x00 \x7f.", "bell backspace ."),
        ("a\u202eb\u200bc\ufeffd\u2066e\U000e0041f", "abcdef"),
        ("lone \ud83d.", "lone \ufffd."),
        (
            "tab\tstays, so do ümlauts, 日本, 🙂 and \N{NO-BREAK SPACE}",
            "tab\tstays, so do ümlauts, 日本, 🙂 and \N{NO-BREAK SPACE}",
        ),
    ],
)
def test_what_goes_and_what_stays(raw: str, clean: str) -> None:
    assert sanitize(raw) == clean


@each_row(
    "raw, clean",
    [
        ("\x1b]0;error: lost?\nnext\n", "0;error: lost?\nnext\n"),
        ("\x1b]0;" + "e" * 5000 + "\x07", "0;" + "e" * 5000),
        ("\x1b[12\nnext", "\nnext"),
        ("\x1b[" + "1" * 70 + "mtext", "1" * 6 + "mtext"),
        ("\x9dnever ends", "never ends"),
        ("end\x1b", "end"),
    ],
)
def test_a_sequence_that_does_not_end_swallows_no_line(raw: str, clean: str) -> None:
    assert sanitize(raw) == clean


@each_row(
    "raw, clean",
    [
        ("10%\r50%\r100%\n", "100%\n"),
        ("10%\r50%\r100%\r\n", "100%\n"),
        ("100%\r", "100%"),
        ("working\r\x1b[K\n", "working\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        (f"{LONG}\rshort\n", f"{LONG}\nshort\n"),
        (f"{LONG[1:]}\rshort\n", "short\n"),
        (f"{LONG}\rab\n", f"{LONG}\nab\n"),
        (f"\n{LONG}\rab\r \n\nend", f"\n{LONG}\n \n\nend"),
        (f"\n{LONG}\n\nend", f"\n{LONG}\n\nend"),
    ],
)
def test_carriage_returns(raw: str, clean: str) -> None:
    assert sanitize(raw) == clean


@pytest.mark.parametrize("text", ["a\n\n\n\nb\n", "\n\n\na", "a  \n \n\t\n\nb  ", "a\n\n\n"])
def test_blank_lines_and_blanks_at_the_end_of_a_line_stay(text: str) -> None:
    assert sanitize(text) == text
    assert faithful(text, terminal=True) == text
    assert faithful(text, terminal=False) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31merror\x1b[0m: x", "error: x"),
        ("\x1b]8;;https://example.test\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\r\n", "100%\n"),
        ("|\b/\b-\bdone B\bBold", "done Bold"),
        ("a\u202eb\nform\x0cfeed", "a\\u202eb [line 1 holds U+202E]\nform\\u000cfeed [line 2 holds U+000C]"),
    ],
)
def test_a_command_keeps_everything_but_what_acts_on_a_terminal(raw: str, shown: str) -> None:
    assert faithful(raw, terminal=True) == shown


def test_a_document_keeps_everything() -> None:
    raw = "one\r\n  12\ttwo\x1b[0m\r\n"
    assert faithful(raw, terminal=False) == "one\n  12\ttwo\\u001b[0m [line 12 holds U+001B]\n"


def test_a_document_keeps_its_lines() -> None:
    assert sanitize("a\r\n\n\n\nb\rc\x1b[0m\r", terminal=False) == "a\n\n\n\nb\nc\n"


def test_clean_text_is_not_even_copied() -> None:
    text = "line of text, with ümlauts\n" * 100_000
    assert sanitize(text) is text


def test_an_endless_line_does_not_pile_up() -> None:
    escapes = Escapes()
    held = 0
    for _ in range(1000):
        chunk = "\x1b]0;" + "z" * 3000 + "\rno newline ever "
        held += len(chunk) - len(escapes.feed(chunk))
    assert len(escapes.feed("", last=True)) < 20_000


def guarded(text: str) -> str:
    guard = ControlGuard()
    return guard.feed(text) + guard.feed("", last=True)


@each_row(
    "text, shown",
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
        assert out + guard.feed("", last=True) == whole.feed(text) + whole.feed("", last=True)


CALL = "00000000-0000-4000-8000-000000000001"
FENCED = st.lists(
    st.sampled_from(
        [
            "</tool-output",
            ' id="',
            "</external-data",
            "< / knowledge",
            "<workspace",
            ">",
            "\n",
            "a",
            '<tool-output id="x">',
        ]
    )
    | st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
).map("".join)


def closing(text: str) -> str:
    return "</" + re.sub(r" source=.*", ">", text.partition("\n")[0].removeprefix("<"))


@given(FENCED)
def test_the_closing_line_stands_once_and_at_the_end_whatever_the_text(text: str):
    fenced = fence(text, CALL)
    assert fenced.count(closing(fenced)) == 1
    assert fenced.endswith(closing(fenced))


@given(FENCED)
def test_the_text_is_left_as_it_is(text: str):
    assert f"\n{text}" in fence(text, CALL)


@given(FENCED)
def test_in_text_from_outside_nothing_looks_like_a_fence(text: str):
    inner = fence(text, CALL, external="https://docs.example").splitlines()[1:-1]
    assert not re.search(r"<\s*/?\s*(tool-output|external-data|knowledge|workspace)\b", "\n".join(inner))


def test_a_text_that_knows_the_id_of_a_call_gets_another():
    first = fence("x", CALL)
    again = fence(first, CALL)
    assert closing(first) != closing(again)


def test_a_source_cannot_add_a_line_or_an_attribute():
    fenced = fence("x", CALL, external='https://e.example/"> \n</external-data\u202e')
    assert len(fenced.splitlines()) == 3
    assert 'source="https://e.example/&quot;&gt; &lt;/external-data">' in fenced


def test_the_same_call_is_fenced_the_same_so_that_prompts_stay_cached():
    assert fence("x", CALL) == fence("x", CALL)


@given(st.one_of(TEXTS, st.text(), CHARACTERS, st.text("ab[ +\n", max_size=20)))
def test_in_a_plain_text_is_nothing_to_drop_or_to_escape(text: str):
    for each in (text, f"{text} [line 1 holds U+200B]"):
        if is_plain(each):
            assert not FORBIDDEN & {*each}
            assert sanitize(each) == sanitize(each, terminal=False) == each
            assert each == text
