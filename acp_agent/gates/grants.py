"""The user's "always" answers, kept in a TOML file.

    [tools]
    write = "allow"                     # the whole tool

    [tools.bash.patterns]
    "git status" = "allow"              # commands that begin with these words

    [tools.bash.payloads]
    "5e884898da28…" = "allow"           # exactly one text in one folder, by its SHA-256

    [tools.read.folders]
    "/usr/include" = "allow"            # reading a folder outside the project, by any tool

These hold everywhere. An answer in a session holds for its project, the session's folder:

    [projects."/home/me/app".tools.bash.patterns]
    "make test" = "allow"

A denial in either place wins. `reject` means `deny`. Anything else in the file is skipped. The user is warned of a key
that no call can have. All sessions of a process share the grants, and read the file again after it has changed. A new
grant is merged with what other processes wrote meanwhile.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import assert_never, cast

import anyio.to_thread

from acp_agent.config.files import stamp
from acp_agent.core.data import frozen
from acp_agent.core.types import tool_id
from acp_agent.gates.shell import programs
from acp_agent.gates.shell.command import Command
from acp_agent.store.private_file import (
    ASK_AGAIN,
    DamagedFile,
    locked,
    quoted,
    read_or_set_aside,
    read_private,
    replace_private,
)
from acp_agent.text import is_utf8, lazy_regex

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# Every parser of URLs must find the same host. Therefore userinfo, escapes, brackets and characters that parsers treat
# differently are not allowed, and only ASCII is allowed in front of the path.
_PLAIN = lazy_regex(
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


_WILD = frozenset("*?")  # not allowed in keys, which are not globs


def expected_key(tool: str, key: str, *, allowed: bool) -> str:
    """Return what a key of `[tools.TOOL.patterns]` should be instead; empty if calls may have that key.

    A denial may also name the program alone. An approval must be a key that the answer "always" stores. It stores
    `git status`, but never `git` alone.
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
    FOLDER = "folders"


@frozen
class Grant:
    """One "always" answer.

    key      a prefix such as "git status", a SHA-256 in hex, a folder, or empty for a whole tool
    project  the folder in which it holds, absolute and resolved; empty for everywhere
    session  whether it holds only for one session
    """

    tool: str
    kind: GrantKind
    key: str
    allowed: bool
    project: str = ""
    session: bool = False

    @property
    def covered(self) -> str:
        """The calls that the answer covers, in words."""
        match self.kind:
            case GrantKind.TOOL:
                return f"every use of {self.tool}"
            case GrantKind.PREFIX:
                return f"{self.key} …" if self.tool == "bash" else f"{self.tool}: {self.key}"
            case GrantKind.PAYLOAD:
                return f"one call of {self.tool}, word for word (kept as {self.key[:8]}…)"
            case GrantKind.FOLDER:
                return f"reading {self.key}"
            case _:
                assert_never(self.kind)

    @property
    def told(self) -> str:
        """The decision as one line for the user."""
        where = f"in {self.project}" if self.project else "in this session" if self.session else "everywhere"
        return f"always {'allow' if self.allowed else 'reject'} {self.covered}, {where}"

    @property
    def widens(self) -> bool:
        """Whether the user may let a project's answer hold everywhere. An answer about one exact text never does."""
        return bool(self.project) and self.kind in (GrantKind.PREFIX, GrantKind.FOLDER)


_Key = tuple[str, str, GrantKind, str]
"""Project, tool, kind and key."""
_Grants = dict[_Key, bool]


