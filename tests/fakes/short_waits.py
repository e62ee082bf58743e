"""A forked agent whose waits are short, for tests of what comes after a wait and not of how long it is."""

import asyncio
import inspect
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

VARIABLE = "ACP_AGENT_TEST_SHORT_WAITS"
"""The environment variable that asks a fork server for such an agent."""

SILENT = "silent"
"""The value of the variable that says that background commands print nothing at first."""

_AT_ONCE = 2.0


def shorten(how: str = "") -> None:
    """Let this process wait a tenth of the usual time, or less, for others. Times are in seconds."""
    from acp_agent.extend import schedule, timing  # noqa: PLC0415 - the fork server has no module of the tests before
    from acp_agent.llm.retry import RetryPolicy  # noqa: PLC0415 - as above
    from acp_agent.mcp import connection  # noqa: PLC0415 - as above
    from acp_agent.protocol import client_terminal  # noqa: PLC0415 - as above
    from acp_agent.protocol.client_files import ProxyFileSystem  # noqa: PLC0415 - as above
    from acp_agent.session import mcp_connections, models, transcript_writer  # noqa: PLC0415 - as above
    from acp_agent.session.manager import SessionManager  # noqa: PLC0415 - as above
    from acp_agent.session.toolset import hooks  # noqa: PLC0415 - as above
    from acp_agent.store.db import Database  # noqa: PLC0415 - as above
    from acp_agent.workspace import local_files  # noqa: PLC0415 - as above
    from acp_agent.workspace.processes import background  # noqa: PLC0415 - as above
    from acp_agent.workspace.processes.terminal import LocalTerminal  # noqa: PLC0415 - as above
    from acp_agent.workspace.processes.tree import ProcessTree  # noqa: PLC0415 - as above

    set_default(Database.__init__, "patience", 0.2)
    set_default(ProxyFileSystem.__init__, "looks", (0.0, 0.01))
    set_default(RetryPolicy.__new__, "base", 0.03)
    _set(connection, "_RECONNECT_DELAYS", tuple(each / 10 for each in connection._RECONNECT_DELAYS))
    _set(mcp_connections, "_PATIENCE", 0.3)
    _set(transcript_writer, "_PATIENCE", 0.1)
    _set(models, "_IMPATIENT", models._IMPATIENT._replace(base=0.03))
    set_default(SessionManager.__init__, "lock_seconds", 0.2)
    _set(schedule, "_QUIET", 0.05)
    _set(hooks, "_DEBOUNCE", 0.05)
    _set(local_files, "_SETTLED", 200_000_000)  # nanoseconds
    _set(client_terminal, "_LONGEST_PAUSE", 0.02)
    _set(background, "_LOOK", 0.02)
    _set(background, "_FIRST_END", 0.01)
    if how == SILENT:
        _set(background, "_FIRST_OUTPUT", 0.02)
    set_default(LocalTerminal.__init__, "grace", 0.03)
    set_default(ProcessTree.__init__, "grace", 0.03)
    _set(timing, "_timing", _sooner(timing._timing))
    _let_time_pass_when_asked()


def shorten_for_command() -> None:
    """Let this process, a subcommand, take keys soon after a question."""
    from acp_agent.cli import run  # noqa: PLC0415 - an agent would not load it

    _set(run, "_SETTLE", 0.03)


def _sooner(understood: Callable[..., Any]) -> Callable[..., Any]:
    """Let "in 5 seconds" be in half a second."""

    def timing(said: str, now: int, zone: Any) -> Any:
        found = understood(said, now, zone)
        return replace(found, at=now + (found.at - now) // 10) if said.startswith("in ") and "second" in said else found

    return timing


def _let_time_pass_when_asked() -> None:
    """Put the clock of the event loop forward at SIGUSR1."""
    ahead = 0.0

    def pass_time(*_: object) -> None:
        nonlocal ahead
        ahead += _AT_ONCE

    signal.signal(signal.SIGUSR1, pass_time)
    loop_class: Any = asyncio.BaseEventLoop
    loop_class.time = lambda _: time.monotonic() + ahead


def pass_time_of(pid: int) -> None:
    """Let two seconds pass at once for an agent with short waits."""
    os.kill(pid, signal.SIGUSR1)


def _set(module: ModuleType, name: str, value: object) -> None:
    assert hasattr(module, name), f"{module.__name__} has no {name} any more"
    setattr(module, name, value)


def set_default(function: Callable[..., Any], name: str, value: object) -> None:
    """Give a parameter another default. `function` is of Python, and the parameter has a default."""
    parameter = inspect.signature(function).parameters[name]
    assert parameter.default is not inspect.Parameter.empty, f"{name} has no default any more"
    changed: Any = function
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        changed.__kwdefaults__ = {**changed.__kwdefaults__, name: value}
        return
    names = [each.name for each in inspect.signature(function).parameters.values() if each.default is not each.empty]
    at = [each for each in names if each not in (changed.__kwdefaults__ or {})].index(name)
    changed.__defaults__ = (*changed.__defaults__[:at], value, *changed.__defaults__[at + 1 :])
