"""The packaged table of named groups of commands (`deny_groups.toml`)."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple, cast


class Group(NamedTuple):
    """One group; the keys are explained in `deny_groups.toml`."""

    name: str
    about: str
    asks: bool
    evaluates: bool
    hidden: bool
    patterns: tuple[str, ...]
    bare: tuple[str, ...]
    fetched: frozenset[str]
    assignments: tuple[str, ...]
    paths: tuple[str, ...]
    words: tuple[re.Pattern[str], ...]
    words_of: frozenset[str]
    words_but: frozenset[str]
    code: tuple[tuple[re.Pattern[str], ...], ...]


@cache
def deny_groups() -> Mapping[str, Group]:
    """The packaged groups by name: a constant that is read late, when the first command is judged."""
    data = tomllib.loads(files("acp_agent.gates").joinpath("deny_groups.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: _group(name, cast("dict[str, object]", table)) for name, table in data.items()})


def _group(name: str, table: Mapping[str, object]) -> Group:
    def texts(key: str) -> tuple[str, ...]:
        return tuple(cast("list[str]", table.get(key, [])))

    def compiled(expressions: Iterable[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(each) for each in expressions)

    return Group(
        name=name,
        about=cast("str", table["about"]),
        asks=table.get("asks") is True,
        evaluates=table.get("evaluates") is True,
        hidden=table.get("hidden") is True,
        patterns=texts("patterns"),
        bare=texts("bare"),
        fetched=frozenset(texts("fetched")),
        assignments=texts("assignments"),
        paths=texts("paths"),
        words=compiled(texts("words")),
        words_of=frozenset(texts("words_of")),
        words_but=frozenset(texts("words_but")),
        code=tuple(compiled(each) for each in cast("list[list[str]]", table.get("code", []))),
    )
