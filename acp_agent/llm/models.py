"""Names of models, and the sizes, abilities and prices that `models.toml` lists for them."""

import re
from collections.abc import Container
from enum import StrEnum
from functools import cache
from typing import Final

from acp_agent.config.llm_settings import Effort
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.messages import Usage
from acp_agent.shape import Field, Shape, ShapeConfig
from acp_agent.text import packaged_table

_MILLION: Final = 1_000_000
_EDITION: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


class Price(Shape):
    """Prices in US dollars per million tokens. Without a cache price, the cost of calls that use the cache is unknown.

    over         prompts longer than this many tokens cost more, and so do their answers
    over_input   the factor for such a prompt and its cached part; None if unknown
    over_output  the factor for the answer to it; None if unknown
    """

    shape_config = ShapeConfig(strict=False)

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


class ModelLimits(Shape):
    """The limits of a model. `context_window` and `max_output` are in tokens.

    thinking  whether it thinks before it answers: by Anthropic's adaptive thinking, or as a reasoning model of OpenAI
    images    whether it takes pictures
    """

    shape_config = ShapeConfig(strict=False)

    context_window: int = Field(gt=0)
    max_output: int = Field(gt=0)
    thinking: bool = False
    images: bool = False


class NoThinking(StrEnum):
    """The value of `thinking.type` that asks a model of Anthropic not to think before it answers."""

    OMITTED = "omitted"
    DISABLED = "disabled"
    BETWEEN_TOOLS = "between_tools"


class Efforts(Shape):
    """The levels of effort that a thinking model takes.

    levels        their names, weakest first; empty if unknown
    default       the level of a request that names none; None if unknown
    no_thinking   how a model of Anthropic is asked not to think; None for a model that always thinks
    """

    shape_config = ShapeConfig(strict=False)

    levels: tuple[Effort, ...] = ()
    default: Effort | None = None
    no_thinking: NoThinking | None = None


class ModelTable(Shape):
    """The data file.

    It has defaults by provider type, models and efforts by prefix of their id, and prices by the id without its date.
    """

    shape_config = ShapeConfig(strict=False)

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

        Return None if there is none.
        """
        prefix = _longest_prefix(self.models, model)
        return self.models[prefix] if prefix else None

    def efforts_of(self, model: str) -> Efforts:
        """Return the levels of effort of a model. An unknown model has none."""
        prefix = _longest_prefix(self.efforts, model)
        return self.efforts[prefix] if prefix else Efforts()

    def price(self, model: str) -> Price | None:
        """Return the vendor's price for exactly this model or a dated edition of it, or None if unknown."""
        name = model.lower()
        return self.prices.get(name) or self.prices.get(_EDITION.sub("", name))


def _longest_prefix(prefixes: Container[str], model: str) -> str:
    """Return the longest prefix of the name in the table.

    It looks up each beginning of the name, because the table has more entries than a name has characters.
    """
    names = (model.lower(), model.lower().rpartition("/")[2])
    found = (next((name[:end] for end in range(len(name), 0, -1) if name[:end] in prefixes), "") for name in names)
    return max(found, key=len)


@cache
def load_table() -> ModelTable:
    """Return the packaged table. Reads a file the first time."""
    return ModelTable.model_validate(packaged_table("acp_agent.llm", "models"))


@frozen
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
