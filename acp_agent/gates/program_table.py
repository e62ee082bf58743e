"""The packaged table of what well-known programs do beside their work (`programs.toml`)."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple, cast

_Table = dict[str, object]


@dataclass(frozen=True, slots=True)
class Program:
    """One entry of the table; the keys are explained in `programs.toml`.

    destroys   a program that would ask about what destroys
    """

    ask: frozenset[str] = frozenset()
    safe: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    single: bool = False
    words: tuple[re.Pattern[str], ...] = ()
    args: tuple[re.Pattern[str], ...] = ()
    exceptions: tuple[str, ...] = ()
    ask_before: frozenset[str] = frozenset()
    globals: frozenset[str] = frozenset()
    subcommands: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    remotes: frozenset[str] = frozenset()
    lone: frozenset[str] = frozenset()
    needs: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    asks: bool = False
    key: str = "program"
    deep: frozenset[str] = frozenset()
    destroys: "Program | None" = None
    sub: "Mapping[str, Program]" = field(default_factory=lambda: MappingProxyType({}))


class ProgramTable(NamedTuple):
    """All of `programs.toml`."""

    programs: Mapping[str, Program]
    aliases: Mapping[str, str]
    harmless: frozenset[str]
    neutral: frozenset[str]
    listers: frozenset[str]
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
        listers=names("listers"),
        state=names("state"),
        variables=names("variables"),
        plain=names("plain"),
        careful=names("careful"),
    )


def _table(value: object) -> _Table:
    return cast("_Table", value)


def _program(table: _Table) -> Program:
    def names(key: str) -> frozenset[str]:
        return frozenset(cast("list[str] | str", table.get(key, [])))

    def patterns(key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(each) for each in cast("list[str]", table.get(key, [])))

    needs = {name: frozenset(cast("list[str]", value)) for name, value in _table(table.get("needs", {})).items()}
    sub = {name: _program(_table(value)) for name, value in _table(table.get("sub", {})).items()}
    return Program(
        ask=names("ask"),
        safe=names("safe"),
        valued=names("valued"),
        single=table.get("single") is True,
        words=patterns("words"),
        args=patterns("args"),
        exceptions=tuple(cast("list[str]", table.get("except", []))),
        ask_before=names("ask_before"),
        globals=names("globals"),
        subcommands=names("subcommands"),
        always=names("always"),
        adds=names("adds"),
        remotes=names("remotes"),
        lone=names("lone"),
        needs=MappingProxyType(needs),
        asks=table.get("asks") is True,
        key=cast("str", table.get("key", "program")),
        deep=names("deep"),
        destroys=_destroys(table),
        sub=MappingProxyType(sub),
    )


def _destroys(table: _Table) -> Program | None:
    words = cast("list[str]", table.get("destroys", []))
    if not words:
        return None
    options = [word for word in words if word.startswith("-")]
    patterns = [word for word in words if not word.startswith("-")]
    return _program({"ask": options, "words": patterns, "valued": table.get("valued", [])})
