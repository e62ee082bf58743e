"""The JSON schema of the configuration file, made from the models."""

from typing import cast

from acp_agent.config.settings import Settings
from acp_agent.core.types import JsonObject


def config_schema() -> JsonObject:
    """What `acp-agent schema config` prints and `schemas/config.schema.json` keeps: JSON Schema 2020-12."""
    schema = cast("JsonObject", Settings.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "acp-agent configuration",
        **{name: value for name, value in schema.items() if name != "title"},
    }
