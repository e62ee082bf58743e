"""Notice what changed below a folder, and keep the old contents (`workspace/git/objects`).

A folder is looked at before and after a call. A look takes the status of every entry that is not ignored, to the
nanosecond and with all mode bits, links and empty folders included, and reads what has changed. In a large tree the
kernel is asked (inotify) which folders have changed since the last look, and only these are looked at. The whole tree
is looked at once a turn, so changes through memory maps are only noticed in the next turn.
"""

import ctypes
import os
import stat
import struct
import sys
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from acp_agent.core.new_file import is_temporary
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.beneath import holding
from acp_agent.workspace.git.objects import (
    SETTLED,
    IndexStamp,
    SnapshotLimits,
    SnapshotOff,
    object_name,
)
from acp_agent.workspace.roots import Root
from acp_agent.workspace.tree_walk import IgnoreRules, TimeLimit

FILE, LINK, FOLDER = "file", "link", "folder"


class TreeEntry(NamedTuple):
    """One entry of a tree.

    mode      its permission bits, 0 for a link
    content   the name of the object with the bytes of a file or the target of a link, "" for a folder. It begins with
              "?" if the content was left out, because the file is too large or cannot be read
    """

    kind: str
    mode: int
    content: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether it can be restored."""
        return not self.content.startswith("?")


class EntryChange(NamedTuple):
    """A change of one entry, by its absolute path. None stands for no entry."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None


# ------------------------------------------------------------------------------------------- the walk

MOST_ENTRIES = 100_000
"""The most entries below a root. In larger trees no change is noticed."""
MOST_WALKED = 20_000
"""The same limit where the kernel cannot report which folders changed."""
_KEPT_BYTES = 4 * 1024 * 1024
_SKIPPED = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))
_MANY = 200
"""The most files that are stored one by one. If there are more, git stores them all at once."""
SMALL = 3000
"""The most entries of a tree that is walked at every look. In a larger tree, the kernel is asked what has changed."""

_Stamp: TypeAlias = tuple[int, ...]
_LOW = 0xFFFFFFFF


class TooManyEntries(SnapshotOff):
    """The error if a root has more entries than `most`. No change in it is noticed."""

    def __init__(self, path: str, most: int) -> None:
        super().__init__(f"{path} holds more than {most:,} entries")
        self.most = most


class ContentStore(Protocol):
    """A store of the contents of files: an ObjectStore, or a TextStore."""

    def wants(self, size: int) -> bool:
        """Return whether a content of so many bytes can be kept."""
        ...

    def put(self, data: bytes) -> str:
        """Keep a content and return its name. Raises SnapshotOff."""
        ...

    def get(self, names: Collection[str]) -> dict[str, bytes]:
        """Return the contents that are kept, by their names."""
        ...

    def add(self, root: Root, paths: Sequence[str]) -> None:
        """Keep many files at once, if that is faster. `stored` names them."""
        ...

    def stored(self, root: Root) -> Iterator[tuple[str, IndexStamp, str]]:
        """Yield what `add` has kept: a file's path, stamp and name."""
        ...


