"""Correct an imported session so that it can be stored here. It is not trusted.

Times in the future and impossible numbers are corrected, because editors show them and limits count them. Texts must
have no invisible characters, paths must not point outside the session's folders, and markdown must not make an editor
fetch a picture.
"""

import base64
import binascii
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from enum import Enum
from functools import cache
from typing import TypeVar, cast
from uuid import uuid4

from acp_agent.core.data import Dataclass, frozen
from acp_agent.core.events import ToolFinished, ToolStarted, TranscriptEvent, UsageChanged, UserMessage
from acp_agent.core.messages import Message, OpaquePart, Part, PromptPart, TextPart, ThoughtPart, ToolResultPart, Usage
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.sessions import SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import Diff, ImagePart, Location, ToolResult
from acp_agent.output.markdown_images import defused
from acp_agent.output.sanitize import sanitize

T = TypeVar("T")

_BETWEEN = "\n\n"  # separates texts: no secret continues over it


def with_texts(value: T, change: Callable[[str], str]) -> T:
    """Return a dataclass, list, object or text with every text in it changed. Member names and images stay."""
    return cast("T", _each_text(value, change))


def redacted(value: T, redact: Redact) -> T:
    """Return a dataclass, list, object or text with every text in it redacted. Member names and images stay."""
    texts = list[str]()

    def collected(text: str) -> str:
        texts.append(text)
        return text

    with_texts(value, collected)
    whole = _BETWEEN.join(texts)
    if redact(whole) == whole:  # the usual case; one call for all texts is much faster than one for each
        return value
    return with_texts(value, redact)


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


_LONGEST = 200  # characters of a title, a model's name or a source
_MOST = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""
_LAST_LINE = 2**32 - 1  # of a file (ACP: a number of 32 bits)
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NO_PICTURE = TextPart("[a picture that cannot be shown]")


def is_folder(path: str) -> bool:
    """Return whether a path can be a session's folder."""
    return os.path.isabs(path) and "\0" not in path


def corrected_session(
    snapshot: SessionSnapshot,
    events: Sequence[StoredEvent],
    options: SessionOptions,
    now: int,
    redact: Redact = verbatim,
) -> tuple[SessionSnapshot, Sequence[StoredEvent]]:
    """Return the session with a new id and with the given options. `now` is in milliseconds since 1970.

    It is slow for long sessions, so call it off the event loop.
    """
    prompts = sum(isinstance(one.event, UserMessage) for one in events)
    record = replace(_record(snapshot.record, now, redact), id=str(uuid4()), prompts=prompts)
    shown = _Shown((record.cwd, *record.additional), redact)
    corrected = [replace(one, at=min(one.at, now), event=shown.event(one.event)) for one in events]
    messages = tuple(_message(each, redact) for each in snapshot.history.messages)
    history, usage = replace(snapshot.history, messages=messages), _totals(snapshot.usage)
    return replace(snapshot, record=record, options=options, usage=usage, history=history), corrected


def _record(record: SessionRecord, now: int, redact: Redact) -> SessionRecord:
    return replace(
        record,
        cwd=os.path.normpath(record.cwd),
        additional=tuple(filter(is_folder, record.additional)),
        title=redact(_line(record.title))[:_LONGEST],
        created_at=record.created_at if 0 < record.created_at <= now else now,
        updated_at=now,
        model=" ".join(_plain(record.model).split())[:_LONGEST],
    )


def _totals(totals: UsageTotals) -> UsageTotals:
    usage = totals.usage
    return replace(
        totals,
        used=_number(totals.used),
        size=_number(totals.size),
        usage=Usage(*map(_number, (usage.input, usage.output, usage.cache_read, usage.cache_write))),
        cost=_cost(totals.cost),
        calls=_number(totals.calls),
        batches=_number(totals.batches),
        read_from=tuple(_line(source)[:_LONGEST] for source in totals.read_from),
    )


