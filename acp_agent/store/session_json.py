"""Sessions as JSON and back, without loss: dataclasses of core, rows of the database, and a whole session.

Unpaired surrogates are preserved, since JSON from other programs may contain them. Members with their default value are
left out and unknown members are ignored, so that a class can get new members. If one of several classes is possible, a
member `type` names the class.

`sessions export --json` writes a whole session, and `_acp_agent/session/import` reads it:

    format     "acp-agent-session"
    version    1
    record     core.sessions.SessionRecord
    options    core.session_options.SessionOptions; files of earlier versions call it `conduct`
    tally      core.sessions.UsageTotals
    messages   the model's conversation: [{"role", "parts": [...]}, ...] (core.messages.Message), at most 10,000
    knowledge, tokens    of core.sessions.HistoryState
    events     the transcript: [{"at": milliseconds, "kind", "body": {...}}, ...], at most 10,000

Consecutive pieces of a message are one event. A session to import has at most 500,000 values, 16 Mi characters, and
100 levels.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_origin

from acp_agent.core.data import Dataclass
from acp_agent.core.errors import AgentError, StoreUnavailable
from acp_agent.core.events import (
    PlanChanged,
    TextDelta,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TranscriptEvent,
    UsageChanged,
    UserMessage,
)
from acp_agent.core.messages import (
    LinkPart,
    Message,
    OpaquePart,
    ResourcePart,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import ImagePart, Json, JsonObject

T = TypeVar("T", bound=Dataclass)
V = TypeVar("V")
_Reader: TypeAlias = Callable[[object], object]

_TYPE = "type"
_NAMES: Mapping[type[Dataclass], str] = {
    TextPart: "text",
    ImagePart: "image",
    ThoughtPart: "thought",
    ToolUsePart: "tool_use",
    ToolResultPart: "tool_result",
    OpaquePart: "opaque",
    LinkPart: "link",
    ResourcePart: "resource",
}
"""These names are in users' files and must not change."""

_PLAIN = frozenset((str, int, bool, float, NoneType, dict))

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False)


