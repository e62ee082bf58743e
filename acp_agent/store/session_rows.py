"""The rows of a session: transcript (a row an event), history (a row a message of the model), and the files it saw.

Pieces of one message that arrive together become one event. Of the history, only new and changed messages are written.

Long texts of prompts and tool calls are stored once, in rows of their own: a result would otherwise stand in its event,
again in the output for machines of the same event, and in the message for the model. An event stores its texts in its
own transaction, so its references always lead somewhere. A message refers only to texts that an event has stored,
and contains all others itself. Events with such texts are deleted only together with all texts of their session, so no
text outlives its last reference.
"""

import hashlib
import re
import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import groupby, islice
from typing import TypeAlias, cast

from acp_agent.core.events import (
    PlanChanged,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UserMessage,
)
from acp_agent.core.messages import Message, Part, TextPart, ToolResultPart, ToolUsePart, typed
from acp_agent.core.sessions import SeenFile
from acp_agent.log import Log
from acp_agent.store.session_json import (
    event_from_row,
    event_row,
    from_column,
    joined,
    kind_of,
    message_from_row,
    message_of,
    message_row,
    number_from,
    to_column,
)

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
"""The most characters of the user's own words that are read, to find what they allow."""
_MOST_READ = 8 * 1024 * 1024
"""The most bytes of events of one kind that are read to find the latest. Prompts may contain pictures."""
_MOST_LOOKED_AT = 2048
"""The most events that are read to find the calls of a turn that was cut off."""
_BACKWARDS = "SELECT kind, CAST(body AS BLOB) FROM told WHERE conversation_id = ? ORDER BY seq DESC"
_MOST_SAID_ROWS = 20_000
_SAID = """
    SELECT id, title, at, kind, CAST(body AS BLOB) FROM conversations JOIN told ON conversation_id = id
    WHERE cwd = ? AND id <> ? AND kind IN (?, ?) ORDER BY updated_at DESC, id, seq DESC LIMIT ?
"""
_NEWEST = "SELECT seq, CAST(body AS BLOB) FROM told WHERE conversation_id = ? AND kind = ? ORDER BY seq DESC"
_RENEW = "UPDATE told SET body = ? WHERE conversation_id = ? AND seq = ?"
_REMOVE = "DELETE FROM told WHERE conversation_id = ? AND seq = ?"

_WITH_LONG_TEXTS = {kind_of(UserMessage), kind_of(ToolStarted), kind_of(ToolFinished), kind_of(PlanChanged)}
_BESIDE_ANSWERS = {kind_of(ToolStarted), kind_of(ToolFinished), kind_of(PlanChanged)}
"""Events that may stand between the pieces of an answer, because a sub-agent works at the same time."""
_LONG = 1024
"""Texts with at least so many bytes of JSON get a row of their own."""
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
"""A string of JSON."""
_REFERENCE = re.compile(rb"\x1a([0-9a-f]{64}):(\d+):(\d+)\x1a")
"""The digest of a text, and the start and end of the piece of it that belongs here. JSON has no byte 1A."""
_STORE_TEXT = "INSERT INTO texts (conversation_id, digest, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_SEARCHED = 4
"""How many earlier texts of a row are searched for a later one. If one contains it, the row refers to that piece."""
_TEXT = "SELECT text FROM texts WHERE conversation_id = ? AND digest = ?"

EventRow: TypeAlias = tuple[int, int, str, bytes]
"""Sequence number, milliseconds since 1970, kind, JSON."""

SaidBefore: TypeAlias = tuple[str | bytes, str | bytes, int, UserMessage | TextDelta]
"""The id and the title of a session, milliseconds since 1970, and what was said in it."""


def _with_references(connection: sqlite3.Connection, session: str | bytes, body: bytes, *, store: bool) -> bytes:
    """Return JSON with references in place of its long texts. Raises sqlite3.Error.

    store   True to store the texts, False to refer only to texts that are stored
    """
    texts: dict[bytes, bytes] = {}

    def reference(match: re.Match[bytes]) -> bytes:
        text = match[1]
        if len(text) < _LONG:
            return match[0]
        for name, longer in texts.items():
            if (start := longer.find(text)) >= 0:
                return b'"\x1a%b:%d:%d\x1a"' % (name, start, start + len(text))
        digest = hashlib.sha256(text)
        if store:
            connection.execute(_STORE_TEXT, (session, digest.digest(), text))
        elif connection.execute(_TEXT, (session, digest.digest())).fetchone() is None:
            return match[0]
        name = digest.hexdigest().encode()
        if len(texts) < _SEARCHED:
            texts[name] = text
        return b'"\x1a%b:0:%d\x1a"' % (name, len(text))

    return _STRING.sub(reference, body)


