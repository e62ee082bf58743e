"""A session from elsewhere, as it may be taken in (A26): whoever wrote the file is not believed beyond its words.

What it says was said stays. But an editor and a list can show only times that have been and numbers that can be, and
counts below nothing would lift what is limited by counting.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from acp_agent.core.conduct import Conduct
from acp_agent.core.events import Told, ToolFinished, ToolStarted, UsageChanged, UserMessage
from acp_agent.core.messages import Usage
from acp_agent.core.sessions import Saved, SessionRecord, Tally, ToldAt
from acp_agent.core.types import Location
from acp_agent.output.sanitize import sanitize

_LONGEST = 200  # characters of a title or a model's name
_MOST = 2**53 - 1
"""The most there can be of anything: more is no number to every reader of JSON."""
_LAST_LINE = 2**32 - 1  # of a file (ACP: a number of 32 bits)


def is_folder(path: str) -> bool:
    """Whether somebody could have worked at a path."""
    return os.path.isabs(path) and "\0" not in path


def sound(saved: Saved, told: Sequence[ToldAt], conduct: Conduct, now: int) -> tuple[Saved, Sequence[ToldAt]]:
    """The session under an id of its own, with a conduct of ours. `now` is in milliseconds since 1970."""
    prompts = sum(isinstance(one.event, UserMessage) for one in told)
    record = replace(_record(saved.record, now), id=str(uuid4()), prompts=prompts)
    events = [replace(one, at=min(one.at, now), event=_event(one.event)) for one in told]
    return replace(saved, record=record, conduct=conduct, tally=_tally(saved.tally)), events


def _record(record: SessionRecord, now: int) -> SessionRecord:
    return replace(
        record,
        additional=tuple(filter(is_folder, record.additional)),
        title=" ".join(sanitize(record.title, terminal=False).split())[:_LONGEST],
        created_at=record.created_at if 0 < record.created_at <= now else now,
        updated_at=now,
        model=record.model[:_LONGEST],
    )


def _tally(tally: Tally) -> Tally:
    usage = tally.usage
    return replace(
        tally,
        used=_number(tally.used),
        size=_number(tally.size),
        usage=Usage(*map(_number, (usage.input, usage.output, usage.cache_read, usage.cache_write))),
        cost=_cost(tally.cost),
        calls=_number(tally.calls),
        batches=_number(tally.batches),
    )


def _event(event: Told) -> Told:
    match event:
        case UsageChanged(used, size, cost):
            return UsageChanged(_number(used), _number(size), _cost(cost))
        case ToolStarted(locations=locations):
            return replace(event, locations=_places(locations))
        case ToolFinished(result=result, elapsed=elapsed):
            result = replace(result, locations=_places(result.locations))
            return replace(event, result=result, elapsed=elapsed if 0 <= elapsed <= _MOST else 0.0)
        case _:
            return event


def _places(locations: tuple[Location, ...]) -> tuple[Location, ...]:
    return tuple(
        each if each.line is None or 0 <= each.line <= _LAST_LINE else replace(each, line=None) for each in locations
    )


def _number(value: int) -> int:
    return min(max(value, 0), _MOST)


def _cost(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= _MOST else None
