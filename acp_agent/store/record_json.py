"""Dataclasses of core as JSON and back, without loss: messages, events of the transcript, and texts of columns.

Unpaired surrogates are preserved, since JSON from other programs may contain them. Members with their default value are
left out and unknown members are ignored, so that a class can get new members. If one of several classes is possible, a
member `type` names the class.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from math import isfinite
from types import NoneType, UnionType
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, cast, get_args, get_origin

from acp_agent.core.errors import StoreUnavailable
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
from acp_agent.core.types import ImagePart, Json


class Dataclass(Protocol):
    """Any instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


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

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False)


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refused(text[:20])


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def json_bytes(data: Json) -> bytes:
    """Return JSON in UTF-8, with unpaired surrogates as they are. Raises StoreUnavailable for what is not JSON."""
    try:
        return _ENCODER.encode(data).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreUnavailable(f"this cannot be kept: {error}") from error


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
    if not is_dataclass(value) or isinstance(value, type):
        return cast("Json", value)
    kind = type(value)
    data: dict[str, Json] = {_TYPE: _NAMES[kind]} if kind in _NAMES else {}
    for name, default, _ in _members(kind):
        member: object = getattr(value, name)
        if default is MISSING or member != default:
            data[name] = to_json(member)
    return data


def from_json(kind: type[T], data: object) -> T:
    """Return the dataclass that `to_json` was given. Raises ValueError for anything else."""
    given = _members_in(data)
    members: dict[str, object] = {}
    for name, default, reader in _members(kind):
        if name in given:
            members[name] = reader(given[name])
        elif default is MISSING:
            raise ValueError(f"{kind.__name__} without {name}")
    return kind(**members)


def readable_part(kind: type[T], data: object) -> T:
    """Return a dataclass with the members that can be read and defaults for the rest.

    Raises ValueError if not an object.
    """
    given = _members_in(data)

    def good() -> Iterator[tuple[str, object]]:
        for name, _, reader in _members(kind):
            try:
                yield name, reader(given[name])
            except (KeyError, ValueError):
                continue

    return kind(**dict(good()))


@cache
def _members(kind: type[Dataclass]) -> tuple[tuple[str, object, _Reader], ...]:
    """Return name, default (MISSING if it has none) and reader of each member."""
    return tuple(
        (each.name, each.default if each.default_factory is MISSING else each.default_factory(), _reader(each.type))
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
        return lambda data: tuple(map(each, _items_in(data)))
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


def _items_in(data: object) -> list[object]:
    return cast("list[object]", _of(list, data))


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
    """Return the text of a column."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
