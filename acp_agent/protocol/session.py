"""One session: its folder, its conduct, its turn. At most one turn at a time (A12.1).

Light on purpose: what a turn needs (tools, gates, the model) is an Engine, made in the background after
`session/new` is answered, or at the first prompt at the latest.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

import anyio

from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import AgentError
from acp_agent.core.events import Event, Notice, Severity
from acp_agent.core.mcp import McpServer
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.types import JsonObject
from acp_agent.log import Log
from acp_agent.protocol import commands
from acp_agent.protocol.client import Client
from acp_agent.protocol.errors import RpcError, internal_error, invalid_request
from acp_agent.protocol.options import config_options
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.peer import Incoming, Peer
from acp_agent.protocol.updates import Updates

_log = Log(__name__)
_ZED_REPEAT = 0.1
"""Seconds. Zed drops an update that arrives together with the answer that makes its session known (acp.md 4.1)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a turn ended. `failure` is what kept it from doing its work; the user has read about it."""

    reason: StopReason
    failure: AgentError | None = None

    def to_wire(self, redact: Redact = verbatim) -> JsonObject:
        """ACP `PromptResponse`; a failure goes into `_meta`, for clients without a person in front."""
        response: JsonObject = {"stopReason": self.reason.value}
        if self.failure is not None:
            response["_meta"] = {"acp_agent": {"failure": redact(str(self.failure))}}
        return response


class Engine(Protocol):
    """What answers prompts."""

    async def answer(self, params: JsonObject) -> Answer:
        """Run one turn on the raw `session/prompt` params. Raises RpcError for params that are no prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session works: absolute folders, `cwd` first among its roots, and what the editor brings along.

    servers   the MCP servers it names (A25)
    tools     the only tools or groups the client wants offered; None for all (G6)
    secrets   what the headers and the environment of its MCP servers hold, never to be shown (S9.4)
    """

    cwd: str
    additional: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    tools: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Session:
    """Everything the protocol knows about one conversation.

    conduct    what the user chose; `active` is what the running turn obeys, taken over when a turn starts
               (A14.2, A15.7)
    redact     takes secrets out of notices and reasons; whoever makes the engine puts it here first
    notices    what the user should hear of at the first prompt, when somebody reads it
    """

    def __init__(
        self,
        peer: Peer,
        client: Client,
        place: Place,
        conduct: Conduct,
        make_engine: Callable[["Session"], Awaitable[Engine]],
        notices: Sequence[Notice] = (),
    ) -> None:
        self.id = str(uuid4())
        self.client = client
        self.place = place
        self.conduct = conduct
        self.active = replace(conduct)
        self._begun = replace(conduct)
        self._peer = peer
        self.paths = EditorPaths(place.cwd)
        self._updates = Updates(client, place.cwd, self.paths)
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._engine_lock = anyio.Lock()
        self._notices = list(notices)
        self._turn: anyio.CancelScope | None = None
        self.redact: Redact = verbatim

    async def engine(self) -> Engine:
        """The engine, made once. Raises AgentError when the configuration does not allow one."""
        async with self._engine_lock:
            if self._engine is None:
                self._engine = await self._make_engine(self)
            return self._engine

    async def announce(self) -> None:
        """Tell the editor which commands there are (A17.1), then make the engine ready while the user types."""
        await self.update(commands.advertised())
        if self.client.name == "zed":
            await anyio.sleep(_ZED_REPEAT)
            await self.update(commands.advertised())
        try:
            await self.engine()
        except Exception as error:  # noqa: BLE001 - only a head start: the first prompt meets the same and tells
            _log.warning("no engine yet", session=self.id, reason=str(error))

    def add_notice(self, notice: Notice) -> None:
        """Keep something to be told at the next prompt."""
        self._notices.append(notice)

    def begin_anew(self, conduct: Conduct) -> None:
        """Conduct oneself as the configuration wants it that could not be read before, unless the user has chosen."""
        if self.conduct != self._begun:
            return
        self.conduct, self._begun = conduct, replace(conduct)
        self._take_conduct()
        self.post_update({"sessionUpdate": "current_mode_update", "currentModeId": conduct.mode.value})
        self.post_update({"sessionUpdate": "config_option_update", "configOptions": config_options(conduct)})

    def _take_conduct(self) -> None:
        self.active.mode, self.active.auto_approve = self.conduct.mode, self.conduct.auto_approve
        self.active.readonly = self.conduct.readonly

    # -------------------------------------------------------------------------------------- turns

    async def prompt(self, params: JsonObject, incoming: Incoming) -> JsonObject:
        """Run one turn. Raises RpcError when one is running, when params are wrong, or on a bug of ours."""
        if self._turn is not None:
            raise invalid_request("prompt already in progress")
        turn = self._turn = anyio.CancelScope()
        incoming.on_cancel = self.cancel
        answer = Answer(StopReason.CANCELLED)
        try:
            with turn:
                answer = await self._run(params)
        except RpcError:
            if not turn.cancel_called:
                raise
        except Exception:  # noqa: BLE001 - top of a turn: what an abort breaks is `cancelled`, the rest our bug (A13.4)
            if not turn.cancel_called:
                _log.error("turn failed", exc_info=True, session=self.id)
                raise internal_error() from None
        finally:
            self._turn = None
        return (Answer(StopReason.CANCELLED) if turn.cancel_called else answer).to_wire(self.redact)

    async def _run(self, params: JsonObject) -> Answer:
        self._take_conduct()
        try:
            engine = await self.engine()
        except AgentError as error:
            await self.emit(Notice(Severity.ERROR, self.redact(str(error))))
            return Answer(StopReason.END_TURN, error)
        while self._notices:
            notice = self._notices.pop(0)
            await self.emit(replace(notice, text=self.redact(notice.text)))
        return await engine.answer(params)

    def cancel(self) -> None:
        """End the running turn; nothing when none runs, so that a late cancel cannot hit the next (A12.3)."""
        if self._turn is not None:
            self._turn.cancel()

    # ------------------------------------------------------------------------------------ updates

    async def emit(self, event: Event) -> None:
        """Send one event of the running turn; dropped once the turn has been answered."""
        if self._turn is None:
            return
        await self.update(self._updates.translate(event))

    async def update(self, update: JsonObject) -> None:
        """Send one `session/update`."""
        await self._peer.notify("session/update", {"sessionId": self.id, "update": update})

    def post_update(self, update: JsonObject) -> None:
        """The same without waiting, for callbacks."""
        self._peer.post_notification("session/update", {"sessionId": self.id, "update": update})
