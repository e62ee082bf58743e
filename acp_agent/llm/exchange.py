"""One streamed request: POST, judge the answer's head, hand over its events. What every SSE adapter shares."""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

import anyio

from acp_agent import __version__
from acp_agent.core.errors import ProviderError
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.failure import broken_stream, http_failure, wrong_content
from acp_agent.llm.json_wire import read_object, write
from acp_agent.llm.sse import EventTooLarge, ServerEvent, server_events
from acp_agent.net.client import HttpClient, Post

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer: the longest a model gives (128,000 tokens, each in an event of its own) is half of it."""
# Types no event stream ever has. Others pass: compatible servers are careless with this header.
_NOT_EVENTS: Final = ("text/html", "application/xhtml", "application/json", "application/problem", "image/")


@asynccontextmanager
async def event_stream(
    http: HttpClient, endpoint: Endpoint, path: str, headers: Mapping[str, str], body: JsonObject
) -> AsyncGenerator[AsyncGenerator[ServerEvent]]:
    """POST `body` to `base_url` + `path` and hold its event stream open; leaving closes it.

    Raises ProviderError: for every status but 200, for an answer that is no event stream, for a broken one.
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
                aclosing(bounded(endpoint, chunks)) as pieces,
                aclosing(server_events(pieces)) as events,
            ):
                yield events
        except EventTooLarge as error:
            raise broken_stream(endpoint, f"sent {error}") from error


async def bounded(endpoint: Endpoint, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes, up to `ANSWER_LIMIT`. Raises ProviderError (PROTOCOL) beyond, and what `chunks` raises."""
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > ANSWER_LIMIT:
            raise broken_stream(endpoint, f"sends an answer that does not end: stopped after {ANSWER_LIMIT >> 20} MB")
        yield chunk


def event_object(endpoint: Endpoint, event: ServerEvent) -> JsonObject:
    """The JSON object of an event. Raises ProviderError (PROTOCOL) for anything else."""
    try:
        return read_object(event.data)
    except ValueError as error:
        raise broken_stream(endpoint, f"sent an event that cannot be read ({error})") from error


async def rest(events: AsyncGenerator[ServerEvent], patience: float) -> list[ServerEvent]:
    """What still comes once the answer is whole, for at most `patience` seconds.

    Read to the end, so that the connection can serve the next request. Nothing that goes wrong here
    matters any more.
    """
    collected: list[ServerEvent] = []
    with anyio.move_on_after(patience):
        try:
            async for event in events:
                collected.append(event)  # noqa: PERF401 - what came before a fault or the deadline counts
        except (ProviderError, EventTooLarge):
            pass
    return collected
