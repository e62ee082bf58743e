"""`[[llm.models]]`, and what can be said of a provider's models as well: their size, abilities, how they are asked."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, cast

from pydantic import BeforeValidator, Field, model_validator

from acp_agent.config.section import Section

_MOST_DEPTH = 20
"""Levels of a value in `extra_body`."""
_OURS = frozenset({"model", "messages", "input", "tools", "stream", "system", "instructions"})
_INSTEAD = {
    "num_ctx": "context_window, so that it is known here too",
    "max_tokens": "max_tokens beside extra_body, so that it is known here too",
    "temperature": "temperature beside extra_body, which is left out for models that do not take it",
    "keep_alive": "keep_alive beside extra_body",
}


class OpenAIApi(StrEnum):
    """Which of OpenAI's two APIs a model is spoken to by."""

    AUTO = "auto"
    RESPONSES = "responses"
    CHAT = "chat"


class Effort(StrEnum):
    """How long a model may think. Not every model knows every word."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


def _extra_body(value: object) -> object:
    """Check that it is JSON and leaves our own fields alone. Raises ValueError saying what was expected."""
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
"""Fields for every request body: JSON values, none of which replaces what the agent itself has to say."""


class ModelOptions(Section):
    """What can be said of one model or of all models of a provider. Unset: what is known of the model."""

    context_window: Annotated[
        int | None,
        Field(ge=1000, le=10_000_000, description="Tokens that fit into it. Unset: what is known of the model."),
    ] = None
    max_tokens: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Most tokens of one answer. Unset: what suits the model."),
    ] = None
    images: Annotated[
        bool | None, Field(description="Whether it takes pictures. Unset: what is known of the model.")
    ] = None
    tools: Annotated[bool | None, Field(description="false: it is offered no tools, and only talks.")] = None
    thinking: Annotated[
        bool | None,
        Field(description="Whether it is asked to think before it answers. Unset: what is known of the model."),
    ] = None
    effort: Annotated[
        Effort | None,
        Field(strict=False, description="How hard a model that thinks does so. Unset: the server's own choice."),
    ] = None
    temperature: Annotated[
        float | None,
        Field(
            ge=0,
            le=2,
            allow_inf_nan=False,
            description="How freely it chooses its words; left out for models that think, which do not take it.",
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
    """What a model costs, in US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False, description="What is sent.")]
    output: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False, description="What it answers.")]
    cache_read: Annotated[
        float | None, Field(ge=0, le=10_000, allow_inf_nan=False, description="What is read from the cache.")
    ] = None
    cache_write: Annotated[
        float | None, Field(ge=0, le=10_000, allow_inf_nan=False, description="What is written to it.")
    ] = None


class ModelSettings(ModelOptions):
    """One `[[llm.models]]` entry: what is so for some models, whatever is known or their provider's entry says."""

    id: Annotated[
        str,
        Field(
            pattern=r"^[^\s:]+:\S*$",
            max_length=500,
            description='"PROVIDER:MODEL", or how such names begin; the longest that fits counts.',
        ),
    ]
    price: Annotated[PriceSettings | None, Field(description="US dollars for a million tokens.")] = None

    @model_validator(mode="after")
    def _says_something(self) -> "ModelSettings":
        if self.model_fields_set <= {"id"}:
            raise ValueError("something beside id, such as context_window")
        return self
