"""What was told in a session: a row an event, but for pieces of one message that came together."""

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import groupby, islice
from typing import TypeAlias, cast

from acp_agent.core.events import PlanChanged, TextDelta, ThoughtDelta, ToolFinished, TranscriptEvent, UserMessage
from acp_agent.core.messages import Message
from acp_agent.core.plan import PlanEntry
from acp_agent.core.prompt import typed
from acp_agent.core.sessions import StoredEvent
from acp_agent.log import Log
from acp_agent.store.record_json import event_from_row, event_row, kind_of, message_from_row, message_row

_PAGE_ROWS = 256
_PAGE_BYTES = 1024 * 1024
_PAGE = """
    SELECT seq, at, kind, CAST(body AS BLOB) FROM told WHERE conversation_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_APPEND = """
    INSERT INTO told (conversation_id, seq, at, kind, body)
    SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4 FROM told WHERE conversation_id = ?1
"""
_LATEST = "SELECT CAST(body AS BLOB) FROM told WHERE conversation_id = ? AND kind = ? ORDER BY seq DESC"
_MOST_TYPED = 256 * 1024
"""Characters of the user's own words that are read for what they allow."""
_MOST_READ = 8 * 1024 * 1024
"""Bytes of prompts that are looked at for them: pictures lie in between."""
_MOST_LOOKED_AT = 2048
"""Events that are looked at for the calls of a round that was cut off."""
_BACKWARDS = "SELECT kind, CAST(body AS BLOB) FROM told WHERE conversation_id = ? ORDER BY seq DESC"
_NEWEST = "SELECT seq, CAST(body AS BLOB) FROM told WHERE conversation_id = ? AND kind = ? ORDER BY seq DESC"
_RENEW = "UPDATE told SET body = ? WHERE conversation_id = ? AND seq = ?"
_REMOVE = "DELETE FROM told WHERE conversation_id = ? AND seq = ?"

ToldRow: TypeAlias = tuple[int, int, str, bytes]
"""Sequence number, milliseconds since 1970, kind, JSON."""


def rows_of(told: Iterable[TranscriptEvent]) -> list[tuple[str, bytes]]:
    """Kinds and JSON of events. Pieces of a message that follow each other become one. Raises StoreUnavailable."""
    return [event_row(_joined(list(run))) for _, run in groupby(told, _message)]


def append(connection: sqlite3.Connection, session: str | bytes, rows: Sequence[tuple[str, bytes]], now: int) -> None:
    """Put rows behind those of a session. Raises sqlite3.Error."""
    if rows:
        connection.executemany(_APPEND, [(session, now, kind, body) for kind, body in rows])


def replace_messages(
    connection: sqlite3.Connection, session: str | bytes, messages: Iterable[TextDelta | ThoughtDelta]
) -> None:
    """Put whole messages in the place of all their pieces. Looks at the newest first. Raises sqlite3.Error."""
    for message in messages:
        kind, body = event_row(message)
        rows = _pieces(connection, session, kind, message)
        if rows:
            connection.execute(_RENEW, (body, session, rows[-1]))
            connection.executemany(_REMOVE, ((session, seq) for seq in rows[:-1]))


def _pieces(
    connection: sqlite3.Connection, session: str | bytes, kind: str, message: TextDelta | ThoughtDelta
) -> list[int]:
    """The rows of a message, the newest first."""
    found: list[int] = []
    with closing(connection.execute(_NEWEST, (session, kind))) as cursor:
        for seq, body in cast("Iterator[tuple[int, bytes]]", cursor):
            event = _readable(kind, body)
            if event is not None and event.message_id == message.message_id:
                found.append(seq)
            elif found:
                break
    return found


def _readable(kind: str, body: bytes) -> TextDelta | ThoughtDelta | None:
    try:
        event = event_from_row(kind, body)
    except ValueError:
        return None
    return event if isinstance(event, TextDelta | ThoughtDelta) else None


def restore(connection: sqlite3.Connection, session: str | bytes, told: Iterable[StoredEvent]) -> None:
    """Give a session without any what was told elsewhere, at its times. Raises sqlite3.Error, StoreUnavailable."""
    connection.executemany(
        "INSERT INTO told (conversation_id, seq, at, kind, body) VALUES (?, ?, ?, ?, ?)",
        ((session, seq, one.at, *event_row(one.event)) for seq, one in enumerate(told, 1)),
    )


