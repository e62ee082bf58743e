"""Values that may be wrong: TOML and JSON that others write, parsed within bounds of memory and time, and the clock.

Parsing a short text can cost much memory and time. tomllib stores every prefix of a dotted key, so a key of 24 KB takes
600 MB and one of 200 KB takes minutes. Each part of a key and each array takes a kilobyte. json needs 60 bytes for the
three characters `[],`. Python reads hexadecimal numbers of any size but refuses to print large ones. Therefore a text
is measured before it is parsed, in one pass that needs no more memory than the text.

Python keeps the time of day in 64 bits of nanoseconds and raises OverflowError after April 2262. A datetime ends with
the year 9999. Neither a wrong clock nor a damaged record may stop the agent.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from acp_agent.core.types import Json

MAX_PARTS = 16
"""Parts of one TOML key. Settings have at most five."""
MAX_DEPTH = 32
"""The deepest nesting of TOML arrays and inline tables."""
MAX_NODES = 50_000
"""Dots of keys, arrays and tables of one TOML text: at most 50 MB."""
MAX_WORD = 1024
"""Characters of one TOML key or number without quotes."""
MAX_VALUES = 1_000_000
"""Commas, lists and objects of one JSON text: at most 100 MB."""

_DECODER = json.JSONDecoder()
_TOKEN = re.compile(
    r"""
      \#[^\n]*+
    | \"\"\"(?:[^"\\]++|\\.|"{1,2}(?!"))*+(?:"{3,5}|\Z)
    | '''(?:[^']++|'{1,2}(?!'))*+(?:'{3,5}|\Z)
    | "(?:[^"\\\n]++|\\.)*+"?
    | '[^'\n]*+'?
    | (?P<word> [A-Za-z0-9_+-]{64,}+ )
    | (?P<dot> \. )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<end> [\n=,] )
    """,
    re.VERBOSE | re.DOTALL,
)


def toml_table(text: str) -> dict[str, object]:
    """Return the table of a TOML text.

    Raises:
        ValueError: The text is not TOML, or it is beyond the bounds of this module.

    """
    _measure(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_value(text: str | bytes) -> Json:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, is nested too deeply for Python, or has more than MAX_VALUES values.

    """
    _count_values(text)
    try:
        return cast("Json", json.loads(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_kind(value: Json) -> str:
    """Return the kind of a value, for messages that must not contain the value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "an object"


def json_value_at(text: str, start: int) -> Json:
    """Return the JSON value that starts at a character of a text, whatever follows it.

    Raises:
        ValueError: As `json_value` does.

    """
    _count_values(text)
    try:
        return cast("Json", _DECODER.raw_decode(text, start)[0])
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _count_values(text: str | bytes) -> None:
    values = sum(map(text.count, (b",", b"[", b"{"))) if isinstance(text, bytes) else sum(map(text.count, ",[{"))
    if values > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")


def _measure(text: str) -> None:
    """Raise ValueError for a text that would cost much to parse. The content of strings and comments does not count."""
    depth = nodes = parts = 0
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "dot":
                nodes, parts = nodes + 1, parts + 1
            case "open":
                nodes, parts, depth = nodes + 1, 0, depth + 1
            case "close":
                parts, depth = 0, depth - 1
            case "end":
                parts = 0
            case "word" if token.end() - token.start() > MAX_WORD:
                raise ValueError(f"a key or number of more than {MAX_WORD} characters{_at(text, token)}")
            case _:
                continue
        if parts >= MAX_PARTS:
            raise ValueError(f"a key of more than {MAX_PARTS} parts{_at(text, token)}")
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep{_at(text, token)}")
        if nodes > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES} parts of keys, arrays and tables{_at(text, token)}")


def _at(text: str, token: re.Match[str]) -> str:
    return f" (at line {text.count(chr(10), 0, token.start()) + 1})"


_LAST_NS = 2**63 - 1
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def now_ns(read: Callable[[], int] = time.time_ns) -> int:
    """Return nanoseconds since 1970, or the last moment that Python can represent."""
    try:
        return read()
    except OverflowError:
        return _LAST_NS


def now_ms(read: Callable[[], int] = time.time_ns) -> int:
    """Return milliseconds since 1970, or the last moment that Python can represent."""
    return now_ns(read) // 1_000_000


def utc(seconds: float) -> datetime:
    """Return the datetime of a number of seconds since 1970, or the first or last datetime that there is."""
    try:
        return min(datetime.fromtimestamp(seconds, UTC), _LAST)
    except (ValueError, OverflowError, OSError):
        return _FIRST if seconds < 0 else _LAST
