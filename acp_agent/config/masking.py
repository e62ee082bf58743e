"""The rules that decide which values of the configuration are secret, and the text that is shown for a value."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast

_SECRET_NAME = re.compile(r"(key|token|secret|passw(or)?d|credentials?|authorization)s?$", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(^|[_-])(pat|pass|pwd|dsn|auth|cookie)$|authorization", re.IGNORECASE)
_EVERYDAY = re.compile(
    r"""(?x) [a-z]{1,16} | [A-Z]?[a-z]{1,15}                                       # a word
        | \$\{.*\} | \$\w+ | %\w+% | <.*> | \{\{.*\}\} | [x*.-]+               # what stands for a value
        | (?i:[\w.-]*(?:change|replace)[-_]?me[\w.-]* | your[-_][\w-]*)
        | (?:[~.]{0,2}/[\w.@\ -]{1,30}){2,}/? | /?[\w.-]+(?:/[\w.-]{1,30})*\.(?:pem|key|json|txt|ya?ml|crt|env)
        | [A-Za-z]:\\.* | file://.*  # a path"""
)
_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*@")
_SHORTEST_SECRET = 8  # characters; a shorter value occurs in other texts by chance
_LONGEST = 100  # characters of a value that are shown
_DEEPEST = 5  # levels of a nested value that are shown
HIDDEN = "(hidden)"


def secret_name(name: str) -> bool:
    """Return True if a setting of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of all variables whose name says that they hold a secret, the longest first.

    Everyday values are left out: a word, a path or a reference to another variable occurs in many harmless places.
    """
    found = {
        value
        for name, value in environ.items()
        if holds_secret(name) and len(value) >= _SHORTEST_SECRET and not is_everyday(value)
    }
    return tuple(sorted(found, key=len, reverse=True))


def holds_secret(name: str) -> bool:
    """Return True if a variable or header of this name, such as `GH_PAT` or `X-Auth`, is likely to hold a secret."""
    return secret_name(name) or _SECRET_VARIABLE.search(name) is not None


def is_everyday(value: str) -> bool:
    """Return True for a value that occurs everywhere: a path, `${REFERENCE}`, or a word such as `postgres`."""
    return _EVERYDAY.fullmatch(value.strip()) is not None


def shown(name: str, value: object, secrets: Iterable[str] = ()) -> str:
    """Return a value on one line of at most 100 characters, without secrets. Empty for None."""
    if value is None:
        return ""
    text = json.dumps(_masked(name, value), ensure_ascii=False, default=str)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return one_line(text)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return untrusted text on one line: at most `longest` characters, and none that a terminal interprets."""
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _masked(name: str, value: object, depth: int = 0) -> object:
    match value:
        case dict() | list() | tuple() if depth == _DEEPEST:
            return "…"
        case str() if name.endswith("_env"):  # users paste the key itself here by mistake
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
