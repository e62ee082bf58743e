"""What was told, as a row of the store and back (core.events.Told)."""

from collections.abc import Mapping

from acp_agent.core.events import (
    PlanChanged,
    TextDelta,
    ThoughtDelta,
    Told,
    ToolFinished,
    ToolStarted,
    UsageChanged,
    UserMessage,
)
from acp_agent.store.record_json import dumped, loaded, read, written

_NAMES: Mapping[type[Told], str] = {
    UserMessage: "user",
    TextDelta: "text",
    ThoughtDelta: "thought",
    ToolStarted: "tool_started",
    ToolFinished: "tool_finished",
    PlanChanged: "plan",
    UsageChanged: "usage",
}
"""They are in files: never to be changed."""
_KINDS = {name: kind for kind, name in _NAMES.items()}


def kind_of(event: type[Told]) -> str:
    """What stands in a row for events of a type."""
    return _NAMES[event]


def told_row(event: Told) -> tuple[str, bytes]:
    """Its kind and its JSON. Raises StoreUnavailable for what is no JSON, such as one that is nested too deeply."""
    return _NAMES[type(event)], dumped(written(event))


def told_of(kind: str, body: object) -> Told:
    """The event of a row. Raises ValueError for one that is damaged, or of a kind this version does not know."""
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of event: {kind!r}")
    return read(_KINDS[kind], loaded(body))
