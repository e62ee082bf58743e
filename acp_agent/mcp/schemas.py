"""The schema of a tool's parameters, as model APIs take it: they refuse a whole request for one that they do not.

What they refuse is in no standard, but in their error messages (2025-2026): Anthropic wants draft 2020-12, parameters
named `[a-zA-Z0-9_.-]{1,64}` and no oneOf, anyOf or allOf at the top; OpenAI none of these, nor enum or not, and says
"array schema missing items" and "object schema missing properties". Below the top both take them.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from acp_agent.core.types import Json, JsonObject
from acp_agent.tools.visible import visible

MAX_SCHEMA: Final = 32 * 1024
"""Bytes, as JSON."""
MAX_DEPTH: Final = 32

_PARAMETER: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_AT_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
_TYPES: Final = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
# Where schemas are inside schemas (draft 2020-12): one, a list of them, or an object whose values are some.
_ONE: Final = frozenset(
    (
        *("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
        *("not", "if", "then", "else"),
    )
)
_LISTED: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))


def fit_schema(schema: Json) -> JsonObject:
    """The schema, of at most MAX_DEPTH, as every API takes it. It asks for no more than before, and may ask for less.

    Rules at the top give way where the parameters are known without them: the server judges its calls in any case.
    Raises ValueError, with the reason, for one that cannot be made to fit.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("its parameters are described by no schema of an object")
    properties = schema.get("properties", {})
    rules = [keyword for keyword in _NOT_AT_TOP if keyword in schema]
    if rules and not properties:
        raise ValueError(f"its schema describes the parameters by {rules[0]} alone, which model APIs refuse")
    for name in properties if isinstance(properties, dict) else ():
        if not _PARAMETER.fullmatch(name):
            raise ValueError(f'"{visible(name[:60])}" is no name of a parameter that model APIs take')
    root = {key: value for key, value in schema.items() if key not in rules}
    return {**_fit_object(root, root), **({} if "properties" in root else {"properties": {}})}


def size_of(schema: Json) -> int:
    """Bytes as JSON, of a schema whose weight and depth are known to be bounded. Raises ValueError when too many."""
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        raise ValueError("its schema holds a number that is none") from None
    if size > MAX_SCHEMA:
        raise ValueError(f"its schema has {size} bytes, and {MAX_SCHEMA} is the most")
    return size


def weight(value: Json, limit: int) -> int:
    """Somewhat less than the bytes a value has as JSON. Takes about `limit` steps: beyond it nothing is looked at."""
    found, rest = 0, [value]
    while rest and found <= limit:
        match rest.pop():
            case str(text):
                found += len(text) + 2
            case list(items):
                found += len(items) + 1
                rest += items[: limit + 1]
            case dict() as node if len(node) > limit:
                found += len(node)
            case dict() as node:
                found += 2 + sum(len(key) + 3 for key in node)
                rest += node.values()
            case _:
                found += 1
    return found


# ------------------------------------------------------------------------------- schemas in schemas


def _fit(node: Json, root: JsonObject) -> Json:
    match node:
        case bool():
            return node
        case dict():
            return _fit_object(node, root)
        case _:
            raise ValueError("its schema holds something else where a schema belongs")


def _fit_object(node: JsonObject, root: JsonObject) -> JsonObject:
    for key, value in node.items():
        right = _SHAPES.get(key)
        if right is not None and not right(value):
            raise ValueError(f'its schema holds a "{key}" that is none in draft 2020-12')
    reference = node.get("$ref")
    if isinstance(reference, str) and not _leads_somewhere(reference, root):
        raise ValueError("its schema refers to a part that it does not have")
    fit: JsonObject = {key: _fit_inside(key, value, root) for key, value in node.items()}
    kinds = node.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in fit:
        fit["items"] = {}  # the same in other words
    return fit


def _fit_inside(key: str, value: Json, root: JsonObject) -> Json:
    if key in _ONE:
        return _fit(value, root)
    if key in _LISTED and isinstance(value, list):
        return [_fit(each, root) for each in value]
    if key in _NAMED and isinstance(value, dict):
        return {name: _fit(each, root) for name, each in value.items()}
    return value


def _leads_somewhere(reference: str, root: JsonObject) -> bool:
    """Whether a reference is a JSON pointer (RFC 6901) to a schema in here."""
    found: Json = root
    first, *steps = unquote(reference.removeprefix("#")).split("/")
    for step in steps:
        match found:
            case dict():
                found = found.get(step.replace("~1", "/").replace("~0", "~"))
            case list() if step.isdecimal() and len(step) < 6 and int(step) < len(found):
                found = found[int(step)]
            case _:
                return False
    return not first and isinstance(found, dict | bool)


def _is_kind(value: Json) -> bool:
    return isinstance(value, str) and value in _TYPES


def _is_types(value: Json) -> bool:
    return (isinstance(value, list) and bool(value) and all(map(_is_kind, value))) or _is_kind(value)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value)


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _is_full_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value)


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


def _is_names(value: Json) -> bool:
    names = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return isinstance(value, list) and len(set(names)) == len(value)


_SHAPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "type": _is_types,
    "required": _is_names,
    "enum": _is_list,
    "examples": _is_list,
    **dict.fromkeys(_LISTED, _is_full_list),
    **dict.fromkeys(_NAMED, _is_object),
    **dict.fromkeys(("title", "description", "format", "pattern", "$ref", "$id", "$schema", "$comment"), _is_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
}
