"""Secrets of several lines when something stands before each line: what our own tools write, and grep, diff, docker."""

import json

import pytest

from acp_agent.output.redaction import Redactor
from acp_agent.tools.tool import numbered
from tests.unit.output.redaction.corpus import filled

redact = Redactor()
LINES = [filled("{b:64}", f"line {number}") for number in range(12)]
LAST = filled("{b:23}", "last")
HEADER, FOOTER = "-----BEGIN RSA PRIVATE " + "KEY-----", "-----END RSA PRIVATE " + "KEY-----"
KEY = [HEADER, *LINES, LAST, FOOTER]
PASSWORD = "a8F3kLm9Qz2XvB7nT5wY"


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


@several
def test_a_stream_of_such_lines_says_what_the_whole_text_says(shape):
    text = shape(["first", *KEY, "after the key"]) + "\n"
    stream = redact.stream()
    assert "".join(map(stream.feed, text.splitlines(keepends=True))) + stream.finish() == redact(text)


@several
@pytest.mark.parametrize(
    "lines",
    [
        ["machine api.example.com", "  login bot", f"  password {PASSWORD}", "machine other"],
        ["- name: DB_PASSWORD", f"  value: {PASSWORD}", "- name: PORT"],
        ["db_password: |", f"  {PASSWORD}", "port: 5432"],
    ],
    ids=lambda lines: lines[0],
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
