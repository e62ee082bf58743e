"""HTTP exchanges with model servers: server-sent events, and answers of one JSON object.

Lines of an event stream end at CR, LF or CRLF and nowhere else. `str.splitlines` and httpx's `aiter_lines` also split
at U+2028, which is legal inside JSON. Lines are split as bytes and decoded whole, so a character that is split over two
chunks survives. Source: WHATWG HTML, "Server-sent events".
"""

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from acp_agent import __version__
from acp_agent.core.data import frozen
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelText, ModelThought
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import ModelEndpoint, as_list, as_object, as_text, read_object, write
from acp_agent.net.client import HttpClient, HttpRequest, SentRequest, StreamedResponse
from acp_agent.text import abbreviated, lazy_regex

DETAIL_LIMIT: Final = 300
_Quirk = TypeVar("_Quirk")

_TOO_LONG: Final = lazy_regex(
    r"context.?(length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|exceed_context|exceeds? the (model|available) ?\w* ?context|tokens? limit exceeded",
    re.IGNORECASE,
)
_NO_CREDIT: Final = lazy_regex(
    r"insufficient_quota|exceeded your current quota|credit balance|spend.?limit|billing|out of credits",
    re.IGNORECASE,
)
_KEY_LIKE: Final = lazy_regex(r"\b(sk|gsk|xai)-[A-Za-z0-9_*.\-]{6,}")
_UNPRINTABLE: Final = lazy_regex(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
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
    """Return the error for a status other than 2xx. `headers` have lower-case names; `body` may be cut."""
    if 300 <= status < 400:
        where = _cleaned(headers.get("location", "").partition("?")[0], endpoint) or "another address"
        message = f"{endpoint.provider} redirects ({status}) to {where}: set base_url to the final address"
        return ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=status)
    error_type, detail = _detail(body)
    return _failure(endpoint, status, _cleaned(detail, endpoint), error_type, _retry_after(headers))


def stream_failure(endpoint: ModelEndpoint, error: Json) -> ProviderError:
    """Return the error for an `error` inside a stream that began with status 200: an object, a list or a text."""
    told = as_object(next(iter(as_list(error)), error))
    names = (as_text(told.get("type")), as_text(told.get("code")))
    detail = _reason(error) or next(filter(None, names), "no reason given")
    return _failure(endpoint, _status_in(told) or 500, _cleaned(detail, endpoint), " ".join(names), None)


def reported_error(event: "ServerEvent", message: JsonObject) -> Json:
    """Return the error that an event reports instead of a piece of the answer, or None.

    It is the member `error`, or the whole message. Older versions of vLLM send `{"object": "error", "message": ...}`.
    """
    if message.get("error"):
        return message["error"]
    return message if "error" in (event.name, message.get("type"), message.get("object")) else None


def wrong_content(endpoint: ModelEndpoint, content_type: str, body: bytes) -> ProviderError:
    """Return the error for a status 200 whose body is not an event stream.

    The body may be a web page, JSON from a server that does not stream, or an error as JSON. An error counts only if
    its code or type means a status: some servers also answer a wrong address with status 200 and an `error`.
    """
    with suppress(ValueError):
        error = as_object(read_object(body.decode("utf-8", "replace")).get("error"))
        if _status_in(error):
            return stream_failure(endpoint, error)
    _, detail = _detail(body)
    what = _cleaned(content_type.partition(";")[0], endpoint) or "something unknown"
    said = f" ({_cleaned(detail, endpoint)})" if detail else ""
    return broken_stream(endpoint, f"answered with {what}{said}, not with an event stream: check base_url")


def broken_stream(endpoint: ModelEndpoint, what: str) -> ProviderError:
    """Return the error for a stream that breaks the rules of the API."""
    return ProviderError(f"{endpoint.provider} {what}", kind=ProviderErrorKind.PROTOCOL, status=200)


def quirk_in(error: ProviderError, refusals: Iterable[tuple[re.Pattern[str], Sequence[int], _Quirk]]) -> _Quirk | None:
    """Return the quirk of a server that a refusal names, or None.

    refusals   the words and the statuses of the refusals of each quirk
    """
    text = str(error)
    return next((quirk for words, codes, quirk in refusals if error.status in codes and words.search(text)), None)


