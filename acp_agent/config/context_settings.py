"""The part of `[agent]` about long conversations: when they are shortened, and which model sums them up (L11)."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from acp_agent.config.provider_settings import model_name
from acp_agent.config.section import Section
from acp_agent.config.tighter import OFF


def _model_or_none(value: str) -> str:
    return model_name(value) if value else value


class ContextSettings(Section):
    """Keys that `[agent]` takes over. All are the user's alone, but that a project may switch the tool off."""

    compaction: Annotated[
        bool,
        Field(
            description="Whether long conversations are shortened by themselves; else a turn stops at 80 % of the "
            "context. /compact works all the same."
        ),
    ] = True
    compaction_soft: Annotated[
        float,
        Field(
            ge=0.1,
            le=0.9,
            allow_inf_nan=False,
            description="Part of the context beyond which old tool outputs are cleared.",
        ),
    ] = 0.6
    compaction_hard: Annotated[
        float,
        Field(
            ge=0.2,
            le=0.95,
            allow_inf_nan=False,
            description="Part of the context beyond which a model sums up what lies before the current turn.",
        ),
    ] = 0.9
    compress_provider: Annotated[
        str,
        AfterValidator(_model_or_none),
        Field(
            description='Model that writes summaries, "PROVIDER:MODEL". Empty: the model of the conversation.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""
    compress_context: Annotated[
        bool,
        Field(description="Whether the model has a tool, compress_context, to have the conversation summed up itself."),
        OFF,
    ] = False

    @model_validator(mode="after")
    def _soft_before_hard(self) -> Self:
        if self.compaction_soft >= self.compaction_hard:
            raise ValueError(f"compaction_soft below compaction_hard = {self.compaction_hard:g}")
        return self
