"""Tell which files a call changed.

The files below the roots are looked at before and after a command (`workspace/snapshots`), and so are the paths that a
file tool changes. What has changed is shown, and noted for `/undo` (`workspace/undo`). What the user or another program
changes while the command runs counts as changed by it.
"""

import os
import threading
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from acp_agent.config.files import PathStamps
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secrets import Secrecy, secrecy
from acp_agent.core.types import Access, Diff, PathSubject
from acp_agent.workspace.beneath import holding
from acp_agent.workspace.git.objects import ObjectStore, SnapshotLimits, SnapshotOff, index_file, prune_stores
from acp_agent.workspace.roots import Root, Roots
from acp_agent.workspace.snapshots import (
    FILE,
    FOLDER,
    EntryChange,
    FolderWatch,
    TextStore,
    TooManyEntries,
    TreeEntry,
    read_entry,
)
from acp_agent.workspace.text_files import is_binary
from acp_agent.workspace.undo import Journal, JournalTurn, PartlyRestored, RestoredTurn, Undo, UndoError

MOST_DIFFS = 10
"""The most files of one command whose differences are shown."""
DIFF_CHARS = 200 * 1024
"""Characters of all differences of one command, both sides together."""
_TEXT_BYTES = DIFF_CHARS // 2
_MOST_COMPARED_FILES = 50
_TEXTS = SnapshotLimits(_TEXT_BYTES, 1 << 62)
"""What is kept to show differences if nothing is kept for `/undo`."""
_MOST_CAPTURED = 5000
"""If a file tool changes a folder, the most entries below it whose contents are kept."""


class CommandChanges(NamedTuple):
    """The files and links that a call changed, as absolute paths in order, and the differences that can be shown."""

    changed: Sequence[str] = ()
    deleted: Sequence[str] = ()
    diffs: tuple[Diff, ...] = ()
    entries: tuple[EntryChange, ...] = ()