def _failure(
    endpoint: ModelEndpoint, status: int, detail: str, error_type: str, retry_after: float | None
) -> ProviderError:
    provider, model = endpoint.provider, endpoint.model
    told = f"{status}: {detail}" if detail else str(status)
    evidence = f"{error_type} {detail}"
    when = "" if retry_after is None else f"; it asks to wait {round(retry_after, 2):.15g} s"
    kind = ProviderErrorKind.INVALID_REQUEST
    message = f"{provider} refused the request ({told}): if this happens again, start a new session"
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(evidence)):
        message = f"{provider} has no credit left for this key ({told}): check the plan and the billing page"
    elif status in (401, 403):
        kind = ProviderErrorKind.AUTH
        act = "refused the API key" if endpoint.api_key else "wants an API key"
        message = f"{provider} {act} ({told}): check {endpoint.key_source}"
    elif status in (404, 405, 410):  # web servers answer 405 to a wrong path, vendors 410 for a retired model
        kind = ProviderErrorKind.NOT_FOUND
        message = f"{provider} does not know the model {model!r} or the address ({told}): check model and base_url"
    elif status == 413 or (status in (400, 422, 500) and _TOO_LONG.search(evidence)):
        kind = ProviderErrorKind.CONTEXT_TOO_LONG
        message = f"the conversation is too long for {model} ({told}): compact it or start a new session"
    elif status == 429:
        kind = ProviderErrorKind.RATE_LIMITED
        message = f"{provider} limits the rate of requests ({told}){when}"
    elif status in (408, 504):
        kind = ProviderErrorKind.TIMEOUT
        message = f"{provider} did not finish in time ({told})"
    elif status in (409, 425, 503, 529):  # a lock that another request holds; a request that came too early
        kind = ProviderErrorKind.OVERLOADED
        message = f"{provider} is overloaded ({told}){when}"
    elif status >= 500:
        kind = ProviderErrorKind.SERVER
        message = f"{provider} failed on its side ({told})"
    return ProviderError(message, kind=kind, status=status, retry_after=retry_after)


def _status_in(error: JsonObject) -> int | None:
    """Return the status that an `error` object names by its code or its type. LiteLLM sends the code as a text."""
    code, kind, status = error.get("code"), error.get("type"), error.get("status")
    for each in (code, status):
        if isinstance(each, int | str) and re.fullmatch(r"[45]\d\d", str(each), re.ASCII):
            return int(each)
    return next(filter(None, map(_STATUS_OF_TYPE.get, (as_text(kind), as_text(code)))), None)


def _detail(body: bytes) -> tuple[str, str]:
    """Return the error type and the reason in an answer. The reason is the whole text if the answer is not JSON."""
    text = body.decode("utf-8-sig", "replace").strip()
    try:
        document = read_object(f'{{"errors":{text}}}' if text.startswith("[") else text)
    except ValueError:
        return "", "a web page" if text[:200].lstrip().lower().startswith(("<!doctype", "<html")) else text
    inner = as_object(document.get("error", document.get("detail")))
    names = (as_text(inner.get("type")), as_text(inner.get("code")))
    return " ".join(filter(None, names)), _reason(document)


_REASONS: Final = ("error", "message", "detail", "errors", "msg")


def _reason(value: Json) -> str:
    """Return the reason in an error of any form: a text, a list, or an object with a member that holds it.

    FastAPI and Mistral send a list of faults: `body.top_k: Extra inputs are not permitted`. The `input` of a fault is
    left out, since it repeats the request. OpenRouter adds what the model's own server answered, in `metadata`.
    """
    match value:
        case str():
            return value
        case list():
            return "; ".join(filter(None, map(_reason, value)))
        case dict():
            place = ".".join(str(step) for step in as_list(value.get("loc")) if isinstance(step, str | int))
            said = next(filter(None, (_reason(value.get(name)) for name in _REASONS)), "")
            origin = as_text(as_object(value.get("metadata")).get("raw"))
            return ": ".join(filter(None, (place, said, _detail(origin.encode("utf-8", "replace"))[1])))
        case _:
            return ""


def _cleaned(text: str, endpoint: ModelEndpoint) -> str:
    """Return one printable line without the key, cut to `DETAIL_LIMIT` characters."""
    if endpoint.api_key:
        text = text.replace(endpoint.api_key, "[key]")
    line = " ".join(_UNPRINTABLE.sub(" ", _KEY_LIKE.sub("[key]", text[: 10 * DETAIL_LIMIT])).split())
    return abbreviated(line, DETAIL_LIMIT)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait: `retry-after-ms`, or `retry-after` as a number or a date (RFC 9110 10.2.3)."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - servers seldom name a date

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


_T = TypeVar("_T")
EVENT_LIMIT: Final = 32 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@frozen
class ServerEvent:
    """One event: its name ("message" unless the server named it) and its data lines, joined by LF."""

    name: str
    data: str


class EventTooLarge(ValueError):
    """An event is larger than `EVENT_LIMIT` bytes, so the stream is not a model's answer."""


