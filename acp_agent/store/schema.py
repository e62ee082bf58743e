"""The tables of the database as numbered migrations. `user_version` of the file counts those that were applied.

To change the tables, append a migration to MIGRATIONS. Never change or remove a released one: files of users have
already applied it.

The rest is how the file of the database is created, checked and opened, and what SQLite's errors mean. All of it
happens under the `flock` of a file beside the database. SQLite's own locks belong to a file, but here files change
places: a damaged file is set aside and a missing one is created. Without that lock the log (`-wal`) of one file could
end up beside another one and would be applied to it.
"""

import errno
import os
import sqlite3
import stat
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto
from functools import partial
from typing import TypeVar, assert_never
from urllib.parse import quote

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.new_file import open_folder
from acp_agent.store.private_file import free_name, lock, private_file

Migration = tuple[str, ...]
"""The SQL statements of one migration. They run in order with foreign keys enforced, all in one transaction."""

_OVERFLOW: Migration = (
    # Times are whole seconds since 1970.
    "CREATE TABLE conversations (id TEXT PRIMARY KEY NOT NULL, created_at INTEGER NOT NULL)",
    # `seq` gives the order, whatever the clock did. `content` is last, so that reading other columns does not read it.
    """
    CREATE TABLE tool_overflow (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        created_at INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        content BLOB NOT NULL
    )
    """,
    "CREATE INDEX tool_overflow_by_conversation ON tool_overflow (conversation_id, seq, bytes)",
    "CREATE INDEX tool_overflow_by_age ON tool_overflow (created_at, seq, bytes)",
)

_MEMORY: Migration = (
    # `recency` says which note was stored last, whatever the clock did; a key is never used again. The index of
    # words is created with the first note (memories.py), since not every SQLite has FTS5.
    """
    CREATE TABLE memories (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        digest BLOB NOT NULL UNIQUE,
        created_at INTEGER NOT NULL,
        recency INTEGER NOT NULL,
        content TEXT NOT NULL
    )
    """,
    "CREATE INDEX memories_by_recency ON memories (recency)",
    # `vector` is of little-endian 32-bit floats.
    """
    CREATE TABLE memory_vectors (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        model TEXT NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (memory, model)
    )
    """,
    """
    CREATE TABLE summaries (
        seq INTEGER PRIMARY KEY,
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        created_at INTEGER NOT NULL,
        compaction_method TEXT NOT NULL,
        messages INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        text TEXT NOT NULL
    )
    """,
    "CREATE INDEX summaries_by_conversation ON summaries (conversation_id, seq)",
)

_SESSIONS: Migration = (
    # All times of conversations are milliseconds now. A row without a `cwd` is not a session but holds only outputs or
    # summaries. Texts that are not Unicode are blobs (session_json.py), as all JSON is.
    "UPDATE conversations SET created_at = created_at * 1000",
    "ALTER TABLE conversations ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN cwd TEXT",
    "ALTER TABLE conversations ADD COLUMN additional BLOB NOT NULL DEFAULT x'5b5d'",
    "ALTER TABLE conversations ADD COLUMN title TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN model TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN prompts INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN knowledge INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN conduct BLOB NOT NULL DEFAULT x'7b7d'",
    "ALTER TABLE conversations ADD COLUMN tally BLOB NOT NULL DEFAULT x'7b7d'",
    "CREATE INDEX sessions_by_use ON conversations (updated_at, id, prompts) WHERE cwd IS NOT NULL",
    "CREATE INDEX sessions_by_cwd ON conversations (cwd, updated_at, id, prompts) WHERE cwd IS NOT NULL",
    # A process that still writes to a deleted session must not bring it back.
    "CREATE TABLE deleted_conversations (id TEXT PRIMARY KEY NOT NULL, deleted_at INTEGER NOT NULL) WITHOUT ROWID",
    # Rows of one session lie together, so that an event changes only the last page.
    """
    CREATE TABLE told (
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (conversation_id, seq)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE messages (
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        role TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (conversation_id, seq)
    ) WITHOUT ROWID
    """,
    # A fork keeps its outputs under their ids, so an id is unique only within a conversation.
    "ALTER TABLE tool_overflow RENAME TO tool_overflow_before",
    "DROP INDEX tool_overflow_by_conversation",
    "DROP INDEX tool_overflow_by_age",
    """
    CREATE TABLE tool_overflow (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        created_at INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        content BLOB NOT NULL,
        UNIQUE (id, conversation_id)
    )
    """,
    "INSERT INTO tool_overflow SELECT seq, id, conversation_id, created_at, bytes, content FROM tool_overflow_before",
    "DROP TABLE tool_overflow_before",
    "CREATE INDEX tool_overflow_by_conversation ON tool_overflow (conversation_id, seq, bytes)",
    "CREATE INDEX tool_overflow_by_age ON tool_overflow (created_at, seq, bytes)",
)