def _with_texts(connection: sqlite3.Connection, session: str | bytes, body: bytes) -> bytes:
    """Return JSON with texts in place of its references. Raises sqlite3.Error.

    The JSON cannot be read if a text is missing or damaged.
    """

    def text(match: re.Match[bytes]) -> bytes:
        row = connection.execute(_TEXT, (session, bytes.fromhex(match[1].decode()))).fetchone()
        whole = b"" if row is None else row[0]
        return whole[int(match[2]) : int(match[3])] if whole and isinstance(whole, bytes) else match[0]

    return _REFERENCE.sub(text, body) if b"\x1a" in body else body


def rows_of(told: Iterable[TranscriptEvent]) -> list[tuple[str, bytes]]:
    """Return kinds and JSON of events. Consecutive pieces of a message become one. Raises StoreUnavailable."""
    return [event_row(joined(list(run))) for _, run in groupby(told, message_of)]


def append(connection: sqlite3.Connection, session: str | bytes, rows: Sequence[tuple[str, bytes]], now: int) -> None:
    """Append rows to those of a session. Raises sqlite3.Error."""
    for kind, body in rows:
        is_long = len(body) >= _LONG and kind in _WITH_LONG_TEXTS
        stored = _with_references(connection, session, body, store=True) if is_long else body
        connection.execute(_APPEND, (session, now, kind, stored))


def replace_messages(
    connection: sqlite3.Connection, session: str | bytes, messages: Iterable[TextDelta | ThoughtDelta]
) -> None:
    """Replace all pieces of messages by the whole messages. Searches the newest rows first. Raises sqlite3.Error."""
    for message in messages:
        kind, body = event_row(message)
        rows = _pieces(connection, session, kind, message)
        if rows:
            connection.execute(_RENEW, (body, session, rows[-1]))
            connection.executemany(_REMOVE, ((session, seq) for seq in rows[:-1]))


def _pieces(
    connection: sqlite3.Connection, session: str | bytes, kind: str, message: TextDelta | ThoughtDelta
) -> list[int]:
    """Return the rows of a message, newest first."""
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


def page(connection: sqlite3.Connection, session: str | bytes, after: int) -> list[EventRow]:
    """Return the next rows after a sequence number: a megabyte of rows, or one larger row. Raises sqlite3.Error."""
    rows: list[EventRow] = []
    size = 0
    with closing(connection.execute(_PAGE, (session, after, _PAGE_ROWS))) as cursor:
        for seq, at, kind, body in cast("Iterator[EventRow]", cursor):
            rows.append((seq, number_from(at), kind, _with_texts(connection, session, body)))
            size += len(rows[-1][3])
            if size > _PAGE_BYTES:
                break
    return rows


def last_plan(connection: sqlite3.Connection, session: str | bytes) -> PlanChanged:
    """Return the plan that was shown last; an empty one if there is none or it cannot be read. Raises sqlite3.Error."""
    with closing(_latest(connection, session, PlanChanged)) as plans:
        plan = next(plans, None)
    return plan if isinstance(plan, PlanChanged) else PlanChanged(())


def last_user_words(connection: sqlite3.Connection, session: str | bytes) -> tuple[str, ...]:
    """Return the user's own words in their latest prompts, oldest first. Raises sqlite3.Error."""
    texts: list[str] = []
    with closing(_latest(connection, session, UserMessage)) as prompts:
        for prompt in prompts:
            if isinstance(prompt, UserMessage) and not prompt.scheduled:
                texts.append(typed(prompt.parts))
            if sum(map(len, texts)) > _MOST_TYPED:
                break
    return tuple(reversed(texts))


def last_messages(connection: sqlite3.Connection, session: str | bytes) -> tuple[TextDelta | ThoughtDelta, ...]:
    """Return the messages since the last prompt or finished answer, each whole, in their order. Raises sqlite3.Error.

    A UsageChanged event follows each finished answer.
    """
    pieces: list[TextDelta | ThoughtDelta] = []
    with closing(connection.execute(_BACKWARDS, (session,))) as cursor:
        for kind, body in cast("Iterator[tuple[str, bytes]]", cursor):
            if kind in _BESIDE_ANSWERS:
                continue
            event = _readable(kind, body)
            if event is None:
                break
            pieces.append(event)
    messages: dict[object, list[TranscriptEvent]] = {}
    for piece in reversed(pieces):
        messages.setdefault(message_of(piece), []).append(piece)
    return tuple(each for run in messages.values() if isinstance(each := joined(run), TextDelta | ThoughtDelta))


