"""Redaction of a text that comes in pieces."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.output.redaction.redactor import Redactor, uncoloured
from acp_agent.tools.tool import numbered
from tests.rows import each_row
from tests.sizes import sized
from tests.unit.output.redaction.corpus import filled
from tests.unit.output.redaction.planted import FRAGMENTS, SECRETS, leaks

redact = Redactor()
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join)


LINES = [filled("{b:64}", f"line {number}") for number in range(12)]
LAST = filled("{b:23}", "last")
HEADER, FOOTER = "-----BEGIN RSA PRIVATE " + "KEY-----", "-----END RSA PRIVATE " + "KEY-----"
KEY = [HEADER, *LINES, LAST, FOOTER]
PASSWORD = "a8F3kLm9Qz2XvB7nT5wY"


def streamed(text, sizes):
    stream, given_back, position = redact.stream(), [], 0
    for size in sizes:
        given_back.append(stream.feed(text[position : position + size]))
        position += size
    return "".join((*given_back, stream.feed(text[position:]), stream.finish()))


@given(texts, st.lists(st.integers(1, 60), max_size=60))
@example("\\nmachine host\n  login bob\n  password obviously-fake1", [25])
@example(f"{HEADER}\ncommit {40 * 'da39'}export DB_PASSWORD=obviously-fake-hunter2{HEADER}\n", [34])
@example("".join(f"{text}\n" for text, _ in SECRETS), [1] * 3000)
def test_pieces_give_what_the_whole_text_gives(text, sizes):
    assert streamed(text, sizes) == redact(text)


def pem(what, *, first=True, last=True):
    """Return a block as in a PEM file without a final line end, also without its `first` or `last` line."""
    lines = [f"-----BEGIN {what}-----"] * first + [*LINES[:2], "abc="] + [f"-----END {what}-----"] * last
    return "\n".join(lines)


PRIVATE, CERTIFICATE = "PRIVATE " + "KEY", "CERTIFICATE"
BLOCKS = [
    pem(CERTIFICATE),
    *(pem(PRIVATE, first=first, last=last) for first in (True, False) for last in (True, False)),
    *(f"-----{word} {what}-----" for word in ("BEGIN", "END") for what in (PRIVATE, CERTIFICATE)),
    "\n", "\n", " ", "text\n", "abc=\n", LINES[0],
]  # fmt: skip


@given(st.lists(st.sampled_from(BLOCKS), max_size=8).map("".join), st.lists(st.integers(1, 300), max_size=9))
@example(f"{pem(PRIVATE)}-----END CERTIFICATE-----{pem(PRIVATE, first=False)}", [])
@example(f"{pem(CERTIFICATE)}-----END {PRIVATE}-----", [])
@example(f"{LINES[0]}\n{pem(PRIVATE)}-----END {PRIVATE}-----", [])
@example(f"-----BEGIN {PRIVATE}-----\n{pem(PRIVATE)}{LINES[0]}\n", [])
@example(f"{pem(PRIVATE)}-----BEGIN {PRIVATE}-----\n{pem(PRIVATE)}{LINES[0]}\n", [])
def test_keys_and_certificates_that_run_together_come_out_of_a_stream_as_of_the_whole(text, sizes):
    lines = [len(line) for line in text.splitlines(keepends=True)]
    assert streamed(text, lines) == streamed(text, sizes) == redact(text)


def test_what_stands_between_a_removed_key_and_a_footer_is_removed_as_well():
    text = f"[REDACTED:private-key]{PASSWORD}-----END {PRIVATE}-----\n"
    assert redact(text) == streamed(text, [30]) == "[REDACTED:private-key][REDACTED:private-key]\n"


def test_lines_come_out_as_soon_as_they_are_whole():
    stream = redact.stream()
    assert stream.feed("one\ntwo\nthr") == "one\ntwo\n"
    assert stream.feed("ee password=hunter2abc\nName? ") == "three password=[REDACTED:password]\n"
    assert stream.finish() == "Name? "


def test_a_private_key_longer_than_the_window_goes_whole_and_is_not_held():
    line = "MIIE" + "a8F3kLm9Qz2XvB7n" * 4 + "\n"
    stream = redact.stream()
    out = stream.feed("before\n-----BEGIN PRIVATE KEY-----\n")
    for _ in range(sized(250, 600)):
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


def read(lines):
    return numbered(lines, 37, 2000)


def grep(lines, path="deploy/environments/production/certificates/server.key"):
    return "\n".join(f"{path}:{number}: {line}" for number, line in enumerate(lines, 9))


def grep_with_context(lines):
    return "\n".join(
        f"my files/a-2.key:{number}: {line}" if number % 5 == 0 else f"my files/a-2.key-{number}- {line}"
        for number, line in enumerate(lines, 9)
    )


def gnu_grep(lines):
    return "\n".join(f"server.key-{number}-{line}" for number, line in enumerate(lines, 9))


def diff(lines):
    return "\n".join(f"+{line}" for line in lines)


def docker(lines):
    return "\n".join(f"web-1  | {line}" for line in lines)


def timestamps(lines):
    return "\n".join(f"2026-03-04T05:06:{number:02}.123456Z {line}" for number, line in enumerate(lines))


def pods(lines):
    return "\n".join(
        f"[pod/web-76c5bb7d9-x8z2l/web] 2026-03-04T05:06:{n:02}.123456Z {line}" for n, line in enumerate(lines)
    )


SHAPES = [read, grep, grep_with_context, gnu_grep, diff, docker, timestamps]
several = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def left(text):
    return [line for line in (*LINES, LAST) if any(line[at : at + 12] in text for at in range(len(line) - 11))]


@several
def test_a_private_key_goes_whole_with_its_short_last_line_whatever_stands_before_its_lines(shape):
    redacted = redact(shape(["first", *KEY, "after the key"]))
    assert left(redacted) == []
    assert redacted.count("[REDACTED:private-key]") == 1
    assert FOOTER not in redacted
    assert redacted.endswith("after the key")
    assert redacted.splitlines()[0] == shape(["first"])


@several
def test_a_page_that_begins_inside_a_private_key_shows_nothing_of_it(shape):
    redacted = redact(shape(KEY[4:]))
    assert left(redacted) == []


@several
def test_a_page_that_ends_inside_a_private_key_shows_nothing_of_it(shape):
    redacted = redact(shape(KEY[:6]))
    assert left(redacted) == []
    assert redacted.startswith(shape([""]).rstrip("\n"))


@pytest.mark.parametrize("shape", [*SHAPES, pods], ids=lambda shape: shape.__name__)
@each_row("lines", [["first", *KEY, "after the key"], KEY[4:], ["first", *KEY[4:], "after the key"], KEY[:4]])
def test_a_stream_of_such_lines_says_what_the_whole_text_says(shape, lines):
    text = shape(lines) + "\n"
    assert streamed(text, [len(line) for line in text.splitlines(keepends=True)]) == redact(text)


@several
@each_row(
    "lines",
    [
        ["machine api.example.com", "  login bot", f"  password {PASSWORD}", "machine other"],
        ["- name: DB_PASSWORD", f"  value: {PASSWORD}", "- name: PORT"],
        ["db_password: |", f"  {PASSWORD}", "port: 5432"],
    ],
)
def test_a_value_on_a_line_after_its_name_is_found_behind_what_stands_before_the_line(shape, lines):
    redacted = redact(shape(lines))
    assert PASSWORD not in redacted
    assert redacted.splitlines()[0] == shape(lines).splitlines()[0]
    assert redacted.splitlines()[-1] == shape(lines).splitlines()[-1]


@pytest.mark.parametrize(
    "text",
    [
        f"machine api.example.com\n  login bot\n  password {PASSWORD}\n",
        f"[Interface]\nPrivateKey = {filled('{b:43}=', 'wireguard')}\nAddress = 10.0.0.2/32\n",
        f"db.internal:5432:app:app:{PASSWORD}\n",
        f"always-auth=true\n_auth={filled('ZmFrZTp{a:28}=', 'npmrc')}\n",
        f"data:\n  token: {filled('{l:6}.{l:16}', 'bootstrap')}\n",
    ],
    ids=["netrc", "wireguard", "pgpass", "npmrc", "bootstrap token"],
)
def test_a_file_of_several_lines_gives_nothing_away_as_it_is_or_in_json_once_or_twice(text):
    secret = text.rstrip().split("\n")[1 if "PrivateKey" in text else -1].split(":")[-1].split(" ")[-1]
    secret = secret.removeprefix("_auth=")
    for form in (text, json.dumps({"content": text}), json.dumps({"body": json.dumps({"content": text})})):
        assert secret in form
        assert secret[:12] not in redact(form)


def test_a_name_before_a_line_number_is_a_file_and_no_key():
    line = f"deploy/credentials:3:aws_secret_access_key = {PASSWORD}"
    assert redact(line) == "deploy/credentials:3:aws_secret_access_key = [REDACTED:api-key]"
    assert redact("test_token.py:12: in test_it") == "test_token.py:12: in test_it"


TOKEN = "ghp" + "_FAKE" + "a8F3kLm9Qz2XvB7nT5wYr4Ue6Hs1Gd0P"
codes = st.sampled_from(["\x1b[31m", "\x1b[0m", "\x1b[K", "\x1b[38;5;4m", "\x1b(B"])
short_texts = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)


def without(text):
    plain = uncoloured(text.encode("utf-8", "surrogatepass"))
    return text if plain is None else plain.text.decode("utf-8", "surrogatepass")


def test_a_token_split_by_colours_goes_and_the_other_colours_stay():
    text = f"\x1b[35ma.env\x1b[m:\x1b[01;31m\x1b[K{TOKEN[:4]}\x1b[m\x1b[K{TOKEN[4:]} \x1b[32mok\x1b[m\n"
    expected = "\x1b[35ma.env\x1b[m:\x1b[01;31m\x1b[K[REDACTED:token] \x1b[32mok\x1b[m\n"
    assert redact(text) == expected
    stream = redact.stream()
    assert "".join(map(stream.feed, text)) + stream.finish() == expected


@given(short_texts, st.lists(st.tuples(st.integers(0, 400), codes), max_size=12))
def test_colours_anywhere_change_nothing_of_what_goes(text, colours):
    coloured = text
    for place, code in sorted(((min(place, len(text)), code) for place, code in colours), reverse=True):
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