class GrantStore:
    """The grants of a user. Lookups are in memory and may come from any thread.

    warn   called with one line about a problem with the file; no method raises for that
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """Read the file at once, so that no session starts without the grants. It is small."""
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

    def find(self, tool: str, kind: GrantKind, key: str = "", project: str = "") -> bool | None:
        """Return True if `key` is allowed in the project or everywhere; None if it has no answer.

        A denial in either place wins.
        """
        found = {self._at(("", tool, kind, key)), self._at((project, tool, kind, key))}
        return None if found == {None} else False not in found

    def _at(self, place: _Key) -> bool | None:
        return self._unkept.get(place, self._kept.get(place))

    @property
    def deny_some(self) -> bool:
        """Whether anything was denied, anywhere."""
        return False in self._kept.values() or False in self._unkept.values()

    def listed(self, project: str | None = None) -> tuple[Grant, ...]:
        """Return the decisions that hold in a project, or all of them, in a fixed order."""
        every = {**self._kept, **self._unkept}
        return tuple(
            Grant(tool, kind, key, every[place, tool, kind, key], place)
            for place, tool, kind, key in sorted(every)
            if project is None or place in ("", project)
        )

    async def revoke(self, grant: Grant) -> bool:
        """Forget a decision. Return False if the file cannot be written, after `warn` was called."""
        return await anyio.to_thread.run_sync(self._change, _Grants(), (_place(grant),))

    def refresh(self) -> None:
        """Read the file again if it has changed. If not, this costs one stat.

        If the file can no longer be read, its denials stay in force, and the user is asked about the rest. The file
        stays in place, since the user may be editing it.
        """
        now = stamp(self._path)
        if now == self._stamp or not self._lock.acquire(blocking=False):  # another thread is writing the file
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
            _, tool, kind, key = place
            if kind is not GrantKind.PREFIX or place in self._told_keys:
                continue
            expected = expected_key(tool, key, allowed=allowed)
            if expected:
                self._told_keys.add(place)
                self._warn(f"{self._path}: {tool}.patterns: {key[:_SHOWN]!r} covers nothing; expected {expected}")

    async def remember(self, *grants: Grant) -> None:
        """Store decisions. Those that cannot be stored hold for this process, and `warn` is called."""
        # TOML cannot hold NUL, so a grant that contains it is not stored.
        fit = (each for each in grants if "\0" not in each.project + each.tool + each.key)
        await anyio.to_thread.run_sync(self._change, {_place(each): each.allowed for each in fit}, ())

    def _change(self, added: _Grants, removed: tuple[_Key, ...]) -> bool:
        with self._lock:
            left = {place: allowed for place, allowed in self._unkept.items() if place not in removed}
            self._unkept = {**left, **added}
            # A path whose name is no UTF-8 would become another path in the file.
            unfit = {place: allowed for place, allowed in self._unkept.items() if not is_utf8("".join(place))}
            if self._path == os.devnull:
                return True
            try:
                with locked(self._path, _LOCK_SECONDS):
                    merged = {**self._usable(), **self._unkept}
                    gone = {*removed, *unfit}
                    merged = {place: allowed for place, allowed in merged.items() if place not in gone}
                    replace_private(self._path, _toml(merged))
                    self._stamp = stamp(self._path)
            except OSError as error:
                self._warn(f"{self._path}: the decision holds until the agent ends, but could not be kept: {error}")
                return False
            self._kept, self._unkept = merged, unfit
            if not unfit.keys().isdisjoint(added):
                self._warn(f"{self._path}: the decision holds until the agent ends: the folder's name is no UTF-8")
            return True

    def _usable(self) -> _Grants:
        """Return the grants in the file. A damaged file is set aside; its known denials stay in force."""
        return read_or_set_aside(self._path, _read, self._denied, self._warn, ASK_AGAIN)

    def _denied(self) -> _Grants:
        return {key: allowed for key, allowed in self._kept.items() if not allowed}


class SessionAnswers:
    """The answers of the user that hold for one session, and are never stored."""

    def __init__(self) -> None:
        self.grants: dict[tuple[str, GrantKind, str], Grant] = {}


class GrantsInForce:
    """The answers that hold in one session: its own, and those that are stored."""

    def __init__(self, stored: GrantStore, session: SessionAnswers | None = None) -> None:
        self._stored = stored
        self._session = (session or SessionAnswers()).grants

    def find(self, tool: str, kind: GrantKind, key: str = "", project: str = "") -> bool | None:
        """Return True if `key` is allowed for the session, in the project or everywhere; None if it has no answer.

        A denial in any of these places wins.
        """
        own = self._session.get((tool, kind, key))
        found = {own and own.allowed, self._stored.find(tool, kind, key, project)}
        return None if found == {None} else False not in found

    @property
    def deny_some(self) -> bool:
        """Whether anything was denied, for the session or in the store. It is read for each tool of each request."""
        return self._stored.deny_some or any(not each.allowed for each in self._session.values())

    def listed(self, project: str) -> tuple[Grant, ...]:
        """Return the answers of the session, then the stored ones that hold in a project."""
        self._stored.refresh()
        return (*self._session.values(), *self._stored.listed(project))

    async def remember(self, *grants: Grant) -> None:
        """Keep answers: for the session if they are of the session, else in the store."""
        self._session.update({(each.tool, each.kind, each.key): each for each in grants if each.session})
        stored = [each for each in grants if not each.session]
        if stored:
            await self._stored.remember(*stored)

    async def revoke(self, grant: Grant) -> bool:
        """Forget an answer. Return False if the file cannot be written."""
        if grant.session:
            return self._session.pop((grant.tool, grant.kind, grant.key), None) is not None
        return await self._stored.revoke(grant)

    async def widen(self, grant: Grant) -> bool:
        """Let a stored answer of a project hold everywhere. Return False if the file cannot be written."""
        await self._stored.remember(replace(grant, project=""))
        return await self._stored.revoke(grant)


def _read(path: str) -> _Grants:
    """Return the grants in a file; none if there is no file. Raises DamagedFile or OSError."""
    parsed = read_private(path)
    grants: _Grants = {}
    for project, tables in _projects(parsed):
        tools = tables.get("tools", {})
        if not isinstance(tools, dict):
            raise DamagedFile("'tools' is not a table")
        for (name, kind, key), word in _entries(cast("dict[str, object]", tools)):
            allowed = _WORDS.get(word) if isinstance(word, str) else None
            if allowed is not None:
                place = (project, tool_id(name), kind, key)
                grants[place] = allowed and grants.get(place, True)  # if two names mean one tool, a denial wins
    return grants


def _projects(parsed: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield what holds everywhere, then the table of each project. Raises DamagedFile."""
    yield "", parsed
    projects = parsed.get("projects", {})
    for project, tables in cast("dict[str, object]", projects).items() if isinstance(projects, dict) else ():
        if not isinstance(tables, dict):
            raise DamagedFile(f"'projects.{project[:_SHOWN]}' is not a table")
        if project:
            yield project, cast("dict[str, object]", tables)


