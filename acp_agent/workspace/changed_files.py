"""Tell which files changed: those that a command changed, and those that changed since a session saw them.

The files below the roots are looked at before and after a command. A look takes the status of the files that are not
ignored, in large trees only in folders that changed, and reads small texts whose status is new, so that the next change
of them can be shown as a diff. It runs no program. What the user or another program changes while the command runs
counts as changed by it.

A model edits by what it read. If somebody else changes a file in between, `edit` and `write` refuse once and show the
difference (`tools/edit.py`), and the next prompt can name the files that changed (`SeenFiles.changed`).
"""

import ctypes
import difflib
import os
import stat
import struct
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secrets import Redact, Secrecy, secrecy, verbatim
from acp_agent.core.sessions import SeenFile
from acp_agent.core.types import Access, Diff
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.local_files import current_stamp, text_on_disk
from acp_agent.workspace.roots import Root, Roots
from acp_agent.workspace.text_files import MOST_WHOLE, is_binary, text_digest
from acp_agent.workspace.tree_walk import IgnoreRules, TimeLimit

MOST_FILES = 100_000
"""The most entries below the roots. In larger trees no change is noticed."""
MOST_WALKED = 20_000
"""The same where the kernel does not tell which folders changed."""
SMALL = 2000
"""The entries of a tree that is walked at every look. The kernel is not asked to watch it."""
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


class _Folder(NamedTuple):
    """A folder as it was listed: its regular files, and the folders in it that are entered, with their inodes."""

    files: Mapping[str, _Stamp]
    folders: Mapping[str, int]


FileState: TypeAlias = Mapping[str, _Folder]
"""The folders below the roots, by absolute path."""


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
        self._tree = _Tree(roots)
        self._texts: dict[str, tuple[_Stamp, str]] = {}
        self._kept = 0
        self._last: FileState = {}

    @property
    def limit(self) -> int:
        """The number of entries, if the tree has more and no change is noticed; else 0."""
        return self._tree.limit

    def before(self) -> FileState | None:
        """Return the state before a command, and keep the texts that it may change. None if the tree is too large."""
        state = self._tree.look()
        if self._tree.outdated:
            state = self._tree.look()
        if state is None:
            self._texts.clear()
            return None
        found = _differences(self._last, state)
        for path in found.keys() & self._texts.keys():
            self._kept -= len(self._texts.pop(path)[1])
        for path, (_, stamp) in found.items():
            if stamp is not None and self._kept < _KEPT_CHARS:
                self._keep(path, stamp)
        self._last = state
        return state

    def since(self, before: FileState) -> CommandChanges:
        """Return what has changed since a look."""
        after = self._tree.look()
        if after is None:
            return CommandChanges()
        found = {path: pair for path, pair in sorted(_differences(before, after).items()) if self._is_shown(path)}
        changed = [path for path, (_, new) in found.items() if new is not None]
        deleted = [path for path, (_, new) in found.items() if new is None]
        diffs, room = list[Diff](), DIFF_CHARS
        for path in (*changed, *deleted):
            diff = self._diff(path, *found[path])
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
        return self._roots.allows(path, Access.READ) and not self._tree.ignores(path, is_directory=False)

    def _keep(self, path: str, stamp: _Stamp) -> None:
        if stamp[2] <= _TEXT_BYTES and (text := self._read(path)) is not None:
            self._texts[path] = stamp, text
            self._kept += len(text)

    def _read(self, path: str) -> str | None:
        root, relative = _place(self._roots, path)
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


def _differences(old: FileState, new: FileState) -> dict[str, tuple[_Stamp | None, _Stamp | None]]:
    """Return the files that differ, by absolute path, with their old and their new stamp."""
    found: dict[str, tuple[_Stamp | None, _Stamp | None]] = {}
    for folder in old.keys() | new.keys():
        before, after = old.get(folder), new.get(folder)
        if before is not after:  # a folder without a change is the same object
            first, second = (before or _NO_FOLDER).files, (after or _NO_FOLDER).files
            for name in first.keys() | second.keys():
                pair = first.get(name), second.get(name)
                if pair[0] != pair[1]:
                    found[os.path.join(folder, name)] = pair
    return found


