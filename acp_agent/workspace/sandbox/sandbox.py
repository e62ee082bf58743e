"""The sandbox of a session: which tier this machine has, how a command is started in it, and what its walls stopped."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache, partial
from threading import Lock
from typing import Protocol

from acp_agent.core.backends import CommandRequest
from acp_agent.core.editor import ContainedCommand
from acp_agent.core.services import Egress
from acp_agent.net.hosts import HostPattern
from acp_agent.net.proxy import AllowlistProxy
from acp_agent.store.schema import local_devices
from acp_agent.text import lazy_regex
from acp_agent.workspace.processes.environment import PrivateFolder
from acp_agent.workspace.processes.table import MOST_TASKS
from acp_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox, bubblewrap, trusted_bash
from acp_agent.workspace.sandbox.landlock import LandlockSandbox, landlock_abi, landlock_limits, landlock_works
from acp_agent.workspace.sandbox.quarantine import Quarantine
from acp_agent.workspace.sandbox.seatbelt import SANDBOX_EXEC, SeatbeltSandbox
from acp_agent.workspace.sandbox.walls import Launch, NetworkReach, WallRules, Walls

_REMEMBERED = 20_000  # paths
_NOT_RUNNABLE = 126  # what a shell answers for a file that it may not run
_FRESH = 10.0  # seconds for which the walls that were found hold
_FEW = 40  # paths. To look at them takes half a millisecond


class SandboxTier(StrEnum):
    """A way to build the walls on this machine. The best comes first."""

    BUBBLEWRAP = "bwrap"
    LANDLOCK = "landlock"
    SEATBELT = "seatbelt"
    NONE = "none"


_MISSING = {
    SandboxTier.BUBBLEWRAP: "bubblewrap is not installed, or may not make namespaces",
    SandboxTier.LANDLOCK: "this kernel has no Landlock, or something around the agent already filters its system calls",
    SandboxTier.SEATBELT: "there is no sandbox-exec: it is a program of macOS",
}
_AUTOMATIC = SandboxTier.BUBBLEWRAP
"""The tier that is taken unasked. Landlock is too tight for everyday work, and nobody has run Seatbelt yet."""
_trying = Lock()
"""Held during a trial. A second trial at the same time could end differently, and its answer would be remembered."""


def tier_works(tier: SandboxTier) -> bool:
    """Return whether a tier works on this machine. The first call tries it, which takes some milliseconds.

    Several threads may ask at once: one tries the tier, and the others wait for its answer.
    """
    with _trying:
        match tier:
            case SandboxTier.BUBBLEWRAP:
                return bool(bubblewrap())
            case SandboxTier.LANDLOCK:
                return landlock_works()
            case SandboxTier.SEATBELT:
                return sys.platform == "darwin" and os.access(SANDBOX_EXEC, os.X_OK)
            case SandboxTier.NONE:
                return True


def sandbox_tier(wanted: SandboxTier | None = None) -> SandboxTier:
    """Return the wanted tier, or without one the automatic tier; NONE if it does not work on this machine."""
    tier = wanted or _AUTOMATIC
    return tier if tier_works(tier) else SandboxTier.NONE


def why_missing(wanted: SandboxTier | None) -> str:
    """Return why the wanted or the automatic tier does not work on this machine."""
    return _MISSING[wanted or _AUTOMATIC]


def advice_without(wanted: SandboxTier | None) -> str:
    """Return what the user can do where the wanted or the automatic tier does not work."""
    if wanted is not None:
        return "set `[tools.sandbox] mode` to auto or off"
    other = SandboxTier.SEATBELT if sys.platform == "darwin" else SandboxTier.LANDLOCK
    install = "" if sys.platform == "darwin" else "install bubblewrap, or "
    return f"{install}read in docs/sandbox.md what `[tools.sandbox] mode` {other} costs"


def tier_limits(tier: SandboxTier) -> tuple[str, ...]:
    """Return what a tier cannot do, in words for the user."""
    match tier:
        case SandboxTier.BUBBLEWRAP:
            return ()
        case SandboxTier.LANDLOCK:
            return ("MCP servers run without it", *landlock_limits(landlock_abi()))
        case SandboxTier.SEATBELT:
            return ("MCP servers run without it", "servers of this machine on 127.0.0.1 can be reached")
        case SandboxTier.NONE:
            return ("commands are judged by their text only",)


class _Walled(Protocol):
    """A builder of a session's walls: one of the tiers."""

    def launch(self, command: Sequence[str], cwd: str, walls: Walls) -> AbstractContextManager[Launch]: ...

    def close(self) -> None: ...


