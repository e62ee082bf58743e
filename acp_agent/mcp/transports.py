"""The two transports of MCP: a program's stdin and stdout, and streamable HTTP.

Source: MCP 2025-11-25, "Transports". Over stdio a line is a message. Over HTTP each message is a POST, and a GET keeps
a stream open for the messages that the server starts. Broken streams are not resumed: the call fails, and the model
may repeat it.

The program of a stdio server is started without a shell in a session of its own. Ending it ends everything that it
started, as after a command of the shell (`workspace.processes.tree`). If the agent is killed, a watchdog ends it.
"""

import errno
import os
import shutil
import ssl
import subprocess
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.mcp import HttpServer, McpServer, StdioServer
from acp_agent.core.process_limits import restore_limits
from acp_agent.mcp.channel import (
    MESSAGE_LIMIT,
    BrokenServerError,
    LineSplitter,
    MessageChannel,
    Sleep,
    SseSplitter,
)
from acp_agent.mcp.connection import ProgramStart
from acp_agent.net.connection import Dial
from acp_agent.net.hosts import Resolve
from acp_agent.net.mcp_http import McpHttpClient, McpResponse
from acp_agent.text import visible
from acp_agent.workspace.processes.table import MARK
from acp_agent.workspace.processes.tree import CommandWatchdog, ProcessTree
from acp_agent.workspace.sandbox.sandbox import SessionSandbox
from acp_agent.workspace.sandbox.walls import Launch

