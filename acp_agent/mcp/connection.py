"""The connection to an MCP server: started in the background, watched, and started again after it is lost.

The `mcp` package is loaded when the first connection runs.
"""

import random
import ssl
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.mcp import McpConnection, McpDefinition, McpOrigin, McpReply, McpServer, McpState
from acp_agent.core.ports import Elicitor
from acp_agent.core.types import JsonObject
from acp_agent.mcp.elicitation import ServerElicitations
from acp_agent.net.hosts import Resolve, system_resolve
from acp_agent.text import abbreviated, visible

if TYPE_CHECKING:
    from acp_agent.mcp.channel import MessageChannel
    from acp_agent.mcp.client_session import McpClientSession
    from acp_agent.mcp.transports import HttpTransport, StdioTransport
    from acp_agent.net.connection import Dial
    from acp_agent.workspace.processes.program import ProgramStart

_CATEGORIES: Final = {
    -32001: ToolErrorCategory.TIMEOUT,
    -32002: ToolErrorCategory.PERMANENT_FAILURE,  # the resource does not exist
    -32042: ToolErrorCategory.POLICY_BLOCKED,  # the user must visit a page first
    -32600: ToolErrorCategory.PERMANENT_FAILURE,
    -32601: ToolErrorCategory.PERMANENT_FAILURE,  # the method does not exist
    -32602: ToolErrorCategory.INVALID_PARAMETERS,
    -32603: ToolErrorCategory.SERVER_ERROR,
    -32700: ToolErrorCategory.PERMANENT_FAILURE,
    # Servers that wrap HTTP APIs pass on the statuses of these.
    400: ToolErrorCategory.INVALID_PARAMETERS,
    401: ToolErrorCategory.POLICY_BLOCKED,
    403: ToolErrorCategory.POLICY_BLOCKED,
    429: ToolErrorCategory.RATE_LIMITED,
}
_LONGEST_SAID: Final = 1000


class AnsweredError(ToolError):
    """An error that the server answered. `said` is its text, shortened and without hidden characters.

    The message of the exception does not contain the server's text.
    """

    def __init__(self, server: str, code: int, message: str) -> None:
        category = _CATEGORIES.get(code, ToolErrorCategory.PERMANENT_FAILURE)
        if 500 <= code <= 599 or (-32099 <= code <= -32000 and code not in _CATEGORIES):  # JSON-RPC 2.0, 5.1
            category = ToolErrorCategory.SERVER_ERROR
        shown = str(code) if abs(code) < 10**9 else "with an impossible code"
        super().__init__(category, f"MCP server {server} answered with error {shown}")
        self.said = visible(message[:_LONGEST_SAID]).strip()


def connection_lost(server: str, reason: str) -> ToolError:
    """Return the error for a call to a server that is not connected. `reason` is in our own words."""
    message = f"MCP server {server} is not connected" + (f": {reason}" if reason else "")
    return ToolError(ToolErrorCategory.NETWORK_ERROR, message, "Do without its tools for now.")


def lost_in_call(server: str, reason: str) -> ToolError:
    """Return the error for a call during which the connection was lost. `reason` is in our own words."""
    message = f"MCP server {server} was lost during the call: {reason}; the call may have had effects"
    return ToolError(ToolErrorCategory.NETWORK_ERROR, message, "Check what it did before you repeat it.")


def _user_text(failure: ToolFailure) -> str:
    """Return the text of a failure for the user. The advice on a refusal is for the user, not for the model."""
    blocked = failure.category is ToolErrorCategory.POLICY_BLOCKED
    return f"{failure.message}. {failure.suggestion}" if blocked and failure.suggestion else failure.message


