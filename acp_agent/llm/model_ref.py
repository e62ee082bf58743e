"""How a model is named: by the provider that has it and by its own id."""

from dataclasses import dataclass
from typing import Final

from acp_agent.core.errors import ConfigError

MODEL_FORM: Final = "PROVIDER:MODEL, such as anthropic:claude-sonnet-5-5 or ollama:qwen3:8b"


@dataclass(frozen=True, slots=True)
class ModelRef:
    """`PROVIDER:MODEL`, taken apart. The model's id may hold colons of its own."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model(text: str, *, where: str = "[llm]", key: str = "model") -> ModelRef:
    """Take `PROVIDER:MODEL` apart at the first colon. Raises ConfigError."""
    provider, colon, model = (part.strip() for part in text.partition(":"))
    if not (provider and colon and model) or "/" in provider or model.startswith("//"):
        raise ConfigError(where, key, text, MODEL_FORM)
    return ModelRef(provider, model)
