"""Find the protected files that a contained command made: a sandbox cannot protect a file that does not exist yet.

Each gets another name in its folder, under which nothing runs or obeys it. What usual tools make is left alone: a new
git repository without hooks and with harmless settings, and a new environment of Python.
"""

import os
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress

from acp_agent.workspace.beneath import best_opener, holding
from acp_agent.workspace.git.settings import NotReadable, Repository, Setting, dangers
from acp_agent.workspace.roots import is_below
from acp_agent.workspace.sandbox.git_folders import (
    HOOKS_PATH,
    KINDS,
    UNSEARCHED,
    hook_folders,
    named_folder,
    obeyed_by_git,
    settings_in,
)
from acp_agent.workspace.sandbox.walls import Protects, upper_entries

_SUFFIX = ".quarantined"
_MOST_NAMED = 5
_WRITES = stat.S_IWUSR | stat.S_IXUSR
_PLACE = (os.O_PATH if sys.platform == "linux" else os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Quarantine:
    """The protected files of the folders that commands may change, as they were before a command.

    folders    absolute and resolved
    linked     the git folders of linked worktrees and of their repositories, in `folders` or below these
    protects   tells whether a path may not be changed by a command
    """

    def __init__(self, folders: Sequence[str], protects: Protects, linked: Sequence[str] = ()) -> None:
        self._folders = folders
        self._linked = linked
        self._protects = protects
        self._hooks: tuple[str, ...] = ()
        self._opens = False
        self._closed = set[str]()  # folders that could not be listed before the command
        found = [*self._found()]
        self._hooks = tuple(filter(self._is_inside, dict.fromkeys(hook_folders(found))))
        self.before = frozenset((*found, *self._hooks_made()) if self._hooks else found)

    def look(self) -> str:
        """Rename what is new, and return a line about it for the user and the model; "" if nothing is. It blocks."""
        self._opens = True
        moved, left = list[str](), list[str]()
        for path in self._found():
            if path in self.before or any(is_below(path, each) for each in moved):
                continue
            if _is_usual(path, self._linked, self._protects):
                continue
            if self._renamed(path):
                moved.append(path)
            elif os.path.lexists(path):
                left.append(path)
        said = ""
        if moved:
            said += (
                f"\n[the command made {_named(moved)}, which something runs or obeys later. The name now ends in "
                f"{_SUFFIX}. To make it under its name, use a tool for files, which asks the user]\n"
            )
        if left:
            said += (
                f"\n[the command made {_named(left)}, which something runs or obeys later, and it could not be "
                "renamed. Tell the user to look at it and to delete it]\n"
            )
        return said

    def _found(self) -> Iterator[str]:
        if self._hooks:
            yield from self._hooks_made()
        for git in self._linked:
            yield from _single(obeyed_by_git(git))
        for folder in self._folders:
            if folder in self._linked:
                continue
            self._note_closed(folder)
            for path, is_folder, is_git in upper_entries(folder):
                if is_folder:
                    self._note_closed(path)  # before `upper_entries` lists it
                if is_git:
                    yield from _single(obeyed_by_git(path))
                elif self._protects(path):
                    yield path

    def _note_closed(self, path: str) -> None:
        """Note a folder that cannot be listed and entered. After the command, open it again if it was open before."""
        if os.access(path, os.R_OK | os.X_OK) or not os.path.isdir(path) or os.path.islink(path):
            return
        if not self._opens:
            self._closed.add(path)
        elif path not in self._closed:
            self._open(path)

    def _open(self, path: str) -> None:
        """Let this user list a folder and write into it. No link on the way is followed."""
        folder = next(each for each in self._folders if is_below(path, each))
        with suppress(OSError), holding(os.open(folder, _PLACE)) as root:
            below = os.path.relpath(path, folder)
            with holding(os.dup(root) if below == "." else best_opener(root)(root, below, _PLACE)) as place:
                os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(os.fstat(place).st_mode) | stat.S_IRWXU)

    def _hooks_made(self) -> Iterator[str]:
        """Yield what is in the places where the repositories look for hooks by their settings."""
        yield from _single(filter(os.path.lexists, self._hooks))

    def _is_inside(self, path: str) -> bool:
        return any(path != folder and is_below(path, folder) for folder in self._folders)

    def _renamed(self, path: str) -> bool:
        """Give a file another name in its folder. No link on the way is followed. Return False if that fails."""
        folder = next(each for each in self._folders if is_below(path, each))
        above, name = os.path.split(os.path.relpath(path, folder))
        with (
            suppress(OSError),
            holding(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)) as root,
            holding(best_opener(root)(root, above or ".", os.O_RDONLY | os.O_DIRECTORY)) as place,
        ):
            with _writable(place):
                os.rename(name, _free_name(name, place), src_dir_fd=place, dst_dir_fd=place)
            return True
        return False


