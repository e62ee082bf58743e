"""Find the repositories that a command of git in a folder may obey, as git does, and read what they make it run.

git walks up from the folder it runs in: a `.git` folder, a `.git` file that names another one, or a folder that is a
repository itself. From there it looks into submodules (`git status` asks each of them) and into other repositories
of this machine that it sends to.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import replace

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.execution.git_contents import GitContents
from acp_agent.execution.git_folder import Looks, real_path
from acp_agent.gates.git_config_reader import MAX_BYTES, NotReadable, read_settings
from acp_agent.gates.git_repository import Repository, local_paths, local_remotes

MAX_REPOSITORIES = 256
"""Repositories that are looked at for one command, submodules included; more ask."""

_MAX_REMEMBERED = 64
_MAX_MODULE_DEPTH = 8
_MAX_DOT_FILE = 1 << 20

Resolve = Callable[[str, Access], str]


class GitRepositories:
    """Finds repositories, and remembers what it read until a file of them changes.

    resolve   where a path of a command leads (Roots.resolve); it refuses what is outside the workspace
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._known: dict[tuple[str, tuple[str, ...]], tuple[Looks, tuple[Repository, ...]]] = {}

    def __call__(self, folder: str, others: tuple[str, ...] = ()) -> tuple[Repository, ...]:
        """Return the repositories that a command in a folder may obey, none where there is none.

        folder   relative to the session's, or absolute
        others   words of the command that may name other repositories
        """
        try:
            place = real_path(os.path.join(self._place("."), os.path.expanduser(folder)))
        except NotReadable as error:
            return (Repository("this repository", troubles=(f"cannot be found: its folder {error}",)),)
        known = self._known.get((place, others))
        if known is not None and known[0].unchanged():
            return known[1]
        search = _Search(self._inside)
        search.upwards(place)
        for word in others:
            search.other(word, f"the repository {word}", (place, *search.worktrees))
        found = tuple(search.found.values())
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[place, others] = (search.looks, found)
        return found

    def _place(self, path: str) -> str:
        try:
            return self._resolve(path, Access.LIST)
        except (Refused, ToolError):
            return os.path.abspath(path)

    def _inside(self, path: str) -> bool:
        try:
            self._resolve(path, Access.LIST)
        except (Refused, ToolError):
            return False
        return True


