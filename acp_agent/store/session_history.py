"""The conversation as the model has it: a row a message, of which only those that are new or changed are written."""

import sqlite3
from collections.abc import Sequence

from acp_agent.core.messages import Message
from acp_agent.log import Log
from acp_agent.store.message_json import message_of, message_row

_log = Log(__name__)


class StoredHistory:
    """The messages of one session. Used in a transaction; whoever commits it says so.

    It holds the messages that are in the database: they are the conversation's own, so that they are told from new
    ones by who they are, and cost no memory while the conversation is in use.
    """

    def __init__(self, session: str | bytes) -> None:
        self._session = session
        self._stored: tuple[Message, ...] | None = None  # None where nobody knows

    def write(self, connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
        """Make the stored messages these. Raises sqlite3.Error, StoreUnavailable."""
        count, same = self._same(connection, messages)
        if same < count:
            connection.execute("DELETE FROM messages WHERE conversation_id = ? AND seq >= ?", (self._session, same))
        connection.executemany(
            "INSERT INTO messages (conversation_id, seq, role, body) VALUES (?, ?, ?, ?)",
            [(self._session, seq, *message_row(message)) for seq, message in enumerate(messages[same:], same)],
        )

    def put_back(self, connection: sqlite3.Connection) -> None:
        """Write all that was stored into a database that was made anew. Raises sqlite3.Error, StoreUnavailable."""
        self.write(connection, self._stored or ())

    def written(self, messages: Sequence[Message]) -> None:
        """The stored messages are these now."""
        self._stored = tuple(messages)

    def read(self, connection: sqlite3.Connection) -> tuple[tuple[Message, ...], int]:
        """The stored messages, and how many are left out since they cannot be read. Raises sqlite3.Error."""
        statement = "SELECT seq, role, body FROM messages WHERE conversation_id = ? ORDER BY seq"
        messages: list[Message] = []
        damaged: list[str] = []
        for seq, role, body in connection.execute(statement, (self._session,)):
            try:
                messages.append(message_of(role, body))
            except ValueError as error:
                damaged.append(f"{seq}: {error}")
        if damaged:
            _log.warning("messages that cannot be read", session=self._session, count=len(damaged), first=damaged[0])
        self._stored = None if damaged else tuple(messages)
        return tuple(messages), len(damaged)

    def _same(self, connection: sqlite3.Connection, messages: Sequence[Message]) -> tuple[int, int]:
        """How many messages are stored, and how many of them, from the first on, are as they are to be."""
        end = "SELECT coalesce(max(seq) + 1, 0) FROM messages WHERE conversation_id = ?"
        (count,) = connection.execute(end, (self._session,)).fetchone()
        if self._stored is None or len(self._stored) != count:  # such as in a database that was made anew
            return count, 0
        if tuple(messages[:count]) == self._stored:  # looks at who they are first, and is fast
            return count, count
        pairs = zip(self._stored, messages, strict=False)
        return count, next((seq for seq, (one, two) in enumerate(pairs) if one != two), min(count, len(messages)))
