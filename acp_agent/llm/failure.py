"""The errors of model APIs as ProviderError: what happened, and what the user can do about it.

The same table serves HTTP statuses and errors inside a stream that began with status 200.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import ModelEndpoint, as_object, as_text, read_object

DETAIL_LIMIT: Final = 300

_TOO_LONG: Final = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|exceed_context|exceeds? the (model|available) ?\w* ?context|tokens? limit exceeded",
    re.IGNORECASE,
)
_NO_CREDIT: Final = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|spend.?limit|billing|out of credits",
    re.IGNORECASE,
)
_KEY_LIKE: Final = re.compile(r"\b(sk|gsk|xai)-[A-Za-z0-9_*.\-]{6,}")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
# The status that means the same as an error type (Anthropic "Errors"; OpenAI "Error codes").
_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "context_length_exceeded": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def http_failure(endpoint: ModelEndpoint, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error for a status other than 200. `headers` have lower-case names; `body` may be cut."""
    if 300 <= status < 400:
        where = _cleaned(headers.get("location", "").partition("?")[0], endpoint) or "another address"
        message = f"{endpoint.provider} redirects ({status}) to {where}: set base_url to the final address"
        return ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=status)
    kind_of_error, detail = _detail(body)
    return _failure(endpoint, status, _cleaned(detail, endpoint), kind_of_error, _retry_after(headers))


def stream_failure(endpoint: ModelEndpoint, error: JsonObject) -> ProviderError:
    """Return the error for an `error` object inside a stream that began with status 200."""
    names = (as_text(error.get("type")), as_text(error.get("code")))
    detail = as_text(error.get("message")) or next(filter(None, names), "no reason given")
    return _failure(endpoint, _status_in(error) or 500, _cleaned(detail, endpoint), " ".join(names), None)


def wrong_content(endpoint: ModelEndpoint, content_type: str, body: bytes) -> ProviderError:
    """Return the error for a status 200 whose body is not an event stream.

    The body may be a web page, JSON from a server that does not stream, or an error as JSON. An error counts only if it
    says which: some servers also answer a wrong address with status 200 and an `error`.
    """
    error = _error_of(body)
    if _status_in(error):
        return stream_failure(endpoint, error)
    _, detail = _detail(body)
    what = _cleaned(content_type.partition(";")[0], endpoint) or "something unknown"
    said = f" ({_cleaned(detail, endpoint)})" if detail else ""
    message = f"{endpoint.provider} answered with {what}{said}, not with an event stream: check base_url"
    return ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=200)


def broken_stream(endpoint: ModelEndpoint, what: str) -> ProviderError:
    """Return the error for a stream that breaks the rules of the API."""
    return ProviderError(f"{endpoint.provider} {what}", kind=ProviderErrorKind.PROTOCOL, status=200)


def _failure(
    endpoint: ModelEndpoint, status: int, detail: str, error_type: str, retry_after: float | None
) -> ProviderError:
    provider, model = endpoint.provider, endpoint.model
    told = f"{status}: {detail}" if detail else str(status)
    evidence = f"{error_type} {detail}"
    kind, message = (
        ProviderErrorKind.INVALID_REQUEST,
        f"{provider} refused the request ({told}): if this happens again, start a new session",
    )
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(evidence)):
        message = f"{provider} has no credit left for this key ({told}): check the plan and the billing page"
    elif status in (401, 403):
        kind = ProviderErrorKind.AUTH
        act = "refused the API key" if endpoint.api_key else "wants an API key"
        message = f"{provider} {act} ({told}): check {endpoint.key_source}"
    elif status == 404:
        kind = ProviderErrorKind.NOT_FOUND
        message = f"{provider} does not know the model {model!r} or the address ({told}): check model and base_url"
    elif status == 413 or (status in (400, 422, 500) and _TOO_LONG.search(evidence)):
        kind = ProviderErrorKind.CONTEXT_TOO_LONG
        message = f"the conversation is too long for {model} ({told}): compact it or start a new session"
    elif status == 429:
        kind = ProviderErrorKind.RATE_LIMITED
        message = f"{provider} limits the rate of requests ({told}){_when(retry_after)}"
    elif status in (408, 504):
        kind = ProviderErrorKind.TIMEOUT
        message = f"{provider} did not finish in time ({told})"
    elif status in (503, 529):
        kind = ProviderErrorKind.OVERLOADED
        message = f"{provider} is overloaded ({told}){_when(retry_after)}"
    elif status >= 500:
        kind = ProviderErrorKind.SERVER
        message = f"{provider} failed on its side ({told})"
    return ProviderError(message, kind=kind, status=status, retry_after=retry_after)


def _status_in(error: JsonObject) -> int | None:
    """Return the status that an `error` object names by its code or its type."""
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    statuses = map(_STATUS_OF_TYPE.get, (as_text(error.get("type")), as_text(code)))
    return next(filter(None, statuses), None)


def _error_of(body: bytes) -> JsonObject:
    """Return the `error` object of a body, or an empty one."""
    try:
        return as_object(read_object(body.decode("utf-8", "replace")).get("error"))
    except ValueError:
        return {}


def _when(retry_after: float | None) -> str:
    return "" if retry_after is None else f"; it asks to wait {retry_after:g} s"


def _detail(body: bytes) -> tuple[str, str]:
    """Return the error type and the message from the shapes that servers use, or the text itself if it is not JSON."""
    text = body.decode("utf-8", "replace").strip()
    try:
        document = read_object(text)
    except ValueError:
        return "", "a web page" if text[:200].lstrip().lower().startswith(("<!doctype", "<html")) else text
    error: Json = document.get("error", document.get("detail"))
    inner = as_object(error)
    names = (as_text(inner.get("type")), as_text(inner.get("code")))
    detail = as_text(inner.get("message")) or as_text(error) or as_text(document.get("message"))
    return " ".join(filter(None, names)), detail


def _cleaned(text: str, endpoint: ModelEndpoint) -> str:
    """Return one printable line without the key, cut to `DETAIL_LIMIT` characters."""
    if endpoint.api_key:
        text = text.replace(endpoint.api_key, "[key]")
    line = _UNPRINTABLE.sub(" ", _KEY_LIKE.sub("[key]", text[: 10 * DETAIL_LIMIT]))
    line = " ".join(line.split())
    return line if len(line) <= DETAIL_LIMIT else f"{line[:DETAIL_LIMIT]}…"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait: `retry-after-ms`, or `retry-after` as a number or a date (RFC 9110 10.2.3)."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # not a date, or out of range
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _number(text: str) -> float | None:
    """Return a plain non-negative decimal number, as servers write seconds, or None."""
    return float(text) if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", text, re.ASCII) else None
