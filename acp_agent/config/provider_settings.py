"""`[llm]`: which model answers, and where."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from acp_agent.config.section import HttpUrl, PathText, Seconds, Section


class ProviderType(StrEnum):
    """Which wire format a provider speaks."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OLLAMA = "ollama"
    SCRIPTED = "scripted"


class ProviderSettings(Section):
    """One `[[llm.providers]]` entry: a place where models answer."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="What stands before the colon in `model`.")
    ]
    type: Annotated[
        ProviderType,
        Field(
            strict=False,
            description="Its wire format: anthropic (Messages), openai (Chat Completions), ollama, or scripted (plays "
            "a script, needs no network).",
        ),
    ]
    base_url: Annotated[
        HttpUrl | None,
        Field(
            description="Where the API lives. Unset: the vendor's own address, or the usual variable's.",
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Z_][A-Z0-9_]*$",
            description="Environment variable (capital letters) that holds the key. Unset: the vendor's usual one if "
            "base_url is unset too, else no key is sent.",
        ),
    ] = None
    script: Annotated[
        PathText | None,
        Field(description="File a scripted provider plays. Unset: the packaged script that `model` names."),
    ] = None
    context_window: Annotated[
        int | None,
        Field(ge=1000, le=10_000_000, description="Tokens that fit into its models. Unset: what is known of them."),
    ] = None
    max_tokens: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Most tokens of one answer. Unset: what suits the model."),
    ] = None
    images: Annotated[
        bool | None, Field(description="Whether its models take pictures. Unset: what is known of them.")
    ] = None
    timeout: Annotated[
        Seconds, Field(description="Seconds of silence from the server before a call counts as failed.")
    ] = 300.0

    def api_key(self, environ: Mapping[str, str]) -> str:
        """The key in this provider's variable; empty when it has none."""
        return environ.get(self.api_key_env, "") if self.api_key_env else ""

    @model_validator(mode="after")
    def _only_what_its_type_reads(self) -> "ProviderSettings":
        scripted = self.type is ProviderType.SCRIPTED
        if scripted and (self.base_url or self.api_key_env):
            raise ValueError("neither base_url nor api_key_env: a scripted provider calls nobody")
        if self.script and not scripted:
            raise ValueError("no script: only a provider of type scripted plays one")
        return self


def model_name(value: str) -> str:
    """Check that a text names a provider and a model. Raises ValueError saying what was expected."""
    provider, _, model = value.partition(":")
    if not provider or not model or any(character.isspace() for character in value):
        raise ValueError('"PROVIDER:MODEL", for example "ollama:qwen3:8b"')
    return value


class LlmSettings(Section):
    """`[llm]`: which model answers."""

    model: Annotated[
        Annotated[str, AfterValidator(model_name)] | None,
        Field(
            description='"PROVIDER:MODEL". Unset: no model; commands such as /run still work.',
            examples=["ollama:qwen3:8b"],
        ),
    ] = None
    providers: Annotated[
        tuple[ProviderSettings, ...],
        Field(
            strict=False,
            description="Places where models answer. ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENAI_BASE_URL, OLLAMA_HOST "
            "and the like add their own; `scripted` is always there.",
            examples=[
                [
                    {
                        "name": "local",
                        "type": "openai",
                        "base_url": "http://127.0.0.1:8080/v1",
                        "api_key_env": "LOCAL_API_KEY",
                    }
                ]
            ],
        ),
    ] = ()
