"""What was said in a session without the secrets in it, for a page that others may read."""

from collections.abc import AsyncIterator
from dataclasses import fields, replace
from enum import Enum
from functools import cache
from typing import TypeVar, cast

from acp_agent.core.redaction import Redact
from acp_agent.core.sessions import ToldAt
from acp_agent.core.types import ImagePart
from acp_agent.store.record_json import Dataclass
from acp_agent.store.session_file import joined

T = TypeVar("T")

_BETWEEN = "\n\n"  # no secret goes on behind it


async def without_secrets(told: AsyncIterator[ToldAt], redact: Redact) -> AsyncIterator[ToldAt]:
    """The events with every text in them redacted. Messages are joined first: a secret may come in two pieces."""
    async for one in joined(told):
        yield redacted(one, redact)


def redacted(value: T, redact: Redact) -> T:
    """A dataclass, list, object or text with every text in it redacted; names of members and pictures stay."""
    texts = list[str]()
    _collect(value, texts)
    whole = _BETWEEN.join(texts)
    if redact(whole) == whole:  # as a rule; one look at all is much faster than one at each
        return value
    return cast("T", _each_text(value, redact))


def _collect(value: object, texts: list[str]) -> None:
    match value:
        case None | int() | float() | Enum() | ImagePart():
            pass
        case str():
            texts.append(value)
        case tuple() | list():
            for item in cast("tuple[object, ...] | list[object]", value):
                _collect(item, texts)
        case dict():
            for item in cast("dict[object, object]", value).values():
                _collect(item, texts)
        case _:
            for name in _members(type(value)):
                _collect(getattr(value, name), texts)


def _each_text(value: object, change: Redact) -> object:
    match value:
        case None | int() | float() | Enum() | ImagePart():
            return value
        case str():
            return change(value)
        case tuple():
            return tuple(_each_text(item, change) for item in cast("tuple[object, ...]", value))
        case list():
            return [_each_text(item, change) for item in cast("list[object]", value)]
        case dict():
            return {name: _each_text(item, change) for name, item in cast("dict[object, object]", value).items()}
        case _:
            members = {name: _each_text(getattr(value, name), change) for name in _members(type(value))}
            return replace(cast("Dataclass", value), **members)


@cache
def _members(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
