"""Find the repositories that a command of git in a folder may obey, as git does, and read what they make it run.

git walks up from the folder it runs in: a `.git` folder, a `.git` file that names another one, or a folder that is a
repository itself. From there it looks into submodules (`git status` asks each of them) and into other repositories
of this machine that it sends to.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.execution import git_index
from acp_agent.execution.git_folder import Looks
from acp_agent.gates.git_config_reader import MAX_BYTES, NotReadable, Setting, read_settings
from acp_agent.gates.git_repository import Repository, local_path, local_remotes

MAX_REPOSITORIES = 256
"""Repositories that are looked at for one command, submodules included; more ask."""

_MAX_REMEMBERED = 64
_MAX_MODULE_DEPTH = 8
_BOOLEANS = ("true", "yes", "on", "1")
_TODO = os.path.join("rebase-merge", "git-rebase-todo")

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
        place = os.path.realpath(os.path.join(self._place("."), os.path.expanduser(folder)))
        known = self._known.get((place, others))
        if known is not None and known[0].unchanged():
            return known[1]
        search = _Search(self._inside)
        search.upwards(place)
        for word in others:
            search.other(word, place)
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
        self._inside = inside

    def upwards(self, folder: str) -> None:
        """Add the repository that a folder lies in."""
        at = folder
        while not self._at(at, "this repository"):
            above = os.path.dirname(at)
            if above == at:
                return
            at = above

    def other(self, word: str, folder: str) -> None:
        """Add the repository that the address of another one means, if that is on this machine."""
        path = os.path.realpath(os.path.join(folder, os.path.expanduser(local_path(word) or ".")))
        if path == folder or not local_path(word):
            return
        name = f"the repository {word}"
        for place in (path, f"{path}.git"):
            if not self.looks.is_folder(place):
                continue
            if self._inside(place):
                self._at(place, name, remote=True)
            else:
                self.found[place] = Repository(name, troubles=("lies outside the workspace",), remote=True)

    def _at(self, folder: str, name: str, *, remote: bool = False) -> bool:
        """Add the repository of one folder. Return whether git looks no further up."""
        dot = os.path.join(folder, ".git")
        status = self.looks.status(dot)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._add(dot, folder, name, remote=remote)
            if self.looks.is_git_folder(dot):
                return True
        elif status is not None:
            target = self.looks.line(dot)
            if target.startswith("gitdir: "):
                self._add(os.path.join(folder, target[8:]), folder, name, remote=remote)
            return True
        if self.looks.is_git_folder(folder):
            self._add(folder, "", name, remote=remote)
            return True
        return False

    def _add(self, given: str, worktree: str, name: str, *, remote: bool) -> None:
        """Add the repository of a git folder, and those it leads to."""
        folder = os.path.realpath(given)
        if folder in self.found:
            return
        if len(self.found) >= MAX_REPOSITORIES:
            first = next(iter(self.found))
            self.found[first] = _with_trouble(self.found[first], "leads to more repositories than are looked at")
            return
        common = self.looks.common(folder)
        self.found[folder] = Repository(name)
        settings, troubles = self._settings(folder, common)
        troubles += self._elsewhere(folder, common, worktree, settings)
        kept = tuple(each for each in settings if not self._is_usual_worktree(each, folder, worktree))
        path, hooks = self._hooks(settings, common, worktree or folder)
        own = self._inside(path) or path.startswith(f"{common}/")
        links, broken = self._gitlinks(folder, settings) if worktree and not remote else ((), "")
        troubles += [broken] if broken else []
        shown = os.path.relpath(path, worktree or folder)
        self.found[folder] = Repository(name, kept, hooks, shown, own, tuple(troubles), remote)
        if remote:
            return
        for link in links:
            self._at(os.path.join(worktree, link), f"the submodule {link}")
        self._modules(os.path.join(common, "modules"), worktree, 0)
        for url in local_remotes(settings):
            self.other(url, worktree or folder)

    def _settings(self, folder: str, common: str) -> tuple[list[Setting], list[str]]:
        """Return what the repository's own configuration sets, and why that may not be all."""
        files = dict.fromkeys(
            os.path.join(at, file) for at in (common, folder) for file in ("config", "config.worktree")
        )
        settings, troubles = list[Setting](), list[str]()
        for path in files:
            try:
                settings += read_settings(self.looks.content(path, MAX_BYTES) or b"")
            except NotReadable as error:
                troubles.append(f"has a configuration that cannot be read: {os.path.basename(path)} {error}")
        return [*settings, *self._interrupted(folder)], troubles

    def _interrupted(self, folder: str) -> Iterator[Setting]:
        """Yield the commands that an interrupted rebase runs when it goes on, as settings."""
        try:
            todo = (self.looks.content(os.path.join(folder, _TODO)) or b"").decode("utf-8", "surrogateescape")
        except NotReadable:
            yield Setting("git-rebase-todo.exec", "a list that cannot be read")
            return
        for line in todo.splitlines():
            word, *rest = line.split(maxsplit=1)[:2] or [""]
            if word in ("exec", "x"):
                yield Setting("git-rebase-todo.exec", "".join(rest))

    def _elsewhere(self, folder: str, common: str, worktree: str, settings: Sequence[Setting]) -> list[str]:
        """Return where the repository leads outside the workspace although nothing there knows of it."""
        troubles = list[str]()
        plain = not worktree or folder == os.path.join(os.path.realpath(worktree), ".git")
        if not plain and not self._inside(folder) and not self._points_back(folder, worktree, settings):
            troubles.append(f"is kept outside the workspace, in {folder}, which does not know this folder")
        if not folder.startswith((f"{common}/worktrees/", common)) and not self._inside(common):
            troubles.append(f"is shared with another one outside the workspace, {common}")
        objects = os.path.join(common, "objects")
        lent = [os.path.join(objects, line) for line in self._alternates(objects)]
        for path in (*lent, *(link for link in self._links(objects))):
            real = os.path.realpath(path)
            if not self._inside(real) and not real.startswith(f"{common}/"):
                troubles.append(f"takes objects from outside the workspace: {real}")
                break
        return troubles

    def _points_back(self, folder: str, worktree: str, settings: Sequence[Setting]) -> bool:
        """Return whether a git folder elsewhere names this worktree as its own (a linked worktree, a submodule)."""
        back = self.looks.line(os.path.join(folder, "gitdir"))
        if back and os.path.realpath(os.path.dirname(os.path.join(folder, back))) == os.path.realpath(worktree):
            return True
        return any(each.key == "core.worktree" and _same(folder, each.value, worktree) for each in settings)

    def _alternates(self, objects: str) -> list[str]:
        try:
            lines = (self.looks.content(os.path.join(objects, "info", "alternates")) or b"").splitlines()
        except NotReadable:
            return ["/"]
        return [line.decode("utf-8", "surrogateescape") for line in lines if line and not line.startswith(b"#")]

    def _links(self, objects: str) -> Iterator[str]:
        """Yield the links in place of folders and packs of objects."""
        yield objects
        for folder in (objects, os.path.join(objects, "pack")):
            yield from (entry.path for entry in self.looks.entries(folder) if entry.is_symlink())

    def _is_usual_worktree(self, setting: Setting, folder: str, worktree: str) -> bool:
        """Return whether a setting only says where the worktree lies anyway."""
        return setting.key == "core.worktree" and bool(worktree) and _same(folder, setting.value, worktree)

    def _hooks(self, settings: Sequence[Setting], common: str, base: str) -> tuple[str, tuple[str, ...]]:
        """Return the folder of hooks and the programs in it."""
        named = [each.value for each in settings if each.key == "core.hookspath" and each.value]
        path = os.path.join(base, os.path.expanduser(named[-1])) if named else os.path.join(common, "hooks")
        programs = list[str]()
        for entry in self.looks.entries(path):
            if not entry.name.endswith(".sample"):
                status = self.looks.status(entry.path)
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                    programs.append(entry.name)
        return os.path.realpath(path), tuple(programs)

    def _gitlinks(self, folder: str, settings: Sequence[Setting]) -> tuple[tuple[str, ...], str]:
        """Return the folders of the worktree that are repositories of their own, and why that may not be all."""
        long = any(each.key == "extensions.objectformat" and each.value == "sha256" for each in settings)
        shared = [entry.path for entry in self.looks.entries(folder) if entry.name.startswith("sharedindex.")]
        links = dict[str, None]()
        try:
            for path in (os.path.join(folder, "index"), *shared):
                data = self.looks.content(path, git_index.MAX_BYTES) or b""
                links.update(dict.fromkeys(git_index.gitlinks(data, 32 if long else 20)))
        except ValueError as error:
            return (), f"has an index that cannot be read: {error}"
        return tuple(link for link in links if ".." not in link.split("/")), ""

    def _modules(self, folder: str, worktree: str, depth: int) -> None:
        """Add the git folders of submodules, which commands enter that recurse into these."""
        if depth > _MAX_MODULE_DEPTH or not self.looks.is_folder(folder):
            return
        for entry in self.looks.entries(folder):
            if not entry.is_dir():
                continue
            if self.looks.status(os.path.join(entry.path, "HEAD")) is None:
                self._modules(entry.path, worktree, depth + 1)
            else:
                self._add(
                    entry.path, self._module_worktree(entry.path, worktree), f"the submodule {entry.name}", remote=False
                )

    def _module_worktree(self, folder: str, worktree: str) -> str:
        """Return the worktree that a submodule's git folder names, if it lies in the repository's own."""
        try:
            settings = read_settings(self.looks.content(os.path.join(folder, "config"), MAX_BYTES) or b"")
        except NotReadable:
            return ""
        named = next((each.value for each in settings if each.key == "core.worktree" and each.value), "")
        place = os.path.realpath(os.path.join(folder, named)) if named else ""
        return place if place.startswith(f"{os.path.realpath(worktree)}/") else ""


def _same(folder: str, named: str | None, worktree: str) -> bool:
    return os.path.realpath(os.path.join(folder, named or ".")) == os.path.realpath(worktree)


def _with_trouble(repository: Repository, trouble: str) -> Repository:
    return replace(repository, troubles=(*repository.troubles, trouble))
