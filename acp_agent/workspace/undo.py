"""Take back what the agent changed in a turn, and bring it back.

Every call that may change files writes what it changed into the journal of its session: each path with its entry before
and after. `/undo` restores the former and `/redo` the latter, if every path is as the agent left it. Otherwise nothing
is changed, and the difference is shown.

Each file gets its old content by one rename. A restore that was killed leaves every path either as it was or
restored, and the next one finishes it.
"""

import difflib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from acp_agent.core.errors import AgentError
from acp_agent.core.new_file import NewFile, is_temporary, remove_leftovers, temporary_name
from acp_agent.core.types import Json
from acp_agent.text import visible
from acp_agent.workspace.beneath import holding, in_words
from acp_agent.workspace.git.objects import ObjectStore, SnapshotOff, object_name
from acp_agent.workspace.roots import Root
from acp_agent.workspace.snapshots import FOLDER, LINK, EntryChange, TreeEntry, read_entry
from acp_agent.workspace.text_files import is_binary

_DIFF_LINES = 60
"""Lines of a difference that are shown for one file."""
_MOST_SHOWN = 10
"""Files that are named in an answer."""
_DIFF_BYTES = 200_000
"""Bytes of the longest text that is compared line by line."""


_MADE = TreeEntry(FOLDER, 0o1700)
"""A folder that was made again and has not got its mode yet. The sticky bit tells it from the user's own folders."""


class UndoError(AgentError):
    """The error if a turn cannot be taken back or brought back. The text tells the user why. Nothing was changed."""


class PartlyRestored(UndoError):
    """The error if some of the paths could not be restored. The text names them. `paths` are those that were."""

    def __init__(self, paths: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.paths = paths


@dataclass(slots=True)
class ChangedTurn:
    """A turn in which the agent changed files.

    steps    the changes of each call, in order
    begun    whether a restore of it was begun and killed before its end
    """

    number: int
    steps: list[tuple[EntryChange, ...]] = field(default_factory=list[tuple[EntryChange, ...]])
    left_out: list[str] = field(default_factory=list[str])
    undone: bool = False
    begun: bool = False


class Journal:
    """The journal of what the calls of one session changed: a file of JSON lines. One process at a time writes it.

    folder   the git folder of the ObjectStore
    """

    def __init__(self, folder: str, session_id: str) -> None:
        self._path = journal_file(folder, session_id)
        self._inode = self._read = self._highest = 0  # of the lines that `next_turn` has read

    def next_turn(self) -> int:
        """Return the number of a new turn. Only the lines that were added since the last call are read."""
        with suppress(OSError), open(self._path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._read:
                self._inode, self._read, self._highest = status.st_ino, 0, 0
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # a killed process cut it; the next line ends it
                    break
                self._read += len(line)
                with suppress(ValueError, KeyError, TypeError):
                    self._highest = max(self._highest, int(json.loads(line)["turn"]))
        return self._highest + 1

    def turns(self) -> dict[int, ChangedTurn]:
        """Return the turns by their numbers, in order. A line that a killed process cut is left out."""
        found = dict[int, ChangedTurn]()
        with suppress(OSError), open(self._path, encoding="utf-8") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):
                    _read_line(cast("dict[str, Json]", json.loads(line)), found)
        return dict(sorted(found.items()))

    def append(self, turn: int, changes: Iterable[EntryChange], left_out: Sequence[str] = ()) -> None:
        """Write what a call changed. Raises OSError."""
        listed = [[each.path, each.before, each.after] for each in changes]
        self._write({"turn": turn, "changes": listed, "left_out": list(left_out)})

    def begin(self, turn: int) -> None:
        """Note that a turn is about to be taken back or brought back. Raises OSError."""
        self._write({"turn": turn, "begun": True})

    def mark(self, turn: int, *, undone: bool) -> None:
        """Note that a turn was taken back or brought back. Raises OSError."""
        self._write({"turn": turn, "undone": undone})

    def _write(self, line: Mapping[str, object]) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with holding(fd):
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, f"{chr(10) if torn else ''}{json.dumps(line)}\n".encode())


class JournalTurn:
    """A turn of a journal. It gets its number with its first change."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._number: int | None = None

    def append(self, changes: Iterable[EntryChange], left_out: Sequence[str]) -> None:
        """Write what a call of the turn changed. Raises OSError."""
        if self._number is None:
            self._number = self._journal.next_turn()
        self._journal.append(self._number, changes, left_out)


def journal_file(folder: str, session_id: str) -> str:
    """Return the path of a session's journal. An imported id may hold any characters."""
    return os.path.join(folder, "sessions", f"{hashlib.sha256(session_id.encode()).hexdigest()[:32]}.jsonl")


