"""Redaction of a text that comes in pieces."""

from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.output.redaction import Redactor
from tests.unit.output.redaction.planted import FRAGMENTS, SECRETS, leaks

redact = Redactor()
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join)


def streamed(text, sizes):
    stream, given_back, position = redact.stream(), [], 0
    for size in sizes:
        given_back.append(stream.feed(text[position : position + size]))
        position += size
    return "".join((*given_back, stream.feed(text[position:]), stream.finish()))


@given(texts, st.lists(st.integers(1, 60), max_size=60))
@example("".join(f"{text}\n" for text, _ in SECRETS), [1] * 3000)
def test_pieces_give_what_the_whole_text_gives(text, sizes):
    assert streamed(text, sizes) == redact(text)


def test_lines_come_out_as_soon_as_they_are_whole():
    stream = redact.stream()
    assert stream.feed("one\ntwo\nthr") == "one\ntwo\n"
    assert stream.feed("ee password=hunter2abc\nName? ") == "three password=[REDACTED:password]\n"
    assert stream.finish() == "Name? "


def test_a_private_key_longer_than_the_window_goes_whole_and_is_not_held():
    line = "MIIE" + "a8F3kLm9Qz2XvB7n" * 4 + "\n"
    stream = redact.stream()
    out = stream.feed("before\n-----BEGIN PRIVATE KEY-----\n")
    for _ in range(600):
        out += stream.feed(line)
        assert len(stream._pending) < 10_000
    out += stream.feed("abcd==\n-----END PRIVATE KEY-----\nafter\n") + stream.finish()
    assert out == "before\n[REDACTED:private-key]\nafter\n"


def test_a_line_without_end_is_given_in_parts_and_leaks_nothing():
    secret = "a8F3kLm9Qz2XvB7nT5wY"
    text = "".join(f"filler-{number} " * 50 + f"password={secret}{number} " for number in range(600))
    stream, out = redact.stream(), ""
    for start in range(0, len(text), 1013):
        out += stream.feed(text[start : start + 1013])
        assert len(stream._pending) <= 65536
    out += stream.finish()
    assert out == redact(text)


def test_a_secret_longer_than_any_window_is_one_placeholder():
    text = "x password=" + "a8F3kLm9Qz2XvB7nT5wY" * 20_000 + " y"
    assert streamed(text, [5000] * 80) == "x password=[REDACTED:password] y"
    secret = "a8F3kLm9Qz2XvB7nT5wY"
    assert not leaks(secret, streamed(text, [7000] * 60))


@given(st.integers(65_000, 66_000))
def test_a_secret_at_the_border_of_the_longest_line_is_caught(before):
    text = "x" * before + " token=a8F3kLm9Qz2XvB7nT5wY tail"
    assert not leaks("a8F3kLm9Qz2XvB7nT5wY", streamed(text, [before + 10, 5]))


def test_a_stream_can_be_used_again_after_its_end():
    stream = redact.stream()
    stream.feed("password=")
    assert stream.finish() == "password="
    assert stream.feed("next\n") == "next\n"
