"""What stands in place of older messages, kept with the conversation (requirements L11): one table, a row a summary."""

import sqlite3
import time
from collections.abc import Callable

from acp_agent.core.memory import Summary
from acp_agent.store.conversations import hold
from acp_agent.store.db import Database

_KEPT = 50
"""Summaries of one conversation, the newest: each sums up the one before it, too."""

_INSERT = """
    INSERT INTO summaries (conversation_id, created_at, compaction_method, messages, tokens, text)
    VALUES (?, ?, ?, ?, ?, ?)
"""
_MAKE_ROOM = """
    DELETE FROM summaries WHERE seq IN (
        SELECT seq FROM summaries WHERE conversation_id = ? ORDER BY seq DESC LIMIT -1 OFFSET ?
    )
"""


class SummaryStore:
    """The summaries of all conversations. `now` gives seconds since 1970."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self.database = database
        self.now = now

    def of(self, conversation_id: str) -> "ConversationSummaries":
        """Those of one conversation: a core.memory.Summaries. Its session need not be in the database yet."""
        return ConversationSummaries(self, conversation_id)


class ConversationSummaries:
    """The summaries of one conversation. They go when it goes."""

    def __init__(self, store: SummaryStore, conversation_id: str) -> None:
        self._store = store
        self._conversation = conversation_id

    async def add(self, summary: Summary) -> None:
        """Keep one; see core.memory.Summaries.add. Half surrogate pairs become question marks."""
        now = self._store.now()
        text = summary.text.encode("utf-8", "replace").decode()
        row = (self._conversation, int(now), summary.method.value, summary.messages, summary.tokens, text)

        def step(connection: sqlite3.Connection) -> None:
            hold(connection, self._conversation, int(now * 1000))
            connection.execute(_INSERT, row)
            connection.execute(_MAKE_ROOM, (self._conversation, _KEPT))

        await self._store.database.write_at_once(step)
