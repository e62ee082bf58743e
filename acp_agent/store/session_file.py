"""A whole session as one JSON object: what `sessions export --json` writes and `_acp_agent/session/import` reads.

    format     "acp-agent-session"
    version    1
    record     core.sessions.SessionRecord
    conduct    core.conduct.SessionOptions
    tally      core.sessions.UsageTotals
    messages   the model's conversation: [{"role", "parts": [...]}, ...] (core.messages.Message), at most 10,000
    knowledge, tokens    of core.sessions.HistoryState
    events     the transcript: [{"at": milliseconds, "kind", "body": {...}}, ...], at most 10,000 (record_json.py)

Members with their default value may be left out, and unknown members are ignored. Consecutive pieces of a message are
one event. A session to import has at most 500,000 values, 16 Mi characters, and 100 levels.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from acp_agent.core.conduct import SessionOptions
from acp_agent.core.errors import AgentError
from acp_agent.core.events import TextDelta, ThoughtDelta
from acp_agent.core.messages import Message
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import Json, JsonObject
from acp_agent.store.record_json import event_from_row, event_row, from_json, to_json

T = TypeVar("T")
FORMAT = "acp-agent-session"
VERSION = 1
MOST_EVENTS = 10_000
"""The most events, and the most messages, of a session to import."""
_MOST_VALUES = 500_000
_MOST_CHARACTERS = 16 * 1024 * 1024
_DEEPEST = 100


class NotASessionFile(AgentError):
    """The data is not a session of ours. The message names the place, what is there and what was expected."""


async def session_object(saved: SessionSnapshot, told: AsyncIterator[StoredEvent]) -> JsonObject:
    """Return the whole session as an object. Raises StoreUnavailable."""
    events: list[Json] = [_event(one) async for one in joined_events(told)]
    return {**_head(saved), "events": events}


async def session_pieces(saved: SessionSnapshot, told: AsyncIterator[StoredEvent]) -> AsyncIterator[str]:
    """Yield the whole session as text, one event per line.

    Only one event is held in memory. Raises StoreUnavailable.
    """
    yield f'{json_text(_head(saved))[:-1]}, "events": ['
    between = "\n"
    async for one in joined_events(told):
        yield between + json_text(_event(one))
        between = ",\n"
    yield "\n]}\n"


def json_text(value: Json) -> str:
    """Return JSON on one line that is valid UTF-8: unpaired surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def event_object(one: StoredEvent) -> JsonObject:
    """Return an event with its number and its time."""
    return {"seq": one.seq, **_event(one)}


def _head(saved: SessionSnapshot) -> JsonObject:
    return {
        "format": FORMAT,
        "version": VERSION,
        "record": to_json(saved.record),
        "conduct": to_json(saved.conduct),
        "tally": to_json(saved.usage),
        "messages": [
            {"role": message.role.value, "parts": to_json(message.parts)} for message in saved.history.messages
        ],
        "knowledge": saved.history.knowledge,
        "tokens": saved.history.tokens,
    }


def _event(one: StoredEvent) -> JsonObject:
    kind, body = event_row(one.event)
    return {"at": one.at, "kind": kind, "body": json.loads(body.decode("utf-8", "surrogatepass"))}


def read_session_file(data: JsonObject) -> tuple[SessionSnapshot, tuple[StoredEvent, ...]]:
    """Return a session and its events, numbered from 1. Raises NotASessionFile."""
    if data.get("format") != FORMAT:
        raise NotASessionFile(f"format: expected {FORMAT!r}, not {_short(data.get('format'))}")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise NotASessionFile(f"version: expected {VERSION}, not {_short(data.get('version'))}")
    events, given = _list(data, "events"), _list(data, "messages")
    for name, items in (("events", events), ("messages", given)):
        if len(items) > MOST_EVENTS:
            raise NotASessionFile(f"{name}: expected at most {MOST_EVENTS:,}, not {len(items):,}")
    _measure(data)
    messages = tuple(_at(f"messages[{n}]", lambda one=one: from_json(Message, one)) for n, one in enumerate(given))
    saved = SessionSnapshot(
        record=_at("record", lambda: from_json(SessionRecord, data.get("record"))),
        conduct=_at("conduct", lambda: from_json(SessionOptions, data.get("conduct", {}))),
        usage=_at("tally", lambda: from_json(UsageTotals, data.get("tally", {}))),
        history=HistoryState(messages, _count(data, "knowledge"), _count(data, "tokens")),
    )
    if saved.history.knowledge > len(messages[0].parts if messages else ()):
        raise NotASessionFile(
            f"knowledge: expected no more than the first message has parts, not {saved.history.knowledge}"
        )
    return saved, tuple(_at(f"events[{n}]", lambda n=n, one=one: _told(n + 1, one)) for n, one in enumerate(events))