def _place(grant: Grant) -> _Key:
    return grant.project, grant.tool, grant.kind, grant.key


def _entries(tools: dict[str, object]) -> Iterator[tuple[tuple[str, GrantKind, str], object]]:
    for tool, value in tools.items():
        if not isinstance(value, dict):
            yield (tool, GrantKind.TOOL, ""), value
            continue
        table = cast("dict[str, object]", value)
        yield (tool, GrantKind.TOOL, ""), table.get(GrantKind.TOOL)
        for kind in (GrantKind.PREFIX, GrantKind.PAYLOAD, GrantKind.FOLDER):
            inner = table.get(kind)
            if isinstance(inner, dict):
                yield from (((tool, kind, key), word) for key, word in cast("dict[str, object]", inner).items())


def _toml(grants: Mapping[_Key, bool]) -> str:
    lines = ['# What you answered with "always". Remove a line to be asked again.', ""]
    for project, tool in sorted({(project, tool) for project, tool, _, _ in grants}):
        table = f"projects.{quoted(project)}.tools.{quoted(tool)}" if project else f"tools.{quoted(tool)}"
        whole = grants.get((project, tool, GrantKind.TOOL, ""))
        if whole is not None:
            lines += [f"[{table}]", f'default = "{_WORD[whole]}"', ""]
        for kind in (GrantKind.PREFIX, GrantKind.PAYLOAD, GrantKind.FOLDER):
            mine = (project, tool, kind)
            keys = sorted((place[3], allowed) for place, allowed in grants.items() if place[:3] == mine)
            if keys:
                lines.append(f"[{table}.{kind}]")
                lines += [f'{quoted(key)} = "{_WORD[allowed]}"' for key, allowed in keys]
                lines.append("")
    return "\n".join(lines)
