"""The rows of a conversation: its own, summaries of older messages, long outputs, and scheduled prompts.

A conversation's row may be stored before its session, since outputs and summaries need a row to refer to. After a
session was deleted, a process that still writes to it cannot bring it back.
"""

import re
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from math import log
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from acp_agent.core.errors import StoreUnavailable
from acp_agent.core.events import TextDelta, ToolFinished, UserMessage
from acp_agent.core.messages import typed
from acp_agent.core.services import PastMessage
from acp_agent.core.sessions import OVERFLOW_PREFIX, ScheduledPrompt, SessionRecord
from acp_agent.store.db import Database
from acp_agent.store.memories import Terms, terms_of
from acp_agent.store.session_json import from_column, json_from, kind_of, number_from, to_column
from acp_agent.store.session_rows import SaidBefore, said_before

if TYPE_CHECKING:
    from acp_agent.core.services import Summary


def record_of(row: Sequence[Any]) -> SessionRecord:
    """Return the session of a row.

    The columns are id, cwd, additional, title, created_at, updated_at, prompts and model, in this order. A list of
    folders that cannot be read counts as empty, and a number as 0, so that one damaged row hides no other session.
    """
    identity, cwd, additional, title, created_at, updated_at, prompts, model = row
    return SessionRecord(
        from_column(identity),
        from_column(cwd),
        _folders(additional),
        from_column(title),
        number_from(created_at),
        number_from(updated_at),
        number_from(prompts),
        from_column(model),
    )


def was_deleted(connection: sqlite3.Connection, conversation_id: str) -> bool:
    """Return whether there was such a session once."""
    found = "SELECT 1 FROM deleted_conversations WHERE id = ?"
    return connection.execute(found, (to_column(conversation_id),)).fetchone() is not None


def gone(connection: sqlite3.Connection, conversation_id: str) -> StoreUnavailable:
    """Return the error to raise if a session is not stored."""
    deleted = was_deleted(connection, conversation_id)
    return StoreUnavailable("this session was deleted" if deleted else "this session is not in the database")


def hold(connection: sqlite3.Connection, conversation_id: str, now: int) -> None:
    """Make sure that a conversation has a row. `now` is in milliseconds. Raises StoreUnavailable for a deleted one."""
    if was_deleted(connection, conversation_id):
        raise gone(connection, conversation_id)
    connection.execute(
        "INSERT INTO conversations (id, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (to_column(conversation_id), now),
    )


def _folders(body: bytes) -> tuple[str, ...]:
    try:
        data = json_from(body)
    except ValueError:
        return ()
    return tuple(each for each in data if isinstance(each, str)) if isinstance(data, list) else ()


_KEPT = 50
"""The newest summaries of a conversation that are stored. Each one covers the one before it too."""

_INSERT = """
    INSERT INTO summaries (conversation_id, created_at, compaction_method, messages, tokens, text)
    VALUES (?, ?, ?, ?, ?, ?)
"""
_DROP_OLDEST_SUMMARIES = """
    DELETE FROM summaries WHERE seq IN (
        SELECT seq FROM summaries WHERE conversation_id = ? ORDER BY seq DESC LIMIT -1 OFFSET ?
    )
"""


