"""The scheduled prompts of one session in the database.

A prompt that fires is claimed before its turn begins, in one transaction: its next time is set, and the turn has an id.
The turn's message in the transcript has the same id. So after a kill the next process sees whether the turn had begun,
and the prompt is neither lost nor carried out twice.
"""

import sqlite3
from collections.abc import Sequence
from enum import Enum, auto

from acp_agent.core.events import ToolFinished, UserMessage
from acp_agent.core.sessions import ScheduledPrompt
from acp_agent.store.conversations import gone
from acp_agent.store.db import Database
from acp_agent.store.session_json import from_column, kind_of, to_column

_COLUMNS = "number, words, text, due, skips_missed, by_model, created_at, firing"
_ALL = f"SELECT {_COLUMNS} FROM schedule WHERE conversation_id = ? ORDER BY number"  # noqa: S608 - ours
_ADD = f"INSERT INTO schedule (conversation_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
_FREE = "SELECT coalesce(max(number), 0) + 1, count(*) FROM schedule WHERE conversation_id = ?"
_IS_SESSION = "SELECT 1 FROM conversations WHERE id = ? AND cwd IS NOT NULL"
_CLAIM = "UPDATE schedule SET firing = ?, due = ? WHERE conversation_id = ? AND number = ? AND due = ? AND firing = ''"
_PUT_BACK = "UPDATE schedule SET firing = '', due = ? WHERE conversation_id = ? AND number = ? AND firing = ?"
_SETTLE = "UPDATE schedule SET firing = '' WHERE conversation_id = ? AND number = ? AND firing = ?"
_MOVE = "UPDATE schedule SET due = ? WHERE conversation_id = ? AND number = ? AND firing = ''"
_OVER = "DELETE FROM schedule WHERE conversation_id = ? AND due IS NULL AND firing = ''"
_REMOVE = "DELETE FROM schedule WHERE conversation_id = ? AND number = ?"
_TOLD = "SELECT 1 FROM told WHERE conversation_id = ? AND kind = ? AND instr(CAST(body AS BLOB), ?) LIMIT 1"


class Firing(Enum):
    """The progress of a scheduled prompt's turn, by the transcript: it never began, it began, or it ended."""

    NEVER_BEGAN = auto()
    BEGAN = auto()
    ENDED = auto()


class StoredSchedule:
    """The scheduled prompts of one session. Every method raises StoreUnavailable."""

    def __init__(self, database: Database, session_id: str) -> None:
        self._database = database
        self._id = session_id
        self._column = to_column(session_id)

    async def all(self) -> Sequence[ScheduledPrompt]:
        """Return the prompts by their numbers."""
        rows = await self._database.read(lambda connection: connection.execute(_ALL, (self._column,)).fetchall())
        return [
            ScheduledPrompt(number, from_column(words), from_column(text), due, bool(skips), bool(by), at, firing)
            for number, words, text, due, skips, by, at, firing in rows
        ]

    async def add(self, prompt: ScheduledPrompt, most: int) -> int | None:
        """Store a prompt under the next number, and return the number; None if there are `most` already.

        Raises StoreUnavailable, also if the session is not stored or was deleted.
        """

        def step(connection: sqlite3.Connection) -> int | None:
            if connection.execute(_IS_SESSION, (self._column,)).fetchone() is None:
                raise gone(connection, self._id)
            number, count = connection.execute(_FREE, (self._column,)).fetchone()
            if count >= most:
                return None
            texts = to_column(prompt.words), to_column(prompt.text)
            flags = prompt.skips_missed, prompt.by_model
            connection.execute(_ADD, (self._column, number, *texts, prompt.due, *flags, prompt.created_at, ""))
            return int(number)

        return await self._database.write(step)

    async def remove(self, number: int) -> bool:
        """Delete a prompt. Return False if there is none."""
        return await self._execute(_REMOVE, self._column, number)

    async def move(self, number: int, due: int | None) -> None:
        """Set another time for a prompt; None deletes it."""
        await self._execute(_MOVE, due, self._column, number)

    async def claim(self, prompt: ScheduledPrompt, firing: str, following: int | None) -> bool:
        """Begin to carry out a prompt. Return False if it was changed meanwhile, such as by another process.

        following   when it fires next, in milliseconds since 1970; None if this was the last time
        """
        return await self._execute(_CLAIM, firing, following, self._column, prompt.number, prompt.due)

    async def settle(self, number: int, firing: str) -> None:
        """Note that the turn of a claimed prompt is over, even if it was cut off."""
        await self._execute(_SETTLE, self._column, number, firing)

    async def put_back(self, number: int, firing: str, due: int | None) -> None:
        """Let a claimed prompt fire again, because its turn never began or made no call."""
        await self._execute(_PUT_BACK, due, self._column, number, firing)

    async def reached(self, firing: str) -> Firing:
        """Return how far the turn with this id came."""

        def step(connection: sqlite3.Connection) -> Firing:
            def is_told(kind: str) -> bool:
                return connection.execute(_TOLD, (self._column, kind, firing.encode())).fetchone() is not None

            if not is_told(kind_of(UserMessage)):
                return Firing.NEVER_BEGAN
            return Firing.ENDED if is_told(kind_of(ToolFinished)) else Firing.BEGAN

        return await self._database.read(step)

    async def _execute(self, statement: str, *values: object) -> bool:
        """Run a statement, and delete the prompts that do not fire again. Return whether the statement changed rows."""

        def step(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(statement, values).rowcount > 0
            connection.execute(_OVER, (self._column,))
            return changed

        return await self._database.write(step)
