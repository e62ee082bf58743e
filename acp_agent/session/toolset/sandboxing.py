"""Which walls of the kernel a session's commands get, by its settings and by what works on this machine."""

import os
from collections.abc import Callable

from acp_agent.config.call_settings import SandboxMode, SandboxProfile
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, advice_without, sandbox_tier, why_missing
from acp_agent.workspace.sandbox.walls import WallRules

_TIERS = {
    SandboxMode.BWRAP: SandboxTier.BUBBLEWRAP,
    SandboxMode.LANDLOCK: SandboxTier.LANDLOCK,
    SandboxMode.SEATBELT: SandboxTier.SEATBELT,
}


def wanted_tier(mode: SandboxMode) -> SandboxTier | None:
    """Return the tier that a mode names; None for the best that works."""
    return _TIERS.get(mode)


def sandbox_status(settings: Settings) -> str:
    """Return what is around the commands of a session with these settings, in words for the user."""
    chosen = settings.tools.sandbox
    if SandboxMode.OFF is chosen.mode or SandboxProfile.OFF is chosen.profile:
        return "off"
    wanted = wanted_tier(chosen.mode)
    tier = sandbox_tier(wanted)
    if tier is SandboxTier.NONE:
        return f"none; {why_missing(wanted)}" + ("; commands are refused" if chosen.strict else "")
    return f"{tier}, profile {chosen.profile}"


def session_sandbox(walls: WallRules, settings: Settings, warn: Callable[[str], None]) -> SessionSandbox | None:
    """Return the sandbox of a session, or None where nothing can build one, which the user is told.

    A strict one refuses every command there.
    """
    chosen = settings.tools.sandbox
    wanted = wanted_tier(chosen.mode)
    tier = sandbox_tier(wanted)
    if tier is SandboxTier.NONE:
        left = "Commands are refused" if chosen.strict else "Commands run without walls, and are asked about"
        warn(f"no sandbox can be built: {why_missing(wanted)}. {left}; {advice_without(wanted)}")
        if not chosen.strict:
            return None
    try:
        environment = child_environment(os.environ, settings.tools.shell.env_allow)
    except ConfigError:  # the terminal tells the user
        environment = child_environment(os.environ)
    return SessionSandbox(walls, environment, tier)
