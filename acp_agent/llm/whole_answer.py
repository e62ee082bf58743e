"""One request whose answer is one JSON object: lists of models, counts, embeddings. Bounded in time and size."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import anyio

from acp_agent import __version__
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.failure import http_failure
from acp_agent.llm.json_wire import read_object, write
from acp_agent.net.client import Answer, Get, HttpClient, Post


async def got(
    http: HttpClient, endpoint: Endpoint, path: str, headers: Mapping[str, str], *, patience: float, limit: int
) -> JsonObject:
    """GET `base_url` + `path`. `patience` is in seconds, for all of it, and `limit` in bytes.

    Raises ProviderError: for every status but 200, for an answer that is too late, too long or no JSON object.
    """
    get = Get(endpoint.provider, endpoint.base_url + path, _headers(headers), patience)
    return await _object(http.get(get), endpoint, patience, limit)


async def posted(
    http: HttpClient,
    endpoint: Endpoint,
    path: str,
    headers: Mapping[str, str],
    body: JsonObject,
    *,
    patience: float,
    limit: int,
) -> JsonObject:
    """POST a JSON object to `base_url` + `path`. Otherwise as `got`."""
    typed = {**_headers(headers), "content-type": "application/json"}
    post = Post(endpoint.provider, endpoint.base_url + path, typed, write(body), patience)
    return await _object(http.post(post), endpoint, patience, limit)


def bearer(endpoint: Endpoint) -> Mapping[str, str]:
    """The key as OpenAI's API and Ollama take it; nothing where there is none."""
    return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


def _headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {"accept": "application/json", "user-agent": f"acp-agent/{__version__}", **headers}


async def _object(
    opening: AbstractAsyncContextManager[Answer], endpoint: Endpoint, patience: float, limit: int
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
