"""The JSON schema of the configuration file, made from the models."""

from typing import cast

from acp_agent.config.settings import Settings
from acp_agent.core.types import Json, JsonObject


def config_schema() -> JsonObject:
    """What `acp-agent schema config` prints and `schemas/config.schema.json` keeps: JSON Schema 2020-12."""
    schema = cast("JsonObject", _without_defaults_of_sections(Settings.model_json_schema()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acp-agent configuration",
        **{name: value for name, value in schema.items() if name != "title"},
    }


def _without_defaults_of_sections(value: Json) -> Json:
    """A section's default says again what each of its fields says."""
    match value:
        case dict():
            kept = value if "$ref" not in value else {key: item for key, item in value.items() if key != "default"}
            return {key: _without_defaults_of_sections(item) for key, item in kept.items()}
        case list():
            return [_without_defaults_of_sections(item) for item in value]
        case _:
            return value
