"""Updates that depend on one event and on nothing told before (acp.md 1.5).

Plans, notices and titles quote models and servers, and are markdown to many editors: no picture in them is fetched.
"""

from collections.abc import Sequence
from typing import TypeAlias, assert_never
from uuid import uuid4

from acp_agent.core import events
from acp_agent.core.clock import utc
from acp_agent.core.types import Json, JsonObject
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.client import Client
from acp_agent.protocol.prompt_parts import content_block

_CURRENCY = "USD"

Stateless: TypeAlias = (
    events.UserMessage
    | events.TextDelta
    | events.ThoughtDelta
    | events.Notice
    | events.UsageChanged
    | events.PlanChanged
    | events.CompactionChanged
)


def translate(event: Stateless, client: Client) -> Sequence[JsonObject]:
    """The `update` members for one event, in order; none for what this client is not told."""
    match event:
        case events.UserMessage():
            return user_message(event)
        case events.TextDelta(text, message_id):
            return chunk("agent_message_chunk", text, message_id)
        case events.ThoughtDelta(text, message_id):
            return chunk("agent_thought_chunk", text, message_id)
        case events.Notice():
            return (notice(event, known=client.notices),)
        case events.UsageChanged():
            return (usage(event),)
        case events.PlanChanged():
            return (plan(event),)
        case events.CompactionChanged():
            # Notices tell of it, too: they are all that other clients get.
            return (compaction(event),) if client.compaction else ()
        case _:
            assert_never(event)


def chunk(kind: str, text: str, message_id: str) -> Sequence[JsonObject]:
    """A piece of a message; none for no text (A18.2)."""
    if not text:
        return ()
    return ({"sessionUpdate": kind, "content": {"type": "text", "text": text}, "messageId": message_id},)


def user_message(event: events.UserMessage) -> Sequence[JsonObject]:
    """What the user sent, one chunk a part."""
    blocks = map(content_block, event.parts)
    return [
        {"sessionUpdate": "user_message_chunk", "content": block, "messageId": event.message_id}
        for block in blocks
        if block.get("text") != ""
    ]


def notice(event: events.Notice, *, known: bool) -> JsonObject:
    """A notice, or a message in its place for clients that do not know notices."""
    text = defused(event.text)
    if known:
        return {"sessionUpdate": "notice", "severity": event.severity.value, "title": text}
    if event.severity is events.Severity.INFO:
        (update,) = chunk("agent_thought_chunk", f"\n{text}\n", str(uuid4()))
    else:
        text = f"\n> **{event.severity.value}**: {text}\n\n"
        (update,) = chunk("agent_message_chunk", text, str(uuid4()))
    return update


def usage(event: events.UsageChanged) -> JsonObject:
    """How full the window is, and what all of it has cost where a price is known (A18.6)."""
    update: JsonObject = {"sessionUpdate": "usage_update", "used": event.used, "size": event.size}
    if event.cost is not None:
        update["cost"] = {"amount": event.cost, "currency": _CURRENCY}
    return update


def plan(event: events.PlanChanged) -> JsonObject:
    """The whole plan (A18.5)."""
    entries: list[Json] = [
        {"content": defused(entry.content), "priority": entry.priority.value, "status": entry.status.value}
        for entry in event.entries
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def compaction(event: events.CompactionChanged) -> JsonObject:
    """How a compaction stands: only for clients that know these (ACP 1.25, `session.compaction`)."""
    update: JsonObject = {
        "sessionUpdate": "compaction_update",
        "compactionId": event.id,
        "status": event.status.value,
    }
    if event.summary:
        update["summary"] = [{"type": "text", "text": defused(event.summary)}]
    if event.error:
        update["error"] = defused(event.error)
    return update


def session_info(title: str, updated_at_ms: int, model: str = "") -> JsonObject:
    """`session_info_update`: an empty title clears the one there is (A18.1, A18.8).

    updated_at_ms   milliseconds since 1970
    model           `PROVIDER:MODEL` the next prompt goes to; empty where there is none
    """
    update: JsonObject = {
        "sessionUpdate": "session_info_update",
        "title": defused(title) or None,
        "updatedAt": iso_time(updated_at_ms),
    }
    if model:
        update["_meta"] = {"acp_agent": {"model": model}}
    return update


def iso_time(at_ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339, in UTC: the one form of times that editors are sent."""
    return utc(at_ms / 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")