class ConversationSummaries:
    """The summaries of one conversation (core.services.Summaries). They are deleted with it.

    Its session need not be stored yet. `now` returns seconds since 1970.
    """

    def __init__(self, database: Database, conversation_id: str, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._conversation = conversation_id
        self._now = now

    async def add(self, summary: "Summary") -> None:
        """Store a summary; see core.services.Summaries.add. Unpaired surrogates become question marks."""
        now = self._now()
        text = summary.text.encode("utf-8", "replace").decode()
        row = (self._conversation, int(now), summary.method.value, summary.messages, summary.tokens, text)

        def step(connection: sqlite3.Connection) -> None:
            hold(connection, self._conversation, int(now * 1000))
            connection.execute(_INSERT, row)
            connection.execute(_DROP_OLDEST_SUMMARIES, (self._conversation, _KEPT))

        await self._database.write(step)


_REFERENCE = re.compile(rf"(?:{OVERFLOW_PREFIX})?([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})")
_DAY = 24 * 60 * 60
_BATCH_ROWS = 200
_BATCH_BYTES = 16 * 1024 * 1024
_BREATH = 0.02
"""Seconds between two batches in which other processes get the lock. SQLite retries every few milliseconds."""

_ENCODING, _ERRORS = "utf-8", "surrogatepass"
"""A text comes back unchanged, also with lone surrogates from JSON."""

_PUT = "INSERT INTO tool_overflow (id, conversation_id, created_at, bytes, content) VALUES (?, ?, ?, ?, ?)"
_GET = "SELECT content FROM tool_overflow WHERE id = ? AND conversation_id = ?"
# The newest texts that fit into the limit stay; all older ones are deleted.
_DROP_OLDEST_OUTPUTS = """
    DELETE FROM tool_overflow WHERE seq IN (
        SELECT seq FROM (
            SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS total FROM tool_overflow WHERE conversation_id = ?
        ) WHERE total > ?
    )
"""

# The oldest rows that fit into a batch, and at least one.
_PURGE = """
    DELETE FROM tool_overflow WHERE seq IN (
        SELECT seq FROM (
            SELECT seq, sum(bytes) OVER (ORDER BY created_at, seq) - bytes AS before FROM (
                SELECT seq, bytes, created_at FROM tool_overflow WHERE created_at < ?
                ORDER BY created_at, seq LIMIT ?
            )
        ) WHERE before < ?
    )
"""


class OverflowStore:
    """The long outputs of all conversations.

    An output is read and written as a whole. SQLite reads a whole value to cut a piece from it: of an output of 10 MB,
    a piece takes 5 ms and the whole 7 ms.

    max_bytes            the most bytes of UTF-8 of one text; 0 = no limit
    conversation_bytes   the most bytes of one conversation; its oldest texts make room for a new one; 0 = no limit
    now                  returns seconds since 1970
    """

    def __init__(
        self,
        database: Database,
        *,
        max_bytes: int,
        conversation_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.database = database
        self.max_bytes = max_bytes
        self.conversation_bytes = conversation_bytes
        self.now = now

    def of(self, conversation_id: str) -> "ConversationOverflow":
        """Return the outputs of one conversation (core.services.Overflow). Its session need not be stored yet."""
        return ConversationOverflow(self, conversation_id)

    async def purge(self, days: int) -> int:
        """Delete texts older than so many days and return how many were deleted.

        It works in small transactions for use in the background; other processes get the lock between two. The disk
        space is freed. Raises StoreUnavailable; what was deleted before stays deleted.
        """
        before = int(self.now()) - days * _DAY
        total = 0
        while removed := await self.database.write(
            lambda connection: connection.execute(_PURGE, (before, _BATCH_ROWS, _BATCH_BYTES)).rowcount
        ):
            total += removed
            await anyio.sleep(_BREATH)
        return total


class ConversationOverflow:
    """The long outputs of one conversation."""

    def __init__(self, store: OverflowStore, conversation_id: str) -> None:
        self._store = store
        self._conversation = conversation_id

    async def put(self, text: str) -> str:
        content = text.encode(_ENCODING, _ERRORS)
        for limit, whose in (
            (self._store.max_bytes, "one output may have"),
            (self._store.conversation_bytes, "one conversation may keep"),
        ):
            if limit and len(content) > limit:
                raise StoreUnavailable(f"the output has {len(content)} bytes, more than the {limit} that {whose}")
        key = str(uuid.uuid4())
        await self._store.database.write(lambda connection: self._insert(connection, key, content))
        return OVERFLOW_PREFIX + key

    async def get(self, reference: str) -> str | None:
        key = _key(reference)
        found = (key, self._conversation)
        row = await self._store.database.read(lambda connection: connection.execute(_GET, found).fetchone())
        return None if row is None else row[0].decode(_ENCODING, _ERRORS)

    def _insert(self, connection: sqlite3.Connection, key: str, content: bytes) -> None:
        now, size = self._store.now(), len(content)
        hold(connection, self._conversation, int(now * 1000))
        if self._store.conversation_bytes:
            room = self._store.conversation_bytes - size
            connection.execute(_DROP_OLDEST_OUTPUTS, (self._conversation, room))
        connection.execute(_PUT, (key, self._conversation, int(now), size, content))


def _key(reference: str) -> str:
    match = _REFERENCE.fullmatch(reference.strip().lower())
    if match is None:
        raise ValueError("id must be a valid UUID")
    return match.group(1)


_MOST_SEARCHED = 4 * 1024 * 1024
_OF_ONE_SESSION = 3
_AROUND = 200  # characters before and after the word that a search has found


class FolderConversations:
    """The earlier conversations in a folder (core.services.PastConversations).

    The newest 4 MiB of them are searched by words. A message counts by the words of the query that it has, and rare
    words count more.

    cwd       returns the folder, as the client wrote it
    session   the id of the conversation that asks: it is left out
    """

    def __init__(self, database: Database, cwd: Callable[[], str], session: str) -> None:
        self._database = database
        self._cwd = cwd
        self._session = session

    async def search(self, query: str, limit: int) -> tuple[PastMessage, ...]:
        """Return the messages that fit best; see core.services.PastConversations.search."""
        cwd, session, terms = to_column(self._cwd()), to_column(self._session), terms_of(query)
        rows = await self._database.read(lambda connection: said_before(connection, cwd, session, _MOST_SEARCHED))
        return await to_thread.run_sync(_best, rows, terms, limit, abandon_on_cancel=True)


def _best(rows: Sequence[SaidBefore], terms: Terms, limit: int) -> tuple[PastMessage, ...]:
    messages = dict[str, PastMessage]()  # by text, because a fork repeats the messages of its source
    for session, title, at, event in rows:
        text = event.text if isinstance(event, TextDelta) else typed(event.parts)
        message = PastMessage(from_column(session), from_column(title), at, isinstance(event, UserMessage), text)
        messages.setdefault(" ".join(text.split()), message)
    messages.pop("", None)
    if not terms:
        newest = {message.session: (text, message) for text, message in reversed(messages.items()) if message.by_user}
        shown = sorted(newest.values(), key=lambda pair: -pair[1].at)[:limit]
        return tuple(replace(message, text=_around(text, 0)) for text, message in shown)
    found = {text: hits for text in messages if (hits := _hits(text.lower(), terms))}
    counts = Counter(word for hits in found.values() for word in hits)
    weights = {word: log(1 + len(messages) / count) ** 2 for word, count in counts.items()}
    best = sorted(found, key=lambda text: (-sum(weights[word] for word in found[text]), -messages[text].at))
    shown = list[PastMessage]()
    sessions = Counter[str]()
    for text in best:
        message = messages[text]
        sessions[message.session] += 1
        if sessions[message.session] <= _OF_ONE_SESSION and len(shown) < limit:
            rarest = max(found[text], key=weights.__getitem__)
            shown.append(replace(message, text=_around(text, found[text][rarest])))
    return tuple(shown)


def _hits(text: str, terms: Terms) -> dict[str, int]:
    """Return the terms that a text contains, each with its first offset. A word of the text may be longer."""
    words = ((word, re.search(rf"(?<!\w){_stem(word)}", text)) for word in terms.words if _stem(word) in text)
    hits = {word: match.start() for word, match in words if match}
    return hits | {piece: text.index(piece) for piece in terms.pieces if piece in text}


def _stem(word: str) -> str:
    return word[:-1] if len(word) > _SHORTEST and word.endswith("s") else word


_SHORTEST = 3


def _around(text: str, at: int) -> str:
    """Return the text around a place."""
    start, end = max(at - _AROUND, 0), at + _AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


_PROMPT_COLUMNS = "number, words, text, due, skips_missed, by_model, created_at, firing"
_ALL_PROMPTS = f"SELECT {_PROMPT_COLUMNS} FROM schedule WHERE conversation_id = ? ORDER BY number"  # noqa: S608 - ours
_ADD = f"INSERT INTO schedule (conversation_id, {_PROMPT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
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
    """The scheduled prompts of one session. Every method raises StoreUnavailable.

    A prompt that fires is claimed before its turn begins, in one transaction: its next time is set, and the turn has an
    id. The turn's message in the transcript has the same id. So after a kill the next process sees whether the turn had
    begun, and the prompt is neither lost nor carried out twice.
    """

    def __init__(self, database: Database, session_id: str) -> None:
        self._database = database
        self._id = session_id
        self._column = to_column(session_id)

    async def all(self) -> Sequence[ScheduledPrompt]:
        """Return the prompts by their numbers."""
        rows = await self._database.read(
            lambda connection: connection.execute(_ALL_PROMPTS, (self._column,)).fetchall()
        )
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