def _exception_name(error: BaseException) -> str:
    """Return the name of the innermost exception type. The message is left out because it may hold a secret."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return type(error).__name__


_SETTLE: Final = 0.5
"""The seconds to wait after a change was announced, since servers often announce one change several times."""

_REST: Final = 5.0
"""The seconds to wait after a list before the next one."""


class ToolListRefresh:
    """The schedule by which the tools of one session are listed again.

    A tool may be called only while no list is `due`.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        self._asked = anyio.Event()
        self._wanted = anyio.Event()
        self._done = anyio.Event()
        self.due = False

    def ask(self) -> None:
        """Note that the server says its tools have changed."""
        self.due = True
        self._asked.set()

    async def asked(self) -> None:
        """Wait until the tools must be listed again."""
        await self._asked.wait()

    async def pause(self, seconds: float) -> None:
        """Wait these seconds, or until a call needs the list."""
        async with anyio.create_task_group() as tasks:

            async def sleep() -> None:
                await self._sleep(seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(sleep)
            await self._wanted.wait()
            tasks.cancel_scope.cancel()

    def begin(self) -> None:
        """Note that the list is about to be requested: a later announcement asks for the next list."""
        self._asked, self._wanted = anyio.Event(), anyio.Event()

    def end(self) -> None:
        """Note that the list has arrived."""
        self.due = self._asked.is_set()
        self.wake()

    def wake(self) -> None:
        """Let the waiting calls go on, also if no further list will arrive."""
        done, self._done = self._done, anyio.Event()
        done.set()

    async def known(self) -> None:
        """Wait until the list has arrived or the session has ended."""
        self._wanted.set()
        await self._done.wait()


_START_DELAYS: Final = (1.0, 2.0, 4.0, 8.0)
"""The seconds before each further try as long as the server has never been ready."""

_RECONNECT_DELAYS: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0)
_HEALTH_EVERY: Final = 30.0
_PING_TIMEOUT: Final = 10.0
_CALL_PATIENCE: Final = 5.0
"""The seconds that a call waits for a connection that is being restored."""

_LIST_PATIENCE: Final = 10.0
"""The seconds that a call waits for a list that is due. Without the list it is unknown what the call would run."""

_LONGEST_PROBLEM: Final = 500
_FINAL_CATEGORIES: Final = frozenset({ToolErrorCategory.POLICY_BLOCKED, ToolErrorCategory.INVALID_PARAMETERS})


