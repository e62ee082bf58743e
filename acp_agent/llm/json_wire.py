"""Strict JSON from and to model servers.

Python's reader takes more than JSON: NaN, lone surrogates and any depth. What passes this module can be written again,
to the editor and to the model, as strict JSON in UTF-8.
"""

import json
import math
import re
from typing import Final, NoReturn

from acp_agent.core.types import Json, JsonObject

MAX_DEPTH: Final = 64
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        message = f"{text[:20]} is out of range"
        raise ValueError(message)
    return value


# One decoder for all calls: `json.loads` with options builds a new one each time, which costs more than the parse.
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def read_object(text: str) -> JsonObject:
    """Return a JSON object. Raises ValueError: not JSON, not an object, NaN or infinity, too deep."""
    try:
        value: Json = _DECODER.decode(text)
    except RecursionError as error:
        message = "nested too deeply"
        raise ValueError(message) from error
    if not isinstance(value, dict):
        message = "not a JSON object"
        raise ValueError(message)  # noqa: TRY004 - the text is wrong, not the caller
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(value)
    if _SURROGATE_ESCAPE.search(text) or not _encodable(text):
        return {replace_surrogates(key): _mended(item) for key, item in value.items()}
    return value


def read_arguments(raw: str) -> JsonObject | None:
    """Return the arguments of a tool call: `{}` for blank text, None for anything that is not a JSON object."""
    if not raw.strip():
        return {}
    try:
        return read_object(raw)
    except ValueError:
        return None


def write(value: JsonObject) -> bytes:
    """Return compact UTF-8, keys in the given order. The same value gives the same bytes, for prompt caching."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def replace_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if _encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_object(value: Json) -> JsonObject:
    """Return the object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return the list, or an empty one for any other value."""
    return value if isinstance(value, list) else []


def as_text(value: Json) -> str:
    """Return the string, or an empty one for any other value."""
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    """Return a positive integer, or 0 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for holder in level
            if isinstance(holder, dict | list)
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return
    message = f"nested deeper than {MAX_DEPTH} levels"
    raise ValueError(message)


def _mended(value: Json) -> Json:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _mended(item) for key, item in value.items()}
    return value


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
