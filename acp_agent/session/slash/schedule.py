"""The turns of scheduled prompts. A session runs one turn at a time, and a prompt of the user has precedence.

In ACP v1 an agent cannot begin a turn, but it may send updates at any time. So a tool call's card shows the scheduled
prompt and why it runs, and stays open as long as the turn runs. `session/cancel` ends the turn, and so does a prompt of
the user, which then runs. This module is loaded with the first scheduled prompt of a process.
"""

from collections.abc import Callable
from time import monotonic

import anyio

from acp_agent.config.call_settings import SchedulerSettings
from acp_agent.core.errors import AgentError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolFinished, ToolStarted, UserMessage
from acp_agent.core.messages import StopReason, TextPart
from acp_agent.core.sessions import DuePrompt
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.extend.schedule import Background, Claim, Conclude, SessionSchedule
from acp_agent.session.session import Session
from acp_agent.session.turn_slot import Answer
from acp_agent.store.conversations import StoredSchedule
from acp_agent.store.db import Database
from acp_agent.text import title

_CARD = "schedule"
"""The name of the tool in the card."""
_CLEAN_UP = 5.0
"""The most seconds to show the end of the card after a cancellation."""
_LAST_FLUSH = 0.2
"""Seconds the store may delay the end of a cancelled turn."""
_ENDINGS = {
    StopReason.CANCELLED: "It was cancelled.",
    StopReason.MAX_TOKENS: "It stopped, because the conversation is too long.",
    StopReason.MAX_TURN_REQUESTS: "It stopped, because it took too many requests.",
    StopReason.REFUSAL: "The model refused.",
}


class ScheduledTurns:
    """An implementation of extend.schedule.ScheduledSession for a session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def is_resident(self) -> bool:
        return self._session.resident

    @property
    def is_busy(self) -> bool:
        return self._session.turns.busy

    @property
    def unused_seconds(self) -> float:
        return anyio.current_time() - self._session.turns.used_at

    @property
    def shows_turns(self) -> bool:
        return self._session.editor.shows_turns

    async def turn_over(self) -> None:
        await self._session.turns.over()

    def remind(self, text: str) -> None:
        self._session.notices.warn(text)

    async def carry_out(self, claim: Claim, conclude: Conclude) -> None:
        """Run the turn of a claimed prompt.

        `conclude` gets False if a prompt of the user, or the end of the session, ended the turn before its first tool
        call. The scheduled prompt then runs again.
        """
        session, turns = self._session, self._session.turns
        turn = _ScheduledTurn(session)

        async def end(cancelled: bool) -> None:  # noqa: FBT001 - a callback
            """Store and show all events. Notices wait for a turn of the user, who may be away now."""
            try:
                await session.transcript.flush(within=_LAST_FLUSH if cancelled else None, touch=True)
            finally:
                await conclude(not turn.runs_again)

        async with turns.turn(end, scheduled=True):
            await session.ready()
            due = await claim()
            if due is None:
                return
            session.activate_options()
            await turn.run(due)
        if turn.answer is not None:
            session.answered(turn.answer)


class _ScheduledTurn:
    """One turn of a scheduled prompt, and its card.

    answer      how it ended; None if it was cancelled, or did not begin
    has_called  whether it has made a tool call
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.answer: Answer | None = None
        self.has_called = False
        self._final: bool | None = None  # `runs_again` as the closed card says it

    @property
    def runs_again(self) -> bool:
        """Whether the prompt runs again, because a user's prompt or the session's end ended it before its first call.

        It does not change once the card is closed, because the card says it.
        """
        return self._is_interrupted and not self.has_called if self._final is None else self._final

    @property
    def _is_interrupted(self) -> bool:
        return self.answer is None and (self._session.turns.gave_way or self._session.turns.session_ended)

    async def run(self, due: DuePrompt) -> None:
        """Run the turn. Its first event has the id of the scheduled run. The card is closed at the end in any case."""
        session, begun, ending = self._session, monotonic(), _ENDINGS[StopReason.CANCELLED]
        await session.emit(UserMessage((TextPart(due.text),), due.id, scheduled=True))
        try:
            await session.emit(ToolStarted(due.id, _CARD, title(f"Scheduled: {due.prompt}"), ToolKind.OTHER, due.card))
            ending = await self._carry_out(due)
        finally:
            self._final = self.runs_again
            if self._is_interrupted:
                who = "Your prompt goes first" if session.turns.gave_way else "The session was closed or loaded again"
                ending = f"{who}. {'It will run again.' if self._final else 'It will not run again by itself.'}"
            failed = self.answer is None or self.answer.failure is not None or self.answer.reason in _ENDINGS
            result = _result(f"{due.why} {ending}".strip(), failed=failed)
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                await session.emit(ToolFinished(due.id, _CARD, result, monotonic() - begun))

    async def _carry_out(self, due: DuePrompt) -> str:
        """Let the engine answer the prompt. Return the text about its end for the card."""
        try:
            engine = await self._session.engine()
        except AgentError as error:
            return self._session.redact(str(error))
        before = engine.calls
        try:
            self.answer = await engine.carry_out(due)
        finally:
            self.has_called = engine.calls > before
        failure = self.answer.failure
        return self._session.redact(str(failure)) if failure is not None else _ENDINGS.get(self.answer.reason, "")


def _result(text: str, *, failed: bool) -> ToolResult:
    if not failed:
        return ToolResult(text)
    return ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, text), display=text)


def session_schedule(
    session: Session,
    database: Database,
    settings: Callable[[], SchedulerSettings],
    clock: Callable[[], int],
    background: Background,
) -> SessionSchedule:
    """Return the scheduled prompts of a session. `clock` returns milliseconds since 1970."""
    stored = StoredSchedule(database, session.id)
    return SessionSchedule(stored, ScheduledTurns(session), settings, clock, background, session.redact)
