"""Read what one git folder makes git run, open or obey: settings, hooks, gitlinks and where it leads.

What cannot be read as git reads it is noted as a trouble, which asks.
"""

import os
import stat
from collections.abc import Callable, Iterator

from acp_agent.execution import git_index
from acp_agent.execution.git_folder import Looks, real_path
from acp_agent.execution.git_links import link_in
from acp_agent.gates.git_config_reader import MAX_BYTES, NotReadable, Setting, read_settings
from acp_agent.gates.git_repository import named_files

_TODO = os.path.join("rebase-merge", "git-rebase-todo")
_MAX_LENDERS = 16
_OLD_REMOTES = ("branches", "remotes")


class GitContents:
    """One git folder, its settings read.

    folder     where it really is
    common     the one that it shares with other worktrees; itself for most
    worktree   its worktree; empty if there is none
    inside     whether a path leads into the workspace
    """

    def __init__(self, looks: Looks, inside: Callable[[str], bool], folder: str, common: str, worktree: str) -> None:
        self._looks, self._inside = looks, inside
        self._folder, self._common, self._worktree = folder, common, worktree
        self._base = worktree or folder
        self.troubles = list[str]()
        self._shared = self._read("config")
        self._own = self._read("config.worktree")
        if any(each.key.startswith(("extensions.", "core.repositoryformat")) for each in self._own):
            self.troubles.append("has a config.worktree that says how the repository is stored")
        self.settings = (*self._shared, *self._own, *self._interrupted())

    def look_around(self) -> None:
        """Note where the repository leads elsewhere although nothing there knows of it."""
        for look in (self._links, self._places, self._objects, self._files, self._old_remotes):
            try:
                self.troubles += look()
            except NotReadable as error:
                self.troubles.append(f"cannot be looked through: it {error}")

    def hooks(self) -> tuple[str, tuple[str, ...], bool]:
        """Return the folder of hooks, the programs in it, and whether all are the workspace's or the repository's.

        Git may leave out config.worktree, so what that names counts beside what config names.
        """
        usual, given = os.path.join(self._common, "hooks"), self._hook_folders(self._shared)[-1:]
        folders = [*(given or [usual]), *self._hook_folders(self._own)]
        programs, own = dict[str, None](), True
        for path in dict.fromkeys(folders):
            try:
                own = self._is_own(real_path(path)) and own
                for entry in self._looks.entries(path):
                    status = None if entry.name.endswith(".sample") else self._looks.status(entry.path)
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
            entries = self._looks.entries(self._folder)
            shared = [entry.path for entry in entries if entry.name.startswith("sharedindex.")]
            for path in (os.path.join(self._folder, "index"), *shared):
                data = self._looks.content(path, git_index.MAX_BYTES) or b""
                links.update(dict.fromkeys(git_index.gitlinks(data, 32 if formats == {"sha256"} else 20)))
        except ValueError as error:
            self.troubles.append(f"has an index that cannot be read: {error}")
            return ()
        return tuple(link for link in links if ".." not in link.split("/"))

    def is_usual_worktree(self, setting: Setting) -> bool:
        """Return whether a setting only says where the worktree lies anyway."""
        return setting.key == "core.worktree" and bool(self._worktree) and self._leads_here(setting.value)

    def _read(self, name: str) -> tuple[Setting, ...]:
        settings = list[Setting]()
        for path in dict.fromkeys(os.path.join(at, name) for at in (self._common, self._folder)):
            try:
                settings += read_settings(self._looks.content(path, MAX_BYTES) or b"")
            except NotReadable as error:
                self.troubles.append(f"has a configuration that cannot be read: {name} {error}")
        return tuple(settings)

    def _interrupted(self) -> Iterator[Setting]:
        """Yield the commands that an interrupted rebase runs when it goes on, as settings."""
        try:
            data = self._looks.content(os.path.join(self._folder, _TODO)) or b""
        except NotReadable:
            yield Setting("git-rebase-todo.exec", "a list that cannot be read")
            return
        for line in data.decode("utf-8", "surrogateescape").splitlines():
            word, *rest = line.split(maxsplit=1)[:2] or [""]
            if word in ("exec", "x"):
                yield Setting("git-rebase-todo.exec", "".join(rest))

    def _hook_folders(self, settings: tuple[Setting, ...]) -> list[str]:
        """Return what core.hooksPath names. What git makes something else of than a path is a trouble."""
        found = list[str]()
        for value in [each.value or "" for each in settings if each.key == "core.hookspath"]:
            if not value or value.startswith("%") or (value[0] == "~" and value[:2] != "~/"):
                self.troubles.append(f"names a folder of hooks that cannot be told: {value[:80]!r}")
            else:
                found.append(os.path.join(self._base, os.path.expanduser(value)))
        return found

    def _is_own(self, path: str) -> bool:
        return self._inside(path) or path.startswith(f"{self._common}/")

    # ------------------------------------------------------------------------------------- where it leads

    def _links(self) -> Iterator[str]:
        below = self._folder.startswith(f"{self._common}/worktrees/")
        for folder in dict.fromkeys((self._common,) if below else (self._common, self._folder)):
            link = link_in(self._looks, folder)
            if link:
                yield f"has a link where git reads or writes a file of its own: {link}"

    def _places(self) -> Iterator[str]:
        folder, common = self._folder, self._common
        plain = not self._worktree or folder == os.path.join(real_path(self._worktree), ".git")
        if not plain and not self._inside(folder) and not self._points_back():
            yield f"is kept outside the workspace, in {folder}, which does not know this folder"
        if not folder.startswith((f"{common}/worktrees/", common)) and not self._inside(common):
            yield f"is shared with another one outside the workspace, {common}"

    def _points_back(self) -> bool:
        """Return whether a git folder elsewhere names this worktree as its own (a linked worktree, a submodule)."""
        back = self._looks.line(os.path.join(self._folder, "gitdir"))
        if back and self._leads_here(os.path.dirname(os.path.join(self._folder, back))):
            return True
        return any(each.key == "core.worktree" and self._leads_here(each.value) for each in self.settings)

    def _leads_here(self, named: str | None) -> bool:
        try:
            return real_path(os.path.join(self._folder, named or ".")) == real_path(self._worktree)
        except NotReadable:
            return False

    def _objects(self) -> Iterator[str]:
        """Yield the folder outside the workspace that objects are taken from, also by one that lends them."""
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
            for line in (self._looks.content(os.path.join(objects, "info", "alternates")) or b"").split(b"\n"):
                if line.startswith(b'"') or b"\0" in line:
                    raise NotReadable("takes objects from a folder whose name cannot be read")
                if line and not line.startswith(b"#"):
                    lent = os.path.normpath(os.path.join(objects, line.decode("utf-8", "surrogateescape")))
                    pending.append(real_path(lent))

    def _files(self) -> Iterator[str]:
        """Yield the settings that name a file which a link leads elsewhere."""
        for key, value in named_files(self.settings):
            path = os.path.join(self._base, value)
            self._looks.status(path)
            if not self._is_own(real_path(path)):
                yield f"names a file that leads outside the workspace: {key} = {value[:80]!r}"

    def _old_remotes(self) -> Iterator[str]:
        for name in _OLD_REMOTES:
            if self._looks.entries(os.path.join(self._common, name)):
                yield f"names other repositories in files that are not looked at: {name}"
