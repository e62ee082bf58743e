"""What sessions can choose from, and how they get their titles (A2, A16, A18.1)."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from acp_agent.config.provider_settings import model_name
from acp_agent.config.section import Section


class ChoiceSettings(Section):
    """Keys that `[acp]` takes over."""

    available_models: Annotated[
        tuple[Annotated[str, AfterValidator(model_name)], ...],
        Field(
            strict=False,
            max_length=200,
            description='"PROVIDER:MODEL" of each model a session may use, besides llm.model; no list is fetched then. '
            "The first answers if llm.model is unset. Empty: all that are configured, and those the providers list.",
            examples=[["ollama:qwen3:8b"]],
        ),
    ] = ()


class TitleSource(StrEnum):
    """Where the title of a session comes from."""

    MODEL = "model"
    PROMPT = "prompt"


def _model_or_none(value: str) -> str:
    return model_name(value) if value else value


class TitleSettings(Section):
    """Keys that `[memory.sessions]` takes over."""

    titles: Annotated[
        TitleSource,
        Field(
            strict=False,
            description="Where a session's title comes from: model (one small request after the first prompt) or "
            "prompt (its first words).",
        ),
    ] = TitleSource.MODEL
    title_max_chars: Annotated[int, Field(ge=10, le=500, description="Characters a title may have.")] = 60
    title_provider: Annotated[
        str,
        AfterValidator(_model_or_none),
        Field(
            description='Model that writes titles, "PROVIDER:MODEL". Empty: the model of the conversation.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""
