"""How well tools fit what the user wants: by meaning where there are embeddings, else by words (L4)."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite
from operator import mul
from typing import Protocol

import anyio

from acp_agent.agent.tool_words import by_words
from acp_agent.core.errors import ProviderError
from acp_agent.core.ports import Embedder
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.types import ToolSpec

_QUERY_CHARS = 4_000  # what matters stands at the head of a long prompt, or below what was pasted
_DESCRIPTION_CHARS = 2_000
_BATCH = 32  # texts in one request: what came before time was up is kept
_MOST_VECTORS = 2_000
_SECONDS = 5.0

_Vector = tuple[float, ...]


class ToolRanking(Protocol):
    """Something that compares tools with a prompt."""

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        """How well tools fit, at most 1, by name; a tool may be left out. Empty when nothing can be said.

        Raises nothing but cancellation.
        """
        ...

    def status(self) -> str:
        """How it compares, in a few words for /status."""
        ...


class WordRanking:
    """By the words they share. Deterministic, asks nobody; knows no synonyms and no other language."""

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        return by_words(_head_and_tail(query), specs)

    def status(self) -> str:
        return "none (no embedding model: tools are compared by words)"


class EmbeddingRanking:
    """By the cosine of embeddings. Tools' vectors are kept by the hash of their text.

    seconds   how long a turn may wait for the vectors it lacks; what came in time is used
    redact    takes secrets out of prompts: the embedding model may be another vendor's
    """

    def __init__(self, embedder: Embedder, seconds: float = _SECONDS, redact: Redact = verbatim) -> None:
        self._embedder = embedder
        self._seconds = seconds
        self._redact = redact
        self._model = ""
        self._vectors: dict[bytes, _Vector] = {}
        self._trouble = ""

    async def scores(self, query: str, specs: Sequence[ToolSpec]) -> Mapping[str, float]:
        asked = _head_and_tail(self._redact(query))
        texts = {spec.name: _text(spec) for spec in specs}
        self._trouble = f"no answer in {self._seconds:g} s"
        with anyio.move_on_after(self._seconds):
            try:
                await self._embed([asked, *texts.values()])
                self._trouble = ""
            except ProviderError as error:
                self._trouble = str(error)
        wanted = self._vectors.pop(_key(asked), ())  # the next prompt is another
        known = {name: self._vectors.get(_key(text), ()) for name, text in texts.items()}
        scores = {name: sum(map(mul, wanted, vector)) for name, vector in known.items() if _comparable(wanted, vector)}
        return {name: score for name, score in scores.items() if isfinite(score)}

    def status(self) -> str:
        trouble = f"; {self._trouble}" if self._trouble else ""
        return f"{len(self._vectors)} ({self._embedder.model}{trouble})"

    async def _embed(self, texts: Sequence[str]) -> None:
        """Learn the vectors of texts that are not known yet, in order. Raises ProviderError."""
        if self._embedder.model != self._model or len(self._vectors) > _MOST_VECTORS:
            self._model = self._embedder.model
            self._vectors.clear()
        missing = [text for text in dict.fromkeys(texts) if _key(text) not in self._vectors]
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            vectors = await self._embedder.embed(batch)
            self._vectors |= {_key(text): vector for text, vector in zip(batch, vectors, strict=True)}


def _comparable(one: _Vector, other: _Vector) -> bool:
    return bool(one) and len(one) == len(other)


def _key(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _text(spec: ToolSpec) -> str:
    return f"{spec.name.replace('_', ' ')}: {spec.description[:_DESCRIPTION_CHARS]}"


def _head_and_tail(text: str) -> str:
    half = _QUERY_CHARS // 2
    return text if len(text) <= _QUERY_CHARS else f"{text[:half]}\n{text[-half:]}"