@contextmanager
def _writable(folder: int) -> Generator[None]:
    """Let this user write into an open folder in the body, whatever mode a command has given it. Raises OSError."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & _WRITES == _WRITES:
        yield
        return
    os.fchmod(folder, mode | _WRITES)
    try:
        yield
    finally:
        os.fchmod(folder, mode)


def _named(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_MOST_NAMED]) + (" ..." if len(paths) > _MOST_NAMED else "")


def _free_name(name: str, folder: int) -> str:
    number, free = 1, name + _SUFFIX
    while True:
        try:
            os.stat(free, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return free
        number, free = number + 1, f"{name}{_SUFFIX}-{number}"


def _single(paths: Iterator[str]) -> Iterator[str]:
    """Yield the paths, and instead of a folder of hooks the files in it if it can be listed."""
    for path in paths:
        if os.path.basename(path) != "hooks" or os.path.islink(path):
            yield path
            continue
        try:
            with os.scandir(path) as entries:
                yield from [entry.path for entry in entries if not entry.name.endswith(".sample")]
        except PermissionError:
            yield path
        except OSError:
            continue


def _is_usual(path: str, linked: Sequence[str], protects: Protects) -> bool:
    """Return whether the usual tools make such a file, and nothing runs because of it."""
    above, name = os.path.split(path)
    if name == "pyvenv.cfg" or name.endswith(".pth") or path.endswith("info/attributes"):
        return True
    if f"{os.sep}.git{os.sep}" in path:
        if name == "config":
            return _is_harmless(path, protects)
        if name == "commondir":  # a linked worktree has this file, which names the repository
            worktrees = os.path.dirname(above)
            return os.path.basename(worktrees) == "worktrees" and named_folder(path) == os.path.dirname(worktrees)
        return name not in ("gitdir", "config.worktree") and not os.path.islink(path) and not _runs(path)
    return name == ".git" and _stays(named_folder(path, "gitdir:"), above, linked)


def _is_harmless(path: str, protects: Protects) -> bool:
    """Return whether nothing runs because of the settings in a file of git."""
    try:
        settings = settings_in(path)
    except (OSError, NotReadable):
        return False
    above, git = os.path.split(os.path.dirname(path))
    top = above if git == ".git" else ""
    hooked = any(each.key == HOOKS_PATH and not _is_watched(each, top, protects) for each in settings)
    return not hooked and not any(danger.firm for danger in dangers(Repository("", settings), ""))


def _is_watched(hooks: Setting, top: str, protects: Protects) -> bool:
    """Return whether the place of hooks that a setting names is watched: it is protected, or it is not a folder.

    top   the folder of the worktree; "" for one that is not known
    """
    first = os.path.normpath(hooks.value or ".").partition("/")[0]
    return hooks.value == os.devnull or (bool(top and first) and protects(os.path.join(top, first)))


def _stays(git: str, worktree: str, linked: Sequence[str]) -> bool:
    """Return whether a worktree's git folder belongs to its repository, and `look` would find new hooks in it.

    linked   further git folders whose submodules and worktrees count
    """
    top, known, inner = f"{git}/".partition("/.git/")
    kind, *names = inner.rstrip("/").split("/")
    if not known or kind not in ("", *KINDS) or not UNSEARCHED.isdisjoint(names):
        return False
    return is_below(worktree, top) or any(is_below(git, f"{each}/{kind}") for each in linked for kind in KINDS)


def _runs(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))
    except OSError:
        return True
