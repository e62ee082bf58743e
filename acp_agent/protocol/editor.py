"""Implementations over ACP of the ports in `core/editor.py`, through which sessions use the editor."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from acp_agent.core.data import frozen
from acp_agent.core.events import PlanChanged, SessionEvent, TextDelta, ThoughtDelta, UsageChanged, UserMessage
from acp_agent.core.sessions import StoredEvent
from acp_agent.protocol.client import Client, EditorPaths
from acp_agent.protocol.updates import Updates

if TYPE_CHECKING:  # the modules of the backends are not needed to open a session
    from acp_agent.core.backends import Terminal, TextFiles
    from acp_agent.core.editor import DiskFiles, LanguageSettings, SharedLanguages, TerminalSettings
    from acp_agent.core.events import TranscriptEvent
    from acp_agent.core.ports import Approver, Elicitor
    from acp_agent.core.secrets import Redact
    from acp_agent.core.types import JsonObject
    from acp_agent.protocol.peer import Peer

CHUNK_LIMIT = 256 * 1024
"""The most characters of a chunk in a replayed conversation."""


class EditorSession:
    """A `SessionEditor` of core: what the editor offers to one session, and the sink for the session's events.

    folder   the session's folder as the editor spells it
    """

    def __init__(self, peer: Peer, client: Client, session_id: str, folder: str) -> None:
        self._peer = peer
        self._client = client
        self._id = session_id
        self._paths = EditorPaths(folder)
        self._updates = Updates(client, folder, self._paths)
        self.shows_notices = client.notices
        self.offers_login = client.terminal_login
        self.owns_buffers = client.read_text_file
        self.drops_early_updates = not client.drawing.early_updates
        self.shows_turns = client.drawing.outside_turns

    def move(self, folder: str) -> None:
        self._paths = EditorPaths(folder)
        self._updates = Updates(self._client, folder, self._paths)

    # ------------------------------------------------------------------------------------- events

    async def show(self, event: SessionEvent) -> None:
        for update in self._updates.translate(event):
            await self._peer.notify("session/update", {"sessionId": self._id, "update": update})

    def post(self, event: SessionEvent) -> None:
        for update in self._updates.translate(event):
            self._peer.post_notification("session/update", {"sessionId": self._id, "update": update})

    async def replay(self, past: AsyncGenerator[StoredEvent]) -> None:
        async with aclosing(replayed(past, self._updates)) as updates:
            async for update in updates:
                about: JsonObject = {"sessionId": self._id, "update": update}
                await self._peer.notify("session/update", about, at_once=False)

    # ------------------------------------------------------------------------------------ backends

    def files(self, disk: DiskFiles, timeout: float) -> TextFiles | None:
        if not (self._client.read_text_file or self._client.write_text_file):
            return None
        from acp_agent.protocol.client_files import ProxyFileSystem  # noqa: PLC0415 - loaded for the first turn

        return ProxyFileSystem(self._peer, self._id, self._client, disk, self._paths, timeout)

    def terminal(self, settings: TerminalSettings) -> Terminal | None:
        if not self._client.terminal:
            return None
        from acp_agent.protocol.client_terminal import ProxyTerminal  # noqa: PLC0415 - as above

        if self._client.is_agent:  # another agent would not find a script, and its user judges the command
            settings = replace(settings, form="exec" if settings.contain else "bare")
        return ProxyTerminal(self._peer, self._id, self._paths, settings)

    def approver(self, timeout: float) -> Approver:
        from acp_agent.protocol.questions import EditorApprover  # noqa: PLC0415 - loaded for the first turn

        return EditorApprover(self._peer, self._id, self._client.drawing, self._paths, timeout)

    def elicitor(self, redact: Redact, timeout: float, wanted: Callable[[], bool]) -> Elicitor | None:
        if not (self._client.elicit_forms or self._client.elicit_urls):
            return None
        from acp_agent.protocol.questions import EditorElicitor  # noqa: PLC0415 - few editors have forms

        return EditorElicitor(self._peer, self._id, self._client, redact, timeout, wanted)

    def languages(self, folders: Sequence[str], settings: LanguageSettings) -> SharedLanguages | None:
        if not self._client.lsp_methods:
            return None
        from acp_agent.protocol.client_lsp import EditorLanguages  # noqa: PLC0415 - few share them

        return EditorLanguages(self._peer, self._id, self._client, self._paths, folders, settings)


@frozen
class Connection:
    """An `EditorConnection` of core, with the editor's capabilities from its last `initialize`."""

    peer: Peer
    client: Client

    def session(self, session_id: str, folder: str) -> EditorSession:
        return EditorSession(self.peer, self.client, session_id, folder)


# ------------------------------------------------------------------------------- replay


async def replayed(stored: AsyncIterator[StoredEvent], updates: Updates) -> AsyncGenerator[JsonObject]:
    """Yield the updates that show a stored conversation again. Raises the errors of `stored`, and closes it.

    Ids and times are those of the stored events. Five things differ from the live session. Consecutive pieces of a
    message are one chunk. Only the last usage is shown, at the end. No card refers to a terminal, since terminals do
    not outlive their process. A call without an end is shown as failed, because the process was killed. Tasks that a
    sub-agent of that process had taken are free again.

    updates   the updates of the live session; their open cards do not change
    """
    past = Updates(replace(updates.client, terminal=False, display_terminals=False), updates.cwd, updates.paths)
    usage: StoredEvent | None = None
    plan: StoredEvent | None = None
    async with aclosing(_joined(stored)) as events:
        async for each in events:
            if isinstance(each.event, UsageChanged):
                usage = each
                continue
            if isinstance(each.event, PlanChanged):
                plan = each
            if isinstance(each.event, UserMessage):  # a new turn: calls that are still open have no end
                for update in past.interrupted():
                    yield update
            for update in past.translate(each.event, each.at):
                yield update
    for update in past.interrupted():
        yield update
    if plan is not None and (left := _without_sub_agents(plan.event)) != plan.event:
        for update in past.translate(left, plan.at):
            yield update
    if usage is not None:
        for update in past.translate(usage.event, usage.at):
            yield update


def _without_sub_agents(plan: TranscriptEvent) -> TranscriptEvent:
    """Return a plan in which the tasks of sub-agents are free again, since they ended with the process."""
    if not isinstance(plan, PlanChanged) or not plan.tasks:
        return plan
    from acp_agent.subagents.board import abandoned, as_plan  # noqa: PLC0415 - few sessions have a board

    tasks = abandoned(plan.tasks)
    return PlanChanged(as_plan(tasks), tasks) if tasks != plan.tasks else plan


async def _joined(stored: AsyncIterator[StoredEvent]) -> AsyncGenerator[StoredEvent]:
    """Yield the events, with consecutive pieces of one message joined up to CHUNK_LIMIT."""
    run: list[StoredEvent] = []
    length = 0
    try:
        async for each in stored:
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
        if isinstance(stored, AsyncGenerator):
            await stored.aclose()


def _message(stored: StoredEvent) -> tuple[type, str] | None:
    event = stored.event
    return (type(event), event.message_id) if isinstance(event, TextDelta | ThoughtDelta) else None


def _chunks(run: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
    """Return consecutive pieces of one message as chunks of at most CHUNK_LIMIT characters."""
    pieces = [each.event for each in run if isinstance(each.event, TextDelta | ThoughtDelta)]
    text = "".join(piece.text for piece in pieces)
    return [
        replace(run[0], event=replace(pieces[0], text=text[start : start + CHUNK_LIMIT]))
        for start in range(0, len(text), CHUNK_LIMIT)
    ]