class EventSplitter:
    """A splitter of bytes into events. The same bytes give the same events under every chunking."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []  # the unfinished line in pieces
        self._size = 0  # the bytes of the unfinished event
        self._after_cr = False  # the last chunk ended with CR: a LF that follows belongs to it
        self._first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterable[ServerEvent]:
        """Yield the events that this chunk completes. Raises EventTooLarge."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if chunk.endswith(b"\r"):
            self._after_cr = True
        *ends, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            self._grow(len(end))
            line = end
            if self._pending:
                line = b"".join((*self._pending, end))
                self._pending.clear()
            if line.startswith(b"data: ") and not self._first:  # most lines
                self._data.append(line[6:].decode("utf-8", "replace"))
                continue
            event = self._line(line)
            if event is not None:
                yield event
        if rest:
            self._pending.append(rest)
            self._grow(len(rest))

    def _line(self, line: bytes) -> ServerEvent | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            name, data = self._name or "message", self._data
            self._name, self._data, self._size = "", [], 0
            return ServerEvent(name, "\n".join(data)) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None  # comments, id, retry and unknown fields are ignored

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > EVENT_LIMIT:
            raise EventTooLarge(f"an event of more than {EVENT_LIMIT} bytes")


Block: TypeAlias = Sequence[ServerEvent]
"""Events that arrived together."""


async def server_events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Block]:
    """Yield the events of a byte stream. The standard drops an event that the end of the stream cuts off.

    Servers fill pauses with events of blank data, or with the event "ping", whose data may be any text. They are left
    out.

    Raises EventTooLarge, and the errors of `chunks`.
    """
    splitter = EventSplitter()
    async for chunk in chunks:
        yield tuple(event for event in splitter.feed(chunk) if event.name != "ping" and event.data.strip())


Delta: TypeAlias = ModelText | ModelThought
_AT_ONCE: Final = 256
"""The most events that are read before other tasks have a turn. They take about 3 ms."""


async def shown_deltas(
    blocks: AsyncIterable[Block], feed: Callable[[ServerEvent], Iterable[Delta]], over: Callable[[], bool]
) -> AsyncGenerator[Delta]:
    """Yield the text and the thoughts of an answer, until it is over or the stream ends.

    Pieces of one kind that arrived together are joined. If `feed` raises an error, the pieces before it come first.

    feed   takes an event and returns its pieces
    over   returns whether the answer is over
    """
    async for block in blocks:
        for begin in range(0, len(block), _AT_ONCE):
            if begin:
                await anyio.lowlevel.checkpoint()
            for delta in _joined(delta for event in block[begin : begin + _AT_ONCE] for delta in feed(event)):
                yield delta
        if over():
            return