def _place(roots: Roots, path: str) -> tuple[Root, str]:
    """Return the root of a file that a look found, and its path relative to it."""
    return next((root, found) for root in roots.all if (found := root.relative(path)) is not None)


class _Tree:
    """The files below the roots of a session, except ignored folders.

    A small tree is walked at every look. In a larger one the kernel tells which folders changed (inotify, on Linux),
    and only these are listed again.

    limit      the number of entries, once the tree was found to have more; else 0
    outdated   whether ignore rules have changed. The next look follows the new ones
    """

    def __init__(self, roots: Roots) -> None:
        self.limit = 0
        self.outdated = False
        self._roots = roots
        self._rules: dict[str, IgnoreRules] = {}
        self._ignored: dict[str, bool] = {}
        self._folders: dict[str, _Folder] = {}
        self._entries = 0
        self._watches: _FolderWatches | None = None
        self._can_watch = sys.platform == "linux"

    def look(self) -> FileState | None:
        """Return the folders as they are now. None if the tree is too large."""
        if self.limit:
            return None
        try:
            self._update()
        except _NotWatched:
            self._can_watch, self._watches = False, None
            self._start_over()
            self._walk(())
        return None if self.limit else dict(self._folders)

    def _update(self) -> None:
        changed = None if self._watches is None else self._watches.changed()
        if self.outdated or not self._folders or (changed is None and self._watches is not None):
            self._start_over()
        self._walk(self._folders if changed is None else changed)
        if self._entries > SMALL and self._watches is None and self._can_watch:
            self._watches = _FolderWatches()
            self._start_over()
            self._walk(())

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Return whether git ignores a path below a root."""
        root, relative = _place(self._roots, path)
        return self._rules[root.path].ignores(relative, is_directory=is_directory)

    def _start_over(self) -> None:
        """Forget everything. The next walk begins with the roots."""
        if self._watches is not None:
            self._watches = _FolderWatches()
        self._rules = {root.path: IgnoreRules(root, ".", TimeLimit(inf)) for root in self._roots.all}
        self._folders.clear()
        self._ignored.clear()
        self._entries, self.outdated = 0, False

    def _walk(self, folders: Iterable[str]) -> None:
        """List these folders again, and those that are new in them. Raises _NotWatched."""
        waiting = list(folders) if self._folders else [root.path for root in self._roots.all]
        most = MOST_FILES if self._watches is not None else MOST_WALKED
        while waiting:
            path = waiting.pop()
            known, now = self._folders.get(path), self._listed(path)
            if now == known:
                continue
            before, after = known or _NO_FOLDER, now or _NO_FOLDER
            if known is not None and before.files.get(".gitignore") != after.files.get(".gitignore"):
                self.outdated = True
            for name, inode in before.folders.items():
                if after.folders.get(name) != inode:
                    self._drop(os.path.join(path, name))
            if now is None:
                self._drop(path)
                continue
            self._folders[path] = now
            self._entries += _size(after) - _size(before)
            waiting += [
                os.path.join(path, name) for name, each in now.folders.items() if before.folders.get(name) != each
            ]
            if self._entries > (SMALL if self._watches is None and self._can_watch else most):
                break
        if self._entries > most:
            self.limit, self._watches = most, None
            self._folders.clear()

    def _drop(self, path: str) -> None:
        """Forget a folder and those below it."""
        waiting = [path]
        while waiting:
            path = waiting.pop()
            gone = self._folders.pop(path, None)
            if gone is not None:
                self._entries -= _size(gone)
                waiting += [os.path.join(path, name) for name in gone.folders]
            if self._watches is not None:
                self._watches.remove(path)

    def _listed(self, path: str) -> _Folder | None:
        """Return a folder as it is now, and watch it. None if it cannot be listed. Raises _NotWatched."""
        root, relative = _place(self._roots, path)
        files, folders = dict[str, _Stamp](), dict[str, int]()
        try:
            fd = root.open_directory(relative)
        except OSError:
            return None
        try:
            if self._watches is not None:
                self._watches.add(path, fd)  # first, so that no change is missed
            with os.scandir(fd) as entries:
                for entry in islice(entries, MOST_FILES + 1):
                    if entry.is_dir(follow_symlinks=False):
                        if self._is_entered(os.path.join(path, entry.name), entry.name):
                            folders[entry.name] = entry.inode()
                    elif (stamp := _stamp(entry)) is not None:
                        files[entry.name] = stamp
        except OSError:
            return None
        finally:
            os.close(fd)
        return _Folder(files, folders)

    def _is_entered(self, path: str, name: str) -> bool:
        if path not in self._ignored:
            self._ignored[path] = name in _SKIPPED or self.ignores(path, is_directory=True)
        return not self._ignored[path]


def _stamp(entry: "os.DirEntry[str]") -> _Stamp | None:
    """Return the stamp of a regular file; None for anything else, and for what vanished meanwhile."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    is_file = stat.S_ISREG(status.st_mode)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino) if is_file else None


