"""`key = value` in dense texts: what is quick says what the slow way says."""

import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from acp_agent.output.redaction import Redactor
from acp_agent.output.redaction.assignments import assigned, pairs
from acp_agent.output.redaction.rules import built_in
from acp_agent.output.redaction.values import KeyKind, Meaning

redact = Redactor()
letters = st.text(string.ascii_letters + string.digits, min_size=20, max_size=60)
numbers = st.from_regex(r"\A[0-9TZ]{18,24}(?:[smhdkKMGB%]|ms|[kKMG]i?B)?\Z")
names = st.from_regex(r"\A(?:[A-Z][a-z]{2,6}[0-9]?){4,8}\Z|\A[a-z]{18,24}[0-9]{1,3}\Z|\A(?i:changeme)[0-9]{12,16}\Z")


@given(
    st.sampled_from(["token", "password", "PASS", "api_key", "dbSecret"]),
    st.sampled_from(["=", ": ", " = ", ":", "=>"]),
    st.sampled_from(["", '"', "'"]),
    letters | numbers | names,
    st.sampled_from(["", " ", "\n", " and more", " (", " = 1", ", b"]),
)
@example("token", "=", "", "12345678901234567890ms", "")
@example("token", "=", "", "Abcd1Efgh2Ijkl3Mnop4", "")
@example("token", "=", '"', "AAAAB3NzaC1yc2EAAAADAQABAAABgQ", "")
def test_a_value_that_is_clear_at_a_glance_is_one_that_is_looked_at_closely(key, sign, quote, value, after):
    data = f"{key}{sign}{quote}{value}{quote}{after}".encode()
    given_away = list(pairs(data, 0, len(data), lambda _: Meaning(KeyKind.SECRET, "token", random=False)))
    closely = assigned(data, (0, len(key)), sign.encode(), len(key + sign), len(data))
    assume(given_away or closely)
    assert [span[:2] for span in given_away[:1]] == [closely]


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens=12 completion_tokens=4096 total_tokens=4108",
        '{"max_tokens":4096,"usage":{"prompt_tokens":1234567,"completion_tokens":7654321}}',
        "password=[REDACTED:password] token: [REDACTED] 'api_key': '[REDACTED:api-key]'",
    ],
)
def test_what_counts_or_was_redacted_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    "key", ["FOO_KEY", "x.FOO_KEY", "\\nFOO_KEY", "%22FOO_KEY", "\x1b[1;31mFOO_KEY", "\\033[31mFOO_KEY"]
)
def test_any_key_of_an_environment_file_counts_where_the_value_is_random(key):
    assert redact(f"{key}=a8F3kLm9Qz2XvB7n") == f"{key}=[REDACTED:api-key]"
    assert redact(f"{key}=some/thing") == f"{key}=some/thing"


@pytest.mark.parametrize("before", ["\\n", "\\u0022", "%20", "\x1b[0m", "\\e[1;32m", "?x=1&", "[31m"])
def test_a_key_is_read_without_the_escape_or_colour_before_it(before):
    assert redact(f"{before}max_tokens=a8F3kLm9Qz2XvB7n") == f"{before}max_tokens=a8F3kLm9Qz2XvB7n"
    assert redact(f"{before}Password=a8F3kLm9") == f"{before}Password=[REDACTED:password]"


def test_assignments_within_a_value_that_went_are_not_counted_again():
    assert redact.redact('password="a token=a8F3kLm9Qz2XvB7n 4b"').found == {"password": 1}


def test_keys_that_differ_by_a_number_mean_the_same():
    text = "\n".join(f"API_KEY_{number}=a8F3kLm9Qz2XvB7n{number}" for number in range(6000))
    assert redact.redact(text).found == {"api-key": 6000}
    assert len(built_in()._meanings) < 4096
