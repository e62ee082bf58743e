"""A program that serves us over its pipes, such as an MCP server or another agent.

It is started without a shell in a session of its own. Ending it ends everything that it started, as after a command of
the shell (`workspace.processes.tree`). If the agent is killed, a watchdog ends it.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from acp_agent.core.data import frozen
from acp_agent.core.mcp import StdioServer
from acp_agent.core.process_limits import restore_limits
from acp_agent.text import visible
from acp_agent.workspace.beneath import holding
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

    Variables that redirect traffic or change which code is loaded are dropped, in any case of letters, and so are those
    that are not valid. Others pass, such as GIT_AUTHOR_NAME. This is no protection against the author of the server's
    entry, who names the program itself.
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


@frozen
class ProgramStart:
    """The way in which a program is started.

    environment   the variables that it gets
    contain       returns a new sandbox for one run of it; None lets it run free
    """

    environment: Mapping[str, str]
    contain: Callable[[], SessionSandbox] | None = None


_GRACE: Final = 0.3  # seconds that processes get to end by themselves, and after SIGTERM
_READ: Final = 64 * 1024  # bytes
_STDERR_KEPT: Final = 4 * 1024  # bytes
_STDERR_SHOWN: Final = 300  # characters
_STDERR_BEFORE_PAUSE: Final = 1024 * 1024  # bytes
_PAUSE: Final = 0.05  # seconds


class PipedProgram:
    """One run of a program. Always call `end`, also after an error or a cancellation."""

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
    async def start(cls, server: StdioServer, start: ProgramStart) -> "PipedProgram":
        """Start the program with the environment of `start` and a mark, in its sandbox if it has one.

        Raises:
            OSError: the program cannot be started.
            ValueError: an argument or a variable is one that no program can be given.

        """
        tree, watchdog = ProcessTree(grace=_GRACE), CommandWatchdog()

        def spawn() -> PipedProgram:
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
        return await _read_some(self._stdout.fileno())

    async def write(self, data: bytes) -> None:
        """Write all of `data` to stdin. Raises OSError if stdin is closed."""
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
        while data := await _read_some(fd):
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
        with holding(fd):
            await anyio.wait_readable(fd)

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
        """Close stdin and end everything of the program, usually within a second. Cannot be cancelled."""
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
    """Yield the arguments and variables of the start. Raises OSError, and ValueError for a text with a NUL."""
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


async def _read_some(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            continue
