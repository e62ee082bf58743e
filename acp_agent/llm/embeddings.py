"""Embedding models, over Ollama's API or OpenAI's.

Sources: ollama/ollama docs/api.md "Generate Embeddings"; developers.openai.com "Create embeddings", which llama.cpp,
vLLM and LM Studio speak as well.
"""

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import ModelEndpoint, as_list, as_object
from acp_agent.llm.exchange import ask_json, bearer_header
from acp_agent.net.client import HttpClient

BATCH: Final = 64
"""The most texts in one request."""
LONGEST_TEXT: Final = 8000
"""The most characters of a text that are embedded: OpenAI's models refuse more than 8192 tokens."""
_PATIENCE: Final = 60.0
"""The seconds for one request. A local model may have to be loaded first."""
_LIMIT: Final = 32 * 1024 * 1024
"""The largest answer in bytes: three times 64 vectors of 8192 numbers written in full."""
_MOST_NUMBERS: Final = 8192

Vector: TypeAlias = tuple[float, ...]


class HttpEmbedder:
    """An Embedder over Ollama's /api/embed or OpenAI's /embeddings. Its vectors must all have the same length."""

    def __init__(self, endpoint: ModelEndpoint, http: HttpClient, *, ollama: bool) -> None:
        self._endpoint = endpoint
        self._http = http
        self._ollama = ollama
        self._length = 0

    @property
    def model(self) -> str:
        """`PROVIDER:MODEL`."""
        return f"{self._endpoint.provider}:{self._endpoint.model}"

    async def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return a unit vector for each text, in order, all of one length. Raises ProviderError.

        Only the first `LONGEST_TEXT` characters of a text are sent. For a blank text a dash is sent.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), BATCH):
            vectors += await self._batch([text[:LONGEST_TEXT].strip() or "-" for text in texts[start : start + BATCH]])
        return tuple(vectors)

    async def _batch(self, texts: Sequence[str]) -> list[Vector]:
        endpoint = self._endpoint
        body: JsonObject = {"model": endpoint.model, "input": [*texts]}
        if self._ollama:  # the server shortens texts that have too many tokens
            path, stay = "/api/embed", endpoint.extra_body.get("keep_alive")
            body |= {"truncate": True} if stay is None else {"truncate": True, "keep_alive": stay}
        else:
            path, body["encoding_format"] = "/embeddings", "float"
        patience = min(endpoint.timeout, _PATIENCE)
        headers = bearer_header(endpoint)
        answer = await ask_json(self._http, endpoint, path, headers, body, patience=patience, limit=_LIMIT)
        raw = as_list(answer.get("embeddings")) if self._ollama else _openai_vectors(answer)
        if len(raw) != len(texts):
            raise self._broken(f"{len(raw)} vectors for {len(texts)} texts")
        return [self._unit(vector) for vector in raw]

    def _unit(self, raw: Json) -> Vector:
        """Return the vector at length 1. Raises ProviderError for a value that is not a vector of this model."""
        items = as_list(raw)
        try:
            numbers = [float(x) for x in items if isinstance(x, int | float) and not isinstance(x, bool)]
        except OverflowError:  # an integer of hundreds of digits
            numbers = []
        if not 0 < len(numbers) <= _MOST_NUMBERS or len(numbers) != len(items):
            raise self._broken("something that is not a vector")
        if len(numbers) != (self._length or len(numbers)):
            raise self._broken(f"a vector of {len(numbers)} numbers after others of {self._length}")
        norm = math.hypot(*numbers)
        if not 0 < norm < math.inf:
            raise self._broken("a vector without direction")
        self._length = len(numbers)
        return tuple(x / norm for x in numbers)

    def _broken(self, what: str) -> ProviderError:
        message = f"{self.model} sent {what}: check embedding_model"
        return ProviderError(message, kind=ProviderErrorKind.PROTOCOL, status=200)


def _openai_vectors(answer: JsonObject) -> list[Json]:
    """Return the vectors, sorted by `index` if the server gives one: the API does not promise an order."""
    entries = list(map(as_object, as_list(answer.get("data"))))
    by_index = {index: entry for entry in entries if isinstance(index := entry.get("index"), int)}
    if sorted(by_index) == list(range(len(entries))):
        entries = [by_index[index] for index in sorted(by_index)]
    return [entry.get("embedding") for entry in entries]
