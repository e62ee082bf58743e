"""The JSON Schemas of tools' parameters: whole to parse arguments by, and short to tell a model.

The short ones of the built-in tools are stored in `parameters.json`, because making them takes 22 ms of every start.
`ACP_AGENT_GOLDEN=write pytest tests/unit/tools/test_registry.py` renews the file.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from acp_agent.core.types import Json, JsonObject

_KEYWORDS = ("type", "properties", "required", "additionalProperties")


@cache
def stored_schemas() -> Mapping[str, JsonObject]:
    """Return what models are told of the parameters of built-in tools, by the dotted name of their class."""
    text = files("acp_agent.tools").joinpath("parameters.json").read_text(encoding="utf-8")
    return cast("Mapping[str, JsonObject]", json.loads(text))


class _Lean(GenerateJsonSchema):
    """A schema without what the model does not need: titles, null types and null defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        lean = super().default_schema(schema)
        return {key: value for key, value in lean.items() if key != "default" or value is not None}


@cache
def schema(model: type[BaseModel]) -> JsonObject:
    """Return the JSON Schema of a tool's parameters without `$ref`, which some models refuse. Nobody may change it."""
    full = model.model_json_schema(schema_generator=_Lean)
    return {key: _spelled_out(full[key], full.get("$defs", {})) for key in _KEYWORDS if key in full}


def _spelled_out(node: Json, parts: JsonObject) -> Json:
    """Return the schema with each Part written out where it is referred to."""
    match node:
        case {"$ref": str(reference)}:
            part = parts[reference.removeprefix("#/$defs/")]
            assert isinstance(part, dict)
            return _spelled_out({key: part[key] for key in _KEYWORDS if key in part}, parts)
        case dict():
            return {key: _spelled_out(value, parts) for key, value in node.items()}
        case list():
            return [_spelled_out(item, parts) for item in node]
        case _:
            return node


_FARTHEST = 10**9
_UNTOLD = {"additionalProperties": (False,), "minLength": (1,), "minimum": (0, 1), "default": (False, 0, "")}
_NEVER_TOLD = ("maxLength", "maxItems")


def told_schema(node: Json) -> Json:
    """Return a schema without what a model takes for granted, and without limits that no sensible call reaches.

    The model pays for every word in each request. Arguments are parsed by the whole schema.
    """
    match node:
        case dict():
            told: JsonObject = {}
            for key, value in node.items():
                is_limit = key in ("minimum", "maximum") and isinstance(value, int) and abs(value) >= _FARTHEST
                is_word = not isinstance(value, dict | list)
                if is_limit or (is_word and (key in _NEVER_TOLD or value in _UNTOLD.get(key, ()))):
                    continue
                told[key] = told_schema(value)
            return told
        case list():
            return [told_schema(item) for item in node]
        case _:
            return node
