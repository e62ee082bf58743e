"""HTTP exchanges with model servers: server-sent events, and answers of one JSON object.

Lines of an event stream end at CR, LF or CRLF and nowhere else. `str.splitlines` and httpx's `aiter_lines` also split
at U+2028, which is legal inside JSON. Lines are split as bytes and decoded whole, so a character that is split over two
chunks survives. Source: WHATWG HTML, "Server-sent events".
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from acp_agent import __version__
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import ModelEndpoint, read_object, write
from acp_agent.llm.failure import broken_stream, http_failure, wrong_content
from acp_agent.net.client import Get, HttpClient, Post, StreamedResponse

EVENT_LIMIT: Final = 32 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
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
            line = b"".join((*self._pending, end)) if self._pending else end
            self._pending.clear()
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
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None  # comments, id, retry and unknown fields are ignored

    def _dispatch(self) -> ServerEvent | None:
        name, data = self._name or "message", self._data
        self._name, self._data, self._size = "", [], 0
        return ServerEvent(name, "\n".join(data)) if data else None

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > EVENT_LIMIT:
            message = f"an event of more than {EVENT_LIMIT} bytes"
            raise EventTooLarge(message)


async def server_events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[ServerEvent]:
    """Yield the events of a byte stream. The standard drops an event that the end of the stream cuts off.

    Raises EventTooLarge, and whatever `chunks` raises.
    """
    splitter = EventSplitter()
    async for chunk in chunks:
        for event in splitter.feed(chunk):
            yield event


ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""The largest answer in bytes: twice the longest answer of a model (128,000 tokens, one in each event)."""
# Content types that no event stream has. Others pass, because compatible servers are careless with this header.
_NOT_EVENTS: Final = ("text/html", "application/xhtml", "application/json", "application/problem", "image/")


@asynccontextmanager
async def open_event_stream(
    http: HttpClient, endpoint: ModelEndpoint, path: str, headers: Mapping[str, str], body: JsonObject
) -> AsyncGenerator[AsyncGenerator[ServerEvent]]:
    """POST `body` to `base_url` + `path` and hold its event stream open. Leaving the context closes it.

    Raises:
        ProviderError: the status is not 200, the answer is not an event stream, or the stream breaks.

    """
    post = Post(
        peer=endpoint.provider,
        url=endpoint.base_url + path,
        headers={
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": f"acp-agent/{__version__}",
            **headers,
        },
        body=write(body),
        read_timeout=endpoint.timeout,
    )
    async with http.post(post) as answer:
        if answer.status != 200:
            raise http_failure(endpoint, answer.status, answer.headers, await answer.excerpt())
        content_type = answer.headers.get("content-type", "").lower()
        if content_type.startswith(_NOT_EVENTS):
            raise wrong_content(endpoint, content_type, await answer.excerpt())
        try:
            async with (
                aclosing(answer.chunks()) as chunks,
                aclosing(limit_size(endpoint, chunks)) as pieces,
                aclosing(server_events(pieces)) as events,
            ):
                yield events
        except EventTooLarge as error:
            raise broken_stream(endpoint, f"sent {error}") from error


async def limit_size(endpoint: ModelEndpoint, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield the same bytes, up to `ANSWER_LIMIT`. Raises ProviderError (PROTOCOL) beyond, and what `chunks` raises."""
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > ANSWER_LIMIT:
            raise broken_stream(endpoint, f"sends an answer that does not end: stopped after {ANSWER_LIMIT >> 20} MB")
        yield chunk


def parse_event(endpoint: ModelEndpoint, event: ServerEvent) -> JsonObject:
    """Return the JSON object of an event. Raises ProviderError (PROTOCOL) for any other data."""
    try:
        return read_object(event.data)
    except ValueError as error:
        raise broken_stream(endpoint, f"sent an event that cannot be read ({error})") from error


async def read_rest(events: AsyncGenerator[ServerEvent], patience: float) -> list[ServerEvent]:
    """Return the events that follow a whole answer, for at most `patience` seconds.

    Reading to the end lets the connection serve the next request. Faults no longer matter here.
    """
    collected: list[ServerEvent] = []
    with anyio.move_on_after(patience):
        try:
            async for event in events:
                collected.append(event)  # noqa: PERF401 - keep what arrived before a fault or the deadline
        except (ProviderError, EventTooLarge):
            pass
    return collected


async def get_json(
    http: HttpClient, endpoint: ModelEndpoint, path: str, headers: Mapping[str, str], *, patience: float, limit: int
) -> JsonObject:
    """GET `base_url` + `path`. `patience` is the limit in seconds for the whole exchange, `limit` the limit in bytes.

    Raises:
        ProviderError: the status is not 200, or the answer is too late, too long or not a JSON object.

    """
    get = Get(endpoint.provider, endpoint.base_url + path, _headers(headers), patience)
    return await _object(http.get(get), endpoint, patience, limit)


async def post_json(
    http: HttpClient,
    endpoint: ModelEndpoint,
    path: str,
    headers: Mapping[str, str],
    body: JsonObject,
    *,
    patience: float,
    limit: int,
) -> JsonObject:
    """POST a JSON object to `base_url` + `path`. Otherwise as `get_json`."""
    typed = {**_headers(headers), "content-type": "application/json"}
    post = Post(endpoint.provider, endpoint.base_url + path, typed, write(body), patience)
    return await _object(http.post(post), endpoint, patience, limit)


def bearer_header(endpoint: ModelEndpoint) -> Mapping[str, str]:
    """Return the header that carries the key to OpenAI's API and Ollama, or no header without a key."""
    return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


def _headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {"accept": "application/json", "user-agent": f"acp-agent/{__version__}", **headers}


async def _object(
    opening: AbstractAsyncContextManager[StreamedResponse], endpoint: ModelEndpoint, patience: float, limit: int
) -> JsonObject:
    try:
        with anyio.fail_after(patience):
            async with opening as answer:
                if answer.status != 200:
                    raise http_failure(endpoint, answer.status, answer.headers, await answer.excerpt())
                body = await answer.body(limit)
    except TimeoutError as error:
        message = f"{endpoint.provider} did not answer within {patience:g} s"
        raise ProviderError(message, kind=ProviderErrorKind.TIMEOUT) from error
    try:
        return read_object(body.decode("utf-8", "replace"))
    except ValueError as error:
        message = f"{endpoint.provider} sent an answer that cannot be read ({error}): check base_url"
        raise ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=200) from error
