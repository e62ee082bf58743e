"""Values as TOML text: the part of the format that settings need."""

import json
import math
import re
from typing import cast

from acp_agent.config.section import Section

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: object) -> str:
    """A text, yes or no, number, list or table as TOML on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return str(value)
        case float():
            return str(int(value)) if math.isfinite(value) and value.is_integer() else str(value)
        case Section():
            return toml_value(value.model_dump(mode="json", exclude_none=True))
        case list() | tuple():
            return "[" + ", ".join(toml_value(item) for item in cast("list[object]", value)) + "]"
        case dict():
            table = cast("dict[str, object]", value)
            return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in table.items()) + " }"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def toml_key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    """Quoted; what cannot be printed is written as its code point, so that it can be seen and does nothing."""
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08X}" for character in quoted)
