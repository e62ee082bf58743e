"""A connection to an MCP server: started in the background, watched, and started again when it is lost (E6).

Nothing of the `mcp` package is loaded before the first one runs.
"""

import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from acp_agent.core.elicitation import Elicitor
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.mcp import McpConnection, McpDefinition, McpReply, McpServer, McpState
from acp_agent.core.types import JsonObject
from acp_agent.mcp import failures
from acp_agent.mcp.elicitation import ServerQuestions
from acp_agent.net.hosts import Resolve, system_resolve
from acp_agent.tools.visible import visible

_SETTLE: Final = 0.5
"""Seconds after the server said its tools changed: it often says so several times."""
_REST: Final = 5.0
"""Seconds between two lists."""


class Relist:
    """What is known of a server's tools holds only while a list is not `due`. One for each conversation."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        self._asked = anyio.Event()
        self._wanted = anyio.Event()
        self._done = anyio.Event()
        self.due = False

    def ask(self) -> None:
        """The server says that its tools changed."""
        self.due = True
        self._asked.set()

    async def asked(self) -> None:
        """Wait until there is something to list."""
        await self._asked.wait()

    async def settle(self) -> None:
        """The server may say it again."""
        await self._pause(_SETTLE)

    async def rest(self) -> None:
        """A list was read: the next one has time."""
        await self._pause(_REST)

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer once a call waits for the list: each call cuts one pause short."""
        async with anyio.create_task_group() as tasks:

            async def sleep() -> None:
                await self._sleep(seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(sleep)
            await self._wanted.wait()
            tasks.cancel_scope.cancel()

    def begin(self) -> None:
        """The list is about to be asked for: whatever the server says from now on is about the next one."""
        self._asked, self._wanted = anyio.Event(), anyio.Event()

    def end(self) -> None:
        """The list is there."""
        self.due = self._asked.is_set()
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again; there may be no list any more."""
        done, self._done = self._done, anyio.Event()
        done.set()

    async def known(self) -> None:
        """Wait until something has happened to the list that is due."""
        self._wanted.set()
        await self._done.wait()


if TYPE_CHECKING:
    from acp_agent.mcp.conversation import Conversation
    from acp_agent.mcp.wire import Transport, Wire
    from acp_agent.net.connection import Dial

_START_DELAYS: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each further try while the server was never there."""
_RECONNECT_DELAYS: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0)
_HEALTH_EVERY: Final = 30.0
_PING_TIMEOUT: Final = 10.0
_CALL_PATIENCE: Final = 5.0
"""Seconds a call waits for a connection that is just being made again."""
_LIST_PATIENCE: Final = 10.0  # seconds a call waits for a list that is due: else nobody knows what it runs
_PROBLEM: Final = 500
_NO_USE: Final = frozenset({ToolErrorCategory.POLICY_BLOCKED, ToolErrorCategory.INVALID_PARAMETERS})