_TEXTS: Migration = (
    # Long texts of a session, to which its events and messages refer by their SHA-256 (session_rows.py). Rows of
    # earlier versions contain their texts. With a key of its own, a table fills its pages better with long values.
    """
    CREATE TABLE texts (
        seq INTEGER PRIMARY KEY,
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        digest BLOB NOT NULL,
        text BLOB NOT NULL,
        UNIQUE (conversation_id, digest)
    )
    """,
)

_SEEN: Migration = (
    # The files that a session has read or written (session_rows.py). `text` is compressed, and NULL for a long one.
    """
    CREATE TABLE seen_files (
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        path TEXT NOT NULL,
        digest TEXT NOT NULL,
        stamp TEXT NOT NULL,
        text BLOB,
        PRIMARY KEY (conversation_id, path)
    )
    """,
)

_SCHEDULE: Migration = (
    # Prompts that a session runs by itself (conversations.py). Times are milliseconds. `firing` is the id of the turn
    # that carries one out, so that a process that starts after a kill sees whether that turn had begun.
    """
    CREATE TABLE schedule (
        conversation_id TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
        number INTEGER NOT NULL,
        words TEXT NOT NULL,
        text TEXT NOT NULL,
        due INTEGER,
        skips_missed INTEGER NOT NULL,
        by_model INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        firing TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (conversation_id, number)
    ) WITHOUT ROWID
    """,
)

MIGRATIONS: tuple[Migration, ...] = (_OVERFLOW, _MEMORY, _SESSIONS, _TEXTS, _SEEN, _SCHEDULE)

VERSION = len(MIGRATIONS)


# A row that was stored for outputs or summaries becomes the session's. A stored session stays as it is.
CREATE_SESSION = """
    INSERT INTO conversations
        (id, cwd, additional, title, created_at, updated_at, prompts, model, conduct, tally)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        cwd = excluded.cwd, additional = excluded.additional, title = excluded.title,
        created_at = excluded.created_at, updated_at = excluded.updated_at, prompts = excluded.prompts,
        model = excluded.model, conduct = excluded.conduct, tally = excluded.tally
    WHERE conversations.cwd IS NULL
"""