def last_finished_calls(connection: sqlite3.Connection, session: str | bytes) -> tuple[ToolFinished, ...]:
    """Return the model's calls that ended since the last prompt, oldest first. Raises sqlite3.Error.

    Earlier calls are not needed: a compacted conversation has forgotten their ids and may use them again.
    """
    ended: list[ToolFinished] = []
    with closing(connection.execute(_BACKWARDS, (session,))) as cursor:
        for kind, body in islice(cast("Iterator[tuple[str, bytes]]", cursor), _MOST_LOOKED_AT):
            if kind == kind_of(UserMessage):
                break
            if kind == kind_of(ToolFinished):
                with suppress(ValueError):
                    call = event_from_row(kind, _with_texts(connection, session, body))
                    if isinstance(call, ToolFinished) and call.use_id:  # the model made it, not the user or the agent
                        ended.append(call)
    return tuple(reversed(ended))


def said_before(connection: sqlite3.Connection, cwd: str | bytes, session: str | bytes, most: int) -> list[SaidBefore]:
    """Return the newest messages of other sessions in a folder, those of the session used last first.

    Raises sqlite3.Error.

    most   the most bytes of events that are read
    """
    found: list[SaidBefore] = []
    kinds = kind_of(UserMessage), kind_of(TextDelta)
    with closing(connection.execute(_SAID, (cwd, session, *kinds, _MOST_SAID_ROWS))) as cursor:
        for other, title, at, kind, row in cast("Iterator[tuple[str | bytes, str | bytes, int, str, bytes]]", cursor):
            body = _with_texts(connection, other, row)
            most -= len(body)
            if most < 0:
                break
            with suppress(ValueError):
                event = event_from_row(kind, body)
                if isinstance(event, UserMessage | TextDelta):
                    found.append((other, title, at, event))
    return found


def _latest(
    connection: sqlite3.Connection, session: str | bytes, kind: type[TranscriptEvent]
) -> Generator[TranscriptEvent | None]:
    """Yield events of a kind, the latest first, up to a few megabytes. Yield None for an unreadable event."""
    size = 0
    with closing(connection.execute(_LATEST, (session, kind_of(kind)))) as cursor:
        for (row,) in cast("Iterator[tuple[bytes]]", cursor):
            body = _with_texts(connection, session, row)
            size += len(body)
            if size > _MOST_READ:
                return
            try:
                yield event_from_row(kind_of(kind), body)
            except ValueError:
                yield None


_log = Log(__name__)
_SET_MESSAGE = "INSERT OR REPLACE INTO messages (conversation_id, seq, role, body) VALUES (?, ?, ?, ?)"


_FEW = 16
_LITTLE = 16 * 1024
"""The most new parts of messages, and their most characters, that `appends_little` accepts."""


def _length(part: Part) -> int:
    match part:
        case TextPart(text) | ToolResultPart(text=text, images=()) | ToolUsePart(raw_arguments=text):
            return len(text)
        case _:
            return _LITTLE + 1  # pictures and other blocks never count as short


