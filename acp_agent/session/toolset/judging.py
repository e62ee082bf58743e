"""The gates that judge by the configuration: one builder for sessions and for `acp-agent check`."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from acp_agent.config import Loaded
from acp_agent.core.aliases import ALIASES
from acp_agent.core.conduct import Conduct
from acp_agent.core.ports import Approver, Invocation
from acp_agent.core.types import Access
from acp_agent.execution.chain import Link, Place
from acp_agent.gates.autonomy import AutonomyGate
from acp_agent.gates.blocklist import BlocklistGate
from acp_agent.gates.git.guard import GitGuard
from acp_agent.gates.grants import GrantStore
from acp_agent.gates.mode import ModeGate
from acp_agent.gates.permission import PermissionGate
from acp_agent.gates.policy import PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.rules.rules import Rule
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.gates.selection import SelectionGate, unknown_entries
from acp_agent.gates.settlement import ours
from acp_agent.gates.trust import Standing, TrustGate
from acp_agent.gates.verify.gate import VerifierGate
from acp_agent.gates.verify.url_grounding import UrlMemory
from acp_agent.session.toolset.gate_settings import (
    Warn,
    blocklist_policy,
    every_choice,
    selection_in_force,
    session_policy,
    verifiers,
)
from acp_agent.session.toolset.roots import protected_paths
from acp_agent.workspace.command_files import WorkspaceFiles, shell_names
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.roots import Roots


def _no_opinion(url: str) -> None:
    del url


@dataclass(frozen=True, slots=True)
class Ground:
    """What the gates of a session stand on besides the configuration.

    resolve      where a path a tool touches leads (FileSystem.resolve)
    shell        the directories commands may name
    refuse_url   why a URL is refused whatever a look-up would say, or None
    offered      the only tools the client wants; None for all
    model        names the model in force as `PROVIDER:MODEL`; "" stands for the configured one
    """

    conduct: Conduct
    resolve: Callable[[str, Access], str]
    shell: Roots
    refuse_url: Callable[[str], str | None] = _no_opinion
    offered: tuple[str, ...] | None = None
    urls: UrlMemory = field(default_factory=UrlMemory)
    standing: Standing = field(default_factory=Standing)
    model: Callable[[], str] = str


def judges(loaded: Loaded, ground: Ground, warn: Warn, known: Collection[str] = ()) -> dict[Place, Link]:
    """All but what counts calls, and the permission gate. Raises ConfigError.

    warn    told what the user should mend
    known   the names of the tools there are; empty where it does not matter
    """
    return _of_tools(loaded, ground, warn, known) | _of_subjects(loaded, ground)


def permission_gate(
    rules: Mapping[str, tuple[Rule, ...]],
    ground: Ground,
    grants: GrantStore,
    approver: Approver | None,
    consent: Callable[[Invocation], str] = ours,
) -> "partial[PermissionGate]":
    """The gate that asks; without an approver what would be asked is refused."""
    return partial(
        PermissionGate,
        rules=rules,
        conduct=ground.conduct,
        grants=grants,
        approver=approver,
        resolve=ground.resolve,
        consent=consent,
    )


def _of_tools(loaded: Loaded, ground: Ground, warn: Warn, known: Collection[str]) -> dict[Place, Link]:
    """Gates that judge what kind of tool is called, and by whom."""
    conduct, cwd = ground.conduct, ground.shell.cwd
    choices = every_choice(loaded, ground.offered) if known else ()
    problems = (str(problem) for choice in choices for problem in unknown_entries(choice, known, ALIASES))
    for problem in dict.fromkeys(problems):
        warn(problem)
    policy = session_policy(loaded, cwd, warn)
    return {
        Place.MODE: partial(ModeGate, conduct=conduct),
        Place.AUTONOMY: partial(AutonomyGate, readonly=lambda: conduct.readonly),
        Place.SELECTION: partial(SelectionGate, selection=selection_in_force(loaded, ground.offered, ground.model)),
        Place.TRUST: partial(TrustGate, standing=ground.standing, conduct=conduct),
        Place.POLICY: partial(
            PolicyGate,
            policy=policy,
            cwd=cwd,
            realpath=os.path.realpath,
            trust=ground.standing.of,
            expand=partial(shell_names, resolve=ground.shell.resolve),
        ),
    }


def _of_subjects(loaded: Loaded, ground: Ground) -> dict[Place, Link]:
    """Gates that judge what a call touches."""
    tools, resolve, resolve_command = loaded.settings.tools, ground.resolve, ground.shell.resolve
    find = protected_paths(loaded, ground.shell.cwd).find
    expand = partial(shell_names, resolve=resolve_command)
    return {
        Place.BLOCKLIST: partial(BlocklistGate, policy=blocklist_policy(tools.shell)),
        Place.VERIFIERS: partial(
            VerifierGate, verifiers=verifiers(tools.verifiers, resolve, ground.shell, ground.urls), expand=expand
        ),
        Place.SANDBOX: partial(
            SandboxGate,
            resolve=resolve,
            resolve_command=resolve_command,
            refuse_url=ground.refuse_url,
            expand=expand,
            workspace=WorkspaceFiles(ground.shell.cwd, resolve_command),
        ),
        Place.PROTECTED: partial(
            ProtectedGate,
            find=find,
            conduct=ground.conduct,
            resolve=resolve,
            resolve_command=resolve_command,
            expand=expand,
            git=GitGuard(GitRepositories(resolve_command), expand, GitChanges(resolve_command)),
        ),
    }