def store_folder(parent: str, cwd: str) -> str:
    """Return the folder of the snapshots of a session's folder, by its real path."""
    return os.path.join(parent, hashlib.sha256(os.fsencode(cwd)).hexdigest()[:16])


def _read_line(line: Mapping[str, Json], found: dict[int, ChangedTurn]) -> None:
    number = int(cast("int", line["turn"]))
    turn = found.get(number) or ChangedTurn(number)
    if "undone" in line:
        turn.undone, turn.begun = bool(line["undone"]), False
    elif "begun" in line:
        turn.begun = True
    else:
        changes = cast("list[tuple[str, list[Json] | None, list[Json] | None]]", line["changes"])
        turn.steps.append(tuple(EntryChange(path, _entry(old), _entry(new)) for path, old, new in changes))
        turn.left_out += cast("list[str]", line["left_out"])
    found[number] = turn


def _entry(value: "list[Json] | None") -> TreeEntry | None:
    if value is None:
        return None
    kind, mode, content = value
    return TreeEntry(str(kind), int(cast("int", mode)), str(content))


# ------------------------------------------------------------------------------------------- the plan


class _Conflict(NamedTuple):
    """A path that is not as the agent left it."""

    path: str
    left: TreeEntry | None
    found: TreeEntry | None


class _Plan(NamedTuple):
    """The plan of a restore.

    wanted     the entries to restore, by path
    found      the entries that exist now
    contents   the contents to write
    left_out   the paths whose contents were too large to be kept
    staying    the folders that stay, because they hold other files
    """

    wanted: Mapping[str, EntryChange]
    found: Mapping[str, TreeEntry | None]
    contents: Mapping[str, bytes]
    left_out: tuple[str, ...]
    staying: tuple[str, ...]


class RestoredTurn(NamedTuple):
    """The restored entries, as absolute paths. `kept` are folders that the user has put something into."""

    turn: int
    paths: tuple[str, ...]
    kept: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def report(restored: RestoredTurn, cwd: str, *, redo: bool = False) -> str:
    """Return what the user is told of a restore."""
    lines = [f"Turn {restored.turn} is {'in force again' if redo else 'taken back'}."]
    for word, paths in (
        ("Restored", restored.paths),
        ("Left in place, because there is something else in it", restored.kept),
        ("Not restored, because it was too large to keep", restored.left_out),
    ):
        names = [f"`{visible(path.removeprefix(f'{cwd}/'))}`" for path in paths[:_MOST_SHOWN]]
        names += [f"and {len(paths) - _MOST_SHOWN} more"] if len(paths) > _MOST_SHOWN else []
        lines += [f"{word}: {', '.join(names)}."] if names else []
    return "\n\n".join(lines)


