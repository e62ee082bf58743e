"""What a user filled in, held against the form he was shown: an editor may check nothing (requirements A28).

Source: agentclientprotocol.com, "Elicitation"; schema v1, `ElicitationPropertySchema`.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from math import isfinite
from typing import Final, cast
from urllib.parse import urlsplit

from acp_agent.core.types import Json, JsonObject
from acp_agent.linear_regex import LinearRegex

LONGEST: Final = 100_000
"""Characters of one text, whatever the form allows."""


def fitting(schema: JsonObject, content: Json) -> JsonObject | None:
    """The values of a form's fields; None when one is missing or does not fit. Unknown keys are dropped.

    null means that a field was left out, and so does an empty text in a field that may be and takes none.
    """
    if not isinstance(content, dict | None):
        return None
    given, found = content or {}, JsonObject()
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    properties = schema.get("properties")
    for name, field in properties.items() if isinstance(properties, dict) else ():
        value = given.get(name)
        if value is not None and isinstance(field, dict) and (fit := _fit(field, value)) is not None:
            found[name] = fit
        elif name in needed or value not in (None, ""):
            return None
    return found


def _fit(field: JsonObject, value: Json) -> Json:
    """The value as its field wants it; None when it does not fit."""
    match field.get("type"), value:
        case "string", str():
            return value if _fits_text(field, value) else None
        case "boolean", bool():
            return value
        case "integer" | "number", bool():
            return None
        case "integer", float() if value.is_integer():
            return _fit(field, int(value))
        case ("integer", int()) | ("number", int()) if _between(field, "minimum", value, "maximum"):
            return value
        case "number", float() if isfinite(value) and _between(field, "minimum", value, "maximum"):
            return value
        case "array", list():
            return value if _fits_choices(field, value) else None
        case _:
            return None


def _fits_text(field: JsonObject, text: str) -> bool:
    choices = _choices(field, "enum", "oneOf")
    pattern, form = field.get("pattern"), field.get("format")
    return (
        len(text) <= LONGEST
        and _between(field, "minLength", len(text), "maxLength")
        and (choices is None or text in choices)
        and (not isinstance(pattern, str) or _matches(pattern, text))
        and (not isinstance(form, str) or form not in _FORMATS or _reads(_FORMATS[form], text))
    )


def _fits_choices(field: JsonObject, values: list[Json]) -> bool:
    items = field.get("items")
    choices = _choices(items, "enum", "anyOf") if isinstance(items, dict) else None
    distinct = {value for value in values if isinstance(value, str)}
    return (
        choices is not None
        and len(distinct) == len(values)
        and distinct <= choices
        and _between(field, "minItems", len(values), "maxItems")
    )


def _choices(node: JsonObject, plain: str, titled: str) -> set[str] | None:
    """What may be picked; None where anything goes."""
    named, described = node.get(plain), node.get(titled)
    if isinstance(named, list):
        return {each for each in named if isinstance(each, str)}
    if isinstance(described, list):
        consts = (each.get("const") for each in described if isinstance(each, dict))
        return {each for each in consts if isinstance(each, str)}
    return None


def _between(field: JsonObject, low: str, value: float, high: str) -> bool:
    least, most = field.get(low), field.get(high)
    return (not isinstance(least, int | float) or value >= least) and (
        not isinstance(most, int | float) or value <= most
    )


def _read_email(text: str) -> None:
    name, _, host = text.rpartition("@")
    if not name or not host or any(char.isspace() for char in text):
        raise ValueError(text)


def _read_uri(text: str) -> None:
    if not urlsplit(text).scheme or any(char.isspace() for char in text):
        raise ValueError(text)


_FORMATS: Final = cast(
    "Mapping[str, Callable[[str], object]]",
    {"email": _read_email, "uri": _read_uri, "date": date.fromisoformat, "date-time": datetime.fromisoformat},
)


def _matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found; one that cannot be run in linear time is left to who asks."""
    try:
        return LinearRegex(pattern).found_in(text)
    except ValueError:
        return True


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True
