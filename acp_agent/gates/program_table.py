"""The packaged table of what well-known programs do beside their work (`programs.toml`)."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple, cast

_Table = dict[str, object]


@dataclass(frozen=True, slots=True)
class Destroying:
    """What destroys or overwrites, so that an approval "always" does not cover it.

    options  options, long ones also abbreviated, short ones also in a bundle
    words    shapes of operands
    valued   the letters of short options whose value may be attached: what follows them is no bundle
    """

    options: frozenset[str] = frozenset()
    words: tuple[re.Pattern[str], ...] = ()
    valued: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Program:
    """One entry of the table; the keys are explained in `programs.toml`."""

    words: tuple[re.Pattern[str], ...] = ()
    args: tuple[re.Pattern[str], ...] = ()
    adds: frozenset[str] = frozenset()
    remotes: frozenset[str] = frozenset()
    asks: bool = False
    key: str = "program"
    deep: frozenset[str] = frozenset()
    destroys: Destroying | None = None
    sub: "Mapping[str, Program]" = field(default_factory=lambda: MappingProxyType({}))


class ProgramTable(NamedTuple):
    """All of `programs.toml`."""

    programs: Mapping[str, Program]
    aliases: Mapping[str, str]
    harmless: frozenset[str]
    neutral: frozenset[str]
    state: frozenset[str]
    variables: frozenset[str]
    plain: frozenset[str]
    careful: frozenset[str]


@cache
def program_table() -> ProgramTable:
    """The packaged table: a constant that is read late, when the first command is judged."""
    data = tomllib.loads(files("acp_agent.gates").joinpath("programs.toml").read_text(encoding="utf-8"))

    def names(key: str) -> frozenset[str]:
        return frozenset(cast("list[str]", data[key]))

    return ProgramTable(
        programs=MappingProxyType({name: _program(_table(each)) for name, each in _table(data["programs"]).items()}),
        aliases=MappingProxyType(cast("dict[str, str]", data["aliases"])),
        harmless=names("harmless"),
        neutral=names("neutral"),
        state=names("state"),
        variables=names("variables"),
        plain=names("plain"),
        careful=names("careful"),
    )


def _table(value: object) -> _Table:
    return cast("_Table", value)


def _program(table: _Table) -> Program:
    def names(key: str) -> frozenset[str]:
        return frozenset(cast("list[str]", table.get(key, [])))

    sub = {name: _program(_table(value)) for name, value in _table(table.get("sub", {})).items()}
    return Program(
        words=_patterns(cast("list[str]", table.get("words", []))),
        args=_patterns(cast("list[str]", table.get("args", []))),
        adds=names("adds"),
        remotes=names("remotes"),
        asks=table.get("asks") is True,
        key=cast("str", table.get("key", "program")),
        deep=names("deep"),
        destroys=_destroys(table),
        sub=MappingProxyType(sub),
    )


def _destroys(table: _Table) -> Destroying | None:
    words = cast("list[str]", table.get("destroys", []))
    if not words:
        return None
    return Destroying(
        frozenset(word for word in words if word.startswith("-")),
        _patterns([word for word in words if not word.startswith("-")]),
        frozenset(cast("str", table.get("valued", ""))),
    )


def _patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each) for each in texts)
