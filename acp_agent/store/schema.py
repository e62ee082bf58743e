"""The shape of the database, as numbered steps; `user_version` in the file counts those that were taken.

To change the shape, put one more migration at the end of MIGRATIONS. Never change or remove one that was released:
files out there have it behind them.
"""

import sqlite3

Migration = tuple[str, ...]
"""SQL statements of one step. They run in order, foreign keys enforced, all steps of an update in one transaction."""

_OVERFLOW: Migration = (
    # Times are whole seconds since 1970.
    "CREATE TABLE conversations (id TEXT PRIMARY KEY NOT NULL, created_at INTEGER NOT NULL)",
    # `seq` says which came first whatever the clock did. `content` is last: who reads the rest does not pass it.
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
    # `recency` says which note was kept last, whatever the clock did; a key is never used again. What finds words is
    # made at the first note (memory_index.py): not every SQLite can.
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

MIGRATIONS: tuple[Migration, ...] = (_OVERFLOW, _MEMORY)

VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """How many migrations a file has behind it. Raises sqlite3.DatabaseError for what is no database."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Take the steps a file lacks, all or none. Blocks; the connection must be in autocommit. Raises sqlite3.Error."""
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
