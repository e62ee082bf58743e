"""The user's "always" answers, kept in a TOML file.

    [tools]
    write = "allow"                     # the whole tool

    [tools.bash.patterns]
    "git status" = "allow"              # a program and what belongs to its name, whatever follows

    [tools.bash.payloads]
    "5e884898da28…" = "allow"           # exactly one text in one folder, by its SHA-256

`reject` means `deny`. Anything else in the file is skipped. The user is warned of a key that no call can have. All
sessions of a process share the grants, and read the file again after it has changed. A new grant is merged with what
other processes wrote meanwhile.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import anyio.to_thread

from acp_agent.config.files import stamp
from acp_agent.core.types import tool_id
from acp_agent.gates.shell import programs
from acp_agent.gates.shell.command import Command
from acp_agent.store.private_file import (
    DamagedFile,
    lock,
    private_file,
    quoted,
    read_private,
    replace_private,
    set_aside,
)

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# No userinfo, no escapes, no brackets, only ASCII in front of the path, and no character at which some parsers of URLs
# stop and others go on. So every parser reads the same host.
_PLAIN = re.compile(
    rf"https://(?P<host>{_LABEL}(?:\.{_LABEL}){{0,126}})\.?(?::(?P<port>[0-9]{{1,5}}))?(?:[/?#][^\s\x00-\x20\x7f-\x9f\\]*)?",
    re.IGNORECASE,
)
_HTTPS = 443


def site(url: str) -> str:
    """Return `https://host/` or `https://host:port/` in lower case; empty if the host of the URL is in doubt."""
    plain = _PLAIN.fullmatch(url)
    if plain is None or not url.isprintable():
        return ""
    host, port = plain["host"].lower(), int(plain["port"] or _HTTPS)
    return f"https://{host}/" if port == _HTTPS else f"https://{host}:{port}/"


def host_of(key: str) -> str:
    """Return the host of a result of `site`, with the port if it is not the usual one."""
    return key.removeprefix("https://").removesuffix("/")


_WILD = frozenset("*?")  # keys are no globs


def expected_key(tool: str, key: str, *, allowed: bool) -> str:
    """Return what a key of `[tools.TOOL.patterns]` should be instead; empty if calls may have that key.

    A denial is also looked up by the program alone. An approval is looked up only by what "always" keeps, and `git`
    alone is not kept.
    """
    match tool:
        case "bash" if allowed:
            words = programs.prefix(_command(key))
            return "" if words and " ".join(words) == key else "what 'always' keeps, such as 'git status'"
        case "bash":
            found = key in programs.denials(_command(key))
            return "" if found and _WILD.isdisjoint(key) else "a program, or what 'always' keeps, such as 'git status'"
        case "fetch" | "web_scrape":
            return "" if site(key) == key != "" else "a site, such as 'https://example.com/'"
        case _:
            return ""


def _command(key: str) -> Command:
    return Command(tuple(key.split(" ")))


_LOCK_SECONDS = 5.0
_SHOWN = 100  # characters of a key in a warning
_WORDS = {"allow": True, "deny": False, "reject": False}
_WORD = {True: "allow", False: "deny"}


class GrantKind(StrEnum):
    """The extent of a grant. The values are the names in the file."""

    TOOL = "default"
    PREFIX = "patterns"
    PAYLOAD = "payloads"


@dataclass(frozen=True, slots=True)
class Grant:
    """One decision. `key` is a prefix such as "git status", a SHA-256 in hex, or empty for a whole tool."""

    tool: str
    kind: GrantKind
    key: str
    allowed: bool


_Key = tuple[str, GrantKind, str]
_Grants = dict[_Key, bool]


class GrantStore:
    """The grants of a user. Lookups are in memory and may come from any thread.

    warn   called with one line about a problem with the file; no method raises for that
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """Read the file, which is small, so that no session starts without it."""
        self._path = path
        self._warn = warn
        self._lock = threading.Lock()
        self._told = ""
        self._told_keys = set[_Key]()
        self._unkept: _Grants = {}
        self._kept: _Grants = {}
        self._stamp = stamp(path)
        try:
            self._kept = self._usable()
        except OSError as error:
            warn(f"{path}: {error.strerror or error}; you will be asked again")
        self._tell_keys()

    def find(self, tool: str, kind: GrantKind, key: str = "") -> bool | None:
        """Return whether something was always allowed or always denied; None if neither."""
        place = (tool, kind, key)
        return self._unkept.get(place, self._kept.get(place))

    def refresh(self) -> None:
        """Read the file again if it has changed. If not, this costs one stat.

        If the file can no longer be read, its denials stay in force, and the user is asked about the rest. The file
        stays in place, since the user may be editing it.
        """
        now = stamp(self._path)
        if now == self._stamp or not self._lock.acquire(blocking=False):  # busy: another thread is writing it
            return
        try:
            self._kept, told = _read(self._path), ""
        except (OSError, DamagedFile) as error:
            self._kept = self._denied()
            why = (error.strerror or error) if isinstance(error, OSError) else error
            told = f"{self._path}: {why}; what it denied stays denied, and you will be asked about the rest"
        finally:
            self._lock.release()
        self._stamp = now
        if told and told != self._told:
            self._warn(told)
        self._told = told
        self._tell_keys()

    def _tell_keys(self) -> None:
        """Warn once of each key in the file that no call can have, because the user may rely on it."""
        for place, allowed in self._kept.items():
            tool, kind, key = place
            if kind is not GrantKind.PREFIX or place in self._told_keys:
                continue
            expected = expected_key(tool, key, allowed=allowed)
            if expected:
                self._told_keys.add(place)
                self._warn(f"{self._path}: {tool}.patterns: {key[:_SHOWN]!r} covers nothing; expected {expected}")

    async def remember(self, *grants: Grant) -> None:
        """Store decisions. If the file cannot be written, they hold for this process, and `warn` is called."""
        await anyio.to_thread.run_sync(self._remember, grants)

    def _remember(self, grants: tuple[Grant, ...]) -> None:
        # TOML cannot hold NUL, and other stores mark the keys of one session with it. Such a key is never stored.
        added = {(each.tool, each.kind, each.key): each.allowed for each in grants if "\0" not in each.tool + each.key}
        with self._lock:
            self._unkept = {**self._unkept, **added}
            if self._path == os.devnull:
                return
            try:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                with private_file(f"{self._path}.lock") as fd:
                    lock(fd, seconds=_LOCK_SECONDS)
                    merged = {**self._usable(), **self._unkept}
                    replace_private(self._path, _toml(merged))
                    self._stamp = stamp(self._path)
            except OSError as error:
                self._warn(f"{self._path}: the decision holds until the agent ends, but could not be kept: {error}")
                return
            self._kept, self._unkept = merged, {}

    def _usable(self) -> _Grants:
        """Return the grants in the file. A damaged file is set aside; its known denials stay in force."""
        try:
            return _read(self._path)
        except DamagedFile as damage:
            aside = set_aside(self._path)
            self._warn(f"{self._path}: {damage}; it was set aside as {aside}, and you will be asked again")
            return self._denied()

    def _denied(self) -> _Grants:
        return {key: allowed for key, allowed in self._kept.items() if not allowed}


