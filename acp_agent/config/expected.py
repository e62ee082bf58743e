"""What is wrong with a value, said in words a person can act on."""

from dataclasses import dataclass
from typing import cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from acp_agent.config.keys import Key
from acp_agent.core.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing wrong: the key's dotted name with list places, the value there, what was expected.

    index   the place in the list the value sits in, None when it is not about one place
    """

    key: str
    value: object
    expected: str
    index: int | None = None


def complaints(key: Key, error: ValidationError) -> list[Complaint]:
    """Everything pydantic found wrong with a value for `key`."""
    schema = cast("JsonObject", key.section.model_json_schema())
    return [_complaint(key, schema, detail) for detail in error.errors(include_url=False)]


def _complaint(key: Key, schema: JsonObject, detail: ErrorDetails) -> Complaint:
    place = detail["loc"][2 if key.item else 1 :]
    name = key.name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    value: object = detail["input"]
    match detail["type"]:
        case "missing":
            expected, value = "it to be set", None
        case "extra_forbidden":
            parent = _at(schema, detail["loc"][:-1])
            expected = one_of(cast("JsonObject", parent.get("properties", {})))
        case "value_error":
            expected = detail["msg"].removeprefix("Value error, ")
        case _:
            expected = _words(schema, _at(schema, detail["loc"]))
    return Complaint(name, value, expected, place[0] if place and isinstance(place[0], int) else None)


def one_of(names: JsonObject | list[str]) -> str:
    """The words for a closed set of names."""
    return "one of " + ", ".join(names)


def _at(schema: JsonObject, path: tuple[int | str, ...]) -> JsonObject:
    """The part of a JSON schema that describes the value at `path`."""
    node = schema
    for step in path:
        node = _resolved(schema, node)
        inner = node.get("items") if isinstance(step, int) else _member(node, step)
        node = inner if isinstance(inner, dict) else node
    return _resolved(schema, node)


def _member(node: JsonObject, name: str) -> Json:
    properties = node.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        return extra
    patterns = node.get("patternProperties")
    return next(iter(patterns.values()), None) if isinstance(patterns, dict) else None


def _resolved(schema: JsonObject, node: JsonObject) -> JsonObject:
    """`node` with `$ref` followed and an optional value reduced to the value."""
    choices = node.get("anyOf")
    if isinstance(choices, list):
        node = next(choice for choice in choices if isinstance(choice, dict) and choice.get("type") != "null")
    reference = node.get("$ref")
    definitions = schema.get("$defs")
    if isinstance(reference, str) and isinstance(definitions, dict):
        target = definitions[reference.rpartition("/")[2]]
        assert isinstance(target, dict)
        return target
    return node


def _words(schema: JsonObject, node: JsonObject) -> str:
    values = node.get("enum")
    if isinstance(values, list):
        return one_of([f'"{value}"' for value in values])
    match node.get("type"):
        case "integer":
            return "a whole number" + _range(node)
        case "number":
            return "a number" + _range(node)
        case "boolean":
            return "true or false"
        case "string":
            pattern = node.get("pattern")
            return f"text that matches {pattern}" if pattern else "text that is not empty"
        case "array":
            items = node.get("items")
            inner = _resolved(schema, items) if isinstance(items, dict) else {}
            return "a list of " + {"string": "texts", "object": "tables"}.get(str(inner.get("type")), "values")
        case _:
            return "a table"


def _range(node: JsonObject) -> str:
    """Every number of ours has an upper limit; the lower one may be left out of the range itself."""
    above = node.get("exclusiveMinimum")
    start = f" above {above}, at most" if above is not None else f" from {node.get('minimum')} to"
    return f"{start} {node.get('maximum')}"