class Connection(McpConnection):
    """See core.mcp.McpConnection. `run` does all of it.

    changed       called whenever state, problem or definitions have changed; must be quick
    environment   variables of which a program is given a few plain ones
    dial, resolve, trust   how an HTTP server is reached; see net.mcp_http
    elicitor      who asks the user what the server wants to know, looked up each time; None for nobody (A28)
    sleep         waits between tries, pings and lists
    """

    def __init__(
        self,
        server: McpServer,
        *,
        changed: Callable[[], None],
        environment: Mapping[str, str],
        dial: "Dial | None" = None,
        resolve: Resolve = system_resolve,
        trust: ssl.SSLContext | None = None,
        elicitor: Callable[[], Elicitor | None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._server = server
        self._changed = changed
        self._environment = environment
        self._dial = dial
        self._resolve = resolve
        self._trust = trust
        self._questions = ServerQuestions(server.name, elicitor)
        self._sleep = sleep
        self._state = McpState.STARTING
        self._warnings: tuple[str, ...] = ()
        self._reason = self._said = ""
        self._final = False
        self._definitions: tuple[McpDefinition, ...] = ()
        self._left_out: tuple[str, ...] = ()
        self._conversation: Conversation | None = None
        self._relist = Relist(sleep)
        self._turned = anyio.Event()
        self._stable = self._closing = False
        self._scope: anyio.CancelScope | None = None

    @property
    def server(self) -> McpServer:
        return self._server

    @property
    def state(self) -> McpState:
        return self._state

    @property
    def problem(self) -> str:
        reason = f"{self._reason}, saying: {self._said}" if self._said else self._reason
        said = (*((reason,) if self._state is not McpState.READY else ()), *self._warnings, *self._left_out)
        text = visible("; ".join(part for part in said if part))
        return text if len(text) <= _PROBLEM else f"{text[:_PROBLEM]}…"

    def definitions(self) -> tuple[McpDefinition, ...]:
        return self._definitions

    # ------------------------------------------------------------------- calls

    async def call(self, definition: McpDefinition, arguments: JsonObject) -> McpReply:
        conversation = await self._agreed(definition)  # and nothing waited for between that and the request
        with self._questions.call(self._server.tool_timeout):
            return await conversation.call(definition.name, arguments)
        raise failures.no_answer(self._server.name, definition.name, self._server.tool_timeout)

    async def _agreed(self, definition: McpDefinition) -> "Conversation":
        """The conversation in which the tool is, as far as can be known now, what was agreed to. Raises ToolError."""
        with anyio.move_on_after(_LIST_PATIENCE):
            conversation = await self._reachable()
            while self._relist.due:
                await self._relist.known()
                conversation = await self._reachable()
            if definition not in self._definitions:
                raise failures.changed(self._server.name, definition.name)
            return conversation
        raise failures.unsettled(self._server.name)

    async def _reachable(self) -> "Conversation":
        """The conversation to call in, after a little patience while it is being begun. Raises ToolError."""
        with anyio.move_on_after(_CALL_PATIENCE):
            while self._state not in {McpState.FAILED, McpState.CLOSED}:
                if self._conversation is not None and self._conversation.alive:
                    return self._conversation
                await self._turned.wait()
        raise failures.connection_lost(self._server.name, self._reason)

    # ------------------------------------------------------------------- the life of it

    def close(self) -> None:
        """Have `run` return soon, everything of the server ended; at once, if it has not begun."""
        self._closing = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Connect, list, serve, watch and reconnect until closed or given up.

        Raises cancellation; and what only a fault of ours can raise, after it has told of it as a failure.
        """
        end = McpState.CLOSED
        try:
            with anyio.CancelScope() as self._scope:
                if self._closing:
                    self._scope.cancel()
                await self._live()
                end = McpState.FAILED
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._reason, self._said = (
                f"a fault in this agent ended it ({failures.kind_of(error)}); its log says more",
                "",
            )
            end = McpState.FAILED
            raise
        finally:
            self._turn(end)

    async def _live(self) -> None:
        try:
            transport = await self._transport()
        except Refused as error:
            self._reason = failures.told(error.failure)
        else:
            await self._keep(transport)

    async def _transport(self) -> "Transport":
        await anyio.to_thread.run_sync(_load_mcp, abandon_on_cancel=True)
        from acp_agent.mcp.transports import transport_to  # noqa: PLC0415 - loaded by the line before

        return transport_to(
            self._server,
            self._environment,
            sleep=self._sleep,
            resolve=self._resolve,
            dial=self._dial,
            trust=self._trust,
            warn=self._warn,
        )

    def _warn(self, warning: str) -> None:
        self._warnings = (*self._warnings, warning)

    async def _keep(self, transport: "Transport") -> None:
        """Serve one conversation after another, until there were too many failures in a row."""
        delays, failed = _START_DELAYS, 0
        while True:
            was_ready = await self._serve(transport)
            if was_ready:
                delays = _RECONNECT_DELAYS
            if self._stable:  # it did not just start and fall over
                failed = 0
            if self._final or failed == len(delays):
                return
            self._turn(McpState.WAITING)
            await self._sleep(delays[failed] * random.uniform(0.75, 1))  # noqa: S311 - nothing secret about it
            failed += 1

    async def _serve(self, transport: "Transport") -> bool:
        """One conversation, from its beginning until it is lost; whether its tools were ever known."""
        from acp_agent.mcp.conversation import Conversation  # noqa: PLC0415 - loaded by `_transport`
        from acp_agent.mcp.wire import Wire  # noqa: PLC0415 - loaded by `_transport`

        self._relist, ready = Relist(self._sleep), False
        wire = Wire(list_changed=self._relist.ask, sleep=self._sleep, asker=self._questions)
        self._stable = self._final = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._questions.serve, wire)
                tasks.start_soon(transport.serve, wire)
                async with Conversation(self._server, wire, self._questions) as conversation:
                    ready = await self._begin(conversation, wire)
                    if ready:
                        async with anyio.create_task_group() as watching:
                            watching.start_soon(self._watch, conversation, wire)
                            watching.start_soon(self._follow, conversation, wire)
                            await wire.lost.wait()
                            watching.cancel_scope.cancel()
                tasks.cancel_scope.cancel()
            return ready
        finally:
            self._conversation = None
            self._relist.wake()
            self._reason, self._said, self._final = wire.reason, wire.said, wire.final
            wire.close()

    async def _begin(self, conversation: "Conversation", wire: "Wire") -> bool:
        """Shake hands and learn the tools; whether that went well."""
        seconds = self._server.startup_timeout
        with anyio.move_on_after(seconds):
            try:
                await conversation.open()
                await self._list(conversation)
            except ToolError as error:
                # A server that does not know us will not know us the next time either.
                wire.lose(
                    failures.told(error.failure), said=failures.words_of(error), final=error.failure.category in _NO_USE
                )
                return False
            self._conversation = conversation
            self._turn(McpState.READY)
            return True
        wire.lose(f"it did not start within {seconds:g} s")
        return False

    async def _list(self, conversation: "Conversation") -> bool:
        """Learn the tools; whether anything about them has changed. The list before is forgotten."""
        catalogue = await conversation.tools()
        before = self._definitions, self._left_out
        self._definitions, self._left_out = catalogue.definitions(), tuple(catalogue.troubles)
        return before != (self._definitions, self._left_out)

    async def _watch(self, conversation: "Conversation", wire: "Wire") -> None:
        """Ask for a sign of life whenever nothing was heard for a while and no call is being waited for."""
        while True:
            heard = wire.received
            await self._sleep(_HEALTH_EVERY)
            self._stable = True
            if wire.received != heard or self._questions.calls:
                continue
            with anyio.move_on_after(min(_PING_TIMEOUT, self._server.tool_timeout)) as limit:
                try:
                    await conversation.ping()
                except ToolError as error:
                    wire.lose(str(error))
            if limit.cancelled_caught:
                wire.lose("it no longer answers")

    async def _follow(self, conversation: "Conversation", wire: "Wire") -> None:
        """List the tools again when the server says that they changed; not too often, however often it says so."""
        relist = self._relist
        while True:
            await relist.asked()
            await relist.settle()
            relist.begin()
            with anyio.move_on_after(self._server.startup_timeout) as limit:
                try:
                    changed = await self._list(conversation)
                except ToolError as error:
                    wire.lose(str(error), said=failures.words_of(error))
                    return
                if changed:
                    self._changed()
            if limit.cancelled_caught:
                wire.lose("it did not list its changed tools in time")
                return
            relist.end()
            await relist.rest()

    def _turn(self, state: McpState) -> None:
        self._state = state
        if state in {McpState.FAILED, McpState.CLOSED}:
            self._definitions, self._left_out = (), ()
        turned, self._turned = self._turned, anyio.Event()
        turned.set()
        self._changed()


def _load_mcp() -> None:
    """Import the modules that need the `mcp` package. This takes half a second, so a thread does it."""
    for module in ("transports", "conversation"):
        import_module(f"acp_agent.mcp.{module}")
