"""Secrets told by their value."""

import base64
import json
import threading
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.output.redaction.known import KnownSecrets
from acp_agent.output.redaction.redactor import Redactor

VALUE = 'obviously fake/key+é"1'


def knowing(*values):
    known = KnownSecrets()
    known.add(values)
    return Redactor(known, enabled=False)


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        quote(VALUE, safe=""),
        quote(VALUE),
        quote_plus(VALUE),
        quote(VALUE, safe="").replace("%2F", "%2f").replace("%C3%A9", "%c3%a9").replace("%2B", "%2b"),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
    ],
)
def test_a_value_goes_in_every_form(form):
    redacted = knowing(VALUE).redact(f"x {form} y")
    assert redacted.text == "x [REDACTED:known] y"
    assert redacted.found == {"known": 1}


@given(st.binary(max_size=9), st.binary(max_size=9), st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]))
def test_base64_of_a_text_around_the_value_keeps_next_to_none_of_it(before, after, encode):
    secret = "obviously-fake-own-key-0123"
    redacted = knowing(secret)(encode(before + secret.encode() + after).decode())
    assert "[REDACTED:known]" in redacted
    kept = redacted.replace("[REDACTED:known]", "")
    assert len(kept) <= (len(before) + len(after) + 2) * 4 / 3 + 6


def test_values_shorter_than_eight_characters_are_ignored():
    assert knowing("seven77", "  short  ")("seven77 short") == "seven77 short"
    assert knowing(" eight888\n")("<eight888>") == "<[REDACTED:known]>"


def test_of_two_values_that_begin_alike_the_longer_goes():
    assert knowing("obviously-fake", "obviously-fake-longer")("obviously-fake-longer") == "[REDACTED:known]"


def test_a_value_of_our_own_words_does_not_loop():
    assert knowing("REDACTED:known")("a REDACTED:known b") == "a [REDACTED:known] b"


def test_values_added_later_count_and_many_threads_may_add():
    known = KnownSecrets()
    redact = Redactor(known)
    assert redact("obviously-fake-3-3") == "obviously-fake-3-3"
    threads = [
        threading.Thread(target=lambda n=n: [known.add([f"obviously-fake-{n}-{k}"]) for k in range(10)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        assert redact(f"obviously-fake-{n}-9") == "[REDACTED:known]"


def test_a_value_of_several_lines_is_found_in_a_stream():
    stream = knowing("first line\nsecond line\nthird").stream()
    given_back = [stream.feed(piece) for piece in ("a\nfirst line\n", "second line\n", "third b\n")]
    assert given_back == ["a\n", "", "[REDACTED:known] b\n"]


@pytest.mark.parametrize("count", [1, 10, 300])
def test_few_values_and_many_are_found_together_with_what_the_rules_find(count):
    known = KnownSecrets()
    known.add([f"obviously-fake-{number:03}-value" for number in range(count)] + ["first line\nsecond line"])
    text = f"a obviously-fake-{count - 1:03}-value b\npassword=hunter2abc\nfirst line\nsecond line\n"
    redacted = Redactor(known).redact(text)
    assert redacted.text == "a [REDACTED:known] b\npassword=[REDACTED:password]\n[REDACTED:known]\n"
    assert redacted.found == {"known": 2, "password": 1}
