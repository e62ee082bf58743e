"""Folders of git repositories: what something runs or obeys in them, and the repository of a linked worktree.

The `.git` of a linked worktree is a file that names its own git folder, which lies in the repository's:
`REPOSITORY/worktrees/NAME`. https://git-scm.com/docs/gitrepository-layout
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from acp_agent.core.data import frozen
from acp_agent.text import lazy_regex
from acp_agent.workspace.beneath import holding
from acp_agent.workspace.git.settings import MAX_BYTES, NotReadable, Setting, read_settings
from acp_agent.workspace.roots import is_below

_OBEYED = ("hooks", "config", "config.worktree", "info/attributes", "commondir", "gitdir")
_OF_THE_MAIN_WORKTREE = (
    "HEAD", "index", "info", "modules", "branches", "remotes", "sequencer", "rebase-merge", "rebase-apply",
)  # fmt: skip
KINDS = ("modules", "worktrees")
"""The folders in a git folder with the git folders of submodules and of linked worktrees."""
UNSEARCHED = frozenset(("objects", "refs", "logs", "hooks"))
"""The folders in the git folder of a submodule that are not searched for further git folders."""
_LONGEST = 4096  # bytes of a file that names a folder
_GENTLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block
HOOKS_PATH = "core.hookspath"
_NAMES_HOOKS = lazy_regex(rb"(?i)hookspath")


def obeyed_by_git(git: str) -> Iterator[str]:
    """Yield the existing hooks and settings of a repository, with those of its submodules and worktrees."""
    yield from filter(os.path.lexists, (os.path.join(git, name) for name in _OBEYED))
    yield from _submodules(git)


def _submodules(git: str) -> Iterator[str]:
    """Yield the hooks and settings of the submodules and worktrees whose data is in a `.git` folder.

    A folder among them that cannot be listed is yielded itself, because there may be some in it.
    """
    closed = list[str]()

    def note(error: OSError) -> None:
        if isinstance(error, PermissionError):
            closed.append(str(error.filename))

    for kind in KINDS:
        for folder, names, files in os.walk(os.path.join(git, kind), onerror=note):
            obeyed = [name for name in (*names, *files) if name in ("hooks", "config", "config.worktree", "commondir")]
            yield from (os.path.join(folder, name) for name in obeyed)
            names[:] = [name for name in names if name not in UNSEARCHED]
    yield from closed


def settings_in(path: str) -> tuple[Setting, ...]:
    """Return the settings in a file of git. A link is not followed. Raises OSError and NotReadable."""
    return read_settings(_content(path))


def _content(path: str) -> bytes:
    with holding(os.open(path, _GENTLY)) as fd, open(fd, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)


def hook_folders(obeyed: Iterable[str]) -> Iterator[str]:
    """Yield the folders that the settings among these paths name as places of hooks. They need not exist."""
    for path in obeyed:
        git, name = os.path.split(path)
        if name not in ("config", "config.worktree", "commondir"):
            continue
        # A worktree obeys the settings of the repository that its `commondir` names.
        with suppress(OSError, NotReadable):
            data = _content(os.path.join(named_folder(path), "config") if name == "commondir" else path)
            settings = read_settings(data) if _NAMES_HOOKS.search(data) else ()
            for value in [each.value for each in settings if each.key == HOOKS_PATH and each.value]:
                yield os.path.normpath(os.path.join(_worktree(git, settings), os.path.expanduser(value)))


def hooks_of_worktrees(folders: Sequence[str]) -> list[str]:
    """Return the places below these folders that the repositories directly in them name as places of hooks."""
    gits = [os.path.join(folder, ".git") for folder in folders]
    pointed = filter(None, (named_folder(git, "gitdir:") for git in gits))
    obeyed = (*(os.path.join(git, "config") for git in gits), *(os.path.join(git, "commondir") for git in pointed))
    found = [path for path in dict.fromkeys(hook_folders(obeyed)) if any(is_below(path, each) for each in folders)]
    return [path for path in found if not any(is_below(each, path) for each in folders)]


def _worktree(git: str, settings: Sequence[Setting]) -> str:
    """Return the folder of the worktree of a git folder, in which git runs hooks."""
    back = named_folder(os.path.join(git, "gitdir"))
    named = [each.value for each in settings if each.key == "core.worktree" and each.value]
    return os.path.join(git, named[-1]) if named and not back else os.path.dirname(back or git)


@frozen
class LinkedRepository:
    """A repository outside the session's folders that has some of them as linked worktrees. Paths are resolved.

    folder      the git folder that its worktrees share
    worktrees   the git folders of the session's worktrees; they are below `folder`
    """

    folder: str
    worktrees: tuple[str, ...]

    def frozen(self) -> Iterator[str]:
        """Yield the paths that may not change: what git obeys, and the state of the main and of all other worktrees."""
        main = filter(os.path.lexists, (os.path.join(self.folder, name) for name in _OF_THE_MAIN_WORKTREE))
        yield from dict.fromkeys((*obeyed_by_git(self.folder), *main))
        with suppress(OSError), os.scandir(os.path.join(self.folder, "worktrees")) as entries:
            yield from [entry.path for entry in entries if entry.path not in self.worktrees]
        for git in self.worktrees:
            yield from obeyed_by_git(git)


def linked_repositories(roots: Sequence[str]) -> tuple[LinkedRepository, ...]:
    """Return the repositories that have a root as a linked worktree.

    Anybody can write a `.git` file, and it may have come with a checkout. So the repository must name the root in turn,
    in `worktrees/NAME/gitdir`, which `git worktree add` writes. It must belong to the user, and none of the paths that
    may not change may be a link.
    """
    found = dict[str, None]()
    for root in roots:
        git = named_folder(os.path.join(root, ".git"), "gitdir:")
        common = os.path.dirname(os.path.dirname(git))
        if _names_back(git, common, os.path.realpath(root)) and _is_sound(common):
            found[common] = None
    within = tuple(map(os.path.realpath, roots))
    repositories = (LinkedRepository(common, tuple(_worktrees(common, within))) for common in found)
    return tuple(each for each in repositories if not any(map(os.path.islink, each.frozen())))


def _worktrees(common: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the git folders of the linked worktrees of a repository that are roots or lie below one."""
    with suppress(OSError), os.scandir(os.path.join(common, "worktrees")) as entries:
        for entry in entries:
            where = named_folder(os.path.join(entry.path, "gitdir"))
            if entry.is_dir(follow_symlinks=False) and any(is_below(where, root) for root in roots):
                yield entry.path


