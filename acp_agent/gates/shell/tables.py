"""The packaged table of programs that run other programs (`tables.toml`), and the places that nothing may wipe."""

import posixpath
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple, cast

_Table = dict[str, object]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How to find the command behind a wrapper. `tables.toml` explains the keys."""

    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()
    text: frozenset[str] = frozenset()
    inert: frozenset[str] = frozenset()
    operands: int = 0
    assignments: bool = False
    variables: bool = False
    numeric: bool = False
    appended: bool = False
    joined: bool = False
    runner: bool = False
    vague: bool = False


class Tables(NamedTuple):
    """All of `tables.toml`.

    wrappers      by program name
    commands      by program name, then by first word (`uv`, `run`)
    shells        programs that run shell text; `same_syntax` those whose plain text means what it means in bash
    shell_flags   options of shells without a value; `shell_letters` the short ones, which may be bundled
    shell_text    options of shells that are followed by a command line, beside -c
    text          options whose value is a command line, by program name
    interpreters  options that carry code, by program name
    danger        the words of the blocklist's core, by list name
    reserved      words of bash itself
    """

    wrappers: Mapping[str, Wrapper]
    commands: Mapping[str, Mapping[str, Wrapper]]
    shells: frozenset[str]
    same_syntax: frozenset[str]
    shell_flags: frozenset[str]
    shell_letters: frozenset[str]
    shell_text: frozenset[str]
    text: Mapping[str, frozenset[str]]
    interpreters: Mapping[str, frozenset[str]]
    danger: Mapping[str, frozenset[str]]
    reserved: frozenset[str]

    def interpreter(self, name: str) -> str:
        """Return the name of an interpreter in the table ("python" for python3.12); empty for other programs."""
        bare = name.rstrip("0123456789.")
        return next((known for known in (name, bare) if known in self.interpreters), "")


@cache
def tables() -> Tables:
    """Return the packaged table, a constant that is read late so that the start does not pay for it."""
    source = files("acp_agent.gates.shell").joinpath("tables.toml").read_text(encoding="utf-8")
    data = tomllib.loads(source)
    shells = _section(data, "shells")
    return Tables(
        wrappers=_wrappers(_section(data, "wrappers")),
        commands=MappingProxyType({name: _wrappers(_table(each)) for name, each in _section(data, "commands").items()}),
        shells=_names(shells["names"]),
        same_syntax=_names(shells["same_syntax"]),
        shell_flags=_names(shells["flags"]),
        shell_letters=frozenset(cast("str", shells["letters"])),
        shell_text=_names(shells["text"]),
        text=_lists(_section(data, "text")),
        interpreters=_lists(_section(data, "interpreters")),
        danger=_lists(_section(data, "danger")),
        reserved=_names(_section(data, "syntax")["reserved"]),
    )


def _table(value: object) -> _Table:
    return cast("_Table", value)


def _section(data: _Table, name: str) -> _Table:
    return _table(data[name])


def _names(value: object) -> frozenset[str]:
    return frozenset(cast("list[str]", value))


def _lists(section: _Table) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({name: _names(value) for name, value in section.items()})


def _wrappers(section: _Table) -> Mapping[str, Wrapper]:
    return MappingProxyType({name: _wrapper(_table(each)) for name, each in section.items()})


def _wrapper(table: _Table) -> Wrapper:
    def names(key: str) -> frozenset[str]:
        return _names(table.get(key, []))

    def flag(key: str) -> bool:
        return table.get(key) is True

    return Wrapper(
        flags=names("flags"),
        values=names("values"),
        attached=names("attached"),
        text=names("text"),
        inert=names("inert"),
        operands=cast("int", table.get("operands", 0)),
        assignments=flag("assignments"),
        variables=flag("variables"),
        numeric=flag("numeric"),
        appended=flag("appended"),
        joined=flag("joined"),
        runner=flag("runner"),
        vague=flag("vague"),
    )


_HOMES = ("home", "Users")
_EVERYTHING = re.compile(r"[*?.\[\]!^{},]*")
_HOME_ITSELF = re.compile(r"~[\w.-]*")
_DISK = re.compile(
    r"/dev/(?:r?(?:sd|hd|vd|xvd|nvme|mmcblk|disk|dm-|md|loop|ram|zram|sr|nbd|fd\d)|mapper/|disk/|block/|mem$|kmem$|port$)|/proc/sysrq-trigger$"
)
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")

MAX_PATTERN = 64
"""The most characters of a folder name that is compared. No system folder has a longer one."""


def is_disk(path: str) -> bool:
    """Return whether a path (or a pattern like /dev/sd*) is a disk, a partition, the memory or sysrq-trigger."""
    return _DISK.match(_collapsed(path)) is not None


def is_socket(path: str) -> bool:
    """Return whether bash opens a network connection for this redirection target."""
    return _SOCKET.match(_collapsed(path)) is not None


def is_system_root(path: str, folder: str = "") -> bool:
    """Return whether wiping a path wipes the system or a home."""
    return bool(system_root(path, folder))


def system_root(path: str, folder: str = "") -> str:
    """Return what is wiped with a path: `~` for a home, a folder of the system, or `/`; empty for other paths.

    It recognizes `/`, `/*`, `//etc/.`, `~`, `/home/anyone` and `/e*c`.

    folder   where a relative path starts; empty if unknown
    """
    if not path.startswith(("/", "~")):
        if not folder:
            return ""
        path = posixpath.join(folder, path)
    if path.startswith("~"):
        home, _, rest = path.partition("/")
        inside = [part for part in rest.split("/") if part not in ("", ".")]
        return "~" if _HOME_ITSELF.fullmatch(home) and all(_EVERYTHING.fullmatch(part) for part in inside) else ""
    parts = [part for part in _collapsed(path).split("/") if part]
    while parts and _EVERYTHING.fullmatch(parts[-1]):
        parts.pop()
    if len(parts) == 2 and parts[0] in _HOMES:
        return "~"
    roots = sorted(tables().danger["system"])  # "/" first, which a pattern such as `/*` means as well
    return next((root for root in roots if _same(parts, root.split("/")[1:] if root != "/" else [])), "")


def _same(parts: list[str], known: list[str]) -> bool:
    if len(parts) != len(known) or any(len(part) > MAX_PATTERN for part in parts):
        return False
    return all(fnmatchcase(name, part) for name, part in zip(known, parts, strict=True))


def _collapsed(path: str) -> str:
    """Return `/etc` for `//etc/./x/..`."""
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path