_PASSED: Final = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "TZ", "LANG", "LANGUAGE"))
_FORBIDDEN: Final = frozenset(
    (
        # programs and shells, our own mark, proxies, character sets
        *("PATH", "BASH_ENV", "ENV", MARK, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "GCONV_PATH"),
        # Python, and Node, whose options may `--require` a module
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONBREAKPOINT"),
        *("NODE_PATH", "NODE_OPTIONS"),
        # Ruby and Perl; Java and .NET; Lua and PHP
        *("RUBYLIB", "RUBYOPT", "GEM_PATH", "GEM_HOME", "PERLLIB", "PERL5LIB", "PERL5OPT", "PERL5DB"),
        *("CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS"),
        *("LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR"),
        # git, and the programs that it calls
        *("GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND", "GIT_EXTERNAL_DIFF"),
        *("GIT_ASKPASS", "SSH_ASKPASS", "GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
    )
)
_FORBIDDEN_PREFIXES: Final = ("LD_", "DYLD_", "GIT_CONFIG")


def server_environment(
    source: Mapping[str, str], added: Iterable[tuple[str, str]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables for a server, and the names of its entry that were dropped.

    An entry may not set the variables that redirect traffic or change which code is loaded, in whatever case they are
    written. Entries that are no valid variable are dropped, too. Others pass, such as GIT_AUTHOR_NAME. The entry names
    the program itself, so this does not protect against the author of the entry.
    """
    environment = {name: value for name, value in source.items() if name in _PASSED or name.startswith("LC_")}
    dropped: list[str] = []
    for name, value in added:
        upper = name.upper()
        forbidden = upper in _FORBIDDEN or upper.startswith(_FORBIDDEN_PREFIXES)
        if forbidden or not name or "=" in name or "\0" in name + value:
            dropped.append(name)
        else:
            environment[name] = value
    return environment, tuple(dropped)


_GRACE: Final = 0.3
_READ: Final = 64 * 1024
_STDERR_KEPT: Final = 4 * 1024
_STDERR_SHOWN: Final = 300
_STDERR_BEFORE_PAUSE: Final = 1024 * 1024
_PAUSE: Final = 0.05


class ServerProcess:
    """One run of a server's program. Call `end` on every path."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        tree: ProcessTree,
        watchdog: CommandWatchdog,
        sandbox: SessionSandbox | None,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._tree = tree
        self._watchdog = watchdog
        self._sandbox = sandbox
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._last_words = b""

    @classmethod
    async def start(cls, server: StdioServer, start: ProgramStart) -> "ServerProcess":
        """Start the program with this environment and a mark, in its sandbox if it has one.

        Raises:
            OSError: the program cannot be started.
            ValueError: an argument or a variable is one that no program can be given.

        """
        tree, watchdog = ProcessTree(grace=_GRACE), CommandWatchdog()

        def spawn() -> ServerProcess:
            watchdog.watch(tree.mark)
            with ExitStack() as on_failure:
                on_failure.callback(watchdog.close)
                sandbox = None if start.contain is None else start.contain()
                if sandbox is not None:
                    on_failure.callback(sandbox.close)
                with _launched(server, start.environment, sandbox) as launch:
                    popen = partial(
                        subprocess.Popen[bytes],
                        launch.arguments,
                        bufsize=0,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        env={**start.environment, **launch.variables, MARK: tree.mark},
                        cwd=server.cwd,
                        start_new_session=True,
                        pass_fds=launch.descriptors,
                    )
                    process = launch.start(popen)
                on_failure.pop_all()
            restore_limits(process.pid)
            watchdog.watch(tree.mark, process.pid)
            pipes = (process.stdout, process.stderr)
            inodes = frozenset(os.fstat(pipe.fileno()).st_ino for pipe in pipes if pipe is not None)
            tree.started(process.pid, inodes, launch.keepers)
            return cls(process, tree, watchdog, sandbox)

        return await anyio.to_thread.run_sync(spawn)

    async def read(self) -> bytes:
        """Return what the program has written to stdout, or no bytes once stdout is closed."""
        return await _read_line(self._stdout.fileno())

    async def write(self, data: bytes) -> None:
        """Write all of it to stdin. Raises OSError if stdin is closed."""
        fd, rest = self._stdin.fileno(), memoryview(data)
        while rest:
            await anyio.wait_writable(fd)
            try:
                rest = rest[os.write(fd, rest[:_READ]) :]
            except BlockingIOError:
                continue

    async def drain(self) -> None:
        """Read stderr until it is closed, and keep its end. Pauses slow down a program that writes very much."""
        fd, since_pause = self._stderr.fileno(), 0
        while data := await _read_line(fd):
            self._last_words = (self._last_words + data)[-_STDERR_KEPT:]
            since_pause += len(data)
            if since_pause >= _STDERR_BEFORE_PAUSE:
                since_pause = 0
                await anyio.sleep(_PAUSE)

    async def exited(self) -> None:
        """Wait until the program itself has ended. Processes that it started may still run."""
        try:
            fd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # not Linux, or an old kernel
            await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
            return
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)

    def describe_exit(self) -> str:
        """Return a phrase that says how the program ended."""
        code = self._process.poll()
        if code is None:
            return "closed its output"
        return f"ended with signal {-code}" if code < 0 else f"ended with {code}"

    def last_error_line(self) -> str:
        """Return the last line of stderr, made visible for the user, or an empty string."""
        lines = [line for line in self._last_words.decode("utf-8", "replace").splitlines() if line.strip()]
        return visible(lines[-1].strip()[:_STDERR_SHOWN]) if lines else ""

    async def end(self) -> None:
        """Close stdin and end everything of the program within a second. Cannot be cancelled."""
        with anyio.CancelScope(shield=True):
            self._stdin.close()
            try:
                await anyio.to_thread.run_sync(self._end_processes)
            finally:
                self._stdout.close()
                self._stderr.close()

    def _end_processes(self) -> None:
        self._tree.finish()
        self._watchdog.close()
        self._process.poll()
        self._tree.reaped()
        if self._sandbox is not None:
            self._sandbox.close()


@contextmanager
def _launched(server: StdioServer, environment: Mapping[str, str], sandbox: SessionSandbox | None) -> Generator[Launch]:
    """Yield how the program is started. Raises OSError, and ValueError for a text with a NUL."""
    words = (server.command, *server.args)
    if sandbox is None:
        yield Launch(words)
        return
    if any("\0" in word for word in words):
        raise ValueError("embedded null byte")
    within = os.path.join(server.cwd or "", server.command) if "/" in server.command else server.command
    if shutil.which(within, path=environment.get("PATH")) is None:  # bubblewrap would say so on stderr, at every try
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), server.command)
    with sandbox.launch(words, server.cwd or "/") as launch:
        yield replace(launch, variables={**launch.variables, "TMPDIR": "/tmp"})  # noqa: S108 - a private one


