"""Names of models, what `models.toml` says about them (size, abilities, prices), and models that embed texts.

Sources of the embedding APIs: ollama/ollama docs/api.md "Generate Embeddings"; developers.openai.com "Create
embeddings", which llama.cpp, vLLM and LM Studio speak as well.
"""

import math
import re
import tomllib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from acp_agent.config.llm_settings import Effort
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import Usage
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import ModelEndpoint, as_list, as_object
from acp_agent.llm.exchange import bearer_header, post_json
from acp_agent.net.client import HttpClient

_MILLION: Final = 1_000_000
_EDITION: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


class Price(BaseModel):
    """US dollars for a million tokens. Without a cache price, the cost of calls that used the cache is unknown.

    over         prompts longer than this many tokens cost more in all their parts
    over_input   the factor for the prompt and its cached part; None if unknown
    over_output  the factor for the answer; None if unknown
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    over: int | None = Field(default=None, gt=0)
    over_input: float | None = Field(default=None, ge=1)
    over_output: float | None = Field(default=None, ge=1)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of one call in US dollars, or None if a price it needs is unknown."""
        times_input = times_output = 1.0
        if self.over is not None and usage.input + usage.cache_read + usage.cache_write > self.over:
            if self.over_input is None or self.over_output is None:
                return None
            times_input, times_output = self.over_input, self.over_output
        if (usage.cache_read and self.cache_read is None) or (usage.cache_write and self.cache_write is None):
            return None
        cached = usage.cache_read * (self.cache_read or 0) + usage.cache_write * (self.cache_write or 0)
        return (
            times_input * (usage.input * self.input + cached) + times_output * usage.output * self.output
        ) / _MILLION


class ModelLimits(BaseModel):
    """What a model can take. `context_window` and `max_output` are in tokens.

    thinking  it thinks before it answers: it takes Anthropic's adaptive thinking, or is a reasoning model of OpenAI
    images    it takes pictures
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    context_window: int = Field(gt=0)
    max_output: int = Field(gt=0)
    thinking: bool = False
    images: bool = False


class NoThinking(StrEnum):
    """How a request asks a model of Anthropic not to think before it answers: the type of its `thinking`."""

    OMITTED = "omitted"
    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"


class Efforts(BaseModel):
    """How hard a model that thinks can be asked to think.

    levels        the words it takes, weakest first; empty if unknown
    default       the level in force if a request names none; None if unknown
    no_thinking   how a model of Anthropic is asked not to think; None for a model that always thinks
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: tuple[Effort, ...] = ()
    default: Effort | None = None
    no_thinking: NoThinking | None = None


class ModelTable(BaseModel):
    """The data file: defaults by provider type, models by prefix of their id, prices by the id without its date."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: dict[str, ModelLimits]
    models: dict[str, ModelLimits]
    efforts: dict[str, Efforts]
    prices: dict[str, Price]

    def limits(self, provider_type: str, model: str) -> ModelLimits:
        """Return what is known of a model, or the default of its provider type.

        A model on Ollama is never looked up, because the server's own settings decide its window.
        """
        known = None if provider_type == "ollama" else self.known(model)
        return known or self.defaults[provider_type]

    def known(self, model: str) -> ModelLimits | None:
        """Return the entry with the longest prefix of the id, or of its last part after a slash.

        Return None without one.
        """
        prefix = _longest_prefix(self.models, model)
        return self.models[prefix] if prefix else None

    def efforts_of(self, model: str) -> Efforts:
        """Return how hard a model can be asked to think, by its id. An unknown model has no levels."""
        prefix = _longest_prefix(self.efforts, model)
        return self.efforts[prefix] if prefix else Efforts()

    def price(self, model: str) -> Price | None:
        """Return the vendor's price for exactly this model or a dated edition of it, or None if unknown."""
        name = model.lower()
        return self.prices.get(name) or self.prices.get(_EDITION.sub("", name))


def _longest_prefix(prefixes: Container[str], model: str) -> str:
    """Return the longest prefix of the name in the table.

    It tries each beginning: there are fewer of them than models.
    """
    names = (model.lower(), model.lower().rpartition("/")[2])
    found = (next((name[:end] for end in range(len(name), 0, -1) if name[:end] in prefixes), "") for name in names)
    return max(found, key=len)


@cache
def load_table() -> ModelTable:
    """Return the packaged table. Reads a file the first time."""
    return ModelTable.model_validate(tomllib.loads((files("acp_agent.llm") / "models.toml").read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model's name `PROVIDER:MODEL` in its two parts. The model's id may hold colons."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model(text: str, *, key: str = "model") -> ModelRef:
    """Split `PROVIDER:MODEL` at the first colon. Raises ConfigError."""
    provider, colon, model = (part.strip() for part in text.partition(":"))
    if not (provider and colon and model) or "/" in provider or model.startswith("//"):
        expected = "PROVIDER:MODEL, such as anthropic:claude-sonnet-5-5 or ollama:qwen3:8b"
        raise ConfigError("[llm]", key, text, expected)
    return ModelRef(provider, model)


BATCH: Final = 64
"""The most texts in one request."""
LONGEST_TEXT: Final = 8000
"""The longest text in characters. OpenAI's models refuse more than 8192 tokens, and the start tells the subject."""
_PATIENCE: Final = 60.0
"""The seconds for one request. A local model may have to be loaded first."""
_LIMIT: Final = 32 * 1024 * 1024
"""The largest answer in bytes: three times 64 vectors of 8192 numbers written in full."""
_MOST_NUMBERS: Final = 8192

Vector: TypeAlias = tuple[float, ...]


class HttpEmbedder:
    """An Embedder behind Ollama's /api/embed, or OpenAI's /embeddings. Its vectors must be as long as the first one."""

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

        Only the first `LONGEST_TEXT` characters of a text count. A blank text counts as a dash.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), BATCH):
            vectors += await self._batch([text[:LONGEST_TEXT].strip() or "-" for text in texts[start : start + BATCH]])
        return tuple(vectors)

    async def _batch(self, texts: Sequence[str]) -> list[Vector]:
        endpoint = self._endpoint
        body: JsonObject = {"model": endpoint.model, "input": [*texts]}
        if self._ollama:  # the server, which knows its tokens, shortens texts that are too long
            path, stay = "/api/embed", endpoint.extra_body.get("keep_alive")
            body |= {"truncate": True} if stay is None else {"truncate": True, "keep_alive": stay}
        else:
            path, body["encoding_format"] = "/embeddings", "float"
        patience = min(endpoint.timeout, _PATIENCE)
        headers = bearer_header(endpoint)
        answer = await post_json(self._http, endpoint, path, headers, body, patience=patience, limit=_LIMIT)
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
    """Return the vectors by their `index`, where a server gives one: the API does not promise an order."""
    entries = list(map(as_object, as_list(answer.get("data"))))
    by_index = {index: entry for entry in entries if isinstance(index := entry.get("index"), int)}
    if sorted(by_index) == list(range(len(entries))):
        entries = [by_index[index] for index in sorted(by_index)]
    return [entry.get("embedding") for entry in entries]