def page(connection: sqlite3.Connection, session: str | bytes, after: int) -> list[ToldRow]:
    """The next rows behind a sequence number: a megabyte of them, or one that is larger. Raises sqlite3.Error."""
    rows: list[ToldRow] = []
    size = 0
    with closing(connection.execute(_PAGE, (session, after, _PAGE_ROWS))) as cursor:
        for row in cast("Iterator[ToldRow]", cursor):
            rows.append(row)
            size += len(row[3])
            if size > _PAGE_BYTES:
                break
    return rows


def last_plan(connection: sqlite3.Connection, session: str | bytes) -> tuple[PlanEntry, ...]:
    """The plan that was told last; none where it cannot be read. Raises sqlite3.Error."""
    with closing(_latest(connection, session, PlanChanged)) as plans:
        plan = next(plans, None)
    return plan.entries if isinstance(plan, PlanChanged) else ()


def typed_last(connection: sqlite3.Connection, session: str | bytes) -> tuple[str, ...]:
    """The user's own words in his latest prompts, oldest first. Raises sqlite3.Error."""
    texts: list[str] = []
    with closing(_latest(connection, session, UserMessage)) as prompts:
        for prompt in prompts:
            if isinstance(prompt, UserMessage):
                texts.append(typed(prompt.parts))
            if sum(map(len, texts)) > _MOST_TYPED:
                break
    return tuple(reversed(texts))


def told_last(connection: sqlite3.Connection, session: str | bytes) -> tuple[TextDelta | ThoughtDelta, ...]:
    """The messages behind all else that was told, each whole, in their order. Raises sqlite3.Error."""
    pieces: list[TextDelta | ThoughtDelta] = []
    with closing(connection.execute(_BACKWARDS, (session,))) as cursor:
        for kind, body in cast("Iterator[tuple[str, bytes]]", cursor):
            event = _readable(kind, body)
            if event is None:
                break
            pieces.append(event)
    messages: dict[object, list[TranscriptEvent]] = {}
    for piece in reversed(pieces):
        messages.setdefault(_message(piece), []).append(piece)
    return tuple(each for run in messages.values() if isinstance(each := _joined(run), TextDelta | ThoughtDelta))


def ended_last(connection: sqlite3.Connection, session: str | bytes) -> tuple[ToolFinished, ...]:
    """The model's calls that ended since the last prompt, oldest first. Raises sqlite3.Error.

    Before it a call may have had the id of a later one: a conversation that was summed up has forgotten its ids.
    """
    ended: list[ToolFinished] = []
    with closing(connection.execute(_BACKWARDS, (session,))) as cursor:
        for kind, body in islice(cast("Iterator[tuple[str, bytes]]", cursor), _MOST_LOOKED_AT):
            if kind == kind_of(UserMessage):
                break
            if kind == kind_of(ToolFinished) and (call := _call(body)) is not None:
                ended.append(call)
    return tuple(reversed(ended))


def _call(body: bytes) -> ToolFinished | None:
    """The end of a call the model made; None for another's, and for what cannot be read."""
    with suppress(ValueError):
        event = event_from_row(kind_of(ToolFinished), body)
        return event if isinstance(event, ToolFinished) and event.use_id else None
    return None


def _latest(
    connection: sqlite3.Connection, session: str | bytes, kind: type[TranscriptEvent]
) -> Generator[TranscriptEvent | None]:
    """Events of a kind, the latest first, a few megabytes of them at most; None for one that cannot be read."""
    size = 0
    with closing(connection.execute(_LATEST, (session, kind_of(kind)))) as cursor:
        for (body,) in cast("Iterator[tuple[bytes]]", cursor):
            size += len(body)
            if size > _MOST_READ:
                return
            try:
                yield event_from_row(kind_of(kind), body)
            except ValueError:
                yield None


def _message(event: TranscriptEvent) -> object:
    """Equal for pieces of one message, and for nothing else."""
    return (type(event), event.message_id) if isinstance(event, TextDelta | ThoughtDelta) else object()


def _joined(run: list[TranscriptEvent]) -> TranscriptEvent:
    first = run[0]
    if len(run) == 1 or not isinstance(first, TextDelta | ThoughtDelta):
        return first
    return replace(first, text="".join(each.text for each in run if isinstance(each, TextDelta | ThoughtDelta)))


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
                messages.append(message_from_row(role, body))
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
