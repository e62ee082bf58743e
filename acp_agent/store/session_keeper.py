"""What is kept of one session: a core.sessions.Keeper."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TypeVar

from acp_agent.core.conduct import Conduct
from acp_agent.core.sessions import Change, HistoryState, Saved, Tally, ToldAt
from acp_agent.log import Log
from acp_agent.store import session_told
from acp_agent.store.conversations import gone, record_of
from acp_agent.store.db import Database
from acp_agent.store.record_json import Dataclass, dumped, loaded, readable, written
from acp_agent.store.session_history import StoredHistory
from acp_agent.store.stored_text import to_column
from acp_agent.store.told_json import told_of

_log = Log(__name__)

_SAVED = """
    SELECT knowledge, tokens, conduct, tally, id, cwd, additional, title, created_at, updated_at, prompts, model
    FROM conversations WHERE id = ? AND cwd IS NOT NULL
"""
_CHOSEN = "SELECT conduct FROM conversations WHERE id = ? AND cwd IS NOT NULL"
_THERE = "SELECT 1 FROM conversations WHERE id = ? AND cwd IS NOT NULL"
_PROMPTED = "UPDATE conversations SET prompts = prompts + ? WHERE id = ?"
_TOUCHED = "UPDATE conversations SET updated_at = max(updated_at, ?) WHERE id = ?"  # the list never moves backwards
_FORGOTTEN = "UPDATE conversations SET title = '', knowledge = 0, tokens = 0 WHERE id = ?"
_TITLE = "UPDATE conversations SET title = ? WHERE id = ?"
_MODEL = "UPDATE conversations SET model = ? WHERE id = ?"
_CWD = "UPDATE conversations SET cwd = ? WHERE id = ?"
_ADDITIONAL = "UPDATE conversations SET additional = ? WHERE id = ?"
_CONDUCT = "UPDATE conversations SET conduct = ? WHERE id = ?"
_TALLY = "UPDATE conversations SET tally = ? WHERE id = ?"
_KNOWLEDGE = "UPDATE conversations SET knowledge = ? WHERE id = ?"
_TOKENS = "UPDATE conversations SET tokens = ? WHERE id = ?"

T = TypeVar("T", bound=Dataclass)


class SessionKeeper:
    """A core.sessions.Keeper. `now` gives milliseconds since 1970.

    It knows what messages it wrote or read last, and holds on to them: drop it with the conversation.
    """

    def __init__(self, database: Database, session_id: str, now: Callable[[], int]) -> None:
        self._database = database
        self._id = session_id
        self._column = to_column(session_id)
        self._now = now
        self._history = StoredHistory(self._column)

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        """See core.sessions.Keeper.write. When cancelled, nothing was written."""
        now = self._now()
        updates, rows = list(_updates(change, now)), session_told.rows_of(change.told)  # conduct may change any moment

        def step(connection: sqlite3.Connection) -> None:
            if connection.execute(_THERE, (self._column,)).fetchone() is None:
                raise gone(connection, self._id)
            for statement, value in updates:
                connection.execute(statement, (value, self._column))
            session_told.append(connection, self._column, rows, now)
            session_told.replace_messages(connection, self._column, change.instead)
            if change.history is not None:
                self._history.write(connection, change.history.messages)

        await self._database.write_at_once(step, durable=durable, patience=patience)
        if change.history is not None:
            self._history.written(change.history.messages)

    async def saved(self) -> Saved | None:
        """See core.sessions.Keeper.saved. What cannot be read of conduct and tally is as in a new session."""
        return await self._database.read_at_once(self._read)

    async def conduct(self) -> Conduct | None:
        """What the user has chosen, whoever wrote it; None when the session is not there. Raises StoreUnavailable."""
        row = await self._database.read_at_once(
            lambda connection: connection.execute(_CHOSEN, (self._column,)).fetchone()
        )
        return None if row is None else self._readable(Conduct(), row[0])

    async def forget(self) -> None:
        """See core.sessions.Keeper.forget. What it took stays counted, and so do its prompts: it stays listed."""

        def step(connection: sqlite3.Connection) -> None:
            if connection.execute(_THERE, (self._column,)).fetchone() is None:
                raise gone(connection, self._id)
            for table in ("told", "messages", "summaries", "tool_overflow"):
                connection.execute(f"DELETE FROM {table} WHERE conversation_id = ?", (self._column,))  # noqa: S608 - ours
            connection.execute(_FORGOTTEN, (self._column,))

        await self._database.write_at_once(step)
        self._history = StoredHistory(self._column)
        await self._database.empty_log()

    async def told(self, after: int = 0) -> AsyncGenerator[ToldAt]:
        """See core.sessions.Keeper.told. No transaction is open between two events; what cannot be read is left out."""
        complain = True
        while rows := await self._page(after):
            for seq, at, kind, body in rows:
                try:
                    event = told_of(kind, body)
                except ValueError as error:
                    if complain:
                        _log.warning("events that cannot be read", session=self._id, first=f"{seq}: {error}")
                    complain = False
                else:
                    yield ToldAt(seq, at, event)
            after = rows[-1][0]

    async def _page(self, after: int) -> Sequence[session_told.ToldRow]:
        return await self._database.read_at_once(lambda connection: session_told.page(connection, self._column, after))

    def _read(self, connection: sqlite3.Connection) -> Saved | None:
        row = connection.execute(_SAVED, (self._column,)).fetchone()
        if row is None:
            return None
        knowledge, tokens, conduct, tally, *record = row
        messages, lost = self._history.read(connection)
        return Saved(
            record_of(record),
            self._readable(Conduct(), conduct),
            self._readable(Tally(), tally),
            HistoryState(messages, knowledge, tokens, lost),
            session_told.last_plan(connection, self._column),
            session_told.typed_last(connection, self._column),
        )

    def _readable(self, default: T, body: object) -> T:
        try:
            return readable(type(default), loaded(body))
        except ValueError as error:
            _log.warning("a session's state that cannot be read", session=self._id, error=str(error))
            return default


def _updates(change: Change, now: int) -> Iterator[tuple[str, int | str | bytes]]:
    """Statements that set the columns of a session's row, and the value of each."""
    if change.prompted:
        yield _PROMPTED, 1
    if change.touch:
        yield _TOUCHED, now
    for statement, text in ((_TITLE, change.title), (_MODEL, change.model), (_CWD, change.cwd)):
        if text is not None:
            yield statement, to_column(text)
    if change.additional is not None:
        yield _ADDITIONAL, dumped(list(change.additional))
    if change.conduct is not None:
        yield _CONDUCT, dumped(written(change.conduct))
    if change.tally is not None:
        yield _TALLY, dumped(written(change.tally))
    if change.history is not None:
        yield _KNOWLEDGE, change.history.knowledge
        yield _TOKENS, change.history.tokens
