"""POST to an Ollama server, and its answer line by line: NDJSON, one object a line.

Source: ollama/ollama docs/api.md "Streaming responses", docs/api/errors.mdx. A line ends at LF or CR, neither of
which can stand inside JSON; never at U+2028, which can. Lines are split as bytes and decoded whole, so a character
split over two chunks survives.
"""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import anyio

from acp_agent import __version__
from acp_agent.core.errors import ProviderError
from acp_agent.core.types import JsonObject
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.exchange import bounded
from acp_agent.llm.failure import broken_stream, http_failure, wrong_content
from acp_agent.llm.json_wire import read_object
from acp_agent.net.client import Answer, HttpClient, Post

_BOM: Final = b"\xef\xbb\xbf"
_ENDED: Final = "ended its answer before it was whole"
_NOT_LINES: Final = ("text/html", "application/xhtml", "application/problem", "image/")
_OF_AN_ANSWER: Final = ("message", "done", "error")


@asynccontextmanager
async def posted(
    http: HttpClient, endpoint: Endpoint, path: str, body: bytes, patience: float
) -> AsyncGenerator[Answer]:
    """POST `body` to `base_url` + `path` and hold the answer open; leaving closes it. `patience` is in seconds.

    Raises ProviderError for every status but 200.
    """
    headers = {
        "content-type": "application/json",
        "accept": "application/x-ndjson, application/json",
        "user-agent": f"acp-agent/{__version__}",
    }
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    post = Post(endpoint.provider, endpoint.base_url + path, headers, body, patience)
    async with http.post(post) as answer:
        if answer.status != 200:
            raise _refusal(endpoint, answer, await answer.excerpt())
        yield answer


async def json_lines(endpoint: Endpoint, answer: Answer) -> AsyncGenerator[JsonObject]:
    """The objects of an answer, unjudged. Raises ProviderError (PROTOCOL) for what is no such stream, or is cut."""
    content_type = answer.headers.get("content-type", "").lower()
    if content_type.startswith(_NOT_LINES):
        raise wrong_content(endpoint, content_type, await answer.excerpt())
    doubtful = content_type.startswith("application/json")  # proxies say it of NDJSON, and of anything else
    async with (
        aclosing(answer.chunks()) as chunks,
        aclosing(bounded(endpoint, chunks)) as pieces,
        aclosing(split_lines(endpoint, pieces)) as lines,
    ):
        async for line in lines:
            item = _object(endpoint, line)
            if doubtful and not any(key in item for key in _OF_AN_ANSWER):
                raise wrong_content(endpoint, content_type, line)
            doubtful = False
            yield item


async def split_lines(endpoint: Endpoint, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The lines of a byte stream that are not blank. The same bytes give the same lines under every chunking.

    The last line may lack its end, as it does from servers that do not stream; cut within, it is a ProviderError.
    """
    pending: list[bytes] = []
    first = True
    async for chunk in chunks:
        *ends, rest = chunk.replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            line = b"".join((*pending, end)) if pending else end
            pending.clear()
            if first:
                line, first = line.removeprefix(_BOM), False
            if line.strip():
                yield line
        if rest:
            pending.append(rest)
    last = b"".join(pending)
    if first:
        last = last.removeprefix(_BOM)
    if last.strip():
        if not _whole(last):
            raise broken_stream(endpoint, _ENDED)
        yield last


async def drained(lines: AsyncGenerator[JsonObject], patience: float) -> None:
    """Read to the end, for at most `patience` seconds, so that the connection can serve the next request.

    The answer is whole: nothing that goes wrong here matters any more.
    """
    with anyio.move_on_after(patience), suppress(ProviderError):
        async for _ in lines:
            pass


def _object(endpoint: Endpoint, line: bytes) -> JsonObject:
    try:
        return read_object(line.decode("utf-8", "replace"))
    except ValueError as error:
        raise broken_stream(endpoint, f"sent a line that cannot be read ({error})") from error


def _whole(line: bytes) -> bool:
    try:
        read_object(line.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


def _refusal(endpoint: Endpoint, answer: Answer, body: bytes) -> ProviderError:
    """A status other than 200, with what helps on Ollama."""
    error = http_failure(endpoint, answer.status, answer.headers, body)
    hint = ""
    if answer.status == 404 and b"not found" in body and endpoint.model.encode() in body:
        hint = f" (`ollama pull {endpoint.model}` fetches a model)"
    elif answer.status == 404:
        hint = ' (a server that is not Ollama is a provider of type "openai")'
    elif answer.status == 401 and b"signin_url" in body:
        hint = " (for a cloud model: `ollama signin` on that machine)"
    return ProviderError(f"{error}{hint}", kind=error.kind, status=error.status, retry_after=error.retry_after)
