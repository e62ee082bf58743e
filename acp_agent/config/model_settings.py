"""`[[llm.models]]`: the size, abilities, options and price of models. Most keys also apply to a whole provider."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, cast

from pydantic import BeforeValidator, Field, model_validator

from acp_agent.config.section import Section

_MOST_DEPTH = 20
"""The most levels of a value in `extra_body`."""
_OURS = frozenset({"model", "messages", "input", "tools", "stream", "system", "instructions"})
_INSTEAD = {
    "num_ctx": "context_window, so that it is known here too",
    "max_tokens": "max_tokens beside extra_body, so that it is known here too",
    "temperature": "temperature beside extra_body, which is left out for models that do not take it",
    "keep_alive": "keep_alive beside extra_body",
}


class OpenAIApi(StrEnum):
    """Which of OpenAI's two APIs is used for a model."""

    AUTO = "auto"
    RESPONSES = "responses"
    CHAT = "chat"


class Effort(StrEnum):
    """How long a model may think. Not every model supports every value."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


def _extra_body(value: object) -> object:
    """Return the fields if they are JSON and none is the agent's own. Raises ValueError with what is expected."""
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    for name in fields:
        if name in _OURS:
            raise ValueError(f"no {name}: the agent sets it itself")
        if name in _INSTEAD:
            raise ValueError(f"no {name}: set {_INSTEAD[name]}")
    options = fields.get("options")
    if isinstance(options, dict) and "num_ctx" in options:
        raise ValueError(f"no num_ctx: set {_INSTEAD['num_ctx']}")
    if not _is_json(fields, _MOST_DEPTH):
        raise ValueError(f"texts, finite numbers, true and false, lists and tables, at most {_MOST_DEPTH} levels deep")
    return fields


def _is_json(value: object, levels: int) -> bool:
    match value:
        case dict():
            inner = cast("dict[str, object]", value)
            return levels > 0 and all(_is_json(item, levels - 1) for item in inner.values())
        case list():
            items = cast("list[object]", value)
            return levels > 0 and all(_is_json(item, levels - 1) for item in items)
        case float():
            return abs(value) < float("inf")
        case _:
            return isinstance(value, str | bool | int)


ExtraBody = Annotated[Mapping[str, object], BeforeValidator(_extra_body), Field(strict=False)]
"""Further fields of every request body: JSON values, none of which replaces a field that the agent sets."""


class ModelOptions(Section):
    """The options of one model or of all models of a provider. An unset one has its value from the model table."""

    context_window: Annotated[
        int | None,
        Field(
            ge=1000,
            le=10_000_000,
            description="Size of the context window in tokens. Unset: the known size of the model.",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="The most tokens of one answer. Unset: a value that suits the model."),
    ] = None
    images: Annotated[
        bool | None, Field(description="Whether the model accepts images. Unset: as known of the model.")
    ] = None
    tools: Annotated[bool | None, Field(description="false: the model is offered no tools.")] = None
    thinking: Annotated[
        bool | None,
        Field(description="Whether the model is asked to think before it answers. Unset: as known of the model."),
    ] = None
    effort: Annotated[
        Effort | None,
        Field(strict=False, description="How much a thinking model thinks. Unset: the server's own choice."),
    ] = None
    temperature: Annotated[
        float | None,
        Field(
            ge=0,
            le=2,
            allow_inf_nan=False,
            description="Sampling temperature. It is not sent to models that think, which do not accept it.",
        ),
    ] = None
    api: Annotated[
        OpenAIApi | None,
        Field(
            strict=False,
            description="For type openai: responses, chat (Chat Completions) or auto, which is responses at OpenAI "
            "itself and chat anywhere else. Unset: auto.",
        ),
    ] = None


class PriceSettings(Section):
    """The price of a model in US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False, description="Input tokens.")]
    output: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False, description="Output tokens.")]
    cache_read: Annotated[
        float | None, Field(ge=0, le=10_000, allow_inf_nan=False, description="Tokens read from the cache.")
    ] = None
    cache_write: Annotated[
        float | None, Field(ge=0, le=10_000, allow_inf_nan=False, description="Tokens written to the cache.")
    ] = None


class ModelSettings(ModelOptions):
    """One `[[llm.models]]` entry. It takes precedence over the provider's entry and over the model table."""

    id: Annotated[
        str,
        Field(
            pattern=r"^[^\s:]+:\S*$",
            max_length=500,
            description='"PROVIDER:MODEL", or the beginning of such names. The longest that matches a model counts.',
        ),
    ]
    price: Annotated[PriceSettings | None, Field(description="US dollars for a million tokens.")] = None

    @model_validator(mode="after")
    def _says_something(self) -> "ModelSettings":
        if self.model_fields_set <= {"id"}:
            raise ValueError("a key besides id, such as context_window")
        return self