class ServerConnection(McpConnection):
    """An implementation of core.mcp.McpConnection. It is connected while `run` runs.

    changed       called after each change of state, problem or definitions; must be quick
    start         how a server's program is started
    dial, resolve, trust   how to reach an HTTP server; see net.connection
    elicitor      asks the user the server's questions; None if the editor cannot ask
    sleep         waits between tries, pings and lists
    """

    def __init__(
        self,
        server: McpServer,
        *,
        changed: Callable[[], None],
        start: "ProgramStart",
        dial: "Dial | None" = None,
        resolve: Resolve = system_resolve,
        trust: ssl.SSLContext | None = None,
        elicitor: Elicitor | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._server = server
        self._changed = changed
        self._start = start
        self._dial = dial
        self._resolve = resolve
        self._trust = trust
        self._questions = ServerElicitations(server.name, elicitor)
        self._sleep = sleep
        self._state = McpState.STARTING
        self._warnings: tuple[str, ...] = ()
        self._reason = self._server_text = ""
        self._final = False
        self._definitions: tuple[McpDefinition, ...] = ()
        self._troubles: tuple[str, ...] = ()
        self._session: McpClientSession | None = None
        self._refresh = ToolListRefresh(sleep)
        self._state_changed = anyio.Event()
        self._was_stable = self._closing = self._was_ready = False
        self._scope: anyio.CancelScope | None = None

    @property
    def server(self) -> McpServer:
        return self._server

    @property
    def state(self) -> McpState:
        return self._state

    @property
    def problem(self) -> str:
        reason = f"{self._reason}, saying: {self._server_text}" if self._server_text else self._reason
        lost = (reason, self._advice(reason)) if self._state is not McpState.READY else ()
        said = (*lost, *self._warnings, *self._troubles)
        return abbreviated(visible("; ".join(part for part in said if part)), _LONGEST_PROBLEM)

    @property
    def contained(self) -> bool:
        return self._start.contain is not None

    def _advice(self, reason: str) -> str:
        """Return what the user can do about a server that was never ready, perhaps because of its sandbox."""
        if not (reason and self.contained) or self._was_ready or self._final:
            return ""
        if self._server.origin is McpOrigin.PROJECT:
            return "it runs in the sandbox; only servers from your own configuration or editor can run outside it"
        name = self._server.name
        setting = f'`[mcp] unsandboxed = ["{name}"]`'
        return f"it runs in the sandbox: if it needs more access, {setting} runs it outside (docs/mcp.md)"

    def definitions(self) -> tuple[McpDefinition, ...]:
        return self._definitions

    async def call(self, definition: McpDefinition, arguments: JsonObject) -> McpReply:
        session = await self._approved_session(definition)  # nothing may be awaited between this and the request
        with self._questions.call(self._server.tool_timeout):
            return await session.call(definition.name, arguments)
        message = (
            f"MCP server {self._server.name} did not finish {definition.name} within {self._server.tool_timeout:g} s"
        )
        raise ToolError(ToolErrorCategory.TIMEOUT, message)

    async def _approved_session(self, definition: McpDefinition) -> "McpClientSession":
        """Return the session in which to call the tool. Raises ToolError if the tool is not what the user approved."""
        server = f"MCP server {self._server.name}"
        with anyio.move_on_after(_LIST_PATIENCE):
            session = await self._connected_session()
            while self._refresh.due:
                await self._refresh.known()
                session = await self._connected_session()
            if definition not in self._definitions:
                message = f"{server} has changed the definition of the tool {definition.name}, so it was not called"
                again = "Read the new definition, and call the tool again if it still fits. The user will be asked."
                raise ToolError(ToolErrorCategory.POLICY_BLOCKED, message, again)
            return session
        message = f"{server} keeps saying that its tools have changed, so none of them was called"
        raise ToolError(ToolErrorCategory.POLICY_BLOCKED, message, "Try again later, or do without its tools.")

    async def _connected_session(self) -> "McpClientSession":
        """Return the session, after waiting at most `_CALL_PATIENCE` for a new connection. Raises ToolError."""
        with anyio.move_on_after(_CALL_PATIENCE):
            while self._state not in {McpState.FAILED, McpState.CLOSED}:
                if self._session is not None and self._session.alive:
                    return self._session
                await self._state_changed.wait()
        raise connection_lost(self._server.name, self._reason)

    def close(self) -> None:
        """End the server and let `run` return soon. If `run` has not begun, it returns at once."""
        self._closing = True
        if self._session is not None:
            self._session.close()
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """Connect, list the tools, serve calls, check the server's health and reconnect, until closed or given up.

        An unexpected exception is reported as a failure of this connection and raised again.
        """
        end = McpState.CLOSED
        try:
            with anyio.CancelScope() as self._scope:
                if self._closing:
                    self._scope.cancel()
                await self._connect_and_serve()
                end = McpState.FAILED
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            name, self._server_text = _exception_name(error), ""
            self._reason = f"an internal error of acp-agent ended it ({name}); see the log of acp-agent"
            end = McpState.FAILED
            raise
        finally:
            self._set_state(end)

    async def _connect_and_serve(self) -> None:
        for module in ("client_session", "transports"):  # these load the `mcp` package, which takes half a second
            await anyio.to_thread.run_sync(import_module, f"acp_agent.mcp.{module}", abandon_on_cancel=True)
        from acp_agent.mcp.transports import transport_to  # noqa: PLC0415 - loaded by the line before

        try:
            transport, warnings = transport_to(
                self._server,
                self._start,
                sleep=self._sleep,
                resolve=self._resolve,
                dial=self._dial,
                trust=self._trust,
            )
        except Refused as error:
            self._reason = _user_text(error.failure)
            return
        self._warnings = warnings
        await self._serve_repeatedly(transport)

    async def _serve_repeatedly(self, transport: "StdioTransport | HttpTransport") -> None:
        """Serve one session after another, until too many tries in a row have failed."""
        delays, failed = _START_DELAYS, 0
        while True:
            was_ready = await self._serve(transport)
            if was_ready:
                delays = _RECONNECT_DELAYS
            if self._was_stable:  # after a session this long, earlier failures no longer count
                failed = 0
            if self._final or failed == len(delays):
                return
            self._set_state(McpState.WAITING)
            await self._sleep(delays[failed] * random.uniform(0.75, 1))  # noqa: S311 - random only to spread the tries
            failed += 1

    async def _serve(self, transport: "StdioTransport | HttpTransport") -> bool:
        """Serve one session from its start until it is lost. Return True if its tools were ever known."""
        from acp_agent.mcp.channel import MessageChannel  # noqa: PLC0415 - loaded by `_connect_and_serve`
        from acp_agent.mcp.client_session import McpClientSession  # noqa: PLC0415 - loaded by `_connect_and_serve`

        self._refresh, ready = ToolListRefresh(self._sleep), False
        channel = MessageChannel(on_list_changed=self._refresh.ask, sleep=self._sleep, asker=self._questions)
        self._was_stable = self._final = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._questions.serve, channel)
                tasks.start_soon(transport.serve, channel)
                async with McpClientSession(self._server, channel, self._questions) as session:
                    ready = await self._start_session(session, channel)
                    if ready:
                        async with anyio.create_task_group() as watching:
                            watching.start_soon(self._watch_health, session, channel)
                            watching.start_soon(self._refresh_tools, session, channel)
                            await channel.lost.wait()
                            watching.cancel_scope.cancel()
                tasks.cancel_scope.cancel()
            return ready
        finally:
            self._session = None
            self._refresh.wake()
            self._reason, self._server_text, self._final = channel.reason, channel.said, channel.final
            channel.close()

    async def _start_session(self, session: "McpClientSession", channel: "MessageChannel") -> bool:
        """Do the handshake and list the tools. Return True on success."""
        seconds = self._server.startup_timeout
        with anyio.move_on_after(seconds):
            try:
                await session.open()
                await self._list_tools(session)
            except ToolError as error:
                # A server that rejects this client will reject it again.
                channel.mark_lost(
                    _user_text(error.failure),
                    said=getattr(error, "said", ""),
                    final=error.failure.category in _FINAL_CATEGORIES,
                )
                return False
            self._session = session
            self._was_ready = True
            self._set_state(McpState.READY)
            return True
        channel.mark_lost(f"it did not start within {seconds:g} s")
        return False

    async def _list_tools(self, session: "McpClientSession") -> bool:
        """List the tools and replace the previous list. Return True if the tools or the troubles have changed."""
        catalogue = await session.tools()
        before = self._definitions, self._troubles
        self._definitions, self._troubles = catalogue.definitions(), tuple(catalogue.troubles)
        return before != (self._definitions, self._troubles)

    async def _watch_health(self, session: "McpClientSession", channel: "MessageChannel") -> None:
        """Ping the server whenever it was silent for `_HEALTH_EVERY` seconds and no call is running."""
        while True:
            heard = channel.received
            await self._sleep(_HEALTH_EVERY)
            self._was_stable = True
            if channel.received != heard or self._questions.calls:
                continue
            with anyio.move_on_after(min(_PING_TIMEOUT, self._server.tool_timeout)) as limit:
                try:
                    await session.ping()
                except ToolError as error:
                    channel.mark_lost(str(error))
            if limit.cancelled_caught:
                channel.mark_lost("it no longer answers")

    async def _refresh_tools(self, session: "McpClientSession", channel: "MessageChannel") -> None:
        """List the tools again when the server says that they have changed, with a pause between two lists."""
        refresh = self._refresh
        while True:
            await refresh.asked()
            await refresh.pause(_SETTLE)
            refresh.begin()
            with anyio.move_on_after(self._server.startup_timeout) as limit:
                try:
                    changed = await self._list_tools(session)
                except ToolError as error:
                    channel.mark_lost(str(error), said=getattr(error, "said", ""))
                    return
                if changed:
                    self._changed()
            if limit.cancelled_caught:
                channel.mark_lost("it did not list its changed tools in time")
                return
            refresh.end()
            await refresh.pause(_REST)

    def _set_state(self, state: McpState) -> None:
        self._state = state
        if state in {McpState.FAILED, McpState.CLOSED}:
            self._definitions, self._troubles = (), ()
        turned, self._state_changed = self._state_changed, anyio.Event()
        turned.set()
        self._changed()
