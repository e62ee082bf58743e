"""The tables of the database as numbered migrations. `user_version` of the file counts those that were applied.

To change the tables, append a migration to MIGRATIONS. Never change or remove a released one: files of users have
already applied it.
"""

import sqlite3

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
    # `recency` says which note was kept last, whatever the clock did; a key is never used again. The index of
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

MIGRATIONS: tuple[Migration, ...] = (_OVERFLOW, _MEMORY, _SESSIONS, _TEXTS)

VERSION = len(MIGRATIONS)


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