def _read(path: str) -> _Grants:
    """Return the grants in a file; none if there is no file. Raises DamagedFile or OSError."""
    parsed = read_private(path)
    tools = parsed.get("tools", {})
    if not isinstance(tools, dict):
        raise DamagedFile("'tools' is not a table")
    grants: _Grants = {}
    for (name, kind, key), word in _entries(cast("dict[str, object]", tools)):
        allowed = _WORDS.get(word) if isinstance(word, str) else None
        if allowed is not None:
            place = (tool_id(name), kind, key)
            grants[place] = allowed and grants.get(place, True)  # with two names of one tool in the file, a denial wins
    return grants


def _entries(tools: dict[str, object]) -> Iterator[tuple[_Key, object]]:
    for tool, value in tools.items():
        if not isinstance(value, dict):
            yield (tool, GrantKind.TOOL, ""), value
            continue
        table = cast("dict[str, object]", value)
        yield (tool, GrantKind.TOOL, ""), table.get(GrantKind.TOOL)
        for kind in (GrantKind.PREFIX, GrantKind.PAYLOAD):
            inner = table.get(kind)
            if isinstance(inner, dict):
                yield from (((tool, kind, key), word) for key, word in cast("dict[str, object]", inner).items())


def _toml(grants: Mapping[_Key, bool]) -> str:
    lines = ['# What you answered with "always". Remove a line to be asked again.', ""]
    tools = sorted({tool for tool, _, _ in grants})
    for tool in tools:
        whole = grants.get((tool, GrantKind.TOOL, ""))
        if whole is not None:
            lines += [f"[tools.{quoted(tool)}]", f'default = "{_WORD[whole]}"', ""]
        for kind in (GrantKind.PREFIX, GrantKind.PAYLOAD):
            keys = sorted(
                (key, allowed) for (owner, each, key), allowed in grants.items() if (owner, each) == (tool, kind)
            )
            if keys:
                lines.append(f"[tools.{quoted(tool)}.{kind}]")
                lines += [f'{quoted(key)} = "{_WORD[allowed]}"' for key, allowed in keys]
                lines.append("")
    return "\n".join(lines)