_NO_FOLDER = _Folder({}, {})


def _size(folder: _Folder) -> int:
    return len(folder.files) + len(folder.folders)


class _NotWatched(Exception):
    """The kernel does not watch as many folders."""


class _FolderWatches:
    """The folders that the kernel watches for changes of their entries (inotify(7), Linux only).

    It watches the folder that is open, wherever its path leads meanwhile. What changes a file through a hard link that
    is elsewhere is not noticed. Raises _NotWatched if the user has no more such queues.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise _NotWatched
        weakref.finalize(self, os.close, self._fd)
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def add(self, path: str, fd: int) -> None:
        """Watch an open folder under its path. Raises _NotWatched."""
        number = self._libc.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % fd, _CHANGES)
        if number < 0:
            raise _NotWatched
        self._paths[number], self._numbers[path] = path, number

    def remove(self, path: str) -> None:
        """Watch a folder no more, unless it is watched under another path by now."""
        number = self._numbers.pop(path, None)
        if number is not None and self._paths.get(number) == path:
            del self._paths[number]
            self._libc.inotify_rm_watch(self._fd, number)

    def changed(self) -> set[str] | None:
        """Return the folders that changed since the last call. None if the kernel has forgotten some."""
        found = set[str]()
        with suppress(BlockingIOError):
            while data := os.read(self._fd, _EVENT_BYTES):
                at = 0
                while at < len(data):
                    number, mask, _, length = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + length
                    if mask & _OVERFLOW:
                        return None
                    if number in self._paths:
                        found.add(self._paths[number])
        return found


_EVENT = struct.Struct("iIII")
_EVENT_BYTES = 64 * 1024
_OVERFLOW = 0x4000
_CHANGES = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""Modified, attributes changed, written and closed, moved away, moved here, created, deleted, deleted itself."""


_MOST_TEXTS = 64
_MOST_FILES = 2000
_MOST_COMPARED = 3000  # lines: more take a comparison longer than a reader would wait
_CONTEXT = 2


