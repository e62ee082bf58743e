"""Chat Completions, streamed: OpenAI's API, and every server that speaks it (Ollama, llama.cpp, vLLM, ...)."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.exchange import event_object, event_stream, rest
from acp_agent.llm.failure import broken_stream, stream_failure
from acp_agent.llm.openai_reply import Reply
from acp_agent.llm.openai_request import Quirk, quirk_in, request_body
from acp_agent.llm.sse import ServerEvent
from acp_agent.net.client import HttpClient

_DONE: Final = "[DONE]"
_PATIENCE: Final = 1.0  # seconds for usage and [DONE] to follow the finish reason


class OpenAIProvider:
    """A model behind /chat/completions."""

    def __init__(self, endpoint: Endpoint, http: HttpClient) -> None:
        self._endpoint = endpoint
        self._http = http
        self._headers = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        self._quirks: frozenset[Quirk] = frozenset()

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
        """As the port says. Neither a finish reason nor `[DONE]` before the end is a ProviderError (PROTOCOL)."""
        reply = Reply(self._endpoint.maker)
        async with self._opened(request) as events:
            async for event in events:
                if event.data.strip() == _DONE:
                    break
                for delta in reply.feed(self._chunk(event)):
                    yield delta
                if reply.finish_reason:
                    break
            else:
                raise broken_stream(self._endpoint, "ended its answer before it was whole")
            for event in await rest(events, _PATIENCE):
                with suppress(ProviderError):  # the answer is whole, whatever comes after it
                    for delta in [] if event.data.strip() == _DONE else reply.feed(self._chunk(event)):
                        yield delta
        if reply.finish_reason == "error":
            raise stream_failure(self._endpoint, {"message": "the model stopped with an error"})
        yield reply.done()

    @asynccontextmanager
    async def _opened(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ServerEvent]]:
        """The event stream; asked again, at once, without what the server says it does not take."""
        async with AsyncExitStack() as stack:
            while True:
                body = request_body(self._endpoint, request, self._quirks)
                stream = event_stream(self._http, self._endpoint, "/chat/completions", self._headers, body)
                try:
                    events = await stack.enter_async_context(stream)
                    break
                except ProviderError as error:
                    quirk = quirk_in(error)
                    if quirk is None or quirk in self._quirks:
                        raise
                    self._quirks |= {quirk}
            yield events

    def _chunk(self, event: ServerEvent) -> JsonObject:
        """One chunk. Raises ProviderError for an error in its place."""
        chunk = event_object(self._endpoint, event)
        error = chunk.get("error")
        if isinstance(error, dict):
            raise stream_failure(self._endpoint, error)
        if isinstance(error, str) and error:
            raise stream_failure(self._endpoint, {"message": error})
        if event.name == "error":
            raise stream_failure(self._endpoint, chunk)
        return chunk
