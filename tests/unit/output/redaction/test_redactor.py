"""Texts and JSON without their secrets."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.secrets import placeholder
from acp_agent.output.redaction.redactor import Redactor, compile_extra
from acp_agent.output.redaction.rules import KnownSecrets
from tests.rows import each_row
from tests.unit.output.redaction.planted import FRAGMENTS, INNOCENT, SECRETS, leaks

redact = Redactor()
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join)


@each_row("text, secret", SECRETS)
def test_a_secret_goes_and_no_twelve_characters_of_it_stay(text, secret):
    assert not leaks(secret, redact(text))
    assert redact(f"before\n{text}\nafter").startswith("before\n")
    assert redact(f"before\n{text}\nafter").endswith("\nafter")


@each_row("text", INNOCENT)
def test_what_only_looks_like_a_secret_stays(text):
    assert redact.redact(text).text == text
    assert not redact.redact(text).found


def test_only_the_value_goes_and_its_category_is_counted():
    redacted = redact.redact('a: 1\npassword = "hunter2-obviously-fake"  # yes\nurl = ftp://bob:obviously-fake1@host/x')
    assert redacted.text == (
        'a: 1\npassword = "[REDACTED:password]"  # yes\nurl = ftp://bob:[REDACTED:connection-string]@host/x'
    )
    assert redacted.found == {"password": 1, "connection-string": 1}


def test_a_private_key_of_many_lines_is_one_placeholder_and_its_neighbours_stay():
    body = "\n".join("MIIEobviouslyFakeKeyMaterial0123456789" + "aB3d" * 6 for _ in range(30))
    for header, footer in (("-----BEGIN RSA PRIVATE KEY-----\n", "\nEnd==\n-----END RSA PRIVATE KEY-----"), ("", "")):
        whole = f"one\n{header}{body}{footer}\ntwo"
        assert (redact(whole) == "one\n[REDACTED:private-key]\ntwo") is bool(header)
    assert redact(f"one\n-----BEGIN PRIVATE KEY-----\n{body}\ntwo words") == "one\n[REDACTED:private-key]\ntwo words"
    assert redact(f"one\n{body}\n-----END PRIVATE KEY-----\ntwo") == "one\n[REDACTED:private-key]\ntwo"


@given(texts)
def test_redacting_again_changes_nothing(text):
    once = redact(text)
    assert redact.redact(once).text == once
    assert not redact.redact(once).found


@given(st.text(st.characters(exclude_characters=":=@/-_.,<>$|")))
def test_text_without_any_sign_of_a_secret_is_unchanged(text):
    text = text.replace("eyJ", "").replace("  ", " ")
    if not any(len(word) > 11 for word in text.split()):
        assert redact(text) == text


@given(texts, st.sampled_from([case for case in SECRETS if "\n" not in case[0]]), texts)
def test_no_context_saves_a_secret_on_a_line_of_its_own(before, case, after):
    text, secret = case
    redacted = redact(f"{before}\n{text}\n{after}")
    # What stands around may hold the same words where they are innocent.
    assert redacted.count(secret) <= redact(before).count(secret) + redact(after).count(secret)


@given(st.text(st.sampled_from("\ud800\udfff\x00\x1b\xff é✓𝄞password=:\"'a1b2c3d4\n"), max_size=200))
def test_any_characters_come_through(text):
    assert isinstance(redact(text), str)
    assert redact.stream().feed(text) is not None


def test_a_value_of_any_script_goes_whole():
    assert redact('password = "pässwörd-✓-123"') == 'password = "[REDACTED:password]"'
    assert redact("password=\ud800abcdef123\nx") == "password=[REDACTED:password]\nx"


def test_patterns_of_the_user_take_the_whole_match():
    custom = Redactor(extra_patterns=[r"ACME-\d{4}", "Zoë+"])
    redacted = custom.redact("id ACME-1234, Zoëë, ACME-12")
    assert redacted.text == "id [REDACTED:custom], [REDACTED:custom], ACME-12"
    assert redacted.found == {"custom": 2}


def test_bad_patterns_are_told_of_and_the_good_ones_still_work():
    patterns = ["(", r"ok\d", "(?=look)", "x" * 513]
    good, problems = compile_extra(patterns)
    assert len(good) == 1
    assert ["'('" in problems[0], "'(?=look)'" in problems[1], "513 characters" in problems[2]] == [True] * 3
    assert Redactor(extra_patterns=patterns)("ok1 x") == "[REDACTED:custom] x"


@given(st.text(max_size=60))
def test_even_a_pattern_that_matches_everything_is_idempotent(text):
    custom = Redactor(extra_patterns=[".*", "REDACTED"])
    assert custom(custom(text)) == custom(text)


def test_disabled_it_still_keeps_what_is_known():
    known = KnownSecrets()
    known.add(["obviously-fake-own-key"])
    off = Redactor(known, extra_patterns=["bob"], enabled=False)
    assert off("password=hunter2abc bob obviously-fake-own-key") == "password=hunter2abc bob [REDACTED:known]"
    assert off.json({"password": "hunter2-obviously-fake"}) == {"password": "hunter2-obviously-fake"}


def test_a_text_that_was_clean_is_redacted_when_its_value_is_known():
    known = KnownSecrets()
    redactor = Redactor(known)
    assert redactor("say plain-words-here again") == "say plain-words-here again"
    known.add(["plain-words-here"])
    assert redactor("say plain-words-here again") == "say [REDACTED:known] again"


def test_what_completes_a_secret_is_redacted_although_it_was_clean_alone():
    redactor = Redactor()
    assert redactor("hunter2-obviously-fake") == "hunter2-obviously-fake"
    assert redactor.redact("hunter2-obviously-fake", before="password=").text == "[REDACTED:password]"


def test_only_some_short_texts_are_remembered_and_none_with_a_secret():
    redactor = Redactor()
    for text in ("x" * 201, "password=hunter2-obviously-fake", *map(str, range(2500))):
        redactor(text)
    _, remembered = redactor._clean
    assert {"2499"} <= remembered <= {*map(str, range(2500))}
    assert len(remembered) <= 1000


def test_json_leaves_are_redacted_for_their_text_and_for_their_key():
    value = {
        "password": "hunter2-obviously-fake",
        "command": "curl -u bob:hunter2-obviously-fake https://host",
        "max_tokens": 4096,
        "headers": [{"name": "X-Api-Key", "value": "a8F3kLm9Qz2XvB7nT5wY"}, {"name": "Accept", "value": "text/html"}],
        "Authorization": "Basic dXNlcjpvYnZpb3VzbHktZmFrZQ==",
        "Cookie": "theme=dark; session=a8F3kLm9Qz2XvB7nT5wY",
        "tokens": ["a8F3kLm9Qz2XvB7nT5wY", "plain"],
        "password_hint": "the usual one",
        "none": None,
    }
    assert redact.json(value) == {
        "password": "[REDACTED:password]",
        "command": "curl -u bob:[REDACTED:password] https://host",
        "max_tokens": 4096,
        "headers": [{"name": "X-Api-Key", "value": "[REDACTED:api-key]"}, {"name": "Accept", "value": "text/html"}],
        "Authorization": "Basic [REDACTED:token]",
        "Cookie": "theme=dark; session=[REDACTED:token]",
        "tokens": ["[REDACTED:token]", "plain"],
        "password_hint": "the usual one",
        "none": None,
    }


def test_json_too_deep_to_look_into_is_withheld():
    value = "hunter2"
    for _ in range(5000):
        value = [value]
    found = redact.json(value)
    while isinstance(found, list):
        found = found[0]
    assert found == placeholder("too-deep")


def test_work_grows_with_the_text_and_not_faster():
    """Counted in calls to the regular expressions' own engine, not in seconds."""
    for unit in ("token:", "-----BEGIN PRIVATE KEY-----", "password=a1b2c3d4 ", "token=,,,,", "://a:b@", "token: |\n"):
        small, large = (_calls(unit * count) for count in (200, 1600))
        assert large <= 10 * small + 100, unit