class SeenFiles:
    """The files that one session has seen, by absolute path. Its methods are for worker threads.

    roots    returns what may be read now; None if nothing may, or without a disk
    redact   removes secrets from a text. Only texts without secrets are kept
    files    what a stored session has seen
    now      returns nanoseconds since 1970

    The oldest notes are dropped above 2,000 files, and the oldest texts above 64.
    """

    def __init__(
        self,
        roots: Callable[[], Roots | None] = lambda: None,
        redact: Redact = verbatim,
        files: Mapping[str, SeenFile] = MappingProxyType({}),
        now: Callable[[], int] = now_ns,
    ) -> None:
        self._roots = roots
        self._redact = redact
        self._now = now
        self._files = OrderedDict(files)
        self._texts = OrderedDict[str, None]((path, None) for path, file in files.items() if file.text is not None)
        self._unnamed = set[str]()  # files whose path holds a secret
        self._version = self._kept_version = 0
        self._kept = files

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def note(self, path: str, text: str) -> None:
        """Note that the model knows this text of the file: it read or wrote it."""
        self.note_digest(path, text_digest(text), text if len(text) <= MOST_WHOLE else None)

    def note_digest(self, path: str, digest: str, text: str | None = None) -> None:
        """Note a file by the digest of its text. `text` is given if it is short enough to be kept."""
        text = None if text is None else self._redact(text)
        if self._redact(path) != path:
            self._unnamed.add(path)
        self._files[path] = SeenFile(digest, self._stamp(path), text)
        self._files.move_to_end(path)
        self._texts.pop(path, None)
        if text is not None:
            self._texts[path] = None
        while len(self._texts) > _MOST_TEXTS:
            oldest, _ = self._texts.popitem(last=False)
            self._files[oldest] = replace(self._files[oldest], text=None)
        while len(self._files) > _MOST_FILES:
            oldest, _ = self._files.popitem(last=False)
            self._texts.pop(oldest, None)
        self._version += 1  # last: what is changed before it is in the next `kept`

    def kept(self) -> Mapping[str, SeenFile]:
        """Return the notes as they are stored: the same object until one changes. Any thread may call it."""
        version = self._version
        if version != self._kept_version:
            self._kept = {path: seen for path, seen in dict(self._files).items() if path not in self._unnamed}
            self._kept_version = version
        return self._kept

    def forget(self, path: str) -> None:
        """Forget a file and everything below it: the session itself deleted it or put another one there."""
        for each in self._below(path):
            del self._files[each]
            self._texts.pop(each, None)
        self._version += 1

    def move(self, old: str, new: str) -> None:
        """Note that the session itself moved a file or a folder."""
        self.forget(new)
        for each in self._below(old):
            target = f"{new}{each.removeprefix(old)}"
            self._files[target] = replace(self._files.pop(each), stamp="")
            if each in self._texts:
                del self._texts[each]
                self._texts[target] = None
            if self._redact(target) != target:
                self._unnamed.add(target)
        self._version += 1

    def _below(self, path: str) -> list[str]:
        return [each for each in list(self._files) if each == path or each.startswith(f"{path}/")]

    def clear(self) -> None:
        """Forget every file, because the conversation that saw them is gone."""
        self._files.clear()
        self._texts.clear()
        self._version += 1

    def difference(self, path: str, text: str) -> list[str] | None:
        """Return how `text` differs from what was noted, as lines of a diff. None if it does not, or nothing was noted.

        The list is empty if the noted text was too long to be kept.
        """
        seen = self._files.get(path)
        if seen is None or seen.digest == text_digest(text):
            return None
        return [] if seen.text is None else _diff(self._redact(seen.text), self._redact(text))

    def changed(self) -> tuple[str, ...]:
        """Return the paths whose content on disk is not what was noted any more, sorted. It looks at every file.

        A file whose times and size are as they were costs one `stat`. Unsaved changes in an editor do not count here.
        """
        return tuple(sorted(path for path, seen in list(self._files.items()) if self._has_changed(path, seen)))

    def _has_changed(self, path: str, seen: SeenFile) -> bool:
        roots, stamp = self._roots(), self._stamp(path)
        if roots is None or (stamp and stamp == seen.stamp):
            return False
        try:
            text = text_on_disk(roots, path)
        except Refused:  # it may not be read any more
            return False
        except ToolError:  # it is no text any more
            return True
        if text is None or text_digest(text) != seen.digest:
            return True
        if self._files.get(path) is seen:
            self._files[path] = replace(seen, stamp=stamp)
            self._version += 1
        return False

    def _stamp(self, path: str) -> str:
        """Return what changes whenever the file is written; empty if it is no file or was written a moment ago."""
        roots = self._roots()
        return "" if roots is None else current_stamp(roots, path, self._now) or ""


def _diff(old: str, new: str) -> list[str]:
    """Return the lines of a unified diff. What both texts begin and end with is not compared, only shown as context."""
    before, after = old.split("\n"), new.split("\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, kept = max(start - _CONTEXT, 0), max(end - _CONTEXT, 0)
    before, after = before[first : len(before) - kept], after[first : len(after) - kept]
    if max(len(before), len(after)) > _MOST_COMPARED:
        return []
    lines = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]
    return [_moved(line, first) for line in lines]


def _moved(line: str, by: int) -> str:
    """Return a line of a diff. A hunk's head gets the line numbers of the whole texts."""
    if not line.startswith("@@ "):
        return line
    ranges = [part.partition(",") for part in line.split()[1:3]]
    shown = [f"{number[0]}{int(number[1:]) + by}{comma}{count}" for number, comma, count in ranges]
    return f"@@ {' '.join(shown)} @@"
