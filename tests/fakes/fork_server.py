"""Agents by fork: one process imports everything once, and each agent begins as a copy of it.

For tests that are not about starting: half a second of imports less for each. What such an agent does is the real
thing, in a process of its own (and its own session), over pipes, ended by real signals. Started by forked_agent.py;
ends when its input does.

A request is one JSON object {"env", "cwd", "arguments", "closed"} with three descriptors, one connection each. The
answers are lines: the pid, and, when the agent has ended, its return code (negative: a signal). With the arguments of a
subcommand the process becomes that, and the agent it starts is forked as well.
"""

import contextlib
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

from anyio.abc import Process

from tests.fakes.rehearsal import rehearse
from tests.fakes.short_waits import VARIABLE, shorten, shorten_for_command
from tests.huge_pages import use_huge_pages

REQUEST_LIMIT = 256 * 1024  # bytes
PREPARED_BY = "ACP_AGENT_TEST_PREPARED_BY"
"""The environment variable that names a module, whose `prepare` is called before the agent starts."""


def load_everything() -> None:
    """Import all of the agent and of its command line, and keep collections of garbage off it."""
    import acp_agent  # noqa: PLC0415 - the agents' modules, not the tests'

    for module in pkgutil.walk_packages(acp_agent.__path__, "acp_agent."):
        _read_tables(importlib.import_module(module.name))
    _keep_command_line()
    _rehearse()
    gc.collect()
    gc.freeze()
    use_huge_pages()


def _keep_command_line() -> None:
    """Make the parser of the command line once: that takes a subcommand longer than all else before its work."""
    from acp_agent.cli import commands  # noqa: PLC0415 - the agents' modules, not the tests'

    parser = commands.command_line()
    commands.command_line = lambda: parser


def _rehearse() -> None:
    """Load and make what every agent loads and makes between its start and its first answer."""
    importlib.import_module("anyio._backends._asyncio")
    from acp_agent.log import without  # noqa: PLC0415 - the agents' modules, not the tests'
    from acp_agent.output.redaction.redactor import Redactor  # noqa: PLC0415 - as above
    from acp_agent.tools.registry import catalogue  # noqa: PLC0415 - as above

    with without("rich"):
        importlib.import_module("structlog")
    catalogue()
    Redactor()("A text without secrets.")
    rehearse()


def _read_tables(module: ModuleType) -> None:
    """Call what a module reads once and keeps: a third of the time of an agent's first turn goes into its tables."""
    for value in list(vars(module).values()):
        if isinstance(value, functools._lru_cache_wrapper) and not inspect.signature(value).parameters:
            value()


def serve(listener: socket.socket) -> None:
    """Fork agents until standard input ends."""
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fd == sys.stdin.fileno():
                return
            if key.fileobj is listener:
                client, pid = _begin(listener)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (client, pid))
            else:
                waiting.unregister(key.fd)
                os.close(key.fd)
                _tell_end(*key.data)


def _begin(listener: socket.socket) -> tuple[socket.socket, int]:
    client, _ = listener.accept()
    request, descriptors, _, _ = socket.recv_fds(client, REQUEST_LIMIT, 3)
    pid = os.fork()
    if pid == 0:
        _become_agent(json.loads(request), descriptors, listener.getsockname())
    for descriptor in descriptors:
        os.close(descriptor)
    client.sendall(b"%d\n" % pid)
    return client, pid


def _tell_end(client: socket.socket, pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    with client, contextlib.suppress(OSError):  # whoever wanted it may be gone
        client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become_agent(request: dict[str, Any], descriptors: list[int], server: str) -> NoReturn:
    """What `python -m acp_agent` is after its imports."""
    code = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        if os.isatty(0) and os.isatty(2):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C is a signal there
        os.closerange(3, max(descriptors) + 64)
        for number in request["closed"]:
            os.close(number)
        os.environ.clear()
        os.environ.update(request["env"])
        tempfile.tempdir = None  # that of its own environment
        os.chdir(request["cwd"])
        sys.argv = ["acp-agent", *request["arguments"]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if request["arguments"]:
            _become_command(server)
        if how := os.environ.pop(VARIABLE, ""):
            shorten(how)
        if module := os.environ.pop(PREPARED_BY, ""):
            importlib.import_module(module).prepare()
        from acp_agent.__main__ import main  # noqa: PLC0415 - as above

        code = main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody may be reading
                stream.flush()
        os._exit(code)


def _become_command(server: str) -> None:
    """Let a subcommand write to its own streams, and start its agent by this server."""
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w", buffering=1)
    from acp_agent.cli import agent_process  # noqa: PLC0415 - an agent would not load it
    from tests.fakes.forked_agent import fork_agent  # noqa: PLC0415 - it imports this module's callers

    if VARIABLE in os.environ:
        shorten_for_command()
    waits = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}

    async def open_agent(command: Sequence[str], environment: Mapping[str, str], cwd: str) -> Process:
        arguments = command[command.index("acp_agent") + 1 :]
        return await fork_agent({**environment, **waits}, cwd, arguments, server=server)

    agent_process.open_agent = open_agent


def _stream(number: int, mode: str, buffering: int = -1) -> Any:
    """Return a standard stream, or None if it is closed, as the interpreter does."""
    try:
        return open(number, mode, buffering, closefd=False)
    except OSError:
        return None


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a test run that is interrupted ends its agents itself
    load_everything()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(64)
        if os.fork():
            os._exit(0)  # nobody's child: tests look for all that descends from their own process, and end it
        print("ready", flush=True)
        serve(listening)
        shutil.rmtree(os.path.dirname(sys.argv[1]))
