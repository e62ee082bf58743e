"""Find the files below folders that may hold secrets, for the gate that judges commands."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secret_files import secrecy
from acp_agent.core.types import Access
from acp_agent.workspace.git.index import GitFiles, Known, holds_repository
from acp_agent.workspace.git.settings import NotReadable
from acp_agent.workspace.roots import Place, Roots

MAX_ENTRIES = 10_000
"""The most entries of folders that are read for one command, those nearest to its folders first."""

_SKIPPED = frozenset((".git", "node_modules", "site-packages", "dist-packages", "target"))
_EXCEPTING = frozenset((".ignore", ".rgignore", ".gitignore", ".agignore", ".fdignore"))
_MAX_FILES = 200
_NEW = Known.UNTRACKED | Known.IGNORED


def real_path(path: str, folder: str) -> str:
    """Return the absolute path to which `path` leads from `folder`, or `path` itself if there is no link or no file."""
    written = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    try:
        real = os.path.realpath(os.path.join(folder, os.path.expanduser(path)), strict=True)
    except (OSError, ValueError):
        return path
    return path if real == written else real


@dataclass(frozen=True, slots=True)
class Look:
    """How a command finds its files below a folder.

    ignores    whether it leaves out files that .gitignore names
    needs_git  whether it does so only in a repository
    follows    whether it follows links
    known      the states in git of the only files it reads; None for all files
    whole      whether it begins at the top of the repository
    """

    ignores: bool = False
    needs_git: bool = False
    follows: bool = False
    known: Known | None = None
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
    """Finds the files below folders that may hold secrets, by their names.

    roots   the folders of the session; others may not be listed, and other gates judge them
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._repositories: dict[str, GitFiles] = {}

    def __call__(self, folders: Sequence[str], look: Look) -> Sequence[FoundSecret]:
        """Return the files that a command would find, for each folder the nearest ones first. It never raises."""
        found, walk = list[FoundSecret](), _Walk(look)
        for folder in folders:
            try:
                place = self._roots.place(os.path.expanduser(folder), Access.LIST)
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
            kept = paths if Known.IGNORED in look.known else _not_ignored(place, start, paths, named=False)
            paths = [path for path in kept if git is None or not git.holds(os.path.join(start, path))]
            yield from (FoundSecret(os.path.relpath(os.path.join(start, path), place.path)) for path in paths)
            return
        from acp_agent.workspace.ignored_files import exceptions  # noqa: PLC0415 - only where there is a secret

        may_mean = exceptions(walk.exceptions(place, start), _MAX_FILES)
        left_in = {*paths}
        if look.ignores and (not look.needs_git or _in_repository(start)):
            left_in = {*_not_ignored(place, start, paths, named=True)}
        for path in paths:
            excepted = may_mean(path)
            if excepted or path in left_in:
                yield FoundSecret(path, excepted=excepted)

    def _git(self, place: Place) -> GitFiles | None:
        top = next((each for each in _upwards(place.path) if os.path.lexists(os.path.join(each, ".git"))), None)
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
                entries = _entries(os.path.join(start, folder))
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
        above = [each for each in _upwards(start) if f"{each}/".startswith(f"{place.root.path}/")]
        yield from (os.path.join(each, name) for each in above for name in (*_EXCEPTING, ".git/info/exclude"))

    def _judge(self, entry: "os.DirEntry[str]", path: str, found: list[str], below: list[str]) -> None:
        if entry.name in _EXCEPTING:
            self._excepting.append(entry.path)
        if entry.is_symlink() and not self._look.follows:
            return
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        if entry.is_dir():
            if entry.name not in _SKIPPED and real not in self._visited:
                self._visited.add(real)
                below.append(path)
        elif entry.is_file() and (secrecy(entry.path) or secrecy(real)):
            found.append(path)

    @staticmethod
    def _is_apart(git: GitFiles, folder: str, entries: Sequence["os.DirEntry[str]"]) -> bool:
        """Return whether a folder is a repository of its own, of which git adds only the commit."""
        has_dot = any(entry.name == ".git" for entry in entries)
        return has_dot and holds_repository(folder) and not git.holds_below(folder)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _upwards(path: str) -> Iterator[str]:
    while True:
        yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


def _in_repository(path: str) -> bool:
    return any(os.path.lexists(os.path.join(each, ".git")) for each in _upwards(path))


def _within(place: Place, top: str) -> str:
    """Return the top of a repository, or the root if that lies above it."""
    return top if f"{top}/".startswith(f"{place.root.path}/") else place.root.path


def _not_ignored(place: Place, start: str, found: Sequence[str], *, named: bool) -> list[str]:
    """Return the files that .gitignore files do not name.

    named   whether the command names the folder, so that rules for it or a folder above do not count
    """
    from acp_agent.workspace.ignored_files import IgnoredFiles  # noqa: PLC0415 - only where there is a secret

    with IgnoredFiles(place.root, start, named=named) as ignored:
        return [path for path in found if not ignored.holds(path)]
