"""What the gates that judge commands ask of a workspace: the names that match a pattern, links, files with secrets.

Every search reads a limited number of entries. The search for links is limited in time as well.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secrets import secrecy
from acp_agent.core.types import Access
from acp_agent.regex import LinearRegex
from acp_agent.workspace.git.index import GitFiles, GitState, holds_repository
from acp_agent.workspace.git.settings import NotReadable
from acp_agent.workspace.roots import Place, Roots, is_below

MAX_ENTRIES = 10_000
"""The most entries of folders that are read for one search."""

MAX_SECONDS = 0.5
"""The longest time of a search for links: a folder may lie on a slow network."""

Resolve = Callable[[str, Access], str]


class _TooMany(Exception):
    """The error for too many entries, or for a folder that answers too slowly."""


class WorkspaceFiles:
    """The files of a workspace as its gates see them.

    cwd       the folder where relative paths start
    resolve   returns where a path really is (Roots.resolve); paths that it refuses are outside
    """

    def __init__(self, cwd: str, resolve: Resolve) -> None:
        self._cwd = cwd
        self._resolve = resolve

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        found = dict[str, bool]()
        try:
            for path in self._links(self._path(folder)):
                if self._leads_out(path):
                    found[os.path.relpath(path, self._cwd)] = os.path.isdir(path)
        except _TooMany:
            return None
        return found

    def is_file(self, path: str) -> bool:
        with suppress(OSError, ValueError):
            return stat.S_ISREG(os.lstat(self._path(path)).st_mode)
        return False

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(self._path(path)) and os.access(self._path(path), os.X_OK)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._path(path))

    def _path(self, path: str) -> str:
        return os.path.join(self._cwd, os.path.expanduser(path))

    def _leads_out(self, link: str) -> bool:
        """Return whether a link leads to an existing file that is outside or may not be read."""
        if not os.path.exists(link):
            return False
        try:
            self._resolve(link, Access.READ)
        except (Refused, ToolError):
            return True
        return False

    def _links(self, start: str) -> Iterator[str]:
        """Yield every link below a folder, and below the folders that links inside the workspace lead to."""
        ends, met = time.monotonic() + MAX_SECONDS, 0
        seen, waiting = set[str](), [start]
        while waiting:
            folder = waiting.pop()
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
            for entry in _entries(folder):
                met += 1
                if met > MAX_ENTRIES or time.monotonic() > ends:
                    raise _TooMany
                if entry.is_symlink():
                    yield entry.path
                    if os.path.isdir(entry.path) and not self._leads_out(entry.path):
                        waiting.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        yield from entries


MAX_NAMES = 1000
"""The most names that a pattern may stand for."""

_MAGIC = re.compile(r"[*?\[]")
_LONGEST = 255
_SET = re.compile(r"\[([!^]?)(\]?(?:\[[:.=][^\]]*\]|[^\]])*)\]")
_CLASS = re.compile(r"\[:([a-z]++):\]")
_ODD_CLASS = re.compile(r"\[[:.=]")  # what is left of others: bash takes `[.period.]` for a dot
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_DOTTED_CLASSES = frozenset(("punct", "print", "graph", "ascii"))


def shell_names(pattern: str, folder: str, *, resolve: Resolve) -> tuple[str, ...] | None:
    """Return the paths that a pattern may stand for in a folder, relative to it, or absolute as the pattern is.

    The answer has too many names rather than too few: a bracket may have been quoted, a letter may have two cases, `?`
    may be a byte of a character, and bash before 5.2 lets `.*` mean `..`. Only folders that may be listed are read.

    Empty if nothing matches, None if there are too many names. It never raises.

    resolve   returns where a folder really is (Roots.resolve). A folder that it refuses is not listed: the rest of
              the pattern is returned as it is
    """
    search = _Search(resolve, folder)
    try:
        return tuple(search.paths(os.path.expanduser(pattern)))
    except _TooMany:
        return None


class _Search:
    def __init__(self, resolve: Resolve, folder: str) -> None:
        self._resolve = resolve
        self._folder = folder
        self._entries = 0

    def paths(self, pattern: str) -> list[str]:
        parts = [part for part in pattern.split("/") if part]
        found, unread = ["/" if pattern.startswith("/") else ""], list[str]()
        for at, part in enumerate(parts):
            if not _MAGIC.search(part):
                found = [os.path.join(each, part) for each in found]
                continue
            listed = list[str]()
            for each in found:
                names = self._names(each, part)
                if names is None:
                    unread.append(os.path.join(each, *parts[at:]))
                else:
                    listed += [os.path.join(each, name) for name in names]
                if len(listed) + len(unread) > MAX_NAMES:
                    raise _TooMany
            found = listed
        return [*found, *unread] if _MAGIC.search(pattern) else []

    def _names(self, below: str, part: str) -> list[str] | None:
        """Return the matching entries of one folder; None if it may not be listed."""
        try:
            folder = self._resolve(os.path.join(self._folder, below) or ".", Access.LIST)
        except (Refused, ToolError):
            return None
        fits = _Name(part)
        return [name for name in self._listed(folder, hidden=part.startswith(".")) if fits(name)]

    def _listed(self, folder: str, *, hidden: bool) -> Iterator[str]:
        if hidden:
            yield ".."
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > MAX_ENTRIES:
                        raise _TooMany
                    if hidden or not entry.name.startswith("."):
                        yield entry.name
        except OSError:
            return


class _Name:
    """One name of a pattern."""

    def __init__(self, part: str) -> None:
        try:
            plain = len(part) <= _LONGEST and not _ODD_CLASS.search(_CLASS.sub("", part))
            self._regex = LinearRegex(_expression(part)) if plain else None
        except (ValueError, UnicodeEncodeError):
            self._regex = None

    def __call__(self, name: str) -> bool:
        """Return whether a name may match, by characters, or by bytes as in the C locale."""
        if self._regex is None:
            return True
        octets = os.fsencode(name).decode("latin-1")
        text = name.encode(errors="replace").decode()
        return self._regex.matches(text) or self._regex.matches(octets)


def _expression(part: str) -> str:
    """Return the regular expression (RE2) of one name of a pattern."""
    made, at = list[str](), 0
    while at < len(part):
        members = _SET.match(part, at)
        if members:
            made.append(f"(?:{_members(members[1], members[2])}|{re.escape(members[0])})")
            at = members.end()
            continue
        made.append({"*": "(?s:.*)", "?": "(?s:.)"}.get(part[at]) or re.escape(part[at]))
        at += 1
    return "".join(made)


def _members(negated: str, body: str) -> str:
    """Return the members of a set. Letters match in both cases, a range of letters any letter, `[!a]` all but `a`."""
    classes = _CLASS.findall(body)
    plain = [match.groups() for match in _RANGE.finditer(_CLASS.sub("", body))]
    singles = {single for _, _, single in plain if single}
    if negated:
        return f"[^{''.join(map(_code, sorted(singles)))}]" if singles else "(?s:.)"
    if not frozenset(classes).isdisjoint(_DOTTED_CLASSES):
        return "(?s:.)"
    ranges = [f"{_code(min(low, high))}-{_code(max(low, high))}" for low, high, _ in plain if low]
    letters = [r"\pL"] if any(low.isalpha() or high.isalpha() for low, high, _ in plain if low) else []
    cases = {case for single in singles for case in (single, single.lower()[:1], single.upper()[:1])}
    members = f"[{''.join([*map(_code, sorted(cases)), *ranges, *letters]) or ' '}]"
    return f"(?:[^.]|{members})" if classes else members


def _code(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


_SKIPPED = frozenset((".git", "node_modules", "site-packages", "dist-packages", "target"))
_EXCEPTING = frozenset((".ignore", ".rgignore", ".gitignore", ".agignore", ".fdignore"))
_MAX_FILES = 200
_NEW = GitState.UNTRACKED | GitState.IGNORED


def real_path(path: str, folder: str) -> str:
    """Return the absolute path to which `path` leads from `folder`, or `path` itself if there is no link or no file."""
    written = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    try:
        real = os.path.realpath(os.path.join(folder, os.path.expanduser(path)), strict=True)
    except (OSError, ValueError):
        return path
    return path if real == written else real


@frozen
class Look:
    """The way in which a command finds its files below a folder.

    ignores    whether it leaves out files that .gitignore names
    needs_git  whether it does so only in a repository
    follows    whether it follows links
    known      the states in git of the files that it reads; None if it reads files of any state
    whole      whether it begins at the top of the repository
    """

    ignores: bool = False
    needs_git: bool = False
    follows: bool = False
    known: GitState | None = None
    whole: bool = False


class FoundSecret(NamedTuple):
    """A file that may hold secrets.

    path      relative to the folder in which it was found
    folder    that folder, as the command names it
    excepted  whether an ignore file may include it again (`!.env`), although it is hidden or ignored
    """

    path: str
    folder: str = "."
    excepted: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def is_hidden(self) -> bool:
        """Whether the file or a folder above it has a name that begins with a dot."""
        return any(part.startswith(".") for part in self.path.split("/"))


class SecretsBelow:
    """A search for the files below folders that may hold secrets, by their names.

    roots   the session's folders, and those outside that the user may open to it. Other gates judge other folders
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._repositories: dict[str, GitFiles] = {}

    def __call__(self, folders: Sequence[str], look: Look) -> Sequence[FoundSecret]:
        """Return the files that a command would find, for each folder the nearest ones first. It never raises."""
        found, walk = list[FoundSecret](), _Walk(look)
        for folder in folders:
            try:
                place = self._roots.place(os.path.expanduser(folder), Access.LIST, unasked=True)
            except (Refused, ToolError):
                continue
            found += [each._replace(folder=folder) for each in self._below(place, look, walk)]
        return found

    def _below(self, place: Place, look: Look, walk: "_Walk") -> Iterator[FoundSecret]:
        git = self._git(place) if look.known is not None else None
        start = _within(place, git.top) if git is not None and look.whole else place.path
        if git is not None and look.known is not None:
            tracked = [path for path in git.known(look.known) if path.startswith(f"{start}/")]
            yield from (FoundSecret(os.path.relpath(path, place.path)) for path in tracked)
            if not look.known & _NEW:
                return
        paths = walk.secrets(start, git)
        if not paths:
            return
        if look.known is not None:
            kept = paths if GitState.IGNORED in look.known else _not_ignored(place, start, paths, named=False)
            paths = [path for path in kept if git is None or not git.holds(os.path.join(start, path))]
            yield from (FoundSecret(os.path.relpath(os.path.join(start, path), place.path)) for path in paths)
            return
        from acp_agent.workspace.tree_walk import exceptions  # noqa: PLC0415 - only where there is a secret

        may_mean = exceptions(walk.exceptions(place, start), _MAX_FILES)
        left_in = {*paths}
        if look.ignores and (not look.needs_git or _top_of(start) is not None):
            left_in = {*_not_ignored(place, start, paths, named=True)}
        for path in paths:
            excepted = may_mean(path)
            if excepted or path in left_in:
                yield FoundSecret(path, excepted=excepted)

    def _git(self, place: Place) -> GitFiles | None:
        top = _top_of(place.path)
        if top is None:
            return None
        known = self._repositories.get(top)
        if known is None or not known.reader.unchanged():
            try:
                known = self._repositories[top] = GitFiles(top)
            except (ValueError, NotReadable):
                return None
        return known


