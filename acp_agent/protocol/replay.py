"""A conversation told again, for `session/load` (A6.3, A6.7; acp.md 4.1 and 8).

What was told, in its order, as the updates it was sent with: the same ids, the times of then. But shorter, and as it
is now:

- Pieces of one message that follow each other are one chunk.
- Of how full the window was only the last word counts, and comes last.
- No card refers to a terminal: those of then are gone. What they held is text, and rawOutput as it was.
- A call without an end, because the process was killed, has failed: no card may spin.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from acp_agent.core.events import TextDelta, ThoughtDelta, UsageChanged, UserMessage
from acp_agent.core.sessions import StoredEvent
from acp_agent.core.types import JsonObject
from acp_agent.protocol.updates import Updates

CHUNK_LIMIT = 256 * 1024
"""Characters of one chunk."""


async def replayed(told: AsyncIterator[StoredEvent], updates: Updates) -> AsyncGenerator[JsonObject]:
    """The `update` members for a session that is loaded. Raises what `told` raises, and closes it.

    updates   as for the live session; its open cards are left alone
    """
    past = Updates(replace(updates.client, terminal=False, display_terminals=False), updates.cwd, updates.paths)
    usage: StoredEvent | None = None
    async with aclosing(_joined(told)) as events:
        async for each in events:
            if isinstance(each.event, UsageChanged):
                usage = each
                continue
            if isinstance(each.event, UserMessage):  # a turn begins: what is open of the last one stays so
                for update in past.interrupted():
                    yield update
            for update in past.translate(each.event, each.at):
                yield update
    for update in past.interrupted():
        yield update
    if usage is not None:
        for update in past.translate(usage.event, usage.at):
            yield update


async def _joined(told: AsyncIterator[StoredEvent]) -> AsyncGenerator[StoredEvent]:
    """The same, with pieces of one message that follow each other joined up to CHUNK_LIMIT."""
    run: list[StoredEvent] = []
    length = 0
    try:
        async for each in told:
            piece = each.event.text if isinstance(each.event, TextDelta | ThoughtDelta) else ""
            if run and (length + len(piece) > CHUNK_LIMIT or _message(each) != _message(run[0])):
                for chunk in _chunks(run):
                    yield chunk
                run, length = [], 0
            if isinstance(each.event, TextDelta | ThoughtDelta):
                run.append(each)
                length += len(piece)
            else:
                yield each
        for chunk in _chunks(run):
            yield chunk
    finally:
        if isinstance(told, AsyncGenerator):
            await told.aclose()


def _message(told: StoredEvent) -> tuple[type, str] | None:
    event = told.event
    return (type(event), event.message_id) if isinstance(event, TextDelta | ThoughtDelta) else None


def _chunks(run: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """A run of pieces as few; one of them alone may be longer than a chunk can be."""
    pieces = [each.event for each in run if isinstance(each.event, TextDelta | ThoughtDelta)]
    text = "".join(piece.text for piece in pieces)
    return [
        replace(run[0], event=replace(pieces[0], text=text[start : start + CHUNK_LIMIT]))
        for start in range(0, len(text), CHUNK_LIMIT)
    ]
