"""The process of a stdio server: its environment, its start, its pipes and its end.

The program is started without a shell in a session of its own. Ending it ends everything that it started, also
processes that left its group, as long as they kept the mark in their environment and the system makes their orphans
children of the agent (Linux). The agent's own end finds the others. If the agent is killed, a watchdog ends the
program's process group.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread
import psutil

from acp_agent.core.mcp import StdioServer
from acp_agent.core.process_limits import restore_limits
from acp_agent.text import visible

MARK: Final = "ACP_COMMAND_ID"
"""The environment variable that marks the processes of a server, also those that left its process group. Commands use
the same variable: the clean-up after a command leaves other marks alone, and the clean-up at the end finds all."""

_PASSED: Final = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "TZ", "LANG", "LANGUAGE"))
_PASSED_PREFIX: Final = "LC_"
_FORBIDDEN: Final = frozenset(
    (
        *("PATH", "BASH_ENV", "ENV", MARK, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "GCONV_PATH"),
        *(
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONSTARTUP",
            "PYTHONUSERBASE",
            "PYTHONBREAKPOINT",
            "NODE_PATH",
            "NODE_OPTIONS",
        ),
        *("RUBYLIB", "RUBYOPT", "GEM_PATH", "GEM_HOME", "PERLLIB", "PERL5LIB", "PERL5OPT", "PERL5DB"),
        *("CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS"),
        *("LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR"),
        *("GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND", "GIT_EXTERNAL_DIFF"),
        *("GIT_ASKPASS", "SSH_ASKPASS", "GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
    )
)
_FORBIDDEN_PREFIXES: Final = ("LD_", "DYLD_", "GIT_CONFIG")


def server_environment(
    source: Mapping[str, str], added: Iterable[tuple[str, str]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables for a server, and the names of its entry that were dropped.

    An entry may not set the variables that redirect traffic (proxies) or change which code is loaded, in whatever case
    they are written. Entries that are no valid variable are dropped, too:

    programs     PATH, BASH_ENV, ENV, LD_*, DYLD_*, GCONV_PATH
    Python       PYTHONPATH, PYTHONHOME, PYTHONSTARTUP, PYTHONUSERBASE, PYTHONBREAKPOINT
    Node         NODE_PATH, NODE_OPTIONS (`--require`)
    Ruby, Perl   RUBYLIB, RUBYOPT, GEM_PATH, GEM_HOME; PERLLIB, PERL5LIB, PERL5OPT, PERL5DB
    Java, .NET   CLASSPATH, JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, _JAVA_OPTIONS; DOTNET_STARTUP_HOOKS
    Lua, PHP     LUA_INIT, LUA_PATH, LUA_CPATH; PHPRC, PHP_INI_SCAN_DIR
    git          GIT_CONFIG*, GIT_EXEC_PATH, GIT_TEMPLATE_DIR and the programs it calls (GIT_SSH*, GIT_PAGER, ...)

    Other variables pass, such as GIT_AUTHOR_NAME. The entry names the program itself, so this does not protect against
    the author of the entry.
    """
    environment = {name: value for name, value in source.items() if name in _PASSED or name.startswith(_PASSED_PREFIX)}
    dropped: list[str] = []
    for name, value in added:
        if _is_forbidden(name) or not name or "=" in name or "\0" in name + value:
            dropped.append(name)
        else:
            environment[name] = value
    return environment, tuple(dropped)


def _is_forbidden(name: str) -> bool:
    upper = name.upper()
    return upper in _FORBIDDEN or upper.startswith(_FORBIDDEN_PREFIXES)


_GRACE: Final = 0.3
_KILL_PATIENCE: Final = 0.2
_KILL_ROUNDS: Final = 2  # the second round finds processes that were forked during the first


