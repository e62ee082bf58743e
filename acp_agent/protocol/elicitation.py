"""Elicitor over `elicitation/create` (requirements A28; agentclientprotocol.com, "Elicitation").

One question at a time is shown, a few more wait their turn. What comes back is believed only where it fits what was
asked; everything else, no answer included, is CANCEL.
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import anyio

from acp_agent.core.elicitation import ElicitationAction, ElicitationAnswer, Form, Visit
from acp_agent.core.redaction import Redact
from acp_agent.core.types import Json, JsonObject
from acp_agent.net.hosts import browser_url
from acp_agent.output.markdown_images import defused
from acp_agent.protocol.client import Client
from acp_agent.protocol.errors import RpcError
from acp_agent.protocol.form_answer import fitting
from acp_agent.protocol.peer import Peer
from acp_agent.tools.visible import visible

_MOST_WAITING: Final = 4
_MOST_OPEN: Final = 16
"""Pages that were opened and are not done with; older ones are forgotten."""
_MESSAGE: Final = 4000
_LINE: Final = re.compile(r"[^\n]+")
_SHOWN: Final = frozenset(("title", "description"))
"""Members of a form's schema that are words for the user; all others mean something to who asks."""

_CANCELLED: Final = ElicitationAnswer(ElicitationAction.CANCEL, {})
_DECLINED: Final = ElicitationAnswer(ElicitationAction.DECLINE, {})


class EditorElicitor:
    """Asks the user of one session through the editor.

    redact    takes secrets out of what is shown
    timeout   seconds a question stands once it is shown; 0 for as long as whoever asks lives
    wanted    whether the answer still matters. An MCP server asks from a task of its own, which hears of a cancelled
              turn later than the turn itself does
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        client: Client,
        redact: Redact,
        timeout: float = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._client = client
        self._redact = redact
        self._timeout = timeout
        self._wanted = wanted
        self._turn = anyio.Lock(fast_acquire=True)
        self._waiting = 0
        self._open: list[str] = []

    @property
    def forms(self) -> bool:
        return self._client.elicit_forms

    @property
    def visits(self) -> bool:
        return self._client.elicit_urls

    async def fill_in(self, form: Form) -> ElicitationAnswer:
        if not self.forms:
            return _CANCELLED
        schema = self._cleaned(form.schema)
        message = f"MCP server '{_name(form.source)}' asks: {form.message}" if form.source else form.message
        answer = await self._ask(message, form.call_id, {"mode": "form", "requestedSchema": schema})
        match answer:
            case {"action": "accept"} if (content := fitting(schema, answer.get("content"))) is not None:
                return ElicitationAnswer(ElicitationAction.ACCEPT, content)
            case _:
                return _declined(answer)

    async def visit(self, visit: Visit) -> ElicitationAnswer:
        try:
            url = browser_url(visit.url)
        except ValueError:
            return _CANCELLED
        if not self.visits:
            return _CANCELLED
        who = f"MCP server '{_name(visit.source)}' asks you to" if visit.source else "Please"
        message = f"{who} open {url}\n{visit.message}"
        answer = await self._ask(message, visit.call_id, {"mode": "url", "elicitationId": visit.id, "url": url})
        match answer:
            case {"action": "accept"}:
                self._open = [*self._open, visit.id][-_MOST_OPEN:]
                return ElicitationAnswer(ElicitationAction.ACCEPT, {})
            case _:
                return _declined(answer)

    def visited(self, visit_id: str) -> None:
        if visit_id in self._open:
            self._open.remove(visit_id)
            self._peer.post_notification("elicitation/complete", {"elicitationId": visit_id})

    async def _ask(self, message: str, call_id: str, mode: JsonObject) -> Json:
        """The editor's answer; None for none."""
        params: JsonObject = {"sessionId": self._session_id, "message": self._words(message, _MESSAGE), **mode}
        if call_id:
            params["toolCallId"] = call_id
        if self._waiting == _MOST_WAITING:
            return None
        try:
            with self._in_line():
                await self._turn.acquire()
            try:
                answer = await self._peer.request(
                    "elicitation/create", params, timeout=self._timeout or None, withdraw=True, recall=True
                )
                return answer if self._wanted() else None
            finally:
                self._turn.release()
        except RpcError:  # NoAnswer and ConnectionLost among them
            return None

    @contextmanager
    def _in_line(self) -> Generator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    # -------------------------------------------------------------------------------- what is shown

    def _words(self, text: str, longest: int) -> str:
        """Text a person reads: no secret in it, nothing hidden, no picture an editor would fetch, and not endless."""
        shown = defused(_LINE.sub(lambda line: visible(line[0]), self._redact(text[: 2 * longest])))
        return shown if len(shown) <= longest and len(text) <= 2 * longest else f"{shown[:longest]}…"

    def _cleaned(self, schema: JsonObject) -> JsonObject:
        """A form's schema with its words made fit to read. What stands for a value stays: it is matched later."""
        return {key: self._cleaned_member(key, value) for key, value in schema.items()}

    def _cleaned_member(self, key: str, value: Json) -> Json:
        match value:
            case str() if key in _SHOWN:
                return self._words(value, _MESSAGE)
            case dict():
                return self._cleaned(value)
            case list():
                return [self._cleaned(each) if isinstance(each, dict) else each for each in value]
            case _:
                return value


def _name(server: str) -> str:
    return visible(server[:100])


def _declined(answer: Json) -> ElicitationAnswer:
    """An answer that is no usable yes."""
    match answer:
        case {"action": "decline"}:
            return _DECLINED
        case _:
            return _CANCELLED