def _measure(data: Json) -> None:
    """Raise NotASessionFile for a session that is too large to show or to send to a model."""
    values, characters, level = 0, 0, [data]
    for _ in range(_DEEPEST):
        values += len(level)
        if values > _MOST_VALUES:
            raise NotASessionFile(f"session: expected at most {_MOST_VALUES:,} values")
        characters += sum(len(value) for value in level if isinstance(value, str))
        if characters > _MOST_CHARACTERS:
            raise NotASessionFile(f"session: expected at most {_MOST_CHARACTERS:,} characters of text")
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return
    raise NotASessionFile(f"session: expected at most {_DEEPEST} levels")


def _inner(value: Json) -> Iterable[Json]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()


def _told(seq: int, data: Json) -> StoredEvent:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, not {_short(data)}")  # noqa: TRY004 - `_at` makes it one kind of error
    kind, body = data.get("kind"), json.dumps(data.get("body"), allow_nan=False)
    if not isinstance(kind, str):
        raise ValueError(f"kind: expected a text, not {_short(kind)}")  # noqa: TRY004 - as above
    return StoredEvent(seq, _count(data, "at"), event_from_row(kind, body))


def _at(place: str, reading: Callable[[], T]) -> T:
    """Return what `reading` returns. If it fails, name the place in the error."""
    try:
        return reading()
    except (ValueError, NotASessionFile, RecursionError) as error:
        raise NotASessionFile(f"{place}: {error}") from error


def _list(data: JsonObject, name: str) -> list[Json]:
    value = data.get(name)
    if not isinstance(value, list):
        raise NotASessionFile(f"{name}: expected a list, not {_short(value)}")
    return value


def _count(data: JsonObject, name: str) -> int:
    value = data.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise NotASessionFile(f"{name}: expected a whole number of 0 or more, not {_short(value)}")
    return value


def _short(value: Json) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str() if len(value) > 60:
            return f"{value[:60]!r}…"
        case int() if value.bit_length() > 128:
            return "so large a number"
        case _:
            return "nothing" if value is None else repr(value)


async def joined_events(told: AsyncIterator[StoredEvent]) -> AsyncIterator[StoredEvent]:
    """Yield the events, with consecutive pieces of a message as one event. It has the time of its first piece."""
    begun, pieces = None, list[str]()
    async for one in told:
        if begun is not None and _continues(begun, one):
            pieces.extend(_words(one))
            continue
        if begun is not None:
            yield _whole(begun, pieces)
        begun, pieces = one, [*_words(one)]
    if begun is not None:
        yield _whole(begun, pieces)


def _continues(begun: StoredEvent, one: StoredEvent) -> bool:
    match begun.event, one.event:
        case (TextDelta(message_id=first), TextDelta(message_id=then)):
            return first == then
        case (ThoughtDelta(message_id=first), ThoughtDelta(message_id=then)):
            return first == then
        case _:
            return False


def _words(one: StoredEvent) -> Iterator[str]:
    if isinstance(one.event, TextDelta | ThoughtDelta):
        yield one.event.text


def _whole(begun: StoredEvent, pieces: list[str]) -> StoredEvent:
    if len(pieces) > 1 and isinstance(begun.event, TextDelta | ThoughtDelta):
        return replace(begun, event=replace(begun.event, text="".join(pieces)))
    return begun