def end_process_tree(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a program and everything it started. Blocks for at most about a second.

    The program's stdin is already closed. The function waits a moment, then sends SIGTERM, then SIGKILL, and reaps the
    program. `mark` is the value of `MARK` in the program's environment. The program leads its own session.
    """
    _wait(process, _GRACE)
    for number, patience in ((signal.SIGTERM, _GRACE), *[(signal.SIGKILL, _KILL_PATIENCE)] * _KILL_ROUNDS):
        members = _other_members(process.pid, mark)
        if not members and process.poll() is not None:
            break
        _signal(process, members, number)
        deadline = time.monotonic() + patience
        _wait(process, patience)
        psutil.wait_procs(members, timeout=max(0.0, deadline - time.monotonic()))
    process.poll()


def _other_members(leader: int, mark: str) -> Sequence[psutil.Process]:
    """Return the living processes of the program without the program itself, which only its Popen may reap."""
    return [
        member
        for member in psutil.Process().children(recursive=True)
        if member.pid != leader and _belongs(member, leader, mark)
    ]


def _belongs(member: psutil.Process, leader: int, mark: str) -> bool:
    return any(
        _is_true(check)
        for check in (
            lambda: os.getsid(member.pid) == leader,
            lambda: os.getpgid(member.pid) == leader,
            lambda: member.environ().get(MARK) == mark,
        )
    )


def _is_true(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (OSError, psutil.Error):  # it has ended, or it belongs to another user
        return False


def _signal(process: subprocess.Popen[bytes], members: Sequence[psutil.Process], number: int) -> None:
    """Send a signal to the program first, since a shell that saw its child end would run its next line."""
    with contextlib.suppress(OSError):
        process.send_signal(number)
    for member in members:
        with contextlib.suppress(OSError, psutil.Error):
            member.send_signal(number)


def _wait(process: subprocess.Popen[bytes], patience: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)


_SCRIPT: Final = 'read -r line || kill -s KILL -- "-$0"'
_PATIENCE: Final = 1.0


class Watchdog:
    """A shell that ends a program's process group if the agent dies (SIGKILL, out of memory).

    The shell reads from a pipe whose other end only the agent holds. A line tells it to leave; the end of the pipe
    tells it that the agent is gone, and it kills the group. Processes that left the group survive. This works on every
    POSIX system; PR_SET_PDEATHSIG would end the program together with the thread that started it. Dismiss the watchdog
    once the program has ended, before its process id is reused.
    """

    def __init__(self, group: int) -> None:
        """Start the shell. Raises OSError if there is no shell."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # a Ctrl+C in the agent's terminal must not end it
        )

    def dismiss(self) -> None:
        """Let the shell leave without killing anything. Blocks for a moment."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # the shell may have been killed or stopped
            self._process.communicate(b"well\n", timeout=_PATIENCE)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


_READ: Final = 64 * 1024
_STDERR_KEPT: Final = 4 * 1024
_STDERR_SHOWN: Final = 300
_STDERR_BEFORE_PAUSE: Final = 1024 * 1024
_PAUSE: Final = 0.05


class ServerProcess:
    """One run of a server's program. Call `end` on every path."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, watchdog: Watchdog | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._mark = mark
        self._watchdog = watchdog
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._last_words = b""

    @classmethod
    async def start(cls, server: StdioServer, environment: Mapping[str, str]) -> "ServerProcess":
        """Start the program with this environment and a mark.

        Raises:
            OSError: the program cannot be started.
            ValueError: an argument or a variable is one that no program can be given.

        """
        mark = f"{os.getpid()}.{os.urandom(8).hex()}"

        def spawn() -> tuple[subprocess.Popen[bytes], Watchdog | None]:
            process = subprocess.Popen(
                [server.command, *server.args],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, MARK: mark},
                cwd=server.cwd,
                start_new_session=True,
            )
            restore_limits(process.pid)
            with suppress(OSError):  # without a shell the program must notice itself that its stdin is closed
                return process, Watchdog(process.pid)
            return process, None

        process, watchdog = await anyio.to_thread.run_sync(spawn)
        return cls(process, mark, watchdog)

    async def read(self) -> bytes:
        """Return what the program has written to stdout, or no bytes once stdout is closed."""
        return await _read(self._stdout.fileno())

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
        while data := await _read(fd):
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
                await anyio.to_thread.run_sync(end_process_tree, self._process, self._mark)
                if self._watchdog is not None:
                    await anyio.to_thread.run_sync(self._watchdog.dismiss)
            finally:
                self._stdout.close()
                self._stderr.close()


async def _read(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            continue