async def _read_line(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            continue


_SESSION: Final = "mcp-session-id"
_NOTICE_TIMEOUT: Final = 10.0
"""The seconds to deliver a message that needs no answer."""
_END_TIMEOUT: Final = 1.0
_LISTEN_PAUSE: Final = 15.0
_NOTICES: Final = 8
"""The most such messages in flight. A server that asks faster than it takes our answers loses some of them."""


class HttpTransport:
    """A transport over HTTP. Each `initialize` request that passes through it begins a new session with the server."""

    def __init__(self, http: McpHttpClient, sleep: Sleep) -> None:
        self._http = http
        self._sleep = sleep
        self._session: dict[str, str] = {}
        self._version: dict[str, str] = {}
        self._posts: dict[int, anyio.CancelScope] = {}
        self._notices = 0

    async def serve(self, channel: MessageChannel) -> None:
        self._session, self._version = {}, {}
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_all, channel, tasks)
                await channel.lost.wait()
                tasks.cancel_scope.cancel()
        finally:
            if self._session:  # tell the server
                with anyio.move_on_after(_END_TIMEOUT, shield=True), suppress(ToolError, Refused):
                    async with self._http.ask("DELETE", self._headers()):
                        pass

    async def _send_all(self, channel: MessageChannel, tasks: anyio.abc.TaskGroup) -> None:
        async for item in channel.outgoing:
            if isinstance(item.metadata, ClientMessageMetadata) and item.metadata.headers:
                self._version = item.metadata.headers
            match item.message:
                case JSONRPCRequest():
                    tasks.start_soon(self._send_request, item, channel)
                case JSONRPCNotification(method="notifications/initialized"):
                    await self._send_notice(item, channel)  # no other message may overtake it
                    tasks.start_soon(self._listen, channel)
                case JSONRPCNotification(method="notifications/cancelled", params=params):
                    number = (params or {}).get("requestId")
                    if isinstance(number, int) and (scope := self._posts.get(number)) is not None:
                        scope.cancel()
                    tasks.start_soon(self._send_notice, item, channel)
                case _ if self._notices < _NOTICES:
                    tasks.start_soon(self._send_notice, item, channel)
                case _:
                    pass

    async def _send_request(self, item: SessionMessage, channel: MessageChannel) -> None:
        """Send a request. Its answer comes in the body, as JSON or as an event."""
        request = item.message
        assert isinstance(request, JSONRPCRequest)
        assert isinstance(request.id, int), "the session numbers its requests"
        with anyio.CancelScope() as scope:
            self._posts[request.id] = scope
            try:
                failure = await self._post_request(item, channel)
            except BrokenServerError as error:
                failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"the server {error}")
            except (ToolError, Refused) as error:
                failure = error.failure
            finally:
                del self._posts[request.id]
            if failure is not None:
                channel.answer_failure(item, failure)
                if failure.category is ToolErrorCategory.NETWORK_ERROR:
                    channel.mark_lost(failure.message)

    async def _post_request(self, item: SessionMessage, channel: MessageChannel) -> ToolFailure | None:
        """Send a request and read the body. Return the failure to report if the server gave no answer."""
        request = item.message
        assert isinstance(request, JSONRPCRequest)
        async with self._http.ask("POST", self._headers(), _message_bytes(item)) as answer:
            error = answer.failure()
            if answer.status == 404 and self._session:
                channel.mark_lost("the server has forgotten the session")
            if request.method == "initialize" and error is None:
                name = answer.headers.get(_SESSION, "")
                if name and len(name) <= 1024 and name.isascii() and name.isprintable() and " " not in name:
                    self._session = {_SESSION: name}
            if error is not None and (answer.mime != "application/json" or answer.status in {401, 403}):
                return error.failure
            await _receive_body(answer, channel, until=item)
        if not channel.is_pending(item):
            return None
        said = error.failure if error else None
        return said or ToolFailure(ToolErrorCategory.SERVER_ERROR, "the server's answer held no result")

    async def _send_notice(self, item: SessionMessage, channel: MessageChannel) -> None:
        """Send a message that gets no answer. Only the next request shows whether it arrived."""
        self._notices += 1
        try:
            with anyio.move_on_after(_NOTICE_TIMEOUT), suppress(ToolError, Refused):
                async with self._http.ask("POST", self._headers(), _message_bytes(item)) as answer:
                    if answer.status == 404 and self._session:
                        channel.mark_lost("the server has forgotten the session")
        finally:
            self._notices -= 1

    async def _listen(self, channel: MessageChannel) -> None:
        """Keep a stream open for messages that the server starts, if it offers one."""
        while True:
            try:
                async with self._http.ask("GET", self._headers(accept="text/event-stream")) as answer:
                    if answer.status != 200 or answer.mime != "text/event-stream":
                        return
                    await _receive_body(answer, channel)
            except BrokenServerError as error:
                channel.mark_lost(f"the server {error}")
            except (ToolError, Refused):
                pass  # the next request reports the problem
            await self._sleep(_LISTEN_PAUSE)

    def _headers(self, accept: str = "application/json, text/event-stream") -> dict[str, str]:
        return {"content-type": "application/json", "accept": accept, **self._session, **self._version}