class Undo:
    """An object that restores the files of one session. Its methods block.

    roots   the folders in which files are restored
    """

    def __init__(self, store: ObjectStore, journal: Journal, roots: Sequence[Root], file_bytes: int) -> None:
        self._store = store
        self._journal = journal
        self._roots = roots
        self._file_bytes = file_bytes

    def restore(self, number: int | None = None, *, redo: bool = False) -> RestoredTurn:
        """Take back a turn, by default the last one, or bring it back.

        Raises UndoError, of type PartlyRestored if some paths could not be restored.
        """
        turn = self._chosen(number, redo=redo)
        plan = self._planned(turn, redo=redo)
        try:
            self._journal.begin(turn.number)
            done, kept = self._apply(plan)
            self._journal.mark(turn.number, undone=not redo)
        except PartlyRestored as error:
            word = "redo" if redo else "undo"
            raise PartlyRestored(error.paths, f"{error} `/{word}` again goes on.") from error
        except OSError as error:
            raise UndoError(f"The journal cannot be written: {in_words(error)}.") from error
        return RestoredTurn(turn.number, done, kept, (*plan.left_out, *turn.left_out))

    def roll_back(self, changes: Sequence[EntryChange]) -> RestoredTurn:
        """Take back what one call has just changed. Raises UndoError."""
        plan = self._planned(ChangedTurn(0, [tuple(changes)]), redo=False)
        done, kept = self._apply(plan)
        return RestoredTurn(0, done, kept, plan.left_out)

    def _planned(self, turn: ChangedTurn, *, redo: bool) -> _Plan:
        """Return what is to be restored. Raises UndoError."""
        net, conflicts = _net(turn.steps)
        if redo:
            net = {path: EntryChange(path, each.after, each.before) for path, each in net.items()}
        # From here on `after` is what the path should hold now, and `before` what it gets.
        left_out = tuple(path for path, each in net.items() if each.before is not None and not each.before.is_kept)
        staying = _staying(net)
        wanted = {path: each for path, each in net.items() if path not in left_out and path not in staying}
        try:
            found = {path: self._now(path) for path in wanted}
            conflicts += [
                _Conflict(path, each.after, found[path])
                for path, each in wanted.items()
                if not _fits(each, found[path], begun=turn.begun) or self._holds_more(each, found[path], wanted)
            ]
            conflicts += self._lost_folders(wanted, found)
            if conflicts:
                raise UndoError(self._refusal(turn, conflicts, redo=redo))
            return _Plan(wanted, found, self._contents(wanted, found), left_out, tuple(sorted(staying)))
        except SnapshotOff as error:
            raise UndoError(f"Nothing was changed: {error}.") from error

    def _chosen(self, number: int | None, *, redo: bool) -> ChangedTurn:
        turns = self._journal.turns()
        possible = [each for each in turns.values() if each.undone == redo]
        state = "taken back" if redo else "in force"
        if not possible:
            raise UndoError(f"There is nothing to {'redo' if redo else 'undo'}: no change of this session is {state}.")
        if number is None:
            return possible[0 if redo else -1]
        turn = next((each for each in possible if each.number == number), None)
        if turn is None:
            listed = ", ".join(str(each.number) for each in possible[-20:])
            raise UndoError(f"There is no turn {number} whose changes are {state}. There are: {listed}.")
        return turn

    def _place(self, path: str) -> tuple[Root, str]:
        for root in self._roots:
            relative = root.relative(path)
            if relative is not None:
                return root, relative
        raise UndoError(f"{visible(path)} is outside the folders of this session; nothing was changed.")

    def _now(self, path: str) -> TreeEntry | None:
        """Return what is at a path now. Its content is kept, so that it can be shown."""
        root, relative = self._place(path)
        if relative == ".":
            return TreeEntry(FOLDER, stat.S_IMODE(root.status(".").st_mode))
        try:
            fd = root.open_directory(os.path.dirname(relative) or ".")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise UndoError(f"{visible(path)}: {in_words(error)}; nothing was changed.") from error
        with holding(fd):
            read = read_entry(fd, os.path.basename(relative), self._file_bytes)
        if read is None:
            return None
        entry, data = read
        if data is not None:
            self._store.put(data)
        return entry

    def _holds_more(self, wanted: EntryChange, now: TreeEntry | None, others: Mapping[str, EntryChange]) -> bool:
        """Return whether a folder has to make room for a file, but holds something that the agent did not put there."""
        if now is None or now.kind != FOLDER or wanted.before is None or wanted.before.kind == FOLDER:
            return False
        folders = [wanted.path]
        while folders:
            folder = folders.pop()
            root, relative = self._place(folder)
            with holding(root.open_directory(relative)) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}"
                    if path not in others or others[path].before is not None:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
        return False

    def _lost_folders(
        self, wanted: Mapping[str, EntryChange], found: Mapping[str, TreeEntry | None]
    ) -> Iterator[_Conflict]:
        """Yield the folders in which something is to be restored, but which are gone or no folders any more."""
        needed = (os.path.dirname(path) for path, each in wanted.items() if each.before not in (None, found[path]))
        for folder in dict.fromkeys(needed):
            planned, now = wanted.get(folder), self._now(folder)
            entry = now if planned is None else planned.before
            if entry is None or entry.kind != FOLDER:
                yield _Conflict(folder, TreeEntry(FOLDER, 0), entry)

    def _contents(self, wanted: Mapping[str, EntryChange], found: Mapping[str, TreeEntry | None]) -> dict[str, bytes]:
        """Return the contents that are restored. Raises UndoError if one is gone."""
        names = {
            each.before.content: path
            for path, each in wanted.items()
            if each.before is not None and each.before.content and each.before != found[path]
        }
        contents = self._store.get(names)
        missing = sorted(path for name, path in names.items() if name not in contents)
        damaged = [path for name, path in names.items() if name in contents and object_name(contents[name]) != name]
        if missing or damaged:
            shown = ", ".join(map(visible, (missing + damaged)[:_MOST_SHOWN]))
            raise UndoError(f"The old content was too large or is no longer kept: {shown}. Nothing was changed.")
        return contents

    # ------------------------------------------------------------------------------------- restoring

    def _apply(self, plan: _Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Restore every path. Return what was restored, and the folders that stay.

        A path that fails does not keep the others from being restored. Raises PartlyRestored at the end.
        """
        wanted, found, contents, *_ = plan
        todo = sorted(each for each in wanted.values() if found[each.path] != each.before)
        kept, failed = list(plan.staying), dict[str, str]()
        for folder in {os.path.dirname(path) for path in wanted}:
            self._remove_leftovers(folder)
        for path, before, _ in reversed(todo):  # entries to remove, the deepest first
            now = found[path]
            gone = before is None or (now is not None and (now.kind == FOLDER) != (before.kind == FOLDER))
            with _noted(path, failed):
                if now is not None and gone and not self._remove(path, now):
                    kept.append(path)
        for path, before, _ in todo:  # entries to make or change, folders first
            with _noted(path, failed):
                if before is not None:
                    self._put(path, before, contents)
        for path, before, _ in reversed(todo):  # the modes of folders last, since nothing can be written in some
            with _noted(path, failed):
                if before is not None and before.kind == FOLDER:
                    self._set_mode(path, before.mode)
        done = tuple(path for path, _, _ in todo if path not in kept and path not in failed)
        if failed:
            raise PartlyRestored(done, f"Only a part is restored. Not restored: {self._listed(failed)}.")
        return done, tuple(kept)

    def _remove(self, path: str, now: TreeEntry) -> bool:
        """Remove an entry. Return False for a folder that holds something else."""
        root, relative = self._place(path)
        with _parent(root, relative) as (parent, name):
            try:
                (os.rmdir if now.kind == FOLDER else os.unlink)(name, dir_fd=parent)
            except FileNotFoundError:
                return True
            except OSError:
                if now.kind == FOLDER:
                    return False
                raise
        return True

    def _put(self, path: str, entry: TreeEntry, contents: Mapping[str, bytes]) -> None:
        with _parent(*self._place(path)) as (parent, name):
            if entry.kind == FOLDER:
                with suppress(FileExistsError):
                    os.mkdir(name, _MADE.mode, dir_fd=parent)
            elif entry.kind == LINK:
                temporary = temporary_name()
                os.symlink(contents[entry.content], os.fsencode(temporary), dir_fd=parent)
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            else:
                _put_file(parent, name, entry.mode, contents[entry.content])

    def _set_mode(self, path: str, mode: int) -> None:
        root, relative = self._place(path)
        with suppress(FileNotFoundError), holding(root.open_directory(relative)) as fd:
            os.fchmod(fd, mode)

    def _remove_leftovers(self, folder: str) -> None:
        """Remove the unfinished files and links of a restore that was killed."""
        root, relative = self._place(folder) if any(root.relative(folder) for root in self._roots) else (None, "")
        if root is None:
            return
        with suppress(OSError), holding(root.open_directory(relative)) as fd:
            remove_leftovers(fd)
            for name in [name for name in os.listdir(fd) if is_temporary(name)]:
                if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=fd)

    # ------------------------------------------------------------------------------------- telling

    def _refusal(self, turn: ChangedTurn, conflicts: Sequence[_Conflict], *, redo: bool) -> str:
        """Return why nothing was changed, with the differences."""
        later = {
            each.path: other.number
            for other in self._journal.turns().values()
            if other.number > turn.number and not other.undone and not redo
            for step in other.steps
            for each in step
        }
        names = {each.content for one in conflicts for each in (one.left, one.found) if each is not None}
        contents = self._store.get([name for name in names if name and not name.startswith("?")])
        lines = [f"Nothing was changed, because these are not as the agent left them in turn {turn.number}:"]
        for one in conflicts[:_MOST_SHOWN]:
            by = f" (turn {later[one.path]} changed it later: undo that first)" if one.path in later else ""
            lines += ["", f"`{visible(self._short(one.path))}`: {_told(one)}{by}"]
            diff = _difference(one, contents)
            lines += ["", "```diff", *diff, "```"] if diff else []
        if len(conflicts) > _MOST_SHOWN:
            lines += ["", f"and {len(conflicts) - _MOST_SHOWN} more"]
        return "\n".join(lines)

    def _listed(self, failed: Mapping[str, str]) -> str:
        named = [f"`{visible(self._short(path))}` ({why})" for path, why in sorted(failed.items())[:_MOST_SHOWN]]
        return ", ".join([*named, *([f"and {len(failed) - _MOST_SHOWN} more"] if len(failed) > _MOST_SHOWN else [])])

    def _short(self, path: str) -> str:
        return self._roots[0].relative(path) or path


@contextmanager
def _noted(path: str, failed: dict[str, str]) -> Generator[None]:
    """Note why a path could not be restored, instead of the error."""
    try:
        yield
    except OSError as error:
        failed.setdefault(path, in_words(error))


@contextmanager
def _parent(root: Root, relative: str) -> Generator[tuple[int, str]]:
    """Yield the fd of the folder of an entry, in which names can be changed in the block, and the entry's name."""
    with holding(root.open_directory(os.path.dirname(relative) or ".")) as fd:
        status = os.fstat(fd)
        mode, mine = stat.S_IMODE(status.st_mode), status.st_uid == os.geteuid()
        is_closed = mine and mode & 0o300 != 0o300
        if is_closed:
            os.fchmod(fd, mode | 0o300)
        try:
            yield fd, os.path.basename(relative)
        finally:
            if is_closed:
                os.fchmod(fd, mode)


def _put_file(parent: int, name: str, mode: int, data: bytes) -> None:
    """Give a file its content and mode in one step."""
    with closing(NewFile(parent, 0o600)) as new:
        new.write(data)
        with suppress(OSError):
            old = os.stat(name, dir_fd=parent, follow_symlinks=False)
            os.fchown(new.fd, old.st_uid, old.st_gid)
        os.fchmod(new.fd, mode)
        new.replace(name)


def _net(steps: Iterable[Sequence[EntryChange]]) -> tuple[dict[str, EntryChange], list[_Conflict]]:
    """Return the change of each path over all calls of a turn, and what somebody else changed between two of them."""
    net, last, conflicts = dict[str, EntryChange](), dict[str, EntryChange](), dict[str, _Conflict]()
    for change in (each for step in steps for each in step):
        if last.get(change.path) == change:  # two calls side by side made the same folder
            continue
        last[change.path] = change
        known = net.get(change.path)
        if known is None:
            net[change.path] = change
            continue
        if known.after != change.before:
            conflicts.setdefault(change.path, _Conflict(change.path, known.after, change.before))
        net[change.path] = EntryChange(change.path, known.before, change.after)
    return {path: each for path, each in net.items() if each.before != each.after}, list(conflicts.values())


def _staying(net: Mapping[str, EntryChange]) -> set[str]:
    """Return the agent's new folders in which something of the user's is to be restored."""
    restored = (path for path, each in net.items() if each.before is not None)
    above = {folder for path in restored for folder in _folders_above(path)}
    return {path for path, each in net.items() if each.before is None and path in above}


def _folders_above(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != "/":
        yield path


def _fits(wanted: EntryChange, now: TreeEntry | None, *, begun: bool) -> bool:
    """Return whether a path is as it should be, restored already, or as a killed restore left it."""
    _, before, after = wanted
    if now in (before, after):
        return True
    if not begun:
        return False
    if now is None:  # a folder was removed to make room for a file, or the reverse
        return before is not None and after is not None and (before.kind == FOLDER) != (after.kind == FOLDER)
    made = before is not None and before.kind == FOLDER and (after is None or after.kind != FOLDER)
    return made and now == _MADE


def _told(conflict: _Conflict) -> str:
    _, left, found = conflict
    if left is None:
        return "the agent deleted it, and it is there again"
    if found is None:
        return "it is gone"
    if left.kind != found.kind:
        return f"it was a {left.kind} and is a {found.kind} now"
    if left.content == found.content:
        return f"its mode was {left.mode:04o} and is {found.mode:04o} now"
    return "its content has changed since"


def _difference(conflict: _Conflict, contents: Mapping[str, bytes]) -> list[str]:
    """Return the lines of a diff from what the agent left to what is there; none if that is no text."""
    sides = list[list[str]]()
    for entry in (conflict.left, conflict.found):
        data = b"" if entry is None or entry.kind == FOLDER else contents.get(entry.content)
        if data is None or is_binary(data) or len(data) > _DIFF_BYTES:
            return []
        sides.append([visible(line) for line in data.decode("utf-8", "replace").splitlines()])
    left, now = sides
    lines = list(difflib.unified_diff(left, now, "as the agent left it", "now", lineterm="", n=2))
    more = [f"and {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
    return lines[:_DIFF_LINES] + more
