"""Find the repositories that a command of git in a folder may obey, and read which programs they make git run.

They are found as git finds them. It walks up from the folder it runs in: to a `.git` folder, to a `.git` file that
names another one, or to a folder that is a repository itself. From there it enters submodules (`git status` asks each
of them) and other repositories of this machine that it sends to.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.workspace.git.index import MAX_INDEX_BYTES, StampedReader, gitlinks, link_in, real_path
from acp_agent.workspace.git.settings import (
    MAX_BYTES,
    NotReadable,
    Repository,
    Setting,
    local_paths,
    local_remotes,
    named_files,
    read_settings,
)

_TODO = os.path.join("rebase-merge", "git-rebase-todo")
_MAX_LENDERS = 16
_OLD_REMOTES = ("branches", "remotes")


class GitContents:
    """The parts of a git folder that make git run or obey something: settings, hooks, gitlinks and where it leads.

    Parts that cannot be read as git reads them become `troubles`, which make the command ask the user.

    folder     its real path
    common     the git folder that it shares with other worktrees; mostly itself
    worktree   its worktree; empty if there is none
    inside     returns whether a path leads into the workspace
    """

    def __init__(
        self, reader: StampedReader, inside: Callable[[str], bool], folder: str, common: str, worktree: str
    ) -> None:
        self._reader, self._inside = reader, inside
        self._folder, self._common, self._worktree = folder, common, worktree
        self._base = worktree or folder
        self.troubles = list[str]()
        self._shared = self._read("config")
        self._own = self._read("config.worktree")
        if any(each.key.startswith(("extensions.", "core.repositoryformat")) for each in self._own):
            self.troubles.append("has a config.worktree that says how the repository is stored")
        self.settings = (*self._shared, *self._own, *self._interrupted())

    def look_around(self) -> None:
        """Note where the repository leads to places that are not its own."""
        for look in (self._links, self._places, self._objects, self._files, self._old_remotes):
            try:
                self.troubles += look()
            except NotReadable as error:
                self.troubles.append(f"cannot be looked through: it {error}")

    def hooks(self) -> tuple[str, tuple[str, ...], bool]:
        """Return the folder of hooks, the programs in it, and whether all are the workspace's or the repository's.

        Git may ignore config.worktree, so the folders that it names count beside those that config names.
        """
        usual, given = os.path.join(self._common, "hooks"), self._hook_folders(self._shared)[-1:]
        folders = [*(given or [usual]), *self._hook_folders(self._own)]
        programs, own = dict[str, None](), True
        for path in dict.fromkeys(folders):
            try:
                own = self._is_own(real_path(path)) and own
                for entry in self._reader.entries(path):
                    status = None if entry.name.endswith(".sample") else self._reader.status(entry.path)
                    if status is not None and stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                        programs[entry.name] = None
                        own = own and self._is_own(real_path(entry.path))
            except NotReadable as error:
                self.troubles.append(f"has a folder of hooks that cannot be read: {path} {error}")
        return os.path.normpath(folders[0]), tuple(programs), own

    def gitlinks(self) -> tuple[str, ...]:
        """Return the folders of the worktree that are repositories of their own."""
        formats = {each.value for each in self._shared if each.key == "extensions.objectformat"}
        links = dict[str, None]()
        if len(formats) > 1:
            self.troubles.append("has an index that cannot be read: extensions.objectFormat is set twice")
            return ()
        try:
            entries = self._reader.entries(self._folder)
            shared = [entry.path for entry in entries if entry.name.startswith("sharedindex.")]
            for path in (os.path.join(self._folder, "index"), *shared):
                data = self._reader.content(path, MAX_INDEX_BYTES) or b""
                links.update(dict.fromkeys(gitlinks(data, 32 if formats == {"sha256"} else 20)))
        except ValueError as error:
            self.troubles.append(f"has an index that cannot be read: {error}")
            return ()
        return tuple(link for link in links if ".." not in link.split("/"))

    def is_usual_worktree(self, setting: Setting) -> bool:
        """Return whether a setting names the worktree that git would use without the setting."""
        return setting.key == "core.worktree" and bool(self._worktree) and self._leads_here(setting.value)

    def _read(self, name: str) -> tuple[Setting, ...]:
        settings = list[Setting]()
        for path in dict.fromkeys(os.path.join(at, name) for at in (self._common, self._folder)):
            try:
                settings += read_settings(self._reader.content(path, MAX_BYTES) or b"")
            except NotReadable as error:
                self.troubles.append(f"has a configuration that cannot be read: {name} {error}")
        return tuple(settings)

    def _interrupted(self) -> Iterator[Setting]:
        """Yield, in the form of settings, the commands that an interrupted rebase runs when it continues."""
        try:
            data = self._reader.content(os.path.join(self._folder, _TODO)) or b""
        except NotReadable:
            yield Setting("git-rebase-todo.exec", "a list that cannot be read")
            return
        for line in data.decode("utf-8", "surrogateescape").splitlines():
            word, *rest = line.split(maxsplit=1)[:2] or [""]
            if word in ("exec", "x"):
                yield Setting("git-rebase-todo.exec", "".join(rest))

    def _hook_folders(self, settings: tuple[Setting, ...]) -> list[str]:
        """Return the folders that core.hooksPath names. One that is no plain path to git is a trouble."""
        found = list[str]()
        for value in [each.value or "" for each in settings if each.key == "core.hookspath"]:
            if not value or value.startswith("%") or (value[0] == "~" and value[:2] != "~/"):
                self.troubles.append(f"names a folder of hooks that cannot be determined: {value[:80]!r}")
            else:
                found.append(os.path.join(self._base, os.path.expanduser(value)))
        return found

    def _is_own(self, path: str) -> bool:
        return self._inside(path) or path.startswith(f"{self._common}/")

    # ------------------------------------------------------------------------------------- where it leads

    def _links(self) -> Iterator[str]:
        below = self._folder.startswith(f"{self._common}/worktrees/")
        for folder in dict.fromkeys((self._common,) if below else (self._common, self._folder)):
            link = link_in(self._reader, folder)
            if link:
                yield f"has a link where git reads or writes a file of its own: {link}"

    def _places(self) -> Iterator[str]:
        folder, common = self._folder, self._common
        plain = not self._worktree or folder == os.path.join(real_path(self._worktree), ".git")
        if not plain and not self._inside(folder) and not self._points_back():
            yield f"is kept outside the workspace, in {folder}, which does not name this folder as its worktree"
        if not folder.startswith((f"{common}/worktrees/", common)) and not self._inside(common):
            yield f"is shared with another one outside the workspace, {common}"

    def _points_back(self) -> bool:
        """Return whether a git folder elsewhere names this worktree as its own (a linked worktree, a submodule)."""
        back = self._reader.line(os.path.join(self._folder, "gitdir"))
        if back and self._leads_here(os.path.dirname(os.path.join(self._folder, back))):
            return True
        return any(each.key == "core.worktree" and self._leads_here(each.value) for each in self.settings)

    def _leads_here(self, named: str | None) -> bool:
        try:
            return real_path(os.path.join(self._folder, named or ".")) == real_path(self._worktree)
        except NotReadable:
            return False

    def _objects(self) -> Iterator[str]:
        """Yield the first folder outside the workspace from which git takes objects, directly or through another."""
        pending, seen = [os.path.join(self._common, "objects")], dict[str, None]()
        while pending:
            objects = pending.pop()
            if objects in seen:
                continue
            seen[objects] = None
            if len(seen) > _MAX_LENDERS:
                raise NotReadable("takes objects from more folders than are looked at")
            if not self._is_own(objects):
                yield f"takes objects from outside the workspace: {objects}"
                return
            for line in (self._reader.content(os.path.join(objects, "info", "alternates")) or b"").split(b"\n"):
                if line.startswith(b'"') or b"\0" in line:
                    raise NotReadable("takes objects from a folder whose name cannot be read")
                if line and not line.startswith(b"#"):
                    lent = os.path.normpath(os.path.join(objects, line.decode("utf-8", "surrogateescape")))
                    pending.append(real_path(lent))

    def _files(self) -> Iterator[str]:
        """Yield the settings that name a file which a link leads elsewhere."""
        for key, value in named_files(self.settings):
            path = os.path.join(self._base, value)
            self._reader.status(path)
            if not self._is_own(real_path(path)):
                yield f"names a file that leads outside the workspace: {key} = {value[:80]!r}"

    def _old_remotes(self) -> Iterator[str]:
        for name in _OLD_REMOTES:
            if self._reader.entries(os.path.join(self._common, name)):
                yield f"names other repositories in files that are not looked at: {name}"


MAX_REPOSITORIES = 256
"""The most repositories that are looked at for one command, submodules included. With more, the user is asked."""

_MAX_REMEMBERED = 64
_MAX_MODULE_DEPTH = 8
_MAX_DOT_FILE = 1 << 20

Resolve = Callable[[str, Access], str]


class GitRepositories:
    """A finder of repositories, which remembers what it read until a file of them changes.

    resolve   where a path of a command leads (Roots.resolve); it refuses what is outside the workspace
    cwd       the session's folder, absolute. Its repository counts even if rules forbid listing it
    """

    def __init__(self, resolve: Resolve, cwd: str) -> None:
        self._resolve = resolve
        self._cwd = cwd
        self._known: dict[tuple[str, tuple[str, ...]], tuple[StampedReader, tuple[Repository, ...]]] = {}

    def __call__(self, folder: str, others: tuple[str, ...] = ()) -> tuple[Repository, ...]:
        """Return the repositories that a command in a folder may obey; empty if there are none.

        folder   relative to the session's folder, or absolute
        others   words of the command that may name other repositories
        """
        try:
            place = real_path(os.path.join(self._cwd, os.path.expanduser(folder)))
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
        self._known[place, others] = (search.reader, found)
        return found

    def _inside(self, path: str) -> bool:
        try:
            self._resolve(path, Access.LIST)
        except (Refused, ToolError):
            return False
        return True


class _Search:
    """One search. `found` maps the git folder of each repository to what was found there."""

    def __init__(self, inside: Callable[[str], bool]) -> None:
        self.reader = StampedReader()
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
        """Add the repository of an address, if it is on this machine.

        bases   the folders where git may start a relative path
        """
        for path in local_paths(word):
            for base in bases:
                given = os.path.join(base, os.path.expanduser(path))
                for place in dict.fromkeys((given, f"{given.rstrip('/')}.git", f"{given.rstrip('/')}.bundle")):
                    self._placed(place, name, base)

    def _placed(self, place: str, name: str, base: str) -> None:
        status = self.reader.status(place)
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
        elif stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_DOT_FILE:  # git refuses larger ones
            self._file(real, name)

    def _file(self, path: str, name: str) -> None:
        """Add the repository that a file leads to if git takes it for a repository's `.git`."""
        try:
            target = _target(self.reader.content(path, _MAX_DOT_FILE) or b"")
            real = real_path(os.path.join(os.path.dirname(path), target)) if target else ""
        except NotReadable as error:
            self.found[path] = Repository(name, troubles=(f"cannot be found: it {error}",), remote=True)
            return
        if target and self._inside(real):
            self._add(real, "", name, remote=True)
        elif target:
            self.found[path] = Repository(name, troubles=("lies outside the workspace",), remote=True)

    def _at(self, folder: str, name: str, *, remote: bool = False) -> bool:
        """Add the repository of one folder. Return True if git certainly does not look in the folder above."""
        dot = os.path.join(folder, ".git")
        status, ends = self.reader.status(dot), False
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._add(dot, folder, name, remote=remote)
            ends = self.reader.is_git_folder(dot)
        elif status is not None and stat.S_ISREG(status.st_mode):
            self._dot_file(dot, name, remote=remote)
            ends = True
        elif status is not None:
            self.found[dot] = Repository(name, troubles=("has a .git that is neither a folder nor a file",))
        # Also beside a .git, because `git --bare` takes the folder itself for the repository.
        if self.reader.resembles_git_folder(folder):
            self._add(folder, "", name, remote=remote)
            return ends or self.reader.is_git_folder(folder)
        return ends

    def _dot_file(self, dot: str, name: str, *, remote: bool) -> None:
        folder = os.path.dirname(dot)
        try:
            target = _target(self.reader.line(dot).encode("utf-8", "surrogateescape"))
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
            common = self.reader.common(folder)
        except NotReadable as error:
            self.found[given] = Repository(name, troubles=(f"cannot be found: its folder {error}",), remote=remote)
            return
        if len(self.found) >= MAX_REPOSITORIES:
            self._trouble(next(iter(self.found)), "leads to more repositories than are looked at")
            return
        self.found[folder] = Repository(name)
        contents = GitContents(self.reader, self._inside, folder, common, worktree)
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
        """Add the git folders of submodules, which recursive commands enter. Raises NotReadable."""
        entries = self.reader.entries(folder)
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
        """Return the worktree that a submodule's git folder names, if it lies in the repository's worktree."""
        try:
            settings = read_settings(self.reader.content(os.path.join(folder, "config"), MAX_BYTES) or b"")
            named = next((each.value for each in settings if each.key == "core.worktree" and each.value), "")
            place = real_path(os.path.join(folder, named)) if named else ""
            return place if place.startswith(f"{real_path(worktree)}/") else ""
        except NotReadable:
            return ""


def _target(data: bytes) -> str:
    """Return the folder that the text of a `.git` file names; empty for any other text."""
    return data[8:].decode("utf-8", "surrogateescape").rstrip("\r\n") if data.startswith(b"gitdir: ") else ""
