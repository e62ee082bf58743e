"""Secrets in texts with the colours still in them, as `acp-agent redact` gets them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.redaction import Redactor
from acp_agent.output.redaction.stream import uncoloured
from tests.unit.output.redaction.planted import FRAGMENTS
from tests.unit.output.redaction.test_redaction_of_lines import KEY

redact = Redactor()
TOKEN = "ghp" + "_FAKE" + "a8F3kLm9Qz2XvB7nT5wYr4Ue6Hs1Gd0P"
codes = st.sampled_from(["\x1b[31m", "\x1b[0m", "\x1b[K", "\x1b[38;5;4m", "\x1b(B"])
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)


def without(text):
    plain = uncoloured(text.encode("utf-8", "surrogatepass"))
    return text if plain is None else plain.text.decode("utf-8", "surrogatepass")


def test_a_token_split_by_colours_goes_and_the_other_colours_stay():
    text = f"\x1b[35ma.env\x1b[m:\x1b[01;31m\x1b[K{TOKEN[:4]}\x1b[m\x1b[K{TOKEN[4:]} \x1b[32mok\x1b[m\n"
    expected = "\x1b[35ma.env\x1b[m:\x1b[01;31m\x1b[K[REDACTED:token] \x1b[32mok\x1b[m\n"
    assert redact(text) == expected
    stream = redact.stream()
    assert "".join(map(stream.feed, text)) + stream.finish() == expected


@given(texts, st.lists(st.tuples(st.integers(0, 400), codes), max_size=12))
def test_colours_anywhere_change_nothing_of_what_goes(text, colours):
    coloured = text
    for place, code in sorted(colours, reverse=True):
        coloured = coloured[:place] + code + coloured[place:]
    assert without(redact(coloured)) == redact(without(coloured))
    stream = redact.stream()
    assert without("".join(map(stream.feed, coloured.splitlines(keepends=True))) + stream.finish()) == redact(
        without(coloured)
    )


def test_a_private_key_whose_lines_are_coloured_goes_from_a_stream_too():
    text = "".join(f"\x1b[90m{number:02}\x1b[0m \x1b[33m{line}\x1b[0m\n" for number, line in enumerate(KEY))
    stream = redact.stream()
    seen = "".join(map(stream.feed, text.splitlines(keepends=True))) + stream.finish()
    assert not [line for line in KEY[1:-1] if line[:12] in seen]


@pytest.mark.parametrize(
    "text", ["\x1b[31mred\x1b[0m", "\x1b", "a\x1b[", "\x1b]8;;https://example.com\x07link\x1b]8;;\x07"]
)
def test_a_coloured_text_without_secrets_stays_as_it_is(text):
    assert redact(text) == text
