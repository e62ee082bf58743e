"""What is known about a model, from `models.toml`: its size, what it takes."""

import tomllib
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field


class ModelLimits(BaseModel):
    """`context_window` and `max_output` in tokens.

    thinking  takes Anthropic's adaptive thinking
    images    takes pictures
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    context_window: int = Field(gt=0)
    max_output: int = Field(gt=0)
    thinking: bool = False
    images: bool = False


class ModelTable(BaseModel):
    """The data file: defaults by provider type, models by prefix of their id."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: dict[str, ModelLimits]
    models: dict[str, ModelLimits]

    def limits(self, provider_type: str, model: str) -> ModelLimits:
        """The entry with the longest prefix of the id, or of its last part after a slash; else the default.

        Ollama is never looked up: what it serves of a model's window is its own setting.
        """
        default = self.defaults[provider_type]
        if provider_type == "ollama":
            return default
        names = (model.lower(), model.lower().rpartition("/")[2])
        prefixes = [prefix for prefix in self.models if any(name.startswith(prefix) for name in names)]
        return self.models[max(prefixes, key=len)] if prefixes else default


def load_table() -> ModelTable:
    """The packaged table. Reads a file."""
    return ModelTable.model_validate(tomllib.loads((files("acp_agent.llm") / "models.toml").read_text("utf-8")))