def _calls(text):
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        redact(text)
    finally:
        sys.setprofile(None)
    return calls


def test_importing_compiles_nothing():
    program = (
        "import re2, sys\n"
        "re2.compile = None\n"
        "from acp_agent.output.redaction.rules import KnownSecrets\n"
        "from acp_agent.output.redaction.redactor import Redactor\n"
        "Redactor(KnownSecrets())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("after", ["\n[REDACTED:token]", " [REDACTED]"])
def test_a_placeholder_behind_a_secret_does_not_make_two_of_it(after):
    redacted = Redactor().redact(f"DB_PASSWORD=hunter2-obviously-fake{after}")
    assert redacted.text == f"DB_PASSWORD=[REDACTED:password]{after}"
    assert redacted.found == {"password": 1}


KEY = "\n".join(("-----BEGIN RSA PRIVATE KEY-----", *("MIIEowIBAAKCAQEAabcd1234" * 2 for _ in range(8))))


@pytest.mark.parametrize(
    ("before", "text", "shown"),
    [
        ("the password: ", "hunter2-obviously-fake\nend", "[REDACTED:password]\nend"),
        ("token ghp_a1B2a1B2a1B2a1B2", "c3D4c3D4c3D4c3D4c3D4 end", "[REDACTED:token] end"),
        (KEY + "\n", "MIIEowIBAAKCAQEAabcd1234" * 2 + "\n", "[REDACTED:private-key]\n"),
        ("token ghp_" + "a1B2" * 9 + "\n", "end", "end"),
    ],
)
def test_a_secret_that_begins_in_what_was_shown_before_ends_as_a_placeholder(before, text, shown):
    redactor = Redactor()
    assert redactor.redact(text, before).text == shown
    stream = redactor.stream()
    stream.follow(before)
    assert stream.feed(text) + stream.finish() == shown