class TextStore:
    """Texts in memory, of at most 4 MB, to show differences where nothing is kept for `/undo`."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._room = _KEPT_BYTES

    def wants(self, size: int) -> bool:
        return size <= self._room

    def put(self, data: bytes) -> str:
        name = object_name(data)
        if name not in self._texts and len(data) <= self._room:
            self._texts[name] = data
            self._room -= len(data)
        return name

    def get(self, names: Collection[str]) -> dict[str, bytes]:
        return {name: self._texts[name] for name in names if name in self._texts}

    def add(self, root: Root, paths: Sequence[str]) -> None:
        """Do nothing."""
        del root, paths

    def stored(self, root: Root) -> Iterator[tuple[str, IndexStamp, str]]:
        """Yield nothing."""
        del root
        yield from ()


class _Known(NamedTuple):
    """A file or link: its stamp, empty if it must be read again, and its entry, None if it is ignored."""

    stamp: _Stamp
    entry: TreeEntry | None


@dataclass(slots=True)
class _Folder:
    """A folder as it was seen last: its files and links, the subfolders that are entered, and the number of both.

    is_linked   whether a file in it has more than one name (hard links), by which it may change unreported
    """

    entry: TreeEntry
    inode: int = 0
    size: int = 0
    is_linked: bool = False
    entries: dict[str, _Known] = field(default_factory=dict[str, _Known])
    below: set[str] = field(default_factory=set[str])


class _Found(NamedTuple):
    """A file or link that is new or changed."""

    folder: _Folder
    path: str
    name: str
    stamp: _Stamp
    before: _Known | None


class FolderWatch:
    """A watch of everything below one root. Its methods block; use it in one thread at a time.

    store   keeps the contents
    wanted  the limits that the configuration wants, if others apply
    skipped the absolute path of a folder that is never entered: our own data
    stop    set when the session ends, which ends a long look
    """

    def __init__(
        self,
        root: Root,
        store: ContentStore,
        limits: SnapshotLimits,
        stop: threading.Event | None = None,
        skipped: str = "",
        *,
        wanted: SnapshotLimits | None = None,
    ) -> None:
        self.root = root
        self.store = store
        self.wanted = wanted or limits
        self._limits = limits
        self._stop = stop or threading.Event()
        self._skipped = skipped
        self._folders: dict[str, _Folder] = {}
        self._rules = IgnoreRules(root, ".", TimeLimit(inf))
        self._ignored: dict[str, bool] = {}  # by folder: those that the last whole walk met, and those met since
        self._earlier: dict[str, bool] = {}  # the same before a whole walk that is under way
        self._rule_stamps: dict[str, _Stamp] = {}
        self._events: _KernelEvents | None = None
        self._stored: dict[str, tuple[IndexStamp, str]] = {}
        self._can_watch = sys.platform == "linux"
        self._count = 0
        self._whole = True
        self._linked = False
        self._is_known = self._notes = False

    def look(self, *, first: bool = False) -> list[EntryChange]:
        """Return what has changed since the last look, by absolute path, in order. Raises SnapshotOff.

        The first look returns nothing, and neither does the one after an error: the state before it is not known.

        first   whether no call runs yet. Then changed .gitignore files are read again, and their rules apply
        """
        self._notes, self._is_known = self._is_known, False
        try:
            changes = self._looked(first=first)
        except OSError as error:
            raise SnapshotOff(f"{self.root.path} cannot be looked at: {error.strerror}") from error
        self._is_known = True
        return sorted(changes.values())

    def _looked(self, *, first: bool) -> dict[str, EntryChange]:
        if not self._folders:
            self._stored = {path: (stamp, name) for path, stamp, name in self.store.stored(self.root)}
        if first:
            self._follow_rules()
        if len(self._stored) > SMALL and self._watch_events():
            self._whole = True
        linked = {path for path, folder in self._folders.items() if folder.is_linked}
        dirty = None if self._events is None else self._events.folders()
        changes, found = dict[str, EntryChange](), dict[str, _Found]()
        whole, self._whole, self._linked = self._whole or dirty is None, True, False
        if whole:
            self._earlier, self._ignored = self._ignored, {}
        self._walk([""] if whole else sorted({*(dirty or ()), *linked}, reverse=True), changes, found, whole=whole)
        if self._linked and not whole:  # for a hard-linked file, the kernel reports only one of its names
            self._walk([""], changes, found, whole=True)
        self._earlier.clear()
        self._keep(list(found.values()), changes)
        self._stored.clear()
        self._whole = False
        return changes

    @property
    def is_large(self) -> bool:
        """Whether the last look at everything met many entries."""
        return self._count > SMALL

    def look_at_all(self) -> None:
        """Look at the whole tree the next time, whatever the kernel says."""
        self._whole = True

    def close(self) -> None:
        """Close the kernel's events."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _follow_rules(self) -> None:
        """Read the rules again if one of their files has changed."""
        now = {
            path: known.stamp
            for path, folder in self._folders.items()
            if (known := folder.entries.get(".gitignore")) is not None
        }
        if now == self._rule_stamps:
            return
        self._rule_stamps = now
        self._rules = IgnoreRules(self.root, ".", TimeLimit(inf))
        self._ignored.clear()
        self._whole = True
        for folder in self._folders.values():
            folder.entries = {name: known for name, known in folder.entries.items() if known.entry is not None}

    def _walk(
        self, pending: list[str], changes: dict[str, EntryChange], found: dict[str, _Found], *, whole: bool
    ) -> None:
        """Look at folders, and at all below them if `whole`. Raises SnapshotOff."""
        seen, met = set[str](), 0
        while pending:
            folder = pending.pop()
            if folder in seen or (folder and folder not in self._folders):  # the kernel reports ignored ones too
                continue
            seen.add(folder)
            pending += self._scan(folder, changes, found, whole=whole)
            known = self._folders.get(folder)
            met += 0 if known is None else known.size
            most = MOST_ENTRIES if self._can_watch else MOST_WALKED
            if met > most:
                raise TooManyEntries(self.root.path, most)
            if whole and met > SMALL and self._watch_events():
                self._count_entries()
                pending, met = [""], 0
                seen.clear()
        if whole:
            self._count = met

    def _count_entries(self) -> None:
        """Count the entries of the tree before they are loaded into memory. Raises TooManyEntries, SnapshotOff."""
        pending, met = [""], 0
        while pending:
            path = pending.pop()
            prefix = f"{path}/" if path else ""
            try:
                with holding(self.root.open_directory(path or ".")) as fd, os.scandir(fd) as entries:
                    for entry in entries:
                        is_folder = entry.is_dir(follow_symlinks=False)
                        if is_folder and not self._is_entered(prefix + entry.name, entry.name):
                            continue
                        met += 1
                        pending += [prefix + entry.name] if is_folder else []
            except OSError:
                continue
            if self._stop.is_set():
                raise SnapshotOff("the session ended")
            if met > MOST_ENTRIES:
                raise TooManyEntries(self.root.path, MOST_ENTRIES)

    def _watch_events(self) -> bool:
        """Begin to watch the tree with inotify. Return True if this began now: then every folder must be visited."""
        if not self._can_watch or (self._events is not None and self._events.works):
            return False
        if self._events is None:
            self._events = _KernelEvents.open()
            if self._events is not None:
                return True
        else:
            self._events.close()
            self._events = None
        self._can_watch = False
        return False

    def _scan(self, path: str, changes: dict[str, EntryChange], found: dict[str, _Found], *, whole: bool) -> list[str]:
        """Look at the entries of a folder. Return the folders below that are to be looked at as well."""
        if self._stop.is_set():
            raise SnapshotOff("the session ended")
        try:
            fd = self.root.open_directory(path or ".")
        except OSError:  # it is gone, which the look at its parent notes, or it is unreadable and counts as unchanged
            return []
        with holding(fd):
            if self._events is not None and self._events.works:
                self._events.watch(fd, path)
            status = os.fstat(fd)
            known = self._folders.setdefault(path, _Folder(_folder_entry(status)))
            known.inode = status.st_ino
            try:
                names, below = self._entries(fd, path, known, found)
            except OSError:
                return []
        prefix = f"{path}/" if path else ""
        for name in known.below - below.keys():
            self._lost(prefix + name, changes)
        for name in known.entries.keys() - names:
            self._note(changes, prefix + name, known.entries.pop(name).entry, None)
        known.below = set(below)
        known.size = len(names) + len(below)
        met = [(prefix + name, self._meet_folder(prefix + name, each, changes)) for name, each in below.items()]
        return [child for child, is_other in met if is_other or whole]

    def _entries(
        self, fd: int, path: str, known: _Folder, found: dict[str, _Found]
    ) -> tuple[set[str], dict[str, os.stat_result]]:
        """Collect new and changed files of an open folder. Return the names of all, and the folders to enter."""
        names, below, prefix = set[str](), dict[str, os.stat_result](), f"{path}/" if path else ""
        known.is_linked = False
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if self._is_entered(prefix + name, name):
                            below[name] = entry.stat(follow_symlinks=False)
                        continue
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                names.add(name)
                known.is_linked = known.is_linked or status.st_nlink > 1
                stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)
                before = known.entries.get(name)
                if before is None or before.stamp != stamp:
                    found[prefix + name] = _Found(known, prefix + name, name, stamp, before)
                    self._linked = self._linked or status.st_nlink > 1
        return names, below

    def _meet_folder(self, path: str, status: os.stat_result, changes: dict[str, EntryChange]) -> bool:
        """Note a folder. Return whether it is a different folder than before."""
        known, entry = self._folders.get(path), _folder_entry(status)
        if known is None:
            self._note(changes, path, None, entry)
            self._folders[path] = _Folder(entry)
            return True
        if known.entry != entry:
            self._note(changes, path, known.entry, entry)
            known.entry = entry
        return known.inode != status.st_ino

    def _lost(self, path: str, changes: dict[str, EntryChange]) -> None:
        """Note that a folder is gone, with all below it."""
        known = self._folders.pop(path, None)
        if known is None:
            return
        self._note(changes, path, known.entry, None)
        for name, each in known.entries.items():
            self._note(changes, f"{path}/{name}", each.entry, None)
        for name in known.below:
            self._lost(f"{path}/{name}", changes)

    def _note(
        self, changes: dict[str, EntryChange], path: str, before: TreeEntry | None, after: TreeEntry | None
    ) -> None:
        """Note a change. If a folder replaces a file, or the reverse, there are two changes, which become one."""
        if not self._notes:
            return
        absolute = self.root.absolute(path)
        known = changes.get(absolute)
        first = before if known is None or known.before is None else known.before
        last = after if after is not None or known is None else known.after
        if first != last:
            changes[absolute] = EntryChange(absolute, first, last)
        else:
            changes.pop(absolute, None)

    def _is_entered(self, path: str, name: str) -> bool:
        ignored = self._ignored.get(path)
        if ignored is None:
            ignored = self._earlier.get(path)
            if ignored is None:
                ignored = (
                    name in _SKIPPED
                    or self.root.absolute(path) == self._skipped
                    or self._rules.ignores(path, is_directory=True)
                )
            self._ignored[path] = ignored
        return not ignored

    # ------------------------------------------------------------------------------------- contents

    def _keep(self, found: Sequence[_Found], changes: dict[str, EntryChange]) -> None:
        """Keep the contents of new and changed files, and note their changes."""
        stored = self._stored
        if len(found) > _MANY or sum(each.stamp[2] for each in found) > self._limits.bytes:
            missing = [each for each in found if self._is_missing(each)]
            if sum(each.stamp[2] for each in missing) > self._limits.bytes:
                raise SnapshotOff(f"{self.root.path} holds more than {self._limits.bytes // 10**6:,} MB")
            if len(missing) > _MANY:
                self.store.add(self.root, [each.path for each in missing])
                stored = {path: (stamp, name) for path, stamp, name in self.store.stored(self.root)}
        now = now_ns()
        for each in found:
            known = self._known(each, stored, now)
            if known is None:
                each.folder.entries.pop(each.name, None)
            else:
                each.folder.entries[each.name] = known
            before = each.before.entry if each.before is not None else None
            if each.before is not None and each.before.entry is None:
                continue  # an ignored file
            self._note(changes, each.path, before, None if known is None else known.entry)

    def _is_missing(self, found: _Found) -> bool:
        stored = self._stored.get(found.path)
        plain = stat.S_ISREG(found.stamp[4]) and found.stamp[2] <= self._limits.file_bytes
        return plain and (stored is None or stored[0] != _index_stamp(found.stamp)) and not self._ignores(found)

    def _ignores(self, found: _Found) -> bool:
        if found.before is not None:
            return found.before.entry is None
        if found.name == ".git" or is_temporary(found.name):
            return True
        return self._rules.ignores(found.path, is_directory=False)

    def _known(self, found: _Found, stored: Mapping[str, tuple[IndexStamp, str]], now: int) -> _Known | None:
        """Return what is known of a file or link from now on. None if it is neither, or is gone."""
        mode = found.stamp[4]
        known = stored.get(found.path)
        settled = found.stamp[1] < now - SETTLED
        if known is not None and known[0] == _index_stamp(found.stamp) and stat.S_ISREG(mode):
            return _Known(found.stamp, TreeEntry(FILE, stat.S_IMODE(mode), known[1]))
        if self._ignores(found):
            return _Known(found.stamp, None)
        if not self.store.wants(found.stamp[2]):
            return _Known(found.stamp, TreeEntry(FILE, stat.S_IMODE(mode), f"?{found.stamp[:4]}"))
        parent, name = os.path.split(found.path)
        try:
            fd = self.root.open_directory(parent or ".")
        except OSError:
            return None
        with holding(fd):
            read = read_entry(fd, name, self._limits.file_bytes)
            if read is None:
                return None
            entry, data = read
            if data is not None:
                self.store.put(data)
        return _Known(found.stamp if settled else (), entry)


