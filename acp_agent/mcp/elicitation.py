"""What an MCP server asks the user (requirements A28, E6; MCP 2025-11-25, "Elicitation").

Only while a call of one of its tools runs, few questions a call, and no longer than the call. Time spent on a question
is not counted as the call's. A server cannot be trusted: its words are marked as its own and bounded, and what asks for
a secret in a form is declined unseen.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio
import anyio.abc

from acp_agent.core.elicitation import ElicitationAction, ElicitationAnswer, Elicitor, Form, Visit
from acp_agent.core.types import Json, JsonObject
from acp_agent.mcp.form_schema import SecretWantedError, form_schema
from acp_agent.net.hosts import visitable
from acp_agent.tools.secret_question import asks_for_secret
from acp_agent.tools.visible import visible

if TYPE_CHECKING:
    from acp_agent.mcp.wire import Wire

MOST_A_CALL: Final = 5
PATIENCE: Final = 120.0
"""Seconds a question stands (A28)."""
_MESSAGE: Final = 2000
_VISIT: Final = 200
_MOST_VISITS: Final = 16
_NO_METHOD: Final = -32601
_INVALID_PARAMS: Final = -32602
_CANCELLED: Final = ElicitationAnswer(ElicitationAction.CANCEL, {})
_DECLINED: Final = ElicitationAnswer(ElicitationAction.DECLINE, {})


class ServerQuestions:
    """The questions of one server, in all its conversations one after another. `mcp.wire.Asker`."""

    def __init__(self, server: str, elicitor: Callable[[], Elicitor | None], patience: float = PATIENCE) -> None:
        self._server = server
        self._elicitor = elicitor
        self._patience = patience
        self._wire: Wire | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._calls: dict[anyio.CancelScope, float] = {}  # seconds left, of those that stand still
        self._allowed = 0
        self._standing: dict[int | str, anyio.CancelScope] = {}
        self._visits: dict[str, str] = {}

    @property
    def forms(self) -> bool:
        """Whether there is somebody who can be shown a form."""
        elicitor = self._elicitor()
        return elicitor is not None and elicitor.forms

    @property
    def visits(self) -> bool:
        """Whether there is somebody who can be sent to a page."""
        elicitor = self._elicitor()
        return elicitor is not None and elicitor.visits

    @property
    def calls(self) -> int:
        """How many calls run."""
        return len(self._calls)

    async def serve(self, wire: "Wire") -> None:
        """Ask what comes over a wire, until that is lost."""
        self._wire = wire
        try:
            async with anyio.create_task_group() as self._tasks:
                await wire.lost.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            self._wire = self._tasks = None
            self._visits.clear()

    # ------------------------------------------------------------------------------- a call's time

    @contextmanager
    def call(self, seconds: float) -> Generator[None]:
        """A call of a tool runs, for so many seconds and those in which the user is asked."""
        with anyio.CancelScope() as scope:
            self._calls[scope] = seconds
            self._allowed += MOST_A_CALL
            if not self._standing:
                self._go_on(scope)
            try:
                yield
            finally:
                del self._calls[scope]
                if not self._calls:
                    self._allowed = 0
                    for question in self._standing.values():
                        question.cancel()

    def _go_on(self, scope: anyio.CancelScope) -> None:
        scope.deadline = anyio.current_time() + self._calls[scope]

    def _stand_still(self, scope: anyio.CancelScope) -> None:
        if scope.deadline != inf:
            self._calls[scope] = max(0.0, scope.deadline - anyio.current_time())
            scope.deadline = inf

    # --------------------------------------------------------------------------- what the wire calls

    def asked(self, identity: int | str, params: Json) -> None:
        wire, tasks = self._wire, self._tasks
        if wire is None or tasks is None or identity in self._standing:
            return
        if not (self.forms or self.visits):
            wire.refuse(identity, _NO_METHOD, "this client offers no elicitation")
        elif not self._calls:
            wire.answer(identity, _result(_CANCELLED))
        elif not self._allowed:
            wire.answer(identity, _result(_DECLINED))
        else:
            self._allowed -= 1
            scope = anyio.CancelScope()
            if not self._standing:
                for call in self._calls:
                    self._stand_still(call)
            self._standing[identity] = scope
            tasks.start_soon(self._settle, wire, identity, params, scope)

    def withdrawn(self, identity: int | str) -> None:
        scope = self._standing.pop(identity, None)
        if scope is not None:
            scope.cancel()

    def visited(self, visit: str) -> None:
        shown, elicitor = self._visits.pop(visit, None), self._elicitor()
        if shown is not None and elicitor is not None:
            elicitor.visited(shown)

    # ------------------------------------------------------------------------------------- asking

    async def _settle(self, wire: "Wire", identity: int | str, params: Json, scope: anyio.CancelScope) -> None:
        answer, wrong = _CANCELLED, ""
        try:
            with scope, anyio.move_on_after(self._patience):
                answer = await self._ask(params if isinstance(params, dict) else {})
        except SecretWantedError:
            answer = _DECLINED
        except ValueError as error:
            wrong = str(error)
        finally:
            wanted = self._standing.get(identity) is scope
            if wanted:
                del self._standing[identity]
            if not self._standing:
                for call in self._calls:
                    self._go_on(call)
        if wrong and wanted:
            wire.refuse(identity, _INVALID_PARAMS, wrong)
        elif wanted:
            wire.answer(identity, _result(answer))

    async def _ask(self, params: JsonObject) -> ElicitationAnswer:
        """Raises ValueError for what cannot be asked, SecretWantedError for what must not."""
        elicitor = self._elicitor()
        if elicitor is None:
            return _CANCELLED
        match params.get("mode", "form"), params.get("message"):
            case "form", str(message) if elicitor.forms:
                return await self._fill_in(elicitor, message, params)
            case "url", str(message) if elicitor.visits:
                return await self._visit(elicitor, message, params)
            case _:
                raise ValueError("this client offers no elicitation of this mode, or there is no message")

    async def _fill_in(self, elicitor: Elicitor, message: str, params: JsonObject) -> ElicitationAnswer:
        schema = form_schema(params.get("requestedSchema"))
        if asks_for_secret(message):
            raise SecretWantedError(message)
        return await elicitor.fill_in(Form(_words(message), schema, source=self._server))

    async def _visit(self, elicitor: Elicitor, message: str, params: JsonObject) -> ElicitationAnswer:
        match params:
            case {"url": str(url), "elicitationId": str(theirs)} if 0 < len(theirs) <= _VISIT:
                shown = str(uuid4())
            case _:
                raise ValueError("url or elicitationId is missing or too long")
        visit = Visit(_words(message), visitable(url), shown, source=self._server)
        answer = await elicitor.visit(visit)
        if answer.action is ElicitationAction.ACCEPT:
            self._visits[theirs] = shown
            for forgotten in [*self._visits][:-_MOST_VISITS]:
                del self._visits[forgotten]
        return answer


def _words(message: str) -> str:
    """The server's words as a person may read them: nothing hidden, and not endless."""
    lines = "\n".join(map(visible, message[: 2 * _MESSAGE].splitlines()))
    return lines if len(lines) <= _MESSAGE and len(message) <= 2 * _MESSAGE else f"{lines[:_MESSAGE]}…"


def _result(answer: ElicitationAnswer) -> JsonObject:
    """MCP `ElicitResult`."""
    content: JsonObject = {"content": answer.content} if answer.action is ElicitationAction.ACCEPT else {}
    return {"action": answer.action.value, **content}
