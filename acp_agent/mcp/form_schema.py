"""The form an MCP server wants filled in, reduced to what ACP has: flat, bounded, readable, and no secret in it.

Source: MCP 2025-11-25, "Elicitation"; agentclientprotocol.com, schema v1, `ElicitationSchema`. A rule ACP has no word
for is left out: the server judges what it gets in any case. A field it has no kind for cannot be asked at all.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from acp_agent.core.types import Json, JsonObject
from acp_agent.linear_regex import LinearRegex
from acp_agent.mcp.schemas import weight
from acp_agent.tools.secret_question import asks_for_secret, names_secret
from acp_agent.tools.visible import visible

MAX_FIELDS: Final = 20
MAX_CHOICES: Final = 100
_MAX_SCHEMA: Final = 32 * 1024
_TITLE: Final = 200
_DESCRIPTION: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORMATS: Final = frozenset(("email", "uri", "date", "date-time"))
_LENGTHS: Final = ("minLength", "maxLength")
_COUNTS: Final = ("minItems", "maxItems")
_RANGE: Final = ("minimum", "maximum")
_MOST: Final = 2**32 - 1  # ACP's lengths are 32 bits wide
_WIDEST: Final = 2**53

_Item = TypeVar("_Item")


class SecretWantedError(Exception):
    """The form is for what no form may ask: a password, a key, a token."""


def form_schema(schema: Json) -> JsonObject:
    """The schema as ACP takes it. Raises ValueError, with the reason, or SecretWantedError."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("requestedSchema is no schema of an object")
    if weight(schema, _MAX_SCHEMA) > _MAX_SCHEMA:
        raise ValueError(f"requestedSchema has more than {_MAX_SCHEMA} bytes")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        raise ValueError(f"requestedSchema has no properties, or more than {MAX_FIELDS}")
    fields: JsonObject = {name: _field(name, field) for name, field in properties.items()}
    required = schema.get("required")
    needed: list[Json] = [name for name in fields if isinstance(required, list) and name in required]
    return {"type": "object", "properties": fields, "required": needed, **_words(schema)}


def _field(name: str, field: Json) -> JsonObject:
    if not _NAME.fullmatch(name) or not isinstance(field, dict):
        raise ValueError(f'"{visible(name[:64])}" is no name of a field, or no schema stands for it')
    found: JsonObject = {"type": field.get("type"), **_words(field)}
    match field.get("type"):
        case "string":
            found |= _text(field)
        case "integer" | "number" as kind:
            found |= _numbers(field, _RANGE, -_WIDEST, _WIDEST, whole=kind == "integer")
        case "boolean":
            pass
        case "array":
            found |= {**_numbers(field, _COUNTS, 0, _MOST), "items": _items(field.get("items"))}
        case _:
            raise ValueError(
                f"{name} is of no type that a form has: string, number, integer, boolean, array of choices"
            )
    _refuse_secret(name, field, found)
    default = field.get("default")
    return {**found, "default": default} if _is_default(found, default) else found


def _refuse_secret(name: str, field: JsonObject, found: JsonObject) -> None:
    """Raises SecretWantedError for a field to type a secret into; one to pick from holds none."""
    if found["type"] in ("boolean", "array") or "enum" in found or "oneOf" in found:
        return
    title, description = (str(field.get(key, "")) for key in ("title", "description"))
    if field.get("format") == "password" or names_secret(name) or names_secret(title) or asks_for_secret(description):
        raise SecretWantedError(name)


def _words(node: JsonObject) -> JsonObject:
    """Title and description, where there are any."""
    limits = (("title", _TITLE), ("description", _DESCRIPTION))
    return {key: _cut(text, most) for key, most in limits if isinstance(text := node.get(key), str) and text}


def _cut(text: str, most: int) -> str:
    shown = visible(" ".join(text[: 2 * most].split()))
    return shown if len(shown) <= most and len(text) <= 2 * most else f"{shown[:most]}…"


# ------------------------------------------------------------------------------------------- kinds


def _text(field: JsonObject) -> JsonObject:
    choices = _choices(field, "oneOf")
    if choices is not None:
        return choices
    found = _numbers(field, _LENGTHS, 0, _MOST)
    pattern, form = field.get("pattern"), field.get("format")
    if isinstance(pattern, str) and _runs(pattern):
        found["pattern"] = pattern
    return {**found, "format": form} if isinstance(form, str) and form in _FORMATS else found


def _items(items: Json) -> JsonObject:
    """What may be picked, several at once."""
    choices = _choices(items, "anyOf") if isinstance(items, dict) else None
    if choices is None:
        raise ValueError("an array in a form is a list of choices, with an enum or anyOf in its items")
    return {"type": "string", **choices} if "enum" in choices else choices


def _choices(node: JsonObject, titled: str) -> JsonObject | None:
    """The choices of a node; None where it has none. Raises ValueError for too many, or for what cannot be shown."""
    match node:
        case {"enum": list(values), "enumNames": list(names)} if len(values) == len(names):
            return {titled: [_option(value, name, "") for value, name in _few(list(zip(values, names, strict=True)))]}
        case {"enum": list(values)}:
            return {"enum": [_constant(value) for value in _few(values)]}
        case _:
            options = node.get(titled)
    if options is None:
        return None
    listed = options if isinstance(options, list) else []
    described = [each if isinstance(each, dict) else {} for each in _few(listed)]
    return {titled: [_option(each.get("const"), each.get("title"), each.get("description")) for each in described]}


def _few(choices: Sequence[_Item]) -> Sequence[_Item]:
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise ValueError(f"a field has {len(choices)} choices, and 1 to {MAX_CHOICES} can be shown")
    return choices


def _option(value: Json, title: Json, description: Json) -> JsonObject:
    words = _words({"title": title, "description": description})
    return {"const": _constant(value), "title": words.get("title", value), **words}


def _constant(value: Json) -> str:
    """A choice is seen as it is, or not offered."""
    if not isinstance(value, str) or visible(value) != value or len(value) > _DESCRIPTION:
        raise ValueError("a choice is no text, too long, or holds a character that cannot be seen")
    return value


def _numbers(field: JsonObject, keys: Sequence[str], least: int, most: int, *, whole: bool = True) -> JsonObject:
    found: JsonObject = {}
    for key in keys:
        value = field.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            continue
        if not whole or value == int(value):
            found[key] = int(value) if whole else value
    return found


def _runs(pattern: str) -> bool:
    try:
        LinearRegex(pattern)
    except ValueError:
        return False
    return visible(pattern) == pattern and len(pattern) <= _TITLE


def _is_default(found: JsonObject, default: Json) -> bool:
    """Whether a value may be filled in beforehand: of the right kind, and wholly to be seen."""
    match found["type"], default:
        case "string", str():
            return visible(default) == default and len(default) <= _DESCRIPTION
        case "boolean", bool():
            return True
        case "integer" | "number", bool():
            return False
        case ("integer", int()) | ("number", int() | float()):
            return -_WIDEST <= default <= _WIDEST
        case _:
            return False