class StoredHistory:
    """The messages of one session in the database. It is used inside a transaction, and `written` confirms the commit.

    It keeps the messages that are stored. They are the conversation's own objects, so `write` recognises new ones by
    identity, and keeping them costs no memory while the conversation is in use.
    """

    def __init__(self, session: str | bytes) -> None:
        self._session = session
        self._stored: tuple[Message, ...] | None = None  # None if unknown
        # Rows that contain long texts. Once events have stored these texts, `write` replaces them by references.
        self._long: list[int] = []

    def write(self, connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
        """Make the stored messages equal to these. Raises sqlite3.Error, StoreUnavailable."""
        count, same = self._same(connection, messages)
        if same < count:
            connection.execute("DELETE FROM messages WHERE conversation_id = ? AND seq >= ?", (self._session, same))
        rows = [*(seq for seq in self._long if seq < same), *range(same, len(messages))]
        self._long = []
        for seq in rows:
            role, body = message_row(messages[seq])
            if len(body) >= _LONG:
                body = _with_references(connection, self._session, body, store=False)
                if len(body) >= _LONG and seq >= same:
                    self._long.append(seq)
            connection.execute(_SET_MESSAGE, (self._session, seq, role, body))

    def appends_little(self, messages: Sequence[Message]) -> bool:
        """Return whether `write` would only append a few short messages, or replace the last one by them.

        The end of a cancelled turn adds a note to the user's message, which is stored already.
        """
        stored = self._stored
        if stored is None or self._long:
            return False
        same = len(stored) if messages[: len(stored)] == stored else len(stored) - 1
        if same < 0 or messages[:same] != stored[:same]:
            return False
        parts = [part for message in messages[same:] for part in message.parts]
        return len(parts) <= _FEW and sum(map(_length, parts)) <= _LITTLE

    def put_back(self, connection: sqlite3.Connection) -> None:
        """Write all messages to a database that was created anew. Raises sqlite3.Error, StoreUnavailable."""
        self.write(connection, self._stored or ())

    def written(self, messages: Sequence[Message]) -> None:
        """Note that these messages are stored now."""
        self._stored = tuple(messages)

    def read(self, connection: sqlite3.Connection) -> tuple[tuple[Message, ...], int]:
        """Return the stored messages, and how many are missing because they cannot be read. Raises sqlite3.Error."""
        statement = "SELECT seq, role, CAST(body AS BLOB) FROM messages WHERE conversation_id = ? ORDER BY seq"
        messages: list[Message] = []
        damaged: list[str] = []
        for seq, role, body in connection.execute(statement, (self._session,)):
            try:
                messages.append(message_from_row(role, _with_texts(connection, self._session, body)))
            except ValueError as error:
                damaged.append(f"{seq}: {error}")
        if damaged:
            _log.warning(
                "messages of a session cannot be read and are left out",
                session=self._session,
                count=len(damaged),
                first=damaged[0],
            )
        self._stored = None if damaged else tuple(messages)
        return tuple(messages), len(damaged)

    def _same(self, connection: sqlite3.Connection, messages: Sequence[Message]) -> tuple[int, int]:
        """Return how many messages are stored, and how many of them, from the first on, are unchanged."""
        end = "SELECT coalesce(max(seq) + 1, 0) FROM messages WHERE conversation_id = ?"
        (count,) = connection.execute(end, (self._session,)).fetchone()
        if self._stored is None or len(self._stored) != count:  # such as in a database that was made anew
            return count, 0
        if tuple(messages[:count]) == self._stored:  # fast: compares identities first
            return count, count
        pairs = zip(self._stored, messages, strict=False)
        return count, next((seq for seq, (one, two) in enumerate(pairs) if one != two), min(count, len(messages)))


_SET_SEEN = "INSERT OR REPLACE INTO seen_files (conversation_id, path, digest, stamp, text) VALUES (?, ?, ?, ?, ?)"
_FAST = 1  # level of compression


class StoredSeenFiles:
    """The files that one session has seen, in the database. It is used like StoredHistory."""

    def __init__(self, session: str | bytes) -> None:
        self._session = session
        self._stored: Mapping[str, SeenFile] | None = None  # None if unknown

    def write(self, connection: sqlite3.Connection, files: Mapping[str, SeenFile]) -> None:
        """Make the stored files equal to these. Raises sqlite3.Error."""
        if self._stored is None:
            connection.execute("DELETE FROM seen_files WHERE conversation_id = ?", (self._session,))
        self._write(connection, self._stored or {}, files)

    def put_back(self, connection: sqlite3.Connection) -> None:
        """Write all files to a database that was created anew. Raises sqlite3.Error."""
        self._write(connection, {}, self._stored or {})

    def written(self, files: Mapping[str, SeenFile]) -> None:
        """Note that these files are stored now."""
        self._stored = files

    def read(self, connection: sqlite3.Connection) -> Mapping[str, SeenFile]:
        """Return the stored files. Raises sqlite3.Error."""
        statement = "SELECT path, digest, stamp, text FROM seen_files WHERE conversation_id = ?"
        rows = connection.execute(statement, (self._session,))
        files = {from_column(path): SeenFile(digest, stamp, _unpacked(text)) for path, digest, stamp, text in rows}
        self._stored = files
        return files

    def _write(
        self, connection: sqlite3.Connection, before: Mapping[str, SeenFile], files: Mapping[str, SeenFile]
    ) -> None:
        gone = [(self._session, to_column(path)) for path in before.keys() - files.keys()]
        connection.executemany("DELETE FROM seen_files WHERE conversation_id = ? AND path = ?", gone)
        for path, file in files.items():
            if before.get(path) is not file:
                text = None if file.text is None else zlib.compress(file.text.encode("utf-8", "surrogatepass"), _FAST)
                connection.execute(_SET_SEEN, (self._session, to_column(path), file.digest, file.stamp, text))


def _unpacked(text: bytes | None) -> str | None:
    """Return a text that was stored, or None if it cannot be read."""
    try:
        return None if text is None else zlib.decompress(text).decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError, TypeError):
        return None
