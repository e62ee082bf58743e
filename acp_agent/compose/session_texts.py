"""The texts in what was said: changed, or without the secrets in them, wherever they stand."""

from collections.abc import Callable
from dataclasses import fields, replace
from enum import Enum
from functools import cache
from typing import TypeVar, cast

from acp_agent.core.redaction import Redact
from acp_agent.core.types import ImagePart
from acp_agent.store.record_json import Dataclass

T = TypeVar("T")

_BETWEEN = "\n\n"  # no secret goes on behind it


def with_texts(value: T, change: Callable[[str], str]) -> T:
    """A dataclass, list, object or text with every text in it changed; names of members and pictures stay."""
    return cast("T", _each_text(value, change))


def redacted(value: T, redact: Redact) -> T:
    """A dataclass, list, object or text with every text in it redacted; names of members and pictures stay."""
    texts = list[str]()
    _collect(value, texts)
    whole = _BETWEEN.join(texts)
    if redact(whole) == whole:  # as a rule; one look at all is much faster than one at each
        return value
    return with_texts(value, redact)


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


def _each_text(value: object, change: Callable[[str], str]) -> object:
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