def _folder_entry(status: os.stat_result) -> TreeEntry:
    return TreeEntry(FOLDER, stat.S_IMODE(status.st_mode))


def _index_stamp(stamp: _Stamp) -> IndexStamp:
    return stamp[0], stamp[1], stamp[2] & _LOW, stamp[3] & _LOW


def read_entry(directory: int, name: str, most: int) -> tuple[TreeEntry, bytes | None] | None:
    """Return an entry of an open folder and its content. The content is None for folders and if it is left out.

    Return None if there is no file, link or folder of that name.

    most   bytes of the largest content that is read
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            return TreeEntry(FOLDER, mode), None
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=directory))
            return TreeEntry(LINK, 0, object_name(target)), target
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    left_out = TreeEntry(FILE, mode, f"?{status.st_mtime_ns},{status.st_size},{status.st_ino}")
    if status.st_size > most:
        return left_out, None
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        with holding(fd), os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError:
        return left_out, None
    return (left_out, None) if len(data) > most else (TreeEntry(FILE, mode, object_name(data)), data)


# ------------------------------------------------------------------------------------------- the kernel

_IN_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_CHANGES = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF and MOVE_SELF of inotify(7)."""
_EVENT = struct.Struct("iIII")


class _KernelEvents:
    """The folders that have changed, from inotify. A folder must be watched before its entries are read.

    works   whether all of them are watched
    """

    def __init__(self, fd: int, libc: ctypes.CDLL) -> None:
        self.works = True
        self.close = weakref.finalize(self, os.close, fd)
        self._fd = fd
        self._libc = libc
        self._paths: dict[int, str] = {}

    @classmethod
    def open(cls) -> "_KernelEvents | None":
        """Return a new object, or None if the user's inotify instances are used up."""
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return cls(fd, libc) if fd >= 0 else None

    def watch(self, directory: int, path: str) -> None:
        """Watch an open folder, known by this path from now on."""
        at = ctypes.c_char_p(b"/proc/self/fd/%d" % directory)
        watch = self._libc.inotify_add_watch(self._fd, at, ctypes.c_uint32(_IN_CHANGES))
        if watch >= 0:
            self._paths[watch] = path
        else:
            self.works = False

    def folders(self) -> set[str] | None:
        """Return the folders that have changed since the last call. None if events were lost."""
        found, broken = set[str](), not self.works
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                return None
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                broken = broken or bool(mask & _IN_OVERFLOW)
                path = self._paths.pop(watch, None) if mask & _IN_IGNORED else self._paths.get(watch)
                if path is not None:
                    found.add(path)
        return None if broken else found