def version_of(connection: sqlite3.Connection) -> int:
    """Return how many migrations a file has applied. Raises sqlite3.DatabaseError for a file that is not a database."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Apply the missing migrations, all or none. Blocks; the connection must be in autocommit. Raises sqlite3.Error."""
    if version_of(connection) >= len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in migrations[version_of(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


T = TypeVar("T")


_LOG_PAGES = 1_000
"""The pages of the log from which on a commit writes it back."""


class TransactionConnection(sqlite3.Connection):
    """A connection that can run a whole transaction in one call. Only one thread may use it at a time.

    aiosqlite passes every statement to its thread and back, which takes a tenth of a millisecond; the statement itself
    takes half of that. What is written with every piece of an answer therefore enters the thread only once.
    """

    _durable: bool = True
    _wait: float = -1.0

    def __init__(self, path: str, timeout: float, *, always_durable: bool = False) -> None:
        """Connect to a file.

        timeout          seconds a statement waits for a lock
        always_durable   True if every commit is synced: without a log (WAL) anything less could damage the file
        """
        super().__init__(path, timeout=timeout, isolation_level=None, check_same_thread=False, uri=True)
        # One damaged text must not hide all other rows: U+FFFD stands for bytes that are not UTF-8.
        self.text_factory = partial(str, encoding="utf-8", errors="replace")
        self.ahead = deque[Callable[[], None]]()
        """Functions that the next calls of `commit` run first, in aiosqlite's thread. There is no other way into it."""
        self.always_durable = always_durable

    def commit(self) -> None:
        """Commit, after the functions in `ahead`. Raises sqlite3.Error, and what they raise."""
        if self.ahead:
            self.ahead.popleft()()
        super().commit()

    def opening(self, begin: str, *, durable: bool, wait: float) -> str:
        """Return a script that configures the connection and begins a transaction with `begin`. Run it at once.

        durable   True if the commit must survive a power cut, and not only the death of this process
        wait      seconds a statement waits for a lock. With 0 the commit does not write the log back either
        """
        durable = durable or self.always_durable
        script = begin
        if durable is not self._durable:
            script = f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}; {script}"
        if wait != self._wait:
            pages = _LOG_PAGES if wait else 0
            script = f"PRAGMA busy_timeout = {int(wait * 1000)}; PRAGMA wal_autocheckpoint = {pages}; {script}"
        self._durable, self._wait = durable, wait
        return script

    def transact(self, begin: str, step: Callable[["TransactionConnection"], T], *, durable: bool, wait: float) -> T:
        """Run a whole transaction. Blocks. Rolls back and raises if SQLite or `step` raises."""
        try:
            self.executescript(self.opening(begin, durable=durable, wait=wait))
            value = step(self)
            super().commit()
        except BaseException:
            self.rollback()
            raise
        return value

    def empty_log(self) -> None:
        """Write the log back and empty it, unless another process uses it. Raises sqlite3.Error."""
        self._wait = -1.0
        self.executescript("PRAGMA busy_timeout = 0; PRAGMA wal_checkpoint(TRUNCATE)")


_CAUSES = {
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_INTERRUPT: "it was closed meanwhile",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_NOTADB: "it is no database",
    sqlite3.SQLITE_PERM: "it may not be opened",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_TOOBIG: "a text is too large for it",
}


class DatabaseDamaged(Exception):
    """A check found the file damaged. The message is SQLite's."""


def busy(error: sqlite3.Error | OSError) -> bool:
    """Return whether the same step may succeed a moment later, since another process has a lock."""
    return isinstance(error, TimeoutError) or _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def damaged(error: BaseException) -> bool:
    """Return whether the file is not, or no longer, a database of ours.

    If SQLite's message repeats a damaged part of the file, Python raises UnicodeDecodeError instead of SQLite's error.
    """
    return isinstance(error, DatabaseDamaged | UnicodeDecodeError) or _code(error) in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def cause(error: DatabaseDamaged | UnicodeDecodeError | sqlite3.Error | OSError) -> str:
    """Return the cause of a failure as the end of a sentence about a database, with SQLite's or the system's words."""
    if isinstance(error, DatabaseDamaged | UnicodeDecodeError):
        return f"it is damaged ({error})"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    words = _CAUSES.get(_code(error))
    return f"{words} ({error})" if words else str(error)


def _code(error: BaseException) -> int:
    """Return SQLite's primary result code, or -1 if the error has none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


_KINDS = frozenset(
    (
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
        "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "prl_fs", "smb3", "smbfs", "vboxsf", "vmhgfs",
    )
)  # fmt: skip


MOUNTS = "/proc/self/mountinfo"
"""The kernel's table of mounts (Linux)."""


def network_file_system(folder: str, mounts: str = MOUNTS) -> str | None:
    """Return the kind of network file system that a folder is on, such as "nfs4", or None.

    Only Linux tells it. Raises OSError if there is no such folder.
    """
    kinds = _mounted(mounts).get(os.stat(folder).st_dev, set())
    return next(iter(kinds & _KINDS), None)


def _mounted(mounts: str) -> dict[int, set[str]]:
    """Return the kinds of file systems by device number; none if nothing tells them."""
    found = dict[int, set[str]]()
    with suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as file:
        for line in file:  # id parent major:minor root mount-point options [tags] - kind source options
            mount, _, kind = line.partition(" - ")
            major, _, minor = "".join(mount.split()[2:3]).partition(":")
            if major.isdecimal() and minor.isdecimal() and kind.split():
                found.setdefault(os.makedev(int(major), int(minor)), set()).add(kind.split()[0])
    return found


_MAY_HANG = _KINDS | {"autofs", "davfs", "virtiofs"}


def local_devices(folders: Iterable[str], mounts: str = MOUNTS) -> frozenset[int]:
    """Return the devices of folders if all of these are on disks of this machine, which answer at once; else none.

    Only Linux tells it. For a folder that does not exist yet, the one above it counts. It blocks.
    """
    devices, kinds = set[int](), _mounted(mounts)
    for folder in folders:
        there = folder
        while not os.path.isdir(there) and there != os.path.dirname(there):
            there = os.path.dirname(there)
        with suppress(OSError):
            devices.add(os.stat(there).st_dev)
    is_local = all(each in kinds and all(map(_is_local, kinds[each])) for each in devices)
    return frozenset(devices) if is_local else frozenset()


def _is_local(kind: str) -> bool:
    return kind not in _MAY_HANG and (not kind.startswith("fuse") or kind == "fuseblk")


STATEMENT_WAIT = 0.1
"""Seconds one statement waits for a lock. A caller that waits longer repeats it, and can be cancelled in between."""

_BESIDE = ("-wal", "-shm", "-journal")
_LOG_BYTES = 16 * 1024 * 1024
"""The most bytes that the log keeps on disk after it was written back: one long output must not enlarge it for good."""


CHECKED_BYTES = 64 * 1024 * 1024
"""The size above which a file is not checked at the start, since that takes 0.5 ms per MB and more on a slow disk.

Such a file is checked once a statement finds it damaged. That statement fails; the next one finds the file set aside.
"""


class IntegrityCheck(Enum):
    """The check of a file before it is used."""

    NONE = auto()
    QUICK = auto()  # pages only, and not of a file over CHECKED_BYTES
    THOROUGH = auto()  # of any size, and indexes too


class DatabaseOpener:
    """One attempt to open the database. Blocks; the connection may be used in any thread.

    path        absolute
    reading     True if the connection only reads

    After the call:
    file        device and inode of the opened file
    made        True if the file did not exist before
    messages    lines for the user
    """

    def __init__(self, path: str, check: IntegrityCheck, *, reading: bool) -> None:
        self._path = path
        self._check = check
        self._reading = reading
        self.file: tuple[int, int] | None = None
        self.made = False
        self.messages: list[str] = []

    def __call__(self) -> TransactionConnection:
        """Return the connection.

        Raises StoreUnavailable for a newer file, and sqlite3.Error and OSError for other failures.
        """
        folder = os.path.dirname(self._path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with private_file(f"{self._path}.lock") as fd:
            lock(fd)
            try:
                return self._open(folder)
            except (DatabaseDamaged, UnicodeDecodeError, sqlite3.DatabaseError) as error:
                if not damaged(error):
                    raise
                self._set_aside(error)
            return self._open(folder)

    def _open(self, folder: str) -> TransactionConnection:
        self._make_private(folder)
        # A URI, so that SQLite does not create a missing file.
        uri = f"file:{quote(os.fsencode(self._path))}?mode=rw"
        network = network_file_system(folder)
        connection = TransactionConnection(uri, STATEMENT_WAIT, always_durable=network is not None)
        try:
            self._prepare(connection, network)
            self.file = file_at(self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_private(self, folder: str) -> None:
        """Make sure that the file belongs only to this user.

        It is not opened here: closing it would end SQLite's locks on it.
        """
        try:
            _own(self._path)
        except FileNotFoundError:
            for name in _BESIDE:  # of a file that is gone
                with suppress(FileNotFoundError):
                    os.unlink(self._path + name)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with open_folder(folder) as directory:
                os.fsync(directory)
            self.made = True
            return
        for name in _BESIDE:
            with suppress(FileNotFoundError):
                _own(self._path + name)

    def _prepare(self, connection: sqlite3.Connection, network: str | None) -> None:
        version = version_of(connection)
        if version > VERSION:
            raise StoreUnavailable(
                f"the database {self._path} was written by a newer version of this program: its format is {version}, "
                f"and this version knows formats up to {VERSION}; nothing was changed in it"
            )
        connection.execute("PRAGMA trusted_schema = OFF")
        if version == 0:  # a file with tables ignores these settings, and they would wait for its writer
            connection.execute("PRAGMA auto_vacuum = FULL")
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        self._journal(connection, network)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        if connection.execute("PRAGMA foreign_keys").fetchone() != (1,):
            raise StoreUnavailable(f"the database {self._path} cannot be used: this SQLite has no foreign keys")
        self._look_through(connection)
        migrate(connection)
        if self._reading:
            connection.execute("PRAGMA query_only = ON")

    def _journal(self, connection: sqlite3.Connection, network: str | None) -> None:
        """Use a log beside the file, or a journal on a network's disk, where the log's shared memory does not work."""
        mode = "wal" if network is None else "delete"
        if network is not None:
            connection.execute("PRAGMA cache_spill = OFF")  # no lock on readers before the end of a transaction
            self.messages.append(
                f"the database {self._path} is on a network file system ({network}): it is slower there, and not safe "
                "with processes of several computers; ACP_AGENT_DATA_DIR can name a folder on a local disk"
            )
        (given,) = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
        if given != mode:
            raise StoreUnavailable(f"the database {self._path} cannot be used: its journal is {given}, not {mode}")

    def _look_through(self, connection: sqlite3.Connection) -> None:
        match self._check:
            case IntegrityCheck.NONE:
                return
            case IntegrityCheck.QUICK:
                if os.lstat(self._path).st_size > CHECKED_BYTES:
                    return
                (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            case IntegrityCheck.THOROUGH:
                (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            case _:
                assert_never(self._check)
        if finding != "ok":
            raise DatabaseDamaged(finding)

    def _set_aside(self, error: DatabaseDamaged | UnicodeDecodeError | sqlite3.DatabaseError) -> None:
        """Rename a damaged file.

        Its log is renamed first, so that a death in between does not leave a log without its file.
        """
        aside = free_name(f"{self._path}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
        for name in (*_BESIDE, ""):
            with suppress(FileNotFoundError):
                os.rename(self._path + name, aside + name)
        self.messages.append(
            f"the database {self._path} was set aside as {aside}, and a new one was made: {cause(error)}"
        )


def file_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at a path, without following links, or None. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _own(path: str) -> None:
    """Remove the permissions of other users. Raise OSError for a link, a directory, and a file of another user."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, f"a link stands in place of {path}")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"{path} is not a regular file")
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"{path} belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, stat.S_IMODE(status.st_mode) & 0o700)