class _Walk:
    """A walk through several folders with one limit for all of them."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._seen = 0
        self._visited = set[str]()
        self._excepting = list[str]()

    def secrets(self, start: str, git: GitFiles | None) -> list[str]:
        """Return the files below a folder that may hold secrets, relative to it; the nearest first."""
        found, folders = list[str](), [""]
        self._visited.add(start)
        while folders and self._seen < MAX_ENTRIES:
            below = list[str]()
            for folder in folders:
                entries = list(_entries(os.path.join(start, folder)))
                if folder and git is not None and self._is_apart(git, os.path.join(start, folder), entries):
                    continue
                for entry in entries:
                    self._seen += 1
                    self._judge(entry, os.path.join(folder, entry.name), found, below)
                if self._seen >= MAX_ENTRIES:
                    break
            folders = below
        return found

    def exceptions(self, place: Place, start: str) -> Iterator[str]:
        """Yield the ignore files that apply to the found files."""
        yield from self._excepting
        above = [each for each in _upwards(start) if is_below(each, place.root.path)]
        yield from (os.path.join(each, name) for each in above for name in (*_EXCEPTING, ".git/info/exclude"))

    def _judge(self, entry: "os.DirEntry[str]", path: str, found: list[str], below: list[str]) -> None:
        if entry.name in _EXCEPTING:
            self._excepting.append(entry.path)
        if entry.is_symlink() and not self._look.follows:
            return
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError:  # such as for a link that leads to itself: the command cannot open it either
            return
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        if is_folder:
            if entry.name not in _SKIPPED and real not in self._visited:
                self._visited.add(real)
                below.append(path)
        elif is_file and (secrecy(entry.path) or secrecy(real)):
            found.append(path)

    @staticmethod
    def _is_apart(git: GitFiles, folder: str, entries: Sequence["os.DirEntry[str]"]) -> bool:
        """Return whether a folder is a separate repository. git adds only the commit of such a folder."""
        has_dot = any(entry.name == ".git" for entry in entries)
        return has_dot and holds_repository(folder) and not git.holds_below(folder)


def _upwards(path: str) -> Iterator[str]:
    while True:
        yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


def _top_of(path: str) -> str | None:
    """Return the top of the repository that contains a path, or None."""
    return next((each for each in _upwards(path) if os.path.lexists(os.path.join(each, ".git"))), None)


def _within(place: Place, top: str) -> str:
    """Return the top of a repository, or the root of the place if the repository begins above that root."""
    return top if is_below(top, place.root.path) else place.root.path


def _not_ignored(place: Place, start: str, found: Sequence[str], *, named: bool) -> list[str]:
    """Return the files that .gitignore files do not name.

    named   whether the command names the folder, so that rules for it or a folder above do not count
    """
    from acp_agent.workspace.tree_walk import IgnoredFiles  # noqa: PLC0415 - only where there is a secret

    with IgnoredFiles(place.root, start, named=named) as ignored:
        return [path for path in found if not ignored.holds(path)]
