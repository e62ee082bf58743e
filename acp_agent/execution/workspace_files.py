"""A bounded look at the files of a workspace, for gates that judge what a command's links lead to."""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access

MAX_ENTRIES = 10_000
"""Entries of folders that one look may meet."""

MAX_SECONDS = 0.5
"""How long one look may take: a folder may lie on a slow network."""

Resolve = Callable[[str, Access], str]


class _TooMany(Exception):
    """More entries than are looked at, or too slow a folder."""


class WorkspaceFiles:
    """The files of a workspace as its gates see them.

    cwd       the folder that relative paths start from
    resolve   where a path really is (Roots.resolve); what it refuses is outside
    """

    def __init__(self, cwd: str, resolve: Resolve) -> None:
        self._cwd = cwd
        self._resolve = resolve

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return the links at or below `folder` that lead out, and whether to a folder; None for too many files."""
        found = dict[str, bool]()
        try:
            for path in self._links(self._path(folder)):
                if self._leads_out(path):
                    found[os.path.relpath(path, self._cwd)] = os.path.isdir(path)
        except _TooMany:
            return None
        return found

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at `path`, and not a link to one."""
        with suppress(OSError, ValueError):
            return stat.S_ISREG(os.lstat(self._path(path)).st_mode)
        return False

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder or leads to one."""
        return os.path.isdir(self._path(path))

    def exists(self, path: str) -> bool:
        """Return whether there is anything at `path`, if only a broken link."""
        return os.path.lexists(self._path(path))

    def _path(self, path: str) -> str:
        return os.path.join(self._cwd, os.path.expanduser(path))

    def _leads_out(self, link: str) -> bool:
        """Return whether an existing file is what `link` leads to, outside or where nothing may be read."""
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