class StartProxy(Protocol):
    """A function that starts a proxy on a listening socket, for the hosts that another function returns."""

    def __call__(self, listener: socket.socket, allowed: Callable[[], Sequence[HostPattern]]) -> AllowlistProxy: ...


def unrecorded_proxy(listener: socket.socket, allowed: Callable[[], Sequence[HostPattern]]) -> AllowlistProxy:
    """Return a proxy that keeps no record of its connections."""

    def ignored(egress: Egress) -> None:
        del egress

    return AllowlistProxy(listener, allowed, ignored)


class SessionSandbox:
    """The sandbox for the commands of one session. It has a private /tmp and home, which `close` deletes.

    Several threads may use it at once. With bubblewrap, the first command makes the session's network, and the second
    one holds its walls. Each takes up to 0.2 seconds.

    rules         what the walls are made from
    environment   the variables of the commands
    tier          what builds the walls; NONE refuses every command
    home          a folder that stands for the user's home and is kept, with bubblewrap only
    proxy         starts the proxy for the hosts of the rules
    """

    def __init__(
        self,
        rules: WallRules,
        environment: Mapping[str, str],
        tier: SandboxTier,
        home: str = "",
        proxy: StartProxy = unrecorded_proxy,
    ) -> None:
        self._rules = _remembering(rules)
        self._home = home
        self._environment = environment
        self._proxy = proxy
        self.tier = tier
        self._folder = PrivateFolder(whole=True)
        self._building = Lock()
        self._walled: _Walled | None = None
        self._found: tuple[WallRules, Walls, float] | None = None  # the walls, from which rules, and when
        self._protected = frozenset[str]()  # the protected paths that existed then
        self._is_near = False  # whether these walls stand on disks that answer at once

    @property
    def folder(self) -> str:
        """The private folder of the session, for its /tmp and home."""
        return self._folder.path()

    def adopt(self, rules: WallRules) -> None:
        """Make the walls of new commands from other rules, because the configuration has changed."""
        self._rules = _remembering(rules)

    @contextmanager
    def launch(
        self, command: Sequence[str], cwd: str, network: NetworkReach | None = None, *, read_only: bool = False
    ) -> Generator[Launch]:
        """Yield how to start a command within the walls. Its descriptors are open in the body. It blocks.

        Raises OSError.

        network     the hosts that it can reach, if not those of the session
        read_only   whether it may change nothing
        """
        with ExitStack() as held:
            with self._building:
                walls, quarantine = self._walls_for(network, read_only=read_only)
                launch = held.enter_context(self._built().launch(command, cwd, walls))
            yield replace(launch, afterwards=quarantine.look if walls.writable else None)

    @property
    def hosts(self) -> tuple[HostPattern, ...]:
        """The hosts that commands reach through the proxy."""
        proxied = self.tier is SandboxTier.BUBBLEWRAP and self._rules.network is NetworkReach.SESSION
        return self._rules.hosts if proxied else ()

    @property
    def reaches_other_terminals(self) -> bool:
        """Whether the walls can be built where another program, an editor, starts the command."""
        return self.tier is SandboxTier.BUBBLEWRAP

    def shell_text(self, request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand:
        """Return how a command is run within the walls in a terminal that another program opens.

        The command gets the session's variables and `variables`. It blocks. Raises OSError.
        """
        with self._building:
            built = self._built()
            if not isinstance(built, BubblewrapSandbox):
                raise OSError(f"{self.tier} cannot contain what the editor's terminal runs")
            walls, quarantine = self._walls_for(None, read_only=request.read_only)
            line = self._line(built, request, walls, variables)
            return ContainedCommand(line, quarantine.look if walls.writable else None)

    def shell_text_now(self, request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand | None:
        """Return what `shell_text` returns, or None if that may take more than a millisecond. Raises OSError.

        It is quick for a command that only reads, once the walls around such commands are held, on disks of this
        machine.
        """
        if not request.read_only or not self._is_near or not self._building.acquire(blocking=False):
            return None
        try:
            rules, found, since = self._found or (None, None, 0.0)
            if found is None or rules is not self._rules or time.monotonic() - since > _FRESH:
                return None
            walls, built = found.for_reading(), self._walled
            if not isinstance(built, BubblewrapSandbox) or not built.holds(walls):
                return None
            few = len(found.pinned) + len(found.frozen) + len(found.hidden) <= _FEW
            return ContainedCommand(self._line(built, request, walls, variables)) if few and found.stand() else None
        finally:
            self._building.release()

    def _line(
        self, built: BubblewrapSandbox, request: CommandRequest, walls: Walls, variables: Mapping[str, str]
    ) -> str:
        words = ["bash" if built.bash or shutil.which("bash") else "sh", "-c", "--", request.command]
        return built.shell_text(words, request.cwd, walls, self._environment, variables)

    def _built(self) -> _Walled:
        self._walled = self._walled or self._made()
        return self._walled

    def _walls_for(self, network: NetworkReach | None, *, read_only: bool) -> tuple[Walls, Quarantine]:
        """Return the walls for a command, and the protected paths that exist before it. The walls cover them all."""
        known = self._found
        walls = self._session_walls(read_only=read_only)
        quarantine = Quarantine(walls.writable, self._rules.protects, walls.linked)
        if self._found is known and not quarantine.before <= self._protected:
            self._found = None
            walls = self._session_walls(read_only=read_only)
        if self._found is not known:
            self._protected = quarantine.before
        return (walls if network is None else replace(walls, network=network)), quarantine

    def _session_walls(self, *, read_only: bool) -> Walls:
        """Return the walls as they were found less than `_FRESH` seconds ago. It blocks for some milliseconds."""
        rules = self._rules
        fresh = self._found is not None and self._found[0] is rules and time.monotonic() - self._found[2] <= _FRESH
        if self._found is None or not fresh or not self._found[1].stand():
            self._found = rules, rules.walls(self._environment), time.monotonic()
            self._is_near = bool(local_devices((*self._found[1].readable, *self._found[1].writable)))
        return self._found[1].for_reading() if read_only else self._found[1]

    def close(self) -> None:
        """End the session's network and delete its private folders. It blocks."""
        with self._building:
            if self._walled is not None:
                self._walled.close()
                self._walled = None
            self._folder.close()

    def _made(self) -> _Walled:
        match self.tier:
            case SandboxTier.BUBBLEWRAP:
                start = partial(self._proxy, allowed=lambda: self._rules.hosts)
                bash = "" if self._home else trusted_bash(self._environment)  # the entry of a server adds variables
                return BubblewrapSandbox(self._folder.path(), start, self._home, bash)
            case SandboxTier.LANDLOCK:
                return LandlockSandbox(self._folder.path())
            case SandboxTier.SEATBELT:
                return SeatbeltSandbox(self._folder.path())
            case SandboxTier.NONE:
                raise OSError("nothing on this machine can build it, and `[tools.sandbox] strict` is set")


def _remembering(rules: WallRules) -> WallRules:
    """Return the rules with a memory of which paths are protected, because each command asks about the same ones."""
    return replace(rules, protects=lru_cache(_REMEMBERED)(rules.protects))


# ------------------------------------------------------------------------------------------- what stopped a command

_PATH = r"[`'\"\u2018]?(/[^\s'\"`\u2019:,]+|[\w.~][^\s'\"`\u2019:,]*)"
_DENIED = "{} may not be used"
_TUNNEL = r"CONNECT tunnel failed, response 403|HTTP code 403 from proxy after CONNECT"
_SIGNS = (
    (lazy_regex(rf"{_PATH}['\"`\u2019]?: Read-only file system"), "{} cannot be changed"),
    (lazy_regex(rf"EROFS: [^,\n]*, \w+ {_PATH}"), "{} cannot be changed"),
    (lazy_regex(rf"Read-only file system[^\n]*?: {_PATH}"), "{} cannot be changed"),
    # Of a file that is mounted: it cannot be replaced, as git replaces .git/config.
    (lazy_regex(rf"(?:[Dd]evice or|EBUSY:) resource busy[^\n]* -> {_PATH}"), "{} cannot be changed"),
    (lazy_regex(rf"{_PATH}['\"`\u2019]?: Device or resource busy"), "{} cannot be changed"),
    (
        lazy_regex(r"fork: (?:retry: )?Resource temporarily unavailable|can't start new thread|spawn \S+ EAGAIN"),
        f"no more than {MOST_TASKS} processes and threads can run",
    ),
    (lazy_regex(r"Read-only file system|os error 30"), "nothing outside the session's folders can be changed"),
    (lazy_regex(rf"{_PATH}['\"`\u2019]?: Permission denied"), _DENIED),
    (lazy_regex(rf"EACCES: [^,\n]*, \w+ {_PATH}"), _DENIED),
    (lazy_regex(rf"[Pp]ermission denied[^\n]*?: {_PATH}"), _DENIED),
    (lazy_regex(r"([\w.:-]+) is not in network_allow"), "the host {} cannot be reached"),
    (lazy_regex(rf"https://([\w.-]+)[^\n]*(?:{_TUNNEL})"), "the host {} cannot be reached"),
    (lazy_regex(rf"{_TUNNEL}|Tunnel connection failed: 403"), "this host cannot be reached"),
    (lazy_regex(r"[Cc]ould not resolve host:? '?([\w.-]+)"), "the host {} cannot be reached"),
    (lazy_regex(r"(?:ENOTFOUND|EAI_AGAIN) ([\w.-]+)"), "the host {} cannot be reached"),
    (
        lazy_regex(r"host='([\w.-]+)', port=\d+\): Max retries[^\n]*(?:NewConnectionError|NameResolutionError)"),
        "the host {} cannot be reached",
    ),
    (lazy_regex(r"dial tcp: lookup ([\w.-]+)"), "the host {} cannot be reached"),
    (
        lazy_regex(
            r"Temporary failure in name resolution|Name or service not known|getaddrinfo failed|Network is unreachable"
            r"|ENETUNREACH|[Cc]ould not resolve (?:host|proxy)|failed to lookup address"
            r"|EAFNOSUPPORT|Address family not supported"
        ),
        "no host but this one can be reached",
    ),
)


_LOOKED_AT = 16 * 1024  # characters
_MOST_LINE = 500  # characters on each side of a telling word: searching for the signs is quadratic in a line's length
_TELLING = (
    *(
        "ead-only file system",
        "resource busy",
        "EROFS",
        "os error 30",
        "emporarily unavailable",
        "can't start new thread",
        "EAGAIN",
    ),
    *("ermission denied", "EACCES", "network_allow", " 403", "ould not resolve", "ENOTFOUND", "EAI_AGAIN"),
    *("Max retries", "dial tcp: lookup", "name resolution", "Name or service", "getaddrinfo", "is unreachable"),
    *("ENETUNREACH", "failed to lookup", "EAFNOSUPPORT", "Address family"),
)
"""Each sign contains one of these."""


def wall_named(output: str, exit_code: int | None) -> str:
    """Return which wall a command ran into, by what it printed, or "".

    If the command succeeded, only words about the network count: it may have printed the others about any files. Only
    the end of an output is searched, because programs say there why they stop.
    """
    output = "\n".join(_telling_lines(output[-_LOOKED_AT:]))
    for sign, words in _SIGNS if output else ():
        if exit_code == _NOT_RUNNABLE and words is _DENIED:  # it is a matter of the file's mode
            continue
        found = sign.search(output) if exit_code or "reached" in words else None
        if found is not None:
            return words.format(*found.groups())
    return ""


def _telling_lines(output: str) -> Iterator[str]:
    """Yield the lines that may name the wall that stopped a command. Long lines are cut around the telling word."""
    telling = list(filter(output.__contains__, _TELLING))
    for line in output.split("\n") if telling else ():
        at = next((line.find(word) for word in telling if word in line), -1)
        if at >= 0:
            yield line[max(0, at - _MOST_LINE) : at + _MOST_LINE]
