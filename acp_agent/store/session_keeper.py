"""What is kept of one session: a core.sessions.Keeper."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from acp_agent.core.conduct import Conduct
from acp_agent.core.sessions import Change, HistoryState, Saved, Tally, ToldAt
from acp_agent.log import Log
from acp_agent.store import session_told
from acp_agent.store.conversations import gone, hold, record_of, was_deleted
from acp_agent.store.db import Database
from acp_agent.store.record_json import Dataclass, dumped, loaded, readable, written
from acp_agent.store.session_history import StoredHistory
from acp_agent.store.stored_text import to_column
from acp_agent.store.told_json import told_of

_log = Log(__name__)

_COLUMNS = "cwd, additional, title, created_at, updated_at, prompts, model, conduct, tally, knowledge, tokens"
_ROW = f"SELECT {_COLUMNS} FROM conversations WHERE id = ? AND cwd IS NOT NULL"  # noqa: S608 - ours
_PUT_BACK = f"UPDATE conversations SET ({_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"  # noqa: S608 - ours
_SET = f"UPDATE conversations SET {{}} WHERE id = ? AND cwd IS NOT NULL RETURNING {_COLUMNS}"  # noqa: S608 - ours
_CHOSEN = "SELECT conduct FROM conversations WHERE id = ? AND cwd IS NOT NULL"
_FORGOTTEN = {"title = ?": "", "knowledge = ?": 0, "tokens = ?": 0}

T = TypeVar("T", bound=Dataclass)


class SessionKeeper:
    """A core.sessions.Keeper. `now` gives milliseconds since 1970.

    It knows what messages it wrote or read last, and holds on to them: drop it with the conversation. From them and
    the row it saw last it puts the session back in a database that was made anew; what was told before is lost.
    """

    def __init__(self, database: Database, session_id: str, now: Callable[[], int]) -> None:
        self._database = database
        self._id = session_id
        self._column = to_column(session_id)
        self._now = now
        self._history = StoredHistory(self._column)
        self._row: tuple[Any, ...] | None = None  # as it is or was, without the id

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        """See core.sessions.Keeper.write. When cancelled, nothing was written."""
        now = self._now()
        updates, rows = dict(_updates(change, now)), session_told.rows_of(change.told)  # conduct may change any moment

        def step(connection: sqlite3.Connection) -> tuple[Any, ...]:
            row = self._set(connection, updates) or self._put_back(connection, updates)
            session_told.append(connection, self._column, rows, now)
            session_told.replace_messages(connection, self._column, change.instead)
            if change.history is not None:
                self._history.write(connection, change.history.messages)
            return row

        self._row = await self._database.write_at_once(step, durable=durable, patience=patience)
        if change.history is not None:
            self._history.written(change.history.messages)

    def _set(self, connection: sqlite3.Connection, values: Mapping[str, int | str | bytes]) -> tuple[Any, ...] | None:
        """Set columns of its row, at one go: the fewer statements, the less our thread and the loop's take turns.

        The row as it is then; None where there is none.
        """
        if not values:
            return connection.execute(_ROW, (self._column,)).fetchone()
        rows = connection.execute(_SET.format(", ".join(values)), (*values.values(), self._column)).fetchall()
        return rows[0] if rows else None

    def _put_back(self, connection: sqlite3.Connection, values: Mapping[str, int | str | bytes]) -> tuple[Any, ...]:
        """Give the session its row and messages again, and set columns. Raises StoreUnavailable for a deleted one."""
        if was_deleted(connection, self._id):
            self._row = None
        if self._row is None:
            raise gone(connection, self._id)
        hold(connection, self._id, 0)
        connection.execute(_PUT_BACK, (*self._row, self._column))
        self._history.put_back(connection)
        row = self._set(connection, values)
        assert row is not None, "it was put there just now"
        return row

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

        def step(connection: sqlite3.Connection) -> tuple[Any, ...]:
            row = self._set(connection, _FORGOTTEN)
            if row is None:
                raise gone(connection, self._id)
            for table in ("told", "messages", "summaries", "tool_overflow"):
                connection.execute(f"DELETE FROM {table} WHERE conversation_id = ?", (self._column,))  # noqa: S608 - ours
            return row

        self._row = await self._database.write_at_once(step)
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
        row = connection.execute(_ROW, (self._column,)).fetchone()
        if row is None:
            return None
        self._row = row
        *record, conduct, tally, knowledge, tokens = row
        messages, lost = self._history.read(connection)
        took = self._readable(Tally(), tally)
        return Saved(
            record_of((self._column, *record)),
            self._readable(Conduct(), conduct),
            took,
            HistoryState(messages, knowledge, tokens, lost),
            session_told.last_plan(connection, self._column),
            session_told.typed_last(connection, self._column),
            session_told.told_last(connection, self._column) if took.under_way else (),
            session_told.ended_last(connection, self._column) if took.under_way else (),
        )

    def _readable(self, default: T, body: object) -> T:
        try:
            return readable(type(default), loaded(body))
        except ValueError as error:
            _log.warning("a session's state that cannot be read", session=self._id, error=str(error))
            return default


def _updates(change: Change, now: int) -> Iterator[tuple[str, int | str | bytes]]:
    """What a change sets in a session's row, and to which value."""
    if change.prompted:
        yield "prompts = prompts + ?", 1
    if change.touch:
        yield "updated_at = max(updated_at, ?)", now  # the list never moves backwards
    for setting, text in (("title = ?", change.title), ("model = ?", change.model), ("cwd = ?", change.cwd)):
        if text is not None:
            yield setting, to_column(text)
    if change.additional is not None:
        yield "additional = ?", dumped(list(change.additional))
    if change.conduct is not None:
        yield "conduct = ?", dumped(written(change.conduct))
    if change.tally is not None:
        yield "tally = ?", dumped(written(change.tally))
    if change.history is not None:
        yield "knowledge = ?", change.history.knowledge
        yield "tokens = ?", change.history.tokens
