"""The JSON schema of a line of the audit file, made from the records."""

from typing import cast

from pydantic import TypeAdapter

from acp_agent.core.types import JsonObject
from acp_agent.store.audit_record import KEPT, Record

_HASH: JsonObject = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def audit_schema() -> JsonObject:
    """What `acp-agent schema audit` prints and `schemas/audit.schema.json` keeps: JSON Schema 2020-12."""
    made = cast("JsonObject", TypeAdapter[Record](Record).json_schema(mode="serialization"))
    for definition in cast("dict[str, JsonObject]", made["$defs"]).values():
        _as_on_disk(definition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of acp-agent's audit file",
        "type": "object",
        "properties": {
            "seq": {"type": "integer", "minimum": 1, "description": "The record's number, through all files."},
            "ts": {"type": "string", "format": "date-time", "description": "When it was written, in UTC."},
            "prev": {**_HASH, "description": "The hash of the record before; zeros for the first."},
            "hash": {**_HASH, "description": "SHA-256 of the line's bytes in front of this member and its comma."},
        },
        "required": ["seq", "ts", "prev", "hash"],
        "unevaluatedProperties": False,
        **made,
    }


def _as_on_disk(definition: JsonObject) -> None:
    """What is None is not written, and what tells one kind of record from another always is."""
    required = cast("list[str]", definition.get("required", []))
    properties = cast("dict[str, JsonObject]", definition.get("properties", {}))
    for name, schema in properties.items():
        schema.pop("title", None)
        fixed = schema.pop("default", None) is not None
        if fixed or name in KEPT:
            required.append(name)
        elif name not in required:
            [only] = [each for each in cast("list[JsonObject]", schema.pop("anyOf")) if each != {"type": "null"}]
            schema.update(only)
    if properties and "kind" not in properties:  # a record has the members of every line, too
        definition["additionalProperties"] = False
    if required:
        definition["required"] = list(required)