def _names_back(git: str, common: str, root: str) -> bool:
    """Return whether a git folder is that of a worktree of `common`, and names the root as the worktree's folder."""
    lies = os.path.dirname(git) == os.path.join(common, "worktrees")
    return (
        lies
        and named_folder(f"{git}/commondir") == common
        and named_folder(f"{git}/gitdir") == os.path.join(root, ".git")
    )


def _is_sound(common: str) -> bool:
    """Return whether a folder is a repository of this user with all that git needs of it."""
    try:
        whose = {os.lstat(os.path.join(common, name)).st_uid for name in ("", "HEAD", "objects", "refs", "worktrees")}
    except OSError:
        return False
    return whose == {os.geteuid()}


def named_folder(file: str, prefix: str = "") -> str:
    """Return the resolved path that a file names after a prefix, or "". A file that is a link names none."""
    try:
        with holding(os.open(file, _GENTLY)) as fd:
            text = os.fsdecode(os.read(fd, _LONGEST)) if stat.S_ISREG(os.fstat(fd).st_mode) else ""
    except OSError:
        return ""
    name = text.removeprefix(prefix).strip()
    usable = text.startswith(prefix) and len(text) < _LONGEST and name and "\0" not in name and "\n" not in name
    return os.path.realpath(os.path.join(os.path.dirname(file), name)) if usable else ""
