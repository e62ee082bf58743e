"""Ollama's own API: /api/chat, streamed as NDJSON. Source: ollama/ollama docs/api.md.

Native rather than through its OpenAI-compatible endpoint, which takes no window: there a model is loaded with the
server's default, 4096 tokens on most machines, and what does not fit is cut off in silence.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import Message, ModelDone, ModelEvent, ModelStop, Role
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.failure import broken_stream, stream_failure
from acp_agent.llm.json_wire import read_object, write
from acp_agent.llm.ollama_card import ModelCard, read_card
from acp_agent.llm.ollama_reply import Reply
from acp_agent.llm.ollama_request import request_body
from acp_agent.llm.ollama_stream import drained, json_lines, posted
from acp_agent.net.client import HttpClient

_PATIENCE: Final = 0.25  # seconds for the connection to end after the last line
_CARD_PATIENCE: Final = 10.0  # seconds for /api/show, which computes nothing
_CARD_LIMIT: Final = 8 * 1024 * 1024  # bytes; licences and templates make it long


class OllamaProvider:
    """A model behind /api/chat.

    window, images, thinking   what the user has set; None takes what the server says of the model
    effort                     how hard a model that thinks does so; None leaves it to the server
    """

    def __init__(
        self,
        endpoint: Endpoint,
        http: HttpClient,
        *,
        window: int | None = None,
        images: bool | None = None,
        thinking: bool | None = None,
        effort: str | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._http = http
        self._window = window
        self._images = images
        self._thinking = thinking
        self._effort = effort
        self._card = ModelCard()
        self._asked = window is not None and images is not None

    @property
    def name(self) -> str:
        return self._endpoint.provider

    @property
    def model(self) -> str:
        return self._endpoint.model

    @property
    def context_window(self) -> int:
        """What the user has set; else, once the first call has asked the server, what the model is loaded with."""
        return self._window or self._card.window(self._endpoint.context_window)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says. A stream that ends before a line with `done` is a ProviderError (PROTOCOL).

        For a conversation without a message the server is only asked whether it has the model: /api/chat would take
        gigabytes into memory, and then say nothing.
        """
        if not request.messages:
            await self._ask_for_card()
            yield ModelDone(Message(Role.ASSISTANT, ()), ModelStop.END)
            return
        if not self._asked:
            with suppress(ProviderError):  # it may answer all the same, else /api/chat says why; asked again next time
                await self._ask_for_card()
        endpoint = self._endpoint
        body = write(self._body(request))
        reply = Reply(endpoint.maker, body, (use.id for message in request.messages for use in message.tool_uses))
        async with (
            posted(self._http, endpoint, "/api/chat", body, endpoint.timeout) as answer,
            aclosing(json_lines(endpoint, answer)) as lines,
        ):
            async for line in lines:
                self._check(line)
                for delta in reply.feed(line):
                    yield delta
                if reply.complete:
                    break
            else:
                raise broken_stream(endpoint, "ended its answer before it was whole")
            await drained(lines, _PATIENCE)
        if reply.only_loaded:
            raise broken_stream(endpoint, f"found nothing to answer for {endpoint.model}: it only loaded the model")
        yield reply.done()

    def _body(self, request: ModelRequest) -> JsonObject:
        card = self._card
        images = next((said for said in (self._images, card.images) if said is not None), self._endpoint.images)
        thinks = card.thinking if self._thinking is None else self._thinking
        left_to_server = self._window is None and (card.remote or card.num_ctx is not None)
        body = request_body(
            replace(self._endpoint, images=images),
            request,
            num_ctx=None if left_to_server else self.context_window,
            think=(self._effort or True) if thinks else False,
        )
        if card.thinking and not thinks:  # left out, it would think all the same
            body["think"] = False
        return body

    def _check(self, line: JsonObject) -> None:
        """Raise ProviderError for a line with an error in the place of an answer."""
        error = line.get("error")
        if isinstance(error, dict):
            raise stream_failure(self._endpoint, error)
        if isinstance(error, str) and error:
            raise stream_failure(self._endpoint, {"message": error, "code": line.get("status")})

    async def _ask_for_card(self) -> None:
        """Learn of the model. Raises ProviderError, such as NOT_FOUND."""
        endpoint = self._endpoint
        patience = min(endpoint.timeout, _CARD_PATIENCE)
        async with posted(self._http, endpoint, "/api/show", write({"model": endpoint.model}), patience) as answer:
            text = (await answer.excerpt(_CARD_LIMIT)).decode("utf-8", "replace")
        try:
            document = read_object(text)
        except ValueError as error:
            raise broken_stream(endpoint, f"sent a description of {endpoint.model} that cannot be read") from error
        self._card = read_card(document)
        self._asked = True
