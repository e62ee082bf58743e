"""The JSON schema of the configuration file, made from the models."""

from typing import cast

from acp_agent.config.settings import Settings
from acp_agent.core.types import Json, JsonObject


def config_schema() -> JsonObject:
    """What `acp-agent schema config` prints and `schemas/config.schema.json` keeps: JSON Schema 2020-12."""
    schema = cast("JsonObject", _without_echoes(Settings.model_json_schema()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acp-agent configuration",
        **schema,
    }


def _without_echoes(value: Json) -> Json:
    """A section's default says again what each of its fields says, and a title the name it was made from."""
    match value:
        case dict():
            return {key: _without_echoes(item) for key, item in value.items() if not _echoes(key, item, value)}
        case list():
            return [_without_echoes(item) for item in value]
        case _:
            return value


def _echoes(key: str, item: Json, holder: JsonObject) -> bool:
    return (key == "title" and isinstance(item, str)) or (key == "default" and "$ref" in holder)