class SessionSnapshots:
    """The snapshots of one session: the contents, the journal for `/undo`, and what was seen of each root.

    folder    the private repository of the session's folder; it is made when it is needed
    changes   how many calls of the agent have changed files
    """

    def __init__(self, folder: str, session_id: str) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.troubles: dict[str, str] = {}
        self.changes = 0
        self._store: ObjectStore | None = None
        self._journal = Journal(folder, session_id)
        self._watches: dict[str, FolderWatch] = {}
        self._data = os.path.realpath(os.path.dirname(os.path.dirname(folder)))
        self.turn = JournalTurn(self._journal)
        self._stop = threading.Event()

    def count_change(self) -> None:
        """Count a call that changed files."""
        self.changes += 1

    def turn_began(self) -> None:
        """Begin a new turn in the journal."""
        self.turn = JournalTurn(self._journal)

    def store(self, limits: SnapshotLimits) -> ObjectStore:
        """Return the store of the contents. Raises SnapshotOff."""
        with self.lock:
            if self._store is None:
                prune_stores(os.path.dirname(self.folder), self.folder, limits)
                self._store = ObjectStore(self.folder)
            return self._store

    def restore(self, roots: Roots, limits: SnapshotLimits, number: int | None, *, redo: bool) -> RestoredTurn:
        """Undo the changes of a turn, by default the last one, or redo them. Raises UndoError."""
        with self.lock:
            undo = self.undo(roots, limits)
            try:
                return undo.restore(number, redo=redo)
            except UndoError as error:
                troubles = "; ".join(dict.fromkeys(self.troubles.values()))
                more = f"\n\nNot everything can be taken back: {troubles}." if troubles else ""
                raise UndoError(f"{error}{more}") from error

    def undo(self, roots: Roots, limits: SnapshotLimits) -> Undo:
        """Return the object that restores files of this session. Raises UndoError."""
        try:
            return Undo(self.store(limits), self._journal, roots.all, limits.file_bytes)
        except SnapshotOff as error:
            raise UndoError(f"Undo is off: {error}.") from error

    def keeps(self, path: str) -> bool:
        """Return whether the contents at a path are kept for `/undo`."""
        watches = (each for each in self._watches.values() if each.root.relative(path) is not None)
        return all(isinstance(each.store, ObjectStore) for each in watches)

    def watch(self, root: Root, limits: SnapshotLimits | None) -> FolderWatch:
        """Return the session's watch of a root. Without limits it keeps only a few texts, to show differences."""
        wanted, known = limits or _TEXTS, self._watches.get(root.path)
        if known is None or known.root is not root or known.wanted != wanted:
            if known is not None:
                known.close()
            known = self._watches[root.path] = self._new_watch(root, limits)
        return known

    def _new_watch(self, root: Root, limits: SnapshotLimits | None) -> FolderWatch:
        if limits is not None:
            try:
                return FolderWatch(root, self.store(limits), limits, self._stop, self._data)
            except SnapshotOff as error:
                self.troubles.setdefault(root.path, str(error))
        return FolderWatch(root, TextStore(), _TEXTS, self._stop, self._data, wanted=limits)

    def keep_less(self, root: Root, limits: SnapshotLimits) -> None:
        """Keep only few texts of a root from now on, because it is too large."""
        self._watches[root.path].close()
        self._watches[root.path] = FolderWatch(root, TextStore(), _TEXTS, self._stop, self._data, wanted=limits)

    def drop(self, root: Root) -> None:
        """Forget what was seen of a root."""
        self._watches.pop(root.path).close()

    def contents(self, names: set[str]) -> dict[str, bytes]:
        """Return the contents of entries, as far as they are kept."""
        found = dict[str, bytes]()
        for watch in self._watches.values():
            found |= watch.store.get(names - found.keys()) if names - found.keys() else {}
        return found

    def is_large(self, root: Root) -> bool:
        """Return whether a root is known to be large."""
        known = self._watches.get(root.path)
        return known is not None and known.is_large

    def record(self, changes: Sequence[EntryChange], left_out: Sequence[str], turn: JournalTurn) -> None:
        """Write what a call of a turn changed into the journal. Raises SnapshotOff."""
        with self.lock:
            try:
                turn.append(changes, left_out)
            except OSError as error:
                raise SnapshotOff(f"the journal cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """End every look, and release the repository."""
        self._stop.set()
        if not self.lock.acquire(blocking=False):  # a thread still looks: its files are closed when the process ends
            return
        try:
            for each in self._watches.values():
                each.close()
            if self._store is not None:
                self._store.close()
        finally:
            self.lock.release()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class StateBefore:
    """The state before a call.

    turn    the turn of the call
    paths   the entries at the paths that the call names, and below them; None if everything was looked at
    """

    turn: JournalTurn
    paths: Mapping[tuple[Root, str, bool], Mapping[str, TreeEntry] | None] | None = None


class FileWatch:
    """A watch of the files below a session's roots, before and after each call. Its methods are for worker threads.

    cwd     the session's folder
    limits  what is kept for `/undo`; None to keep only a few texts, which show differences
    """

    def __init__(self, roots: Roots, snapshots: SessionSnapshots, limits: SnapshotLimits | None) -> None:
        self.cwd = roots.cwd
        self.limits = limits
        self._roots = roots
        self._snapshots = snapshots
        self._open = weakref.WeakSet[StateBefore]()  # weak, because a cancelled call drops its state
        self._limit, self._has_large_index = 0, False
        self._unclaimed: list[EntryChange] = []

    @property
    def is_large(self) -> bool:
        """Whether a look at everything takes long, by the last look or by the indexes. It does not look at the disk."""
        return self._has_large_index or any(map(self._snapshots.is_large, self._roots.all))

    def measure(self, stamps: PathStamps) -> bool:
        """Look at the size of the indexes, for `is_large`. Return whether one is large. `stamps` gets their paths."""
        own = (index_file(self._snapshots.folder, root) for root in self._roots.all)
        users = (os.path.join(root.path, ".git", "index") for root in self._roots.all)
        paths = [*users, *own]
        for path in paths:
            stamps.exists(path)
        self._has_large_index = any(map(_is_large_file, paths))
        return self._has_large_index

    def count_change(self) -> None:
        """Count a call of the agent that changed files."""
        self._snapshots.count_change()

    def prepare(self) -> None:
        """Look at everything, so that the first call of a turn need not."""
        with self._snapshots.lock:
            if not self._open:
                self._look(first=True, whole=True)

    def before(self, paths: Sequence[PathSubject] | None = None) -> StateBefore:
        """Return the state before a call.

        paths   what a tool changes by itself; None for a command, which may change anything
        """
        with self._snapshots.lock:
            if paths is not None:
                places = self._places(paths) if self.limits is not None else ()
                return StateBefore(self._snapshots.turn, {place: self._captured(*place) for place in places})
            changes = self._look(first=not self._open)
            self._unclaimed = [*self._unclaimed, *changes] if self._open else []  # made while another call runs
            state = StateBefore(self._snapshots.turn)
            self._open.add(state)
        return state

    def since(self, look: StateBefore, *, noted: bool = True) -> CommandChanges:
        """Return what has changed since `before`, and note it for `/undo`, unless it is the user's own call."""
        left_out = list[str]()
        with self._snapshots.lock:
            if look.paths is None:
                self._open.discard(look)
                changes, self._unclaimed = [*self._unclaimed, *self._look()], []
            else:
                changes = list[EntryChange]()
                for (root, relative, alone), old in look.paths.items():
                    new = self._captured(root, relative, alone)
                    if old is None or new is None:
                        left_out.append(root.absolute(relative))
                    else:
                        paths = sorted(old.keys() | new.keys())
                        changes += [EntryChange(path, old.get(path), new.get(path)) for path in paths]
                # A path may be named twice: by itself, and as a missing folder above another one.
                changes = [each for each in dict.fromkeys(changes) if each.before != each.after]
            kept = changes if look.paths is not None else [each for each in changes if self._snapshots.keeps(each.path)]
            if noted and self.limits is not None and (kept or left_out):
                with self._noted(self.cwd):
                    self._snapshots.record(kept, left_out, look.turn)
        return self._shown(changes)._replace(entries=tuple(kept)) if look.paths is None else CommandChanges()

    def roll_back(self, changes: Sequence[EntryChange]) -> RestoredTurn:
        """Undo what a call has just changed. Raises UndoError."""
        if self.limits is None:
            raise UndoError("Undo is off.")
        with self._snapshots.lock:
            try:
                restored = self._snapshots.undo(self._roots, self.limits).roll_back(changes)
            except PartlyRestored as error:
                self._record_back(changes, error.paths)
                raise
            self._record_back(changes, restored.paths)
        return restored

    def _record_back(self, changes: Sequence[EntryChange], restored: Sequence[str]) -> None:
        with self._noted(self.cwd):
            back = {each.path: each for each in changes}
            done = (back[path] for path in restored)
            changed_back = [EntryChange(each.path, each.after, each.before) for each in done]
            self._snapshots.record(changed_back, (), self._snapshots.turn)

    @property
    def trouble(self) -> str:
        """Why not every change can be undone; "" if it can."""
        return "it is switched off" if self.limits is None else "; ".join(self._snapshots.troubles.values())

    @property
    def limit(self) -> int:
        """The limit on the entries of a root if a root exceeds it, so that no change in it is noticed; else 0."""
        return self._limit

    @contextmanager
    def _noted(self, place: str) -> Generator[None]:
        """Note the reason of a SnapshotOff instead of raising it."""
        try:
            yield
        except SnapshotOff as error:
            self._snapshots.troubles[place] = str(error)

    # ------------------------------------------------------------------------------------------ everything

    def _look(self, *, first: bool = False, whole: bool = False) -> list[EntryChange]:
        found = list[EntryChange]()
        for root in self._roots.all:
            if self._limit:
                return []
            watch = self._snapshots.watch(root, self.limits)
            if whole:
                watch.look_at_all()
            try:
                found += watch.look(first=first)
            except TooManyEntries as error:
                self._limit = error.most
                self._snapshots.troubles[root.path] = str(error)
                self._snapshots.drop(root)
            except SnapshotOff as error:
                self._snapshots.troubles[root.path] = str(error)
                if self.limits is not None:
                    self._snapshots.keep_less(root, self.limits)
        return found

    def _shown(self, changes: Sequence[EntryChange]) -> CommandChanges:
        shown = [each for each in changes if self._roots.allows(each.path, Access.READ)]
        changed = [each for each in shown if each.after is not None and each.after.kind != FOLDER]
        gone = [each for each in shown if each.after is None or each.after.kind == FOLDER]
        deleted = [each for each in gone if each.before is not None and each.before.kind != FOLDER]
        diffs, room = list[Diff](), DIFF_CHARS
        for diff in self._diffs([*changed, *deleted][:_MOST_COMPARED_FILES]):
            size = len(diff.old_text or "") + len(diff.new_text)
            if len(diffs) < MOST_DIFFS and size <= room:
                diffs.append(diff)
                room -= size
        return CommandChanges([each.path for each in changed], [each.path for each in deleted], tuple(diffs))

    def _diffs(self, changes: Sequence[EntryChange]) -> Iterator[Diff]:
        """Yield the differences of files that are text on both sides, and may not be secret."""
        plain = [each for each in changes if secrecy(each.path) is Secrecy.OPEN]
        names = {entry.content for each in plain for entry in (each.before, each.after) if entry is not None}
        contents = self._snapshots.contents({name for name in names if name and not name.startswith("?")})
        for path, before, after in plain:
            old, new = (_text(entry, contents) for entry in (before, after))
            if old is not None and new is not None and old != new:
                yield Diff(path, None if before is None else old, new)

    # ------------------------------------------------------------------------------------------ single paths

    def _places(self, paths: Sequence[PathSubject]) -> Iterator[tuple[Root, str, bool]]:
        """Yield the entries that each path means, and the folders above that are missing and may be made."""
        for subject in paths:
            with suppress(Refused, ToolError, OSError):
                place = self._roots.place(subject.path, subject.access)
                yield place.root, place.relative, False
                above = os.path.dirname(place.relative)
                while above and not _is_there(place.root, above):
                    yield place.root, above, True
                    above = os.path.dirname(above)

    def _captured(self, root: Root, relative: str, alone: bool) -> dict[str, TreeEntry] | None:  # noqa: FBT001
        """Return the entries at a path and below it, and keep their contents.

        Return None if they are too many or cannot be kept.

        alone   whether only the entry itself counts
        """
        if self.limits is None:
            return {}
        found, room = dict[str, TreeEntry](), self.limits.bytes // 10
        pending = [relative]
        with self._noted(self.cwd):
            store = self._snapshots.store(self.limits)
            while pending:
                path = pending.pop()
                try:
                    fd = root.open_directory(os.path.dirname(path) or ".")
                except OSError:
                    continue
                with holding(fd):
                    read = read_entry(fd, os.path.basename(path), self.limits.file_bytes)
                if read is None:
                    continue
                entry, data = read
                found[root.absolute(path)] = entry
                if data is not None:
                    room -= len(data)
                    store.put(data)
                if entry.kind == FOLDER and not alone:
                    with suppress(OSError), holding(root.open_directory(path)) as fd:
                        pending += [f"{path}/{name}" for name in os.listdir(fd)]
                if room < 0 or len(found) > _MOST_CAPTURED:
                    return None
            return found
        return None


_INDEX = 300_000
"""Bytes of a repository's index with about 3,000 files."""


def _is_large_file(path: str) -> bool:
    try:
        return os.stat(path).st_size > _INDEX
    except OSError:
        return False


def _is_there(root: Root, relative: str) -> bool:
    try:
        root.status(relative)
    except OSError:
        return False
    return True


def _text(entry: TreeEntry | None, contents: Mapping[str, bytes]) -> str | None:
    """Return the text of a file, "" for no file. None if the content is too long, binary, or not kept."""
    if entry is None:
        return ""
    data = contents.get(entry.content)
    if entry.kind != FILE or data is None or len(data) > _TEXT_BYTES or is_binary(data):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
