"""Words for failures, beyond what the contract suite shows over real HTTP."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from acp_agent.core.errors import ProviderErrorKind
from acp_agent.llm.endpoint import ModelEndpoint
from acp_agent.llm.exchange import http_failure, quirk_in, stream_failure, wrong_content
from acp_agent.llm.openai import REFUSALS, OpenAIQuirk
from tests.rows import each_row

KEY = "fake-key-1234567890"
ENDPOINT = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000, api_key=KEY, key_source="ACME_API_KEY")
KEYLESS = ModelEndpoint("acme", "m-1", "http://127.0.0.1:1", 1000, key_source="ACME_API_KEY")


@each_row(
    "header, seconds",
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Mon, 99 Foo 2026 00:00:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_retry_after_in_each_of_its_forms(header: dict[str, str], seconds: float | None) -> None:
    assert http_failure(ENDPOINT, 429, header, b"").retry_after == seconds


@each_row(
    "value, told",
    [("999999999", "999999999 s"), ("1234567.25", "1234567.25 s"), ("0.01", "0.01 s"), ("7", "7 s")],
)
def test_seconds_to_wait_are_told_in_plain_digits(value: str, told: str) -> None:
    assert str(http_failure(ENDPOINT, 429, {"retry-after": value}, b"")).endswith(f"; it asks to wait {told}")


def test_a_date_to_come_is_the_time_until_then() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    wait = http_failure(ENDPOINT, 429, {"retry-after": date}, b"").retry_after
    assert wait is not None
    assert 50 < wait <= 100


@pytest.mark.parametrize("text", [f"bad key {KEY}!", "bad key sk-proj-abc123def456", "bad key sk-***************wxyz"])
def test_no_key_gets_into_a_message(text: str) -> None:
    message = str(http_failure(ENDPOINT, 400, {}, text.encode()))
    assert "[key]" in message
    assert KEY not in message
    assert "wxyz" not in message
    assert "abc123" not in message


def test_a_message_never_reorders_or_hides_text_on_a_terminal() -> None:
    message = str(http_failure(ENDPOINT, 400, {}, "a\u202eb\x1b[2Jc\r\nd\u200b".encode()))
    assert message.isprintable()


def test_a_401_without_a_key_says_that_one_is_wanted() -> None:
    assert "acme wants an API key (401): check ACME_API_KEY" in str(http_failure(KEYLESS, 401, {}, b""))


@each_row(
    "error, kind, status",
    [
        ({"type": "overloaded_error", "message": "x"}, ProviderErrorKind.OVERLOADED, 529),
        ({"type": "rate_limit_error", "message": "x"}, ProviderErrorKind.RATE_LIMITED, 429),
        ({"type": "authentication_error"}, ProviderErrorKind.AUTH, 401),
        ({"type": "api_error", "message": "x"}, ProviderErrorKind.SERVER, 500),
        ({"code": 502, "message": "Bad gateway"}, ProviderErrorKind.SERVER, 502),
        ({"code": "context_length_exceeded"}, ProviderErrorKind.CONTEXT_TOO_LONG, 413),
        ({"code": "429", "message": "x"}, ProviderErrorKind.RATE_LIMITED, 429),  # LiteLLM
        ({"status": 503, "message": "x"}, ProviderErrorKind.OVERLOADED, 503),
        ([{"code": 400, "message": "x"}], ProviderErrorKind.INVALID_REQUEST, 400),
        ({"code": 9, "message": "who knows"}, ProviderErrorKind.SERVER, 500),
        ({}, ProviderErrorKind.SERVER, 500),
    ],
)
def test_an_error_in_the_stream_is_mapped_by_type_or_code(error: Any, kind: ProviderErrorKind, status: int) -> None:
    failure = stream_failure(ENDPOINT, error)
    assert (failure.kind, failure.status) == (kind, status)


_FAULTS = [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]


@each_row(
    "body",
    [
        {"detail": _FAULTS},  # FastAPI, as in llama-cpp-python
        {"object": "error", "message": {"detail": _FAULTS}, "type": "invalid_request_error"},  # Mistral
        {"errors": _FAULTS},
    ],
)
def test_a_list_of_faults_is_told_and_names_what_the_server_does_not_take(body: dict) -> None:
    failure = http_failure(ENDPOINT, 422, {}, json.dumps(body).encode())
    assert "Extra inputs are not permitted" in str(failure)
    assert quirk_in(failure, REFUSALS) is OpenAIQuirk.NO_STREAM_OPTIONS


def test_the_users_words_in_a_list_of_faults_are_neither_told_nor_taken_for_the_reason() -> None:
    fault = {"loc": ["body", "messages", 0], "msg": "Field required", "input": "explain the context window and billing"}
    failure = http_failure(ENDPOINT, 422, {}, json.dumps({"detail": [fault]}).encode())
    assert failure.kind is ProviderErrorKind.INVALID_REQUEST
    assert "body.messages.0: Field required" in str(failure)
    assert "billing" not in str(failure)


@each_row(
    "error",
    [
        "broke",
        ["broke"],
        [{"message": "broke"}],
        {"msg": "broke"},
        {"error": {"message": "broke"}},
        {"message": "Provider returned error", "metadata": {"raw": '{"error": {"message": "broke"}}'}},  # OpenRouter
        {"message": "Provider returned error", "metadata": {"raw": "broke"}},
    ],
)
def test_the_reason_is_found_in_every_shape_of_an_error(error: Any) -> None:
    assert "broke" in str(stream_failure(ENDPOINT, error))
    for body in (json.dumps({"error": error}), json.dumps({"errors": error}), "\ufeff" + json.dumps([error])):
        told = str(http_failure(ENDPOINT, 400, {}, body.encode()))
        assert "broke)" in told
        assert "{" not in told


@each_row(
    "status, kind",
    [
        (405, ProviderErrorKind.NOT_FOUND),
        (410, ProviderErrorKind.NOT_FOUND),
        (409, ProviderErrorKind.OVERLOADED),
        (425, ProviderErrorKind.OVERLOADED),
    ],
)
def test_a_status_that_is_not_about_the_conversation_does_not_blame_it(status: int, kind: ProviderErrorKind) -> None:
    failure = http_failure(ENDPOINT, status, {}, b"")
    assert failure.kind is kind
    assert "new session" not in str(failure)


def test_an_empty_object_adds_nothing_to_the_status() -> None:
    assert "(422)" in str(http_failure(ENDPOINT, 422, {}, b"{}"))


def test_an_answer_of_unknown_type_is_told_without_a_body() -> None:
    assert str(wrong_content(ENDPOINT, "image/png", b"")).startswith("acme answered with image/png, not with")
