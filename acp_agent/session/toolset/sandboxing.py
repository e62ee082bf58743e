"""Choose the sandbox of a session's commands and MCP servers, by its settings and by what this machine supports."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from acp_agent.config.call_settings import SandboxMode, SandboxProfile
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError
from acp_agent.core.mcp import McpOrigin, McpServer, StdioServer
from acp_agent.core.services import Egress
from acp_agent.net.proxy import AllowlistProxy
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.roots import is_below
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, advice_without, sandbox_tier, why_missing
from acp_agent.workspace.sandbox.walls import NetworkReach, WallRules, folders_above

_TIERS = {
    SandboxMode.BWRAP: SandboxTier.BUBBLEWRAP,
    SandboxMode.LANDLOCK: SandboxTier.LANDLOCK,
    SandboxMode.SEATBELT: SandboxTier.SEATBELT,
}


def wanted_tier(mode: SandboxMode) -> SandboxTier | None:
    """Return the tier that a mode names; None for the best tier that this machine supports."""
    return _TIERS.get(mode)


def _is_off(settings: Settings) -> bool:
    return SandboxMode.OFF is settings.tools.sandbox.mode or SandboxProfile.OFF is settings.tools.sandbox.profile


def contains_commands(settings: Settings) -> bool:
    """Return whether the commands of a session that run in our own terminal are in a sandbox."""
    return not _is_off(settings) and sandbox_tier(wanted_tier(settings.tools.sandbox.mode)) is not SandboxTier.NONE


def refuses_commands(settings: Settings) -> bool:
    """Return whether a session runs no command, because a strict sandbox cannot be built."""
    return settings.tools.sandbox.strict and not _is_off(settings) and not contains_commands(settings)


def sandbox_status(settings: Settings) -> str:
    """Return a text for the user about the sandbox of commands under these settings."""
    chosen = settings.tools.sandbox
    if _is_off(settings):
        return "off"
    wanted = wanted_tier(chosen.mode)
    tier = sandbox_tier(wanted)
    if tier is SandboxTier.NONE:
        return f"none; {why_missing(wanted)}" + ("; commands are refused" if chosen.strict else "")
    return "; ".join((f"{tier}, profile {chosen.profile}", *network_words(settings, tier)))


def network_words(settings: Settings, tier: SandboxTier) -> Sequence[str]:
    """Return a text for the user about `network_allow` in a tier; empty if it is not set or all hosts are allowed."""
    chosen = settings.tools.sandbox
    if not chosen.network_allow or chosen.profile is SandboxProfile.NETWORK_ALLOW_ALL:
        return ()
    if tier is SandboxTier.BUBBLEWRAP:
        return (f"commands reach {', '.join(chosen.network_allow)}",)
    return (f"`network_allow` does nothing with {tier}: it needs a proxy, which works only with bubblewrap",)


def session_sandbox(
    walls: WallRules, settings: Settings, warn: Callable[[str], None], record: Callable[[Egress], None]
) -> SessionSandbox | None:
    """Return the sandbox of a session, or None if none can be built, after warning the user.

    A strict sandbox that cannot be built is returned, and refuses every command.

    record   called with each connection through the proxy, in the proxy's thread
    """
    chosen = settings.tools.sandbox
    wanted = wanted_tier(chosen.mode)
    tier = sandbox_tier(wanted)
    if tier is SandboxTier.NONE:
        left = "Commands are refused" if chosen.strict else "Commands run without a sandbox, and are asked about"
        warn(f"no sandbox can be built: {why_missing(wanted)}. {left}; {advice_without(wanted)}")
        if not chosen.strict:
            return None
    elif tier is not SandboxTier.BUBBLEWRAP:
        for said in network_words(settings, tier):
            warn(f"[tools.sandbox] {said}. Commands reach no host but this one")
    try:
        environment = child_environment(os.environ, settings.tools.shell.env_allow)
    except ConfigError:  # the terminal reports it
        environment = child_environment(os.environ)
    return SessionSandbox(walls, environment, tier, proxy=partial(AllowlistProxy, record=record))


# ------------------------------------------------------------------------------------------------- MCP servers

_MARKS = (("package.json", "pyproject.toml", "setup.py", "Cargo.toml", "go.mod", "deno.json", ".git"), ("pyvenv.cfg",))
_OF_THE_SYSTEM = ("/dev", "/proc", "/run", "/sys", "/var/run")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder is only named here, and no temporary file is made


def is_contained(server: McpServer, settings: Settings) -> bool:
    """Return whether the program of a server runs in a sandbox.

    Only bubblewrap can build one with network access. `unsandboxed` does not apply to servers of a project, because the
    project chooses their names.
    """
    sandbox = settings.tools.sandbox
    if _is_off(settings):
        return False
    named = server.origin is not McpOrigin.PROJECT and server.name in settings.mcp.unsandboxed
    if named or not isinstance(server.reach, StdioServer):
        return False
    return sandbox.strict or sandbox_tier(wanted_tier(sandbox.mode)) is SandboxTier.BUBBLEWRAP


def server_sandbox(server: McpServer, walls: WallRules, settings: Settings, homes: str) -> SessionSandbox:
    """Return a new sandbox for one run of the program of a server. The call blocks.

    The server may use the network, change the session's folders and its own home, and read in the user's home only the
    paths that its entry names. Its home is the same in every run. Raises OSError.

    walls   the rules from which the sandbox of commands is built
    homes   the folder of the homes of all servers
    """
    reach = server.reach
    assert isinstance(reach, StdioServer)
    home = os.path.join(homes, _home_name(server, walls))
    os.makedirs(home, mode=0o700, exist_ok=True)
    own = server.origin is not McpOrigin.PROJECT
    allow_write = (*walls.allow_write, *reach.allow_write)
    writable = tuple(map(os.path.realpath, (*walls.roots, *allow_write)))
    named = (path for path in _named_paths(reach) if not any(is_below(path, folder) for folder in writable))
    rules = replace(
        walls,
        allow_write=allow_write,
        allow_read=(*walls.allow_read, *(named if own else ())),
        own_caches=True,
        network=NetworkReach.ALL,
    )
    tier = sandbox_tier(wanted_tier(settings.tools.sandbox.mode))
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return SessionSandbox(rules, environment, tier if tier is SandboxTier.BUBBLEWRAP else SandboxTier.NONE, home)


def _home_name(server: McpServer, walls: WallRules) -> str:
    """Return the folder name of a server's home. A project's server never gets the home of the user's server."""
    whose = map(os.path.realpath, walls.roots[:1]) if server.origin is McpOrigin.PROJECT else ()
    return hashlib.sha256("\0".join((*whose, server.name)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _named_paths(reach: StdioServer) -> Iterator[str]:
    """Yield the folders and files that an entry names. For a file in a project, yield the project's folder."""
    home = os.path.realpath(os.path.expanduser("~"))
    words = (*reach.args, *(value for _, value in reach.env))
    named = [*words, *(word.partition("=")[2] for word in words)]
    absolute = [word for word in (_found(reach.command), reach.cwd or "", *named) if word.startswith("/")]
    for path in dict.fromkeys(form(word) for word in absolute for form in (os.path.normpath, os.path.realpath)):
        system = any(is_below(path, top) for top in _OF_THE_SYSTEM) and not is_below(path, _SHARED_MEMORY)
        if system or is_below(home, path):
            continue
        if os.path.isdir(path):
            yield path
        elif os.path.isfile(path):
            yield _project(path, home) or path


def _found(command: str) -> str:
    return shutil.which(command) or command


def _project(file: str, home: str) -> str:
    """Return the folder of the project, or else of the virtual environment, that contains a file; "" for neither."""
    above = [folder for folder in folders_above(file) if not is_below(home, folder)]
    marked = ((folder, mark) for marks in _MARKS for folder in above for mark in marks)
    return next((folder for folder, mark in marked if os.path.lexists(os.path.join(folder, mark))), "")