@frozen
class _Shown:
    """A corrector of the events of an imported session with these folders."""

    folders: tuple[str, ...]
    redact: Redact

    def event(self, event: TranscriptEvent) -> TranscriptEvent:
        match event:
            case UsageChanged(used, size, cost):
                return UsageChanged(_number(used), _number(size), _cost(cost))
            case UserMessage(parts=parts):
                event = replace(event, parts=tuple(self._parts(parts)))
            case ToolStarted(locations=locations, diffs=diffs):
                event = replace(event, locations=self._places(locations), diffs=self._changes(diffs))
            case ToolFinished(result=result, elapsed=elapsed):
                elapsed = elapsed if 0 <= elapsed <= _MOST else 0.0
                event = replace(event, result=self._result(result), elapsed=elapsed)
            case _:
                pass
        return redacted(_shown_texts(event), self.redact)

    def _result(self, result: ToolResult) -> ToolResult:
        return replace(
            result,
            locations=self._places(result.locations),
            diffs=self._changes(result.diffs),
            images=tuple(filter(_is_picture, result.images)),
            ruling=None,  # only the audit uses it, and it has no record of this call
        )

    def _parts(self, parts: tuple[PromptPart, ...]) -> Iterator[PromptPart]:
        for part in parts:
            yield part if not isinstance(part, ImagePart) or _is_picture(part) else _NO_PICTURE

    def _places(self, locations: tuple[Location, ...]) -> tuple[Location, ...]:
        return tuple(
            each if each.line is None or 0 <= each.line <= _LAST_LINE else replace(each, line=None)
            for each in locations
            if self._holds(each.path)
        )

    def _changes(self, diffs: tuple[Diff, ...]) -> tuple[Diff, ...]:
        return tuple(each for each in diffs if self._holds(each.path))

    def _holds(self, path: str) -> bool:
        """Return whether a path is absolute and below one of the folders, without resolving links."""
        if not is_folder(path) or ".." in path.split("/"):
            return False
        return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in self.folders)


def _shown_texts(event: TranscriptEvent) -> TranscriptEvent:
    """Return an event whose texts are safe to show. Texts that are not markdown, such as diffs, keep image links."""
    match event:
        case ToolStarted(raw_input=raw_input, diffs=diffs):
            given, changes = with_texts((raw_input, diffs), _plain)
            return replace(with_texts(event, _words), raw_input=given, diffs=changes)
        case ToolFinished(result=result):
            envelope, changes = with_texts((result.envelope, result.diffs), _plain)
            event = with_texts(event, _words)
            return replace(event, result=replace(event.result, envelope=envelope, diffs=changes))
        case _:
            return with_texts(event, _words)


def _message(message: Message, redact: Redact) -> Message:
    return replace(message, parts=tuple(_part(part, redact) for part in message.parts))


def _part(part: Part, redact: Redact) -> Part:
    """Return a redacted part of the history. Opaque blocks, which only their provider understands, stay unchanged."""
    match part:
        case OpaquePart():
            return part
        case ThoughtPart(text=text):
            return replace(part, text=redact(_plain(text)))
        case ImagePart():
            return part if _is_picture(part) else _NO_PICTURE
        case ToolResultPart(images=images):
            part = replace(part, images=tuple(filter(_is_picture, images)))
        case _:
            pass
    return redacted(with_texts(part, _plain), redact)


def _plain(text: str) -> str:
    return sanitize(text, terminal=False)


def _words(text: str) -> str:
    """Return a text that is safe for an editor to show as markdown."""
    return defused(sanitize(text, terminal=False))


def _line(text: str) -> str:
    return " ".join(_words(text).split())


def _is_picture(image: ImagePart) -> bool:
    if image.mime_type not in _PICTURES:
        return False
    try:
        return bool(base64.b64decode(image.data, validate=True))
    except (binascii.Error, ValueError):
        return False


def _number(value: int) -> int:
    return min(max(value, 0), _MOST)


def _cost(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= _MOST else None
