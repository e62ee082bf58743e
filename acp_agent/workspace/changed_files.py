"""Tell which text files below the roots a command has changed, by looking at them before and after it.

A look takes the status of every file that is not ignored, and reads small texts whose status is new, so that the next
change of them can be shown as a diff. It runs no program. What the user or another program changes while the command
runs counts as changed by it.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeAlias

from acp_agent.core.secrets import Secrecy, secrecy
from acp_agent.core.types import Access, Diff
from acp_agent.workspace.roots import Root, Roots
from acp_agent.workspace.text_files import is_binary
from acp_agent.workspace.tree_walk import IgnoreRules, TimeLimit

MOST_FILES = 20_000
"""The most entries below the roots. In larger trees no change is noticed."""
MOST_DIFFS = 10
"""The most files of one command of which the difference is shown."""
DIFF_CHARS = 200 * 1024
"""Characters of all differences of one command, both sides together."""
_TEXT_BYTES = DIFF_CHARS // 2
_KEPT_CHARS = 4 * 1024 * 1024
"""Characters of the texts that are kept for later differences."""
_SKIPPED = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))

_Stamp: TypeAlias = tuple[int, int, int, int]
"""Modification and status time in ns, size and inode of a file."""


class FileState(NamedTuple):
    """The regular files below the roots, by absolute path."""

    stamps: Mapping[str, _Stamp]


class CommandChanges(NamedTuple):
    """The files that differ between two looks, as absolute paths in order, and the differences that can be shown."""

    changed: Sequence[str] = ()
    deleted: Sequence[str] = ()
    diffs: tuple[Diff, ...] = ()


class FileWatch:
    """Looks at the files below the roots of a session. Use it in one worker thread at a time.

    cwd   the session's folder
    """

    def __init__(self, roots: Roots) -> None:
        self.cwd = roots.cwd
        self._roots = roots
        self._texts: dict[str, tuple[_Stamp, str]] = {}
        self._kept = 0
        self._too_large = False
        self._rules: dict[str, IgnoreRules] = {}
        self._ignored: dict[str, bool] = {}
        self._rule_stamps: dict[str, _Stamp] = {}

    def before(self) -> FileState | None:
        """Return the state before a command, and keep the texts that it may change. None if the tree is too large."""
        state = self._look()
        if state is None:
            return None
        for path in self._texts.keys() - state.stamps.keys():
            self._forget(path)
        for path, stamp in state.stamps.items():
            known = self._texts.get(path)
            if known is not None and known[0] != stamp:
                self._forget(path)
            if (known is None or known[0] != stamp) and self._kept < _KEPT_CHARS:
                self._keep(path, stamp)
        return state

    def since(self, before: FileState) -> CommandChanges:
        """Return what has changed since a look."""
        after = self._look()
        if after is None:
            return CommandChanges()
        old, new = before.stamps, after.stamps
        changed = [path for path in sorted(new) if new[path] != old.get(path) and self._is_shown(path)]
        deleted = [path for path in sorted(old.keys() - new.keys()) if self._is_shown(path)]
        diffs, room = list[Diff](), DIFF_CHARS
        for path in (*changed, *deleted):
            diff = self._diff(path, old.get(path), new.get(path))
            size = 0 if diff is None else len(diff.old_text or "") + len(diff.new_text)
            if diff is not None and len(diffs) < MOST_DIFFS and size <= room:
                diffs.append(diff)
                room -= size
        same = {diff.path for diff in diffs if diff.old_text == diff.new_text}  # only touched
        shown = tuple(diff for diff in diffs if diff.path not in same)
        return CommandChanges([path for path in changed if path not in same], deleted, shown)

    def _diff(self, path: str, old: _Stamp | None, new: _Stamp | None) -> Diff | None:
        """Return the difference of one file. None if a side of it is unknown, no text, or may be secret."""
        known = self._texts.get(path)
        if secrecy(path) is not Secrecy.OPEN or (old is not None and (known is None or known[0] != old)):
            return None
        before = None if old is None or known is None else known[1]
        after = "" if new is None else self._read(path)
        return None if after is None else Diff(path, before, after)

    def _is_shown(self, path: str) -> bool:
        """Return whether the user may be shown a file: no rule hides it, and git does not ignore it."""
        root, relative = self._place(path)
        return self._roots.allows(path, Access.READ) and not self._rules[root.path].ignores(
            relative, is_directory=False
        )

    # ------------------------------------------------------------------------------------------ texts

    def _keep(self, path: str, stamp: _Stamp) -> None:
        if stamp[2] <= _TEXT_BYTES and (text := self._read(path)) is not None:
            self._texts[path] = stamp, text
            self._kept += len(text)

    def _forget(self, path: str) -> None:
        self._kept -= len(self._texts.pop(path)[1])

    def _read(self, path: str) -> str | None:
        root, relative = self._place(path)
        try:
            fd = root.open_regular(relative)
        except OSError:
            return None
        try:
            data = os.read(fd, _TEXT_BYTES + 1)
            return None if len(data) > _TEXT_BYTES or is_binary(data) else data.decode()
        except (OSError, UnicodeDecodeError):
            return None
        finally:
            os.close(fd)

    def _place(self, path: str) -> tuple[Root, str]:
        """Return the root of a file that a look found, and its path relative to it."""
        return next((root, found) for root in self._roots.all if (found := root.relative(path)) is not None)

    # ------------------------------------------------------------------------------------------ looking

    def _look(self) -> FileState | None:
        if self._too_large:
            return None
        stamps: dict[str, _Stamp] = {}
        for root in self._roots.all:
            self._rules.setdefault(root.path, IgnoreRules(root, ".", TimeLimit(inf)))
            for path, status in self._files(root):
                stamps[path] = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
                if len(stamps) > MOST_FILES:
                    self._too_large = True
                    self._texts.clear()
                    return None
        rules = {path: stamp for path, stamp in stamps.items() if path.endswith("/.gitignore")}
        if rules != self._rule_stamps:  # the next look follows the new rules
            self._rule_stamps = rules
            self._rules = {root.path: IgnoreRules(root, ".", TimeLimit(inf)) for root in self._roots.all}
            self._ignored.clear()
        return FileState(stamps)

    def _files(self, root: Root) -> Iterator[tuple[str, os.stat_result]]:
        folders, met = ["."], 0
        while folders and met <= MOST_FILES:
            folder = folders.pop()
            try:
                fd = root.open_directory(folder)
            except OSError:
                continue
            prefix, path = "" if folder == "." else f"{folder}/", root.absolute(folder).rstrip("/")
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        met += 1
                        if entry.is_dir(follow_symlinks=False):
                            if self._is_entered(root, f"{prefix}{entry.name}", entry.name):
                                folders.append(f"{prefix}{entry.name}")
                        elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                            yield f"{path}/{entry.name}", status
            except OSError:
                continue
            finally:
                os.close(fd)
        self._too_large = self._too_large or met > MOST_FILES

    def _is_entered(self, root: Root, relative: str, name: str) -> bool:
        path = root.absolute(relative)
        if path not in self._ignored:
            self._ignored[path] = name in _SKIPPED or self._rules[root.path].ignores(relative, is_directory=True)
        return not self._ignored[path]
