"""Anthropic's Messages API, streamed. Source: platform.claude.com, "Messages", "Streaming", "Errors"."""

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.anthropic_reply import Reply
from acp_agent.llm.anthropic_request import request_body
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.exchange import event_object, event_stream, rest
from acp_agent.llm.failure import broken_stream, stream_failure
from acp_agent.llm.json_wire import as_object
from acp_agent.llm.sse import ServerEvent
from acp_agent.llm.thoughts import thoughts, without_thoughts
from acp_agent.net.client import HttpClient

API_VERSION: Final = "2023-06-01"
DEFAULT_MAX_TOKENS: Final = 8192  # the API wants a number
_THOUGHT_REFUSED: Final = re.compile(r"thinking\b.*\bblock|signature", re.IGNORECASE)
_PATIENCE: Final = 0.25  # seconds for the connection to end after message_stop


class AnthropicProvider:
    """A model behind /v1/messages."""

    def __init__(self, endpoint: Endpoint, http: HttpClient) -> None:
        self._endpoint = endpoint
        self._http = http
        self._refused: frozenset[str] = frozenset()  # thoughts that would be refused each time
        self._headers = {"anthropic-version": API_VERSION}
        if endpoint.api_key:
            self._headers["x-api-key"] = endpoint.api_key

    @property
    def name(self) -> str:
        return self._endpoint.provider

    @property
    def model(self) -> str:
        return self._endpoint.model

    @property
    def context_window(self) -> int:
        return self._endpoint.context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says. A stream that ends before `message_stop` is a ProviderError (PROTOCOL)."""
        endpoint = self._endpoint
        reply = Reply(endpoint.maker)
        async with self._opened(request) as events:
            async for event in events:
                message = event_object(endpoint, event)
                if message.get("type") == "error":
                    raise stream_failure(endpoint, as_object(message.get("error")))
                delta = reply.feed(message)
                if delta is not None:
                    yield delta
                if reply.complete:
                    break
            else:
                raise broken_stream(endpoint, "ended its answer before it was whole")
            await rest(events, _PATIENCE)
        yield reply.done()

    @asynccontextmanager
    async def _opened(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ServerEvent]]:
        """The event stream; asked again, at once, without earlier thoughts when the API refuses those.

        Newer models accept a thought only after exactly what preceded it when they had it; a mode that changes
        the tools, or a compaction, makes it invalid ("Preserved thinking").
        """
        request = without_thoughts(request, self._refused)
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(self._asked(request))
            except ProviderError as error:
                refused = thoughts(request, opaque=False)
                if error.status != 400 or not refused or not _THOUGHT_REFUSED.search(str(error)):
                    raise
                self._refused |= refused
                events = await stack.enter_async_context(self._asked(without_thoughts(request, refused)))
            yield events

    def _asked(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncGenerator[ServerEvent]]:
        body = request_body(self._endpoint, request, DEFAULT_MAX_TOKENS)
        return event_stream(self._http, self._endpoint, "/v1/messages", self._headers, body)
