"""Values of the configuration as text that may be shown: keys and passwords taken out."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast

_SECRET_NAME = re.compile(r"(key|token|secret|passw(or)?d|credentials?|authorization)s?$", re.IGNORECASE)
_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*@")
_SHORTEST_SECRET = 8  # shorter values would be found everywhere by chance
_LONGEST = 100  # characters of a value that are shown
_DEEPEST = 5  # levels of a nested value that are shown
HIDDEN = "(hidden)"


def secret_name(name: str) -> bool:
    """Whether something of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of all variables that hold a secret by their name, for whoever has to take them out of text."""
    found = {value for name, value in environ.items() if secret_name(name) and len(value) >= _SHORTEST_SECRET}
    return tuple(sorted(found, key=len, reverse=True))


def shown(name: str, value: object, secrets: Iterable[str] = ()) -> str:
    """One value on one line, at most 100 characters, without secrets; empty for no value."""
    if value is None:
        return ""
    text = json.dumps(_masked(name, value), ensure_ascii=False, default=str)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return one_line(text)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Text from a file nobody has read yet, safe to print: at most `longest` characters, nothing a terminal acts on."""
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _masked(name: str, value: object, depth: int = 0) -> object:
    match value:
        case dict() | list() | tuple() if depth == _DEEPEST:
            return "…"
        case str() if name.endswith("_env"):  # people paste the key itself where its variable's name belongs
            return value if _VARIABLE_NAME.fullmatch(value) else HIDDEN
        case str():
            return HIDDEN if secret_name(name) else _USER_IN_URL.sub("***@", value)
        case dict():
            table = cast("dict[str, object]", value)
            return {key: _masked(key, inner, depth + 1) for key, inner in table.items()}
        case list() | tuple():
            return [_masked(name, inner, depth + 1) for inner in cast("list[object]", value)]
        case _:
            return value
