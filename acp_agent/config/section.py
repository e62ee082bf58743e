"""What all sections of the configuration share: the base model, the types of values, and what a project may change.

A project's file comes with the repository, so the author of the repository wrote it. A project may therefore make a
setting stricter, never looser. Each field that a project may touch carries a `ProjectMay` that says what stricter means
for it. A looser value is refused and the user's value stays. A field without `ProjectMay` belongs to the user alone.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple, cast
from urllib.parse import urlsplit

from acp_agent.core.data import frozen
from acp_agent.shape import AfterValidator, Field, Shape


class Section(Shape):
    """A table of the configuration, without unknown keys and silent conversions."""


def _path(value: str) -> str:
    path = os.path.expanduser(value)
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError("an absolute path, or one that starts with ~/")
    return os.path.normpath(path)


def is_http_address(value: str, *, query: bool) -> bool:
    """Return whether a text is an http or https address without user, password and fragment.

    Addresses may be logged, so they must hold no secret.

    query   whether the address may have a query
    """
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or a bracket is not closed
        return False
    surplus = "@" in parts.netloc or parts.fragment or (parts.query and not query)
    return usable and not surplus and value.isprintable() and " " not in value


def _http_url(value: str) -> str:
    """Return the address without a trailing slash, since API paths are appended to it."""
    if not is_http_address(value, query=False):
        raise ValueError("an http:// or https:// address without user, password or query (keys go through api_key_env)")
    return value.rstrip("/")


def without_nul(value: str) -> str:
    """Return the text. Raises ValueError if it contains NUL."""
    if "\0" in value:
        raise ValueError("text without NUL characters")
    return value


PathText = Annotated[str, AfterValidator(_path)]
"""A path that the user wrote: `~` is expanded, and it is absolute and normalised. It need not exist."""

HttpUrl = Annotated[str, AfterValidator(_http_url)]
"""The base address of an API."""

Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Words = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)]
Paths = Annotated[tuple[PathText, ...], Field(strict=False)]


class Tightened(NamedTuple):
    """The value in force after a project's value was applied, and the parts of it that were refused as looser."""

    value: object
    refused: tuple[object, ...] = ()


@frozen
class ProjectMay:
    """The mark of a field that a project may make stricter.

    tighten   takes the user's value and the project's, both validated
    words     what the project may set, for the message about a refused value
    """

    tighten: Callable[[object, object], Tightened]
    words: str


def _number(value: object) -> float:
    """Return a limit as a number. A value that is no number means no limit and counts as infinite."""
    return float(value) if isinstance(value, int | float) else math.inf


def _if_stricter(is_stricter: Callable[[object, object], bool]) -> Callable[[object, object], Tightened]:
    """Return the rule that accepts the project's value if it is at least as strict as the user's, else refuses it."""
    return lambda user, project: Tightened(project) if is_stricter(user, project) else Tightened(user, (project,))


def _words(value: object) -> tuple[str, ...]:
    return cast("tuple[str, ...]", value)  # it was validated, and only lists of words carry this mark


def _added(user: object, project: object) -> Tightened:
    return Tightened(tuple(dict.fromkeys((*_words(user), *_words(project)))))


def _subset(user: object, project: object) -> Tightened:
    wanted, had = _words(project), _words(user)
    return Tightened(tuple(word for word in wanted if word in had), tuple(word for word in wanted if word not in had))


def _some(user: object, project: object) -> Tightened:
    """Do the same as `_subset` for a field where an empty list means everything."""
    tightened = _subset(user, project)
    return tightened if tightened.value else Tightened(user, tightened.refused)


def _inside(user: object, project: object) -> Tightened:
    """Keep the folders at or below the user's. Links are resolved, so a link in the repository opens nothing new."""
    roots = [os.path.realpath(root) for root in _words(user)]
    wanted = {path: os.path.realpath(path) for path in _words(project)}
    kept = {
        path: real for path, real in wanted.items() if any(os.path.commonpath((real, root)) == root for root in roots)
    }
    return Tightened(tuple(kept.values()), tuple(path for path in wanted if path not in kept))


def no_looser(*loosest_first: StrEnum) -> ProjectMay:
    """Return the mark of an enumeration in which a project may only move towards the end of `loosest_first`."""
    rank = [*loosest_first].index
    return ProjectMay(
        _if_stricter(lambda user, project: rank(cast("StrEnum", project)) >= rank(cast("StrEnum", user))),
        "a stricter value",
    )


SMALLER = ProjectMay(_if_stricter(lambda user, project: _number(project) <= _number(user)), "a smaller number")
SMALLER_ZERO_UNLIMITED = ProjectMay(
    _if_stricter(lambda user, project: (_number(project) or math.inf) <= (_number(user) or math.inf)),
    "a smaller number (0 is no limit)",
)
LARGER = ProjectMay(_if_stricter(lambda user, project: _number(project) >= _number(user)), "a larger number")
OFF = ProjectMay(_if_stricter(lambda user, project: bool(user or not project)), "false")
ON = ProjectMay(_if_stricter(lambda user, project: bool(project or not user)), "true")
ADDED = ProjectMay(_added, "more entries")
SUBSET = ProjectMay(_subset, "some of the user's entries")
SOME = ProjectMay(_some, "some of the user's entries")
NARROWER = ProjectMay(
    lambda user, project: _some(user, project) if user else Tightened(project),
    "some of the user's entries, or a list where the user has none",
)
INSIDE = ProjectMay(_inside, "folders inside the user's")


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
