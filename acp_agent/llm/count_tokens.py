"""How many tokens a request has, as Anthropic counts. Source: platform.claude.com, "Count tokens in a Message"."""

from typing import Final, Protocol

from acp_agent.core.errors import ProviderError
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.anthropic import API_VERSION, DEFAULT_MAX_TOKENS
from acp_agent.llm.anthropic_request import request_body
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.json_wire import as_count
from acp_agent.llm.whole_answer import posted
from acp_agent.net.client import HttpClient

_COUNTED: Final = frozenset({"messages", "model", "output_config", "system", "thinking", "tool_choice", "tools"})
"""The fields of a request this API takes; it refuses the others."""
_PATIENCE: Final = 15.0
_LIMIT: Final = 64 * 1024


class TokenCounter(Protocol):
    """Something that knows how long a request is."""

    async def count(self, request: ModelRequest) -> int | None:
        """Tokens of all that is sent; None where that cannot be learnt now: a count is never worth an error."""
        ...


class AnthropicCounter:
    """A TokenCounter behind /v1/messages/count_tokens, which is free and computes nothing."""

    def __init__(self, endpoint: Endpoint, http: HttpClient) -> None:
        self._endpoint = endpoint
        self._http = http

    async def count(self, request: ModelRequest) -> int | None:
        """As TokenCounter says. The very body a call would have, so that what is counted is what is sent."""
        endpoint = self._endpoint
        whole = request_body(endpoint, request, DEFAULT_MAX_TOKENS)
        body = {name: value for name, value in whole.items() if name in _COUNTED}
        headers = {"anthropic-version": API_VERSION} | ({"x-api-key": endpoint.api_key} if endpoint.api_key else {})
        path = "/v1/messages/count_tokens"
        try:
            answer = await posted(self._http, endpoint, path, headers, body, patience=_PATIENCE, limit=_LIMIT)
        except ProviderError:
            return None
        return as_count(answer.get("input_tokens")) or None
