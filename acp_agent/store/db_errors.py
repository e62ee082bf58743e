"""What is wrong with a database, in words for people. The one place that reads SQLite's codes."""

import sqlite3

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


class Damaged(Exception):
    """A check found a file damaged; the message is SQLite's finding."""


def busy(error: sqlite3.Error | OSError) -> bool:
    """Whether the same step may succeed a moment later: somebody else has a lock."""
    return isinstance(error, TimeoutError) or _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def damaged(error: BaseException) -> bool:
    """Whether a file is not, or no longer, a database of ours."""
    return isinstance(error, Damaged) or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def cause(error: Damaged | sqlite3.Error | OSError) -> str:
    """The cause of a failure, as the end of a sentence about a database; SQLite's or the system's words behind it."""
    if isinstance(error, Damaged):
        return f"it is damaged ({error})"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    words = _CAUSES.get(_code(error))
    return f"{words} ({error})" if words else str(error)


def _code(error: BaseException) -> int:
    """SQLite's primary result code; -1 where it gave none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1