class _Search:
    """One search: the repositories by the folder that holds their objects and settings."""

    def __init__(self, inside: Callable[[str], bool]) -> None:
        self.looks = Looks()
        self.found: dict[str, Repository] = {}
        self.worktrees: dict[str, None] = {}
        self._inside = inside

    def upwards(self, folder: str) -> None:
        """Add the repository that a folder lies in."""
        at = folder
        while not self._at(at, "this repository"):
            above = os.path.dirname(at)
            if above == at:
                return
            at = above

    def other(self, word: str, name: str, bases: tuple[str, ...]) -> None:
        """Add the repository that the address of another one means, if that is on this machine.

        bases   the folders that git may see a relative path from
        """
        for path in local_paths(word):
            for base in bases:
                given = os.path.join(base, os.path.expanduser(path))
                for place in dict.fromkeys((given, f"{given.rstrip('/')}.git", f"{given.rstrip('/')}.bundle")):
                    self._placed(place, name, base)

    def _placed(self, place: str, name: str, base: str) -> None:
        status = self.looks.status(place)
        try:
            real = real_path(place)
        except NotReadable as error:
            self.found[place] = Repository(name, troubles=(f"cannot be found: it {error}",), remote=True)
            return
        if status is None or real == base:
            return
        if not self._inside(real):
            self.found.setdefault(real, Repository(name, troubles=("lies outside the workspace",), remote=True))
        elif stat.S_ISDIR(status.st_mode):
            self._at(real, name, remote=True)
        elif stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_DOT_FILE:  # git refuses others
            self._file(real, name)

    def _file(self, path: str, name: str) -> None:
        """Add the repository that a file leads to if git takes it for a repository's `.git`."""
        try:
            target = _target(self.looks.content(path, _MAX_DOT_FILE) or b"")
            real = real_path(os.path.join(os.path.dirname(path), target)) if target else ""
        except NotReadable as error:
            self.found[path] = Repository(name, troubles=(f"cannot be found: it {error}",), remote=True)
            return
        if target and self._inside(real):
            self._add(real, "", name, remote=True)
        elif target:
            self.found[path] = Repository(name, troubles=("lies outside the workspace",), remote=True)

    def _at(self, folder: str, name: str, *, remote: bool = False) -> bool:
        """Add the repository of one folder. Return whether git certainly looks no further up."""
        dot = os.path.join(folder, ".git")
        status, ends = self.looks.status(dot), False
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._add(dot, folder, name, remote=remote)
            ends = self.looks.is_git_folder(dot)
        elif status is not None and stat.S_ISREG(status.st_mode):
            self._dot_file(dot, name, remote=remote)
            ends = True
        elif status is not None:
            self.found[dot] = Repository(name, troubles=("has a .git that is neither a folder nor a file",))
        if self.looks.resembles_git_folder(folder):  # also beside a .git: `git --bare`
            self._add(folder, "", name, remote=remote)
            return ends or self.looks.is_git_folder(folder)
        return ends

    def _dot_file(self, dot: str, name: str, *, remote: bool) -> None:
        folder = os.path.dirname(dot)
        try:
            target = _target(self.looks.line(dot).encode("utf-8", "surrogateescape"))
        except NotReadable as error:
            self.found[dot] = Repository(name, troubles=(f"has a .git file that cannot be read: it {error}",))
            return
        if target:
            self._add(os.path.join(folder, target), folder, name, remote=remote)

    def _add(self, given: str, worktree: str, name: str, *, remote: bool) -> None:
        """Add the repository of a git folder, and those it leads to."""
        try:
            folder = real_path(given)
            if folder in self.found:
                return
            common = self.looks.common(folder)
        except NotReadable as error:
            self.found[given] = Repository(name, troubles=(f"cannot be found: its folder {error}",), remote=remote)
            return
        if len(self.found) >= MAX_REPOSITORIES:
            self._trouble(next(iter(self.found)), "leads to more repositories than are looked at")
            return
        self.found[folder] = Repository(name)
        contents = GitContents(self.looks, self._inside, folder, common, worktree)
        contents.look_around()
        kept = tuple(each for each in contents.settings if not contents.is_usual_worktree(each))
        path, hooks, own = contents.hooks()
        links = contents.gitlinks() if worktree and not remote else ()
        shown = os.path.relpath(path, worktree or folder)
        self.found[folder] = Repository(name, kept, hooks, shown, own, tuple(contents.troubles), remote)
        if remote:
            return
        self.worktrees[worktree or folder] = None
        for link in links:
            self._at(os.path.join(worktree, link), f"the submodule {link}")
        try:
            self._modules(os.path.join(common, "modules"), worktree, 0)
        except NotReadable as error:
            self._trouble(folder, f"has submodules that cannot be looked at: it {error}")
        for url in local_remotes(contents.settings):
            self.other(url, f"the repository {url}", (worktree or folder,))

    def _trouble(self, folder: str, trouble: str) -> None:
        known = self.found[folder]
        self.found[folder] = replace(known, troubles=(*known.troubles, trouble))

    def _modules(self, folder: str, worktree: str, depth: int) -> None:
        """Add the git folders of submodules, which commands enter that recurse into these. Raises NotReadable."""
        entries = self.looks.entries(folder)
        if entries and depth > _MAX_MODULE_DEPTH:
            raise NotReadable(f"has them more than {_MAX_MODULE_DEPTH} folders deep")
        for entry in entries:
            if entry.is_symlink():
                raise NotReadable(f"has a link among them: {entry.name}")
            if not entry.is_dir():
                continue
            if not os.path.lexists(os.path.join(entry.path, "HEAD")):
                self._modules(entry.path, worktree, depth + 1)
            else:
                place = self._module_worktree(entry.path, worktree)
                self._add(entry.path, place, f"the submodule {entry.name}", remote=False)

    def _module_worktree(self, folder: str, worktree: str) -> str:
        """Return the worktree that a submodule's git folder names, if it lies in the repository's own."""
        try:
            settings = read_settings(self.looks.content(os.path.join(folder, "config"), MAX_BYTES) or b"")
            named = next((each.value for each in settings if each.key == "core.worktree" and each.value), "")
            place = real_path(os.path.join(folder, named)) if named else ""
            return place if place.startswith(f"{real_path(worktree)}/") else ""
        except NotReadable:
            return ""


def _target(data: bytes) -> str:
    """Return what the text of a `.git` file names; empty when it is none."""
    return data[8:].decode("utf-8", "surrogateescape").rstrip("\r\n") if data.startswith(b"gitdir: ") else ""