def _refused(constant: str) -> float:
    raise ValueError(f"{constant[:20]} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refused(text)


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def json_bytes(data: Json) -> bytes:
    """Return JSON in UTF-8, with unpaired surrogates as they are. Raises StoreUnavailable for what is not JSON."""
    try:
        return _ENCODER.encode(data).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreUnavailable(f"this cannot be stored as JSON: {error}") from error


def json_from(body: object) -> Json:
    """Return the value that `json_bytes` was given. Raises ValueError for anything else."""
    if not isinstance(body, bytes | str):
        raise ValueError(f"expected JSON, got {type(body).__name__}")  # noqa: TRY004 - one error for all that is damaged
    try:
        return _DECODER.decode(body if isinstance(body, str) else body.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_json(value: object) -> Json:
    """Return a dataclass as an object, and a tuple of dataclasses as a list. Other values are JSON already."""
    if isinstance(value, tuple):
        return [to_json(each) for each in cast("tuple[object, ...]", value)]
    kind = type(value)
    if kind in _PLAIN or not is_dataclass(kind):
        return cast("Json", value)
    data: dict[str, Json] = {_TYPE: _NAMES[kind]} if kind in _NAMES else {}
    for name, default, _, _ in _members(kind):
        member: object = getattr(value, name)
        if default is MISSING or member != default:
            data[name] = to_json(member)
    return data


def from_json(kind: type[T], data: object) -> T:
    """Return the dataclass that `to_json` was given. Raises ValueError for anything else."""
    given = _members_in(data)
    members: dict[str, object] = {}
    for name, default, hint, reader in _members(kind):
        if name in given:
            value = given[name]
            members[name] = value if type(value) is hint else reader(value)
        elif default is MISSING:
            raise ValueError(f"{kind.__name__} without {name}")
    return kind(**members)


def readable_part(kind: type[T], data: object) -> T:
    """Return a dataclass with the members that can be read and defaults for the rest.

    Raises ValueError if not an object.
    """
    given = _members_in(data)
    members: dict[str, object] = {}
    for name, _, _, reader in _members(kind):
        with suppress(KeyError, ValueError):
            members[name] = reader(given[name])
    return kind(**members)


@cache
def _members(kind: type[Dataclass]) -> tuple[tuple[str, object, Any, _Reader], ...]:
    """Return name, default (MISSING if it has none), annotation and reader of each member."""
    return tuple(
        (
            each.name,
            each.default if each.default_factory is MISSING else each.default_factory(),
            each.type,
            _reader(each.type),
        )
        for each in fields(kind)
    )


@cache
def _reader(hint: object) -> _Reader:
    """Return a function that reads the value of a member with this annotation from JSON, or raises ValueError."""
    kinds = get_args(hint)
    if isinstance(hint, UnionType):
        others = [kind for kind in kinds if kind is not NoneType]
        one = _reader(others[0]) if len(others) == 1 else partial(_read_one, {_NAMES[kind]: kind for kind in others})
        return one if len(others) == len(kinds) else lambda data: None if data is None else one(data)
    if get_origin(hint) is tuple:
        each = _reader(kinds[0])
        return lambda data: tuple(map(each, cast("list[object]", _of(list, data))))
    if get_origin(hint) is dict:
        return partial(_of, dict)
    if not isinstance(hint, type):
        raise TypeError(f"nothing is known of members like {hint}")
    if is_dataclass(hint):
        return partial(from_json, hint)
    if issubclass(hint, Enum):
        return hint
    return partial(_of, hint)


def _read_one(kinds: Mapping[str, type[Dataclass]], data: object) -> object:
    name = _of(str, _members_in(data).get(_TYPE))
    if name not in kinds:
        raise ValueError(f"expected one of {', '.join(kinds)}, got {name!r}")
    return from_json(kinds[name], data)


def _members_in(data: object) -> dict[str, object]:
    return cast("dict[str, object]", _of(dict, data))


def _of(kind: type[V], data: object) -> V:
    """Return `data` if it is of this type. An integer may stand for a float."""
    wanted = int | float if kind is float else kind
    if not isinstance(data, wanted) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"expected {kind.__name__}, got {type(data).__name__}")
    return cast("V", data)


def message_row(message: Message) -> tuple[str, bytes]:
    """Return a message's role and the JSON of its parts. Raises StoreUnavailable for what is not JSON."""
    return message.role.value, json_bytes(to_json(message.parts))


def message_from_row(role: object, body: object) -> Message:
    """Return the message of a row. Raises ValueError if it is damaged or has parts that this version does not know."""
    return from_json(Message, {"role": role, "parts": json_from(body)})


_EVENT_KINDS: Mapping[type[TranscriptEvent], str] = {
    UserMessage: "user",
    TextDelta: "text",
    ThoughtDelta: "thought",
    ToolStarted: "tool_started",
    ToolFinished: "tool_finished",
    PlanChanged: "plan",
    UsageChanged: "usage",
}
"""These names are in users' files and must not change."""
_EVENT_TYPES = {name: kind for kind, name in _EVENT_KINDS.items()}


def kind_of(event: type[TranscriptEvent]) -> str:
    """Return the name of a type of event in its row."""
    return _EVENT_KINDS[event]


def event_row(event: TranscriptEvent) -> tuple[str, bytes]:
    """Return the kind and the JSON of an event.

    Raises StoreUnavailable for what is not JSON or is nested too deeply.
    """
    return _EVENT_KINDS[type(event)], json_bytes(to_json(event))


def event_from_row(kind: str, body: object) -> TranscriptEvent:
    """Return the event of a row. Raises ValueError if it is damaged or of a kind that this version does not know."""
    if kind not in _EVENT_TYPES:
        raise ValueError(f"unknown kind of event: {kind!r}")
    return from_json(_EVENT_TYPES[kind], json_from(body))


def to_column(text: str) -> str | bytes:
    """Return the value of a text in a column.

    It is the text, or bytes if the text has unpaired surrogates, which SQLite cannot hold.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_column(value: str | bytes) -> str:
    """Return the text of a column. In a damaged one, U+FFFD stands for what is no text."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


def number_from(value: object) -> int:
    """Return the whole number of a column, 0 if there is none because the file is damaged."""
    if isinstance(value, float) and abs(value) < _MOST_NUMBER:
        return int(value)
    return value if isinstance(value, int) else 0


U = TypeVar("U")
FORMAT = "acp-agent-session"
VERSION = 1
MOST_EVENTS = 10_000
"""The most events, and the most messages, of a session to import."""
_MOST_VALUES = 500_000
_MOST_CHARACTERS = 16 * 1024 * 1024
_DEEPEST = 100
_MOST_NUMBER = 2**63


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
        "options": to_json(saved.options),
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
    options = "options" if "options" in data else "conduct"
    record = _at("record", lambda: from_json(SessionRecord, data.get("record")))
    for name in ("created_at", "updated_at", "prompts"):
        _at("record", partial(_count, asdict(record), name))
    saved = SessionSnapshot(
        record=record,
        options=_at(options, lambda: from_json(SessionOptions, data.get(options, {}))),
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


def _at(place: str, reading: Callable[[], U]) -> U:
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
    run: list[StoredEvent] = []
    async for one in told:
        if run and message_of(one.event) != message_of(run[0].event):
            yield replace(run[0], event=joined([each.event for each in run]))
            run = []
        run.append(one)
    if run:
        yield replace(run[0], event=joined([each.event for each in run]))


def message_of(event: TranscriptEvent) -> object:
    """Return a value that is equal for pieces of one message and for nothing else."""
    return (type(event), event.message_id) if isinstance(event, TextDelta | ThoughtDelta) else object()


def joined(run: Sequence[TranscriptEvent]) -> TranscriptEvent:
    """Return pieces of one message as one event. Any other event is alone."""
    first = run[0]
    if len(run) == 1 or not isinstance(first, TextDelta | ThoughtDelta):
        return first
    return replace(first, text="".join(each.text for each in run if isinstance(each, TextDelta | ThoughtDelta)))
