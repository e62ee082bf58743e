"""The agent's own files: settings and answers that decide what asks. No tool may write them (security.md, asset 11).

Nor may one open the keys among them (asset 1): what a tool reads, the model gets. Nor the database and the locks, not
even to look: POSIX locks on a file are gone as soon as this process closes any descriptor of it, and then another
process takes our sessions, or the log of the database from under us.
"""

import os
import stat
from collections.abc import Callable, Iterable

from acp_agent.core.types import Access
from acp_agent.execution.read_policy import folded

PROJECT_FOLDER = ".acp-agent"


class OwnFiles:
    """A PathPolicy: refuses writing to `paths`, to anything below them, and to any project's `.acp-agent`.

    Reading stays allowed, but of the files `closed`, of what is called like one of them with something behind it
    (`-wal`, `.lock`, `.damaged-1`) and of their hard links. Names are compared without case, as some file systems do,
    so that no twin slips by. Of a path that is a link, the link is meant and what it leads to.
    """

    def __init__(self, paths: Iterable[str], closed: Iterable[str] = ()) -> None:
        closed = tuple(closed)
        self._paths = tuple({folded(spelling) for path in paths for spelling in spellings(path)})
        self._closed = tuple({folded(spellings(path)[0]) for path in closed})
        self._led_to = frozenset(folded(os.path.realpath(path)) for path in closed)
        self._folders = {os.path.realpath(os.path.dirname(path)) for path in closed}

    def __call__(self, path: str, access: Access) -> str | None:
        name = folded(path)
        if self._is_closed(name) or self._is_twin(path):
            return "holds the agent's own keys or sessions"
        if not access.changes:
            return None
        own = any(name == mine or name.startswith(f"{mine}/") for mine in self._paths)
        return "belongs to the agent itself" if own or PROJECT_FOLDER in name.split("/") else None

    def _is_closed(self, name: str) -> bool:
        folder, slash, entry = name.rpartition("/")  # a new file has a dot before its name until it is whole
        return name in self._led_to or f"{folder}{slash}{entry.removeprefix('.')}".startswith(self._closed)

    def _is_twin(self, path: str) -> bool:
        """Whether it is another name of a closed file."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return False
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):
            return False
        return any(_holds(folder, status, self._is_closed) for folder in self._folders)


def _holds(folder: str, status: os.stat_result, meant: Callable[[str], bool]) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(
                each.inode() == status.st_ino
                and meant(folded(each.path))
                and os.path.samestat(each.stat(follow_symlinks=False), status)
                for each in entries
            )
    except OSError:
        return False


def spellings(path: str) -> tuple[str, str]:
    """Where a path is and where it leads: a configuration file is often a link into somebody's collection."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name), os.path.realpath(path)
