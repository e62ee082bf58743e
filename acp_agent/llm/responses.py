"""OpenAI's Responses API, streamed, and every server that speaks it (OpenRouter, vLLM, llama.cpp, LM Studio, ...).

Sources: developers.openai.com "Responses", "Streaming events", "Reasoning models"; the types of its SDK.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import Endpoint, family
from acp_agent.llm.exchange import event_object, event_stream, rest
from acp_agent.llm.failure import broken_stream, stream_failure
from acp_agent.llm.json_wire import as_object, as_text
from acp_agent.llm.responses_reply import Reply
from acp_agent.llm.responses_request import (
    Quirk,
    quirk_in,
    refuses_thoughts,
    request_body,
)
from acp_agent.llm.sse import ServerEvent
from acp_agent.llm.thoughts import thoughts, without_thoughts
from acp_agent.net.client import HttpClient

_DONE: Final = "[DONE]"  # not of this API, but of servers that have it beside Chat Completions
_PATIENCE: Final = 0.25  # seconds for the connection to end after the response has
_INVALID: Final = "invalid_request_error"
# Codes of failed responses -> the error type that says the same everywhere. Others say it themselves, or are faults
# of the server.
_TYPES: Final = {
    "server_is_overloaded": "overloaded_error",
    "slow_down": "overloaded_error",
    "invalid_prompt": _INVALID,
    "invalid_encrypted_content": _INVALID,
    "data_residency_mismatch": _INVALID,
    "bio_policy": _INVALID,
    "cyber_policy": _INVALID,
    "misalignment_policy_violation": _INVALID,
    "invalid_image": _INVALID,
    "invalid_image_format": _INVALID,
    "invalid_image_mode": _INVALID,
    "invalid_image_url": _INVALID,
    "invalid_base64_image": _INVALID,
    "image_too_large": _INVALID,
    "image_too_small": _INVALID,
    "image_parse_error": _INVALID,
    "image_content_policy_violation": _INVALID,
    "image_file_too_large": _INVALID,
    "image_file_not_found": _INVALID,
    "empty_image_file": _INVALID,
    "unsupported_image_media_type": _INVALID,
    "failed_to_download_image": _INVALID,
}


class ResponsesProvider:
    """A model behind /responses. A reasoning model is one whose endpoint has `thinking`."""

    def __init__(self, endpoint: Endpoint, http: HttpClient) -> None:
        self._endpoint = endpoint
        self._http = http
        self._headers = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        self._quirks: frozenset[Quirk] = frozenset()
        self._refused: frozenset[str] = frozenset()  # earlier reasoning, which would be refused each time

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
        """As the port says. A stream that ends within an item, or without any, is a ProviderError (PROTOCOL)."""
        reply = Reply(self._endpoint.provider, family(self._endpoint.model))
        async with self._opened(request) as events:
            async for event in events:
                if event.data.strip() == _DONE:
                    break
                message = event_object(self._endpoint, event)
                kind = as_text(message.get("type")) or event.name
                error = _failure_in(kind, message)
                if error is not None:
                    raise stream_failure(self._endpoint, error)
                for delta in reply.feed(kind, message):
                    yield delta
                if reply.ended:
                    break
            else:
                if not reply.settled:
                    raise broken_stream(self._endpoint, "ended its answer before it was whole")
            await rest(events, _PATIENCE)
        yield reply.done()

    @asynccontextmanager
    async def _opened(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ServerEvent]]:
        """The event stream; asked again, at once, without what the server says it does not take."""
        if self._refused:
            request = self._spared(request)
        async with AsyncExitStack() as stack:
            while True:
                body = request_body(self._endpoint, request, self._quirks)
                stream = event_stream(self._http, self._endpoint, "/responses", self._headers, body)
                try:
                    events = await stack.enter_async_context(stream)
                    break
                except ProviderError as error:
                    if refuses_thoughts(error) and (refused := thoughts(request, opaque=True)):
                        if self._refused:  # reasoning made since the last time: it takes none at all
                            self._quirks |= {Quirk.NO_THOUGHTS}
                        self._refused |= refused
                        request = self._spared(request)
                        continue
                    quirk = quirk_in(error)
                    if quirk is None or quirk in self._quirks:
                        raise
                    self._quirks |= {quirk}
            yield events

    def _spared(self, request: ModelRequest) -> ModelRequest:
        """The request without reasoning that this server has refused before."""
        unwanted = thoughts(request, opaque=True) if Quirk.NO_THOUGHTS in self._quirks else self._refused
        return without_thoughts(request, unwanted)


def _failure_in(kind: str, message: JsonObject) -> JsonObject | None:
    """The error an event tells of: an `error`, nested or flat, or a response that failed."""
    response, told = as_object(message.get("response")), message.get("error")
    status = as_text(response.get("status"))
    if told:
        error = as_object(told) or {"message": as_text(told)}
    elif kind == "error":
        error = {name: message.get(name) for name in ("code", "message")}
    elif kind == "response.failed" or status in ("failed", "cancelled"):
        error = as_object(response.get("error")) or {"message": f"the response is {status or 'failed'}"}
    else:
        return None
    meaning = _TYPES.get(as_text(error.get("code")))
    return {**error, "type": meaning} if meaning else error