def _message_bytes(item: SessionMessage) -> bytes:
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


async def _receive_body(answer: McpResponse, channel: MessageChannel, until: SessionMessage | None = None) -> None:
    """Receive all messages of a body, or those up to the answer of the request `until`.

    Raises:
        ToolError: the body cannot be read.
        BrokenServerError: the server has sent too much that is no message.

    """
    if answer.mime == "application/json":
        await channel.receive(await answer.body(MESSAGE_LIMIT))
    elif answer.mime == "text/event-stream":
        events = SseSplitter()
        async for chunk in answer.chunks():
            for event in events.feed(chunk):
                await channel.receive(event)
                if until is not None and not channel.is_pending(until):
                    return
            await channel.count_unrequested(events.take_ignored(), messages=0)


_LAST_OUTPUT: Final = 0.2
"""The seconds to read what an ended program has left in its pipes."""


class StdioTransport:
    """A transport over the pipes of a program. It starts the program each time it serves."""

    def __init__(self, server: StdioServer, start: ProgramStart) -> None:
        self._server = server
        self._start = start

    async def serve(self, channel: MessageChannel) -> None:
        try:
            program = await ServerProcess.start(self._server, self._start)
        except (OSError, ValueError) as error:
            channel.mark_lost(f"{self._server.command} cannot be started ({_reason(error)})", final=True)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(program.drain)
                tasks.start_soon(_write, program, channel)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(_read, program, channel, readers.cancel_scope)
                    await program.exited()
                    with anyio.move_on_after(_LAST_OUTPUT):
                        await channel.lost.wait()
                    readers.cancel_scope.cancel()
                with anyio.move_on_after(_LAST_OUTPUT):
                    await program.exited()  # it may have closed only its output; then there is no exit status to report
                channel.mark_lost(f"the program {program.describe_exit()}", said=program.last_error_line())
                tasks.cancel_scope.cancel()
        finally:
            await program.end()


def _reason(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror


async def _read(program: ServerProcess, channel: MessageChannel, scope: anyio.CancelScope) -> None:
    """Receive lines until the program closes its output or breaks the rules."""
    lines = LineSplitter()
    try:
        while data := await program.read():
            for line in lines.feed(data):
                await channel.receive(line)
    except BrokenServerError as error:
        channel.mark_lost(f"the program {error}")
    scope.cancel()


async def _write(program: ServerProcess, channel: MessageChannel) -> None:
    async for item in channel.outgoing:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await program.write(f"{line}\n".encode())
        except OSError:  # it has closed its stdin; `_read` and `exited` see what follows
            return


def transport_to(
    server: McpServer,
    start: ProgramStart,
    *,
    sleep: Sleep,
    resolve: Resolve,
    dial: Dial | None,
    trust: ssl.SSLContext | None,
) -> tuple[StdioTransport | HttpTransport, tuple[str, ...]]:
    """Return the transport for a server, and warnings for the user.

    Raises:
        Refused: the URL of the server may not be used.

    """
    match server.reach:
        case StdioServer() as program:
            variables, dropped = server_environment(start.environment, program.env)
            warnings = (f"not passed on to it: {', '.join(dropped)}",) if dropped else ()
            return StdioTransport(program, replace(start, environment=variables)), warnings
        case HttpServer(url, headers, allow_private):
            http = McpHttpClient(
                url, dict(headers), allow_private=allow_private, resolve=resolve, dial=dial, trust=trust
            )
            return HttpTransport(http, sleep), ()