def _joined(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Yield the pieces, adjacent ones of one kind as one."""
    kind, texts = ModelText, list[str]()
    try:
        for delta in deltas:
            if texts and type(delta) is not kind:
                yield kind("".join(texts))
                texts.clear()
            kind = type(delta)
            texts.append(delta.text)
    except ProviderError:
        if texts:
            yield kind("".join(texts))
        raise
    if texts:
        yield kind("".join(texts))


ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""The largest answer in bytes. A model's longest answer, 128,000 tokens with an event for each, is half as large."""
# Content types that no event stream has. Others pass, because compatible servers are careless with this header.
_NOT_EVENTS: Final = ("text/html", "application/xhtml", "application/json", "application/problem", "image/")


async def _check_events(endpoint: ModelEndpoint, answer: StreamedResponse) -> None:
    """Raise ProviderError if the status is not 2xx, or the answer is not an event stream."""
    if not answer.succeeded:
        raise http_failure(endpoint, answer.status, answer.headers, await answer.excerpt())
    content_type = answer.headers.get("content-type", "").lower()
    if content_type.startswith(_NOT_EVENTS):
        raise wrong_content(endpoint, content_type, await answer.excerpt())


class EventStream:
    """The event stream of a request. `async with` opens it, gets its blocks of events, and closes it.

    If the server refuses a part of the request, the request is sent again at once without it.

    send     returns the request with a body
    body     makes the body without the parts that were refused before
    adapts   remembers the part of the request that an error refuses. Returns False if it refuses none, or one
             that was left out already
    """

    def __init__(
        self,
        endpoint: ModelEndpoint,
        send: Callable[[bytes], SentRequest],
        body: Callable[[], bytes],
        adapts: Callable[[ProviderError], bool],
    ) -> None:
        self._endpoint = endpoint
        self._send = send
        self._body = body
        self._adapts = adapts

    async def __aenter__(self) -> AsyncGenerator[Block]:
        """Open the stream. Raises ProviderError: the status is not 2xx, or the answer is not an event stream."""
        while True:
            self._sent = self._send(self._body())
            try:
                self._chunks = (await self._opened()).chunks(ANSWER_LIMIT)
                break
            except ProviderError as error:
                if not self._adapts(error):
                    raise
        self._events = server_events(self._chunks)
        return self._events

    async def _opened(self) -> StreamedResponse:
        try:
            answer = await self._sent.open()
            await _check_events(self._endpoint, answer)
        except BaseException:
            await self._sent.aclose()
            raise
        return answer

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            await self._events.aclose()
            await self._chunks.aclose()
        finally:
            await self._sent.aclose()
        if isinstance(error, EventTooLarge):
            raise broken_stream(self._endpoint, f"sent {error}") from error


def parse_event(endpoint: ModelEndpoint, event: ServerEvent) -> JsonObject:
    """Return the JSON object of an event. Raises ProviderError: PROTOCOL, or the error that its text reports."""
    try:
        return read_object(event.data)
    except ValueError as error:
        if event.name == "error":
            raise stream_failure(endpoint, event.data) from error
        raise broken_stream(endpoint, f"sent an event that cannot be read ({error})") from error


def checked_event(endpoint: ModelEndpoint, event: ServerEvent) -> JsonObject:
    """Return the JSON object of an event that reports no error. Raises ProviderError."""
    message = parse_event(endpoint, event)
    error = reported_error(event, message)
    if error is not None:
        raise stream_failure(endpoint, error)
    return message


async def read_rest(events: AsyncGenerator[_T], patience: float) -> list[_T]:
    """Return the events or lines that follow a whole answer, for at most `patience` seconds.

    Reading to the end lets the connection serve the next request. Faults no longer matter here.
    """
    collected: list[_T] = []
    with anyio.move_on_after(patience):
        try:
            async for event in events:
                collected.append(event)  # noqa: PERF401 - keep what arrived before a fault or the deadline
        except (ProviderError, EventTooLarge):
            pass
    return collected


async def ask_json(
    http: HttpClient,
    endpoint: ModelEndpoint,
    path: str,
    headers: Mapping[str, str],
    body: JsonObject | None = None,
    *,
    patience: float,
    limit: int,
) -> JsonObject:
    """POST a body to `base_url` + `path`, or GET without one, and return the JSON object of the answer.

    A list becomes the member `data` of an object.

    patience   the seconds for the whole exchange
    limit      the most bytes of the answer

    Raises:
        ProviderError: the status is not 2xx, or the answer is too late, too long or not a JSON object.

    """
    sent = request_headers("application/json", headers, has_body=body is not None)
    url, data = endpoint.base_url + path, None if body is None else write(body)
    try:
        with anyio.fail_after(patience):
            async with http.send(HttpRequest(endpoint.provider, url, sent, data, patience)) as answer:
                if not answer.succeeded:
                    raise http_failure(endpoint, answer.status, answer.headers, await answer.excerpt())
                received = await answer.body(limit)
    except TimeoutError as error:
        message = f"{endpoint.provider} did not answer within {patience:g} s"
        raise ProviderError(message, kind=ProviderErrorKind.TIMEOUT) from error
    text = received.decode("utf-8-sig", "replace").strip()
    try:
        return read_object(f'{{"data":{text}}}' if text.startswith("[") else text)  # Together sends a list
    except ValueError as error:
        raise broken_stream(endpoint, f"sent an answer that cannot be read ({error}): check base_url") from error


class HttpProvider:
    """A model behind a wire format. A subclass streams the answers."""

    def __init__(self, endpoint: ModelEndpoint, http: HttpClient) -> None:
        self._endpoint = endpoint
        self._http = http
        self._headers = bearer_header(endpoint)

    @property
    def name(self) -> str:
        return self._endpoint.provider

    @property
    def model(self) -> str:
        return self._endpoint.model

    @property
    def context_window(self) -> int:
        return self._endpoint.context_window

    def _events(self, path: str, body: Callable[[], bytes], adapts: Callable[[ProviderError], bool]) -> EventStream:
        """Return the event stream of a POST request to `base_url` + `path`. See EventStream."""
        endpoint, headers = self._endpoint, request_headers("text/event-stream", self._headers)

        def send(data: bytes) -> SentRequest:
            url = endpoint.base_url + path
            return self._http.send(HttpRequest(endpoint.provider, url, headers, data, endpoint.timeout))

        return EventStream(endpoint, send, body, adapts)


def bearer_header(endpoint: ModelEndpoint) -> Mapping[str, str]:
    """Return the header that carries the key to OpenAI's API and Ollama, or no header without a key."""
    return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


def anthropic_headers(endpoint: ModelEndpoint) -> Mapping[str, str]:
    """Return the headers that name the version of Anthropic's API and carry the key."""
    return {"anthropic-version": "2023-06-01"} | ({"x-api-key": endpoint.api_key} if endpoint.api_key else {})


def request_headers(accept: str, headers: Mapping[str, str], *, has_body: bool = True) -> Mapping[str, str]:
    """Return the headers of a request: those of every request, and those given."""
    kind = {"content-type": "application/json"} if has_body else {}
    return {**kind, "accept": accept, "user-agent": f"acp-agent/{__version__}", **headers}
