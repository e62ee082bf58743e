"""`acp-agent sandbox -- COMMAND`: run a command within the walls that contain the agent's commands in this folder."""

import argparse
import os
import signal
import subprocess
from dataclasses import replace
from functools import partial

from acp_agent.cli.config import warn
from acp_agent.config.call_settings import SandboxMode, SandboxProfile
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.errors import AgentError
from acp_agent.core.services import Egress
from acp_agent.net.proxy import AllowlistProxy
from acp_agent.session.toolset.sandboxing import network_words, wanted_tier
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.text import visible
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, sandbox_tier, why_missing
from acp_agent.workspace.sandbox.walls import NetworkReach

_SIGNALLED = 128  # added to the number of the signal, as a shell reports it


def sandbox(args: argparse.Namespace) -> int:
    """Run the command with this terminal, and return its exit code. Raises AgentError if no walls can be built."""
    cwd = os.getcwd()
    loaded = _with_walls(load(Flags(config=args.config), os.environ, cwd), args.profile)
    rules = FolderRules(loaded, cwd).walls()
    assert rules is not None
    if args.network:
        rules = replace(rules, network=NetworkReach.ALL)
    tools = loaded.settings.tools
    wanted = wanted_tier(tools.sandbox.mode)
    tier = sandbox_tier(wanted)
    if tier is SandboxTier.NONE:
        raise AgentError(f"no sandbox can be built: {why_missing(wanted)}")
    environment = child_environment(os.environ, (*tools.shell.env_allow, "TERM"))
    environment["TERM"] = os.environ.get("TERM", "dumb")
    within = SessionSandbox(rules, environment, tier, proxy=partial(AllowlistProxy, record=_tell_refused))
    for said in network_words(loaded.settings, tier) if tier is not SandboxTier.BUBBLEWRAP else ():
        warn(said)
    try:
        return _run(args.words, cwd, within, environment)
    except OSError as error:
        raise AgentError(f"{args.words[0]}: {error.strerror or error}") from error
    finally:
        within.close()


def _tell_refused(egress: Egress) -> None:
    if egress.block_reason is not None and egress.host:
        warn(f"in the sandbox {visible(egress.url)} cannot be reached")


def _with_walls(loaded: Loaded, profile: str | None) -> Loaded:
    """Return the configuration with the sandbox switched on. Its other settings of the sandbox stay."""
    tools = loaded.settings.tools
    chosen = SandboxProfile(profile) if profile else tools.sandbox.profile
    walls = {
        "mode": SandboxMode.AUTO if tools.sandbox.mode is SandboxMode.OFF else tools.sandbox.mode,
        "profile": SandboxProfile.WORKSPACE if chosen is SandboxProfile.OFF else chosen,
    }
    tools = tools.model_copy(update={"sandbox": tools.sandbox.model_copy(update=walls)})
    return replace(loaded, settings=loaded.settings.model_copy(update={"tools": tools}))


def _run(words: list[str], cwd: str, within: SessionSandbox, environment: dict[str, str]) -> int:
    with within.launch(words, cwd) as launch:
        started = launch.start(
            partial(
                subprocess.Popen[bytes],
                launch.arguments,
                cwd=cwd,
                env={**environment, **launch.variables},
                pass_fds=launch.descriptors,
            )
        )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends SIGINT to the command as well
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: started.send_signal(number))
    code = started.wait()
    return code if code >= 0 else _SIGNALLED - code
