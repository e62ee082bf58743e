"""Trust: what a call may do by where it comes from, and whether what a folder brings counts (requirements S4).

A folder's `.acp-agent/config.toml` needs no trust: it can only tighten (config/project.py), and leaving it out would
loosen. What could run or widen something - MCP servers, hooks - counts when `workspace_trust` says so, no sooner.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never
from uuid import uuid4

import anyio.to_thread

from acp_agent.core.conduct import AutoApprove, Conduct
from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Approver, Decision, Invocation, Question
from acp_agent.core.types import (
    Allow,
    Ask,
    CallOrigin,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    ToolKind,
    ToolSpec,
    UrlSubject,
    Verdict,
)
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.gate import Gate
from acp_agent.gates.question import clipped, visible, visible_lines
from acp_agent.gates.rules.trust_level import TrustLevel, lowest
from acp_agent.store.trusted_folders import TrustedFolders

_UNASKED = "full-auto does not ask, so it is refused; at another approval level the user would be asked"


def _untrusted(invocation: Invocation) -> TrustLevel:
    del invocation
    return TrustLevel.UNTRUSTED


@dataclass(slots=True)
class Standing:
    """How far the parts of one session are trusted. Read anew for each call.

    turn        who drives the turn: the user, or a skill of lower standing (set before its turn, and back after it)
    workspace   what the user said of the folder
    tools       tools that are not ours, by name, whose trust was changed
    served      how far a tool of an MCP server is trusted that is not among those
    """

    turn: TrustLevel = TrustLevel.TRUSTED
    workspace: TrustLevel = TrustLevel.PROVISIONAL
    tools: dict[str, TrustLevel] = field(default_factory=dict[str, TrustLevel])
    served: Callable[[Invocation], TrustLevel] = _untrusted

    def trust_folder(self, level: TrustLevel) -> None:
        """Trust the session's folder as far as the user has said."""
        self.workspace = level

    def trust_served(self, served: Callable[[Invocation], TrustLevel]) -> None:
        """Ask `served` how far tools of MCP servers are trusted."""
        self.served = served

    def of_tool(self, invocation: Invocation) -> TrustLevel:
        """How far the tool of a call is trusted."""
        known = self.tools.get(invocation.spec.name)
        if known is not None:
            return known
        foreign = any(isinstance(subject, McpSubject) for subject in invocation.subjects)
        return self.served(invocation) if foreign else TrustLevel.TRUSTED

    def of(self, invocation: Invocation) -> TrustLevel:
        """How far a call is trusted: as far as the least of what it depends on. For the policy and the audit.

        A folder nobody had to ask about takes nothing away.
        """
        folder = TrustLevel.TRUSTED if self.workspace.counts else self.workspace
        return lowest(self.turn, folder, self.of_tool(invocation))


class TrustGate(Gate):
    """Judges a call by its origin.

    blocked     a tool or turn: refused
    untrusted   a turn: nothing that runs, changes or reaches the web. A tool: nothing of that beyond its own server,
                and each call asks, whatever rules allow. A folder: what runs or changes something asks

    Where nothing is asked (full-auto) what would be asked is refused instead, but not to the user himself.

    conduct   the approval level in force, read anew for each call; None where questions are always put
    """

    name = "trust"

    def __init__(self, standing: Standing, conduct: Conduct | None = None) -> None:
        self._standing = standing
        self._conduct = conduct

    def allows(self, spec: ToolSpec) -> bool:
        """Whether a tool belongs in the catalogue."""
        return self._standing.tools.get(spec.name) is not TrustLevel.BLOCKED

    def judge(self, facts: CallFacts) -> Verdict:
        verdict = self._judge(facts)
        full_auto = self._conduct is not None and self._conduct.auto_approve is AutoApprove.FULL_AUTO
        if isinstance(verdict, Ask) and full_auto and facts.call.origin is CallOrigin.MODEL:
            return Deny(f"{verdict.reason}; {_UNASKED}", ToolErrorCategory.CONFIRMATION_REQUIRED, rule=verdict.reason)
        return verdict

    def _judge(self, facts: CallFacts) -> Verdict:
        invocation = facts.invocation
        name, turn = facts.spec.name, self._standing.turn
        tool = self._standing.of_tool(invocation)
        acts = _runs_or_changes(invocation)
        own = acts or _reaches_web(invocation)
        if TrustLevel.BLOCKED in (tool, turn):
            return Deny(f"'{name}' is blocked in this session", rule=TrustLevel.BLOCKED.value)
        if turn is TrustLevel.UNTRUSTED and (own or invocation.spec.mutates):
            return Deny(f"'{name}' is not available to an untrusted skill", rule=f"turn {turn.value}")
        if tool is TrustLevel.UNTRUSTED:
            return Deny(f"'{name}' is not trusted with this", rule=f"tool {tool.value}") if own else _asking(invocation)
        if self._standing.workspace.counts or not (acts or invocation.spec.mutates):
            return Allow()
        return Ask("this folder is not trusted")


def _runs_or_changes(invocation: Invocation) -> bool:
    return any(
        isinstance(subject, CommandSubject) or (isinstance(subject, PathSubject) and subject.access.changes)
        for subject in invocation.subjects
    )


def _reaches_web(invocation: Invocation) -> bool:
    return any(isinstance(subject, UrlSubject) for subject in invocation.subjects)


def _asking(invocation: Invocation) -> Ask:
    servers = {subject.server for subject in invocation.subjects if isinstance(subject, McpSubject)}
    return Ask(f"a tool of {', '.join(sorted(servers)) or 'somebody else'}, which is not trusted")


# ------------------------------------------------------------------------------------------- folders


async def workspace_trust(
    folder: str,
    files: Mapping[str, bytes],
    store: TrustedFolders,
    approver: Approver | None,
    wishes: Sequence[str] = (),
) -> TrustLevel | None:
    """Whether what a folder brings may count; asks the user once for a folder and exactly these contents.

    files      name below the folder to content, of everything that wants to count. Use these bytes afterwards: what
               the files hold later nobody was asked about
    approver   None when there is nobody to ask, or when asking is switched off
    wishes     what would be done with it, one line each, which the question shows in place of the contents

    Raises ToolError (confirmation_required) when nobody answers in the time there is.

    PROVISIONAL when there is nothing to ask about, and after "allow once", which holds for this session; TRUSTED after
    "always"; UNTRUSTED after any other answer; None when nothing was answered before and nobody can be asked.
    """
    if not files:
        return TrustLevel.PROVISIONAL
    real = await anyio.to_thread.run_sync(os.path.realpath, folder)
    digest = contents_digest(files)
    known = await anyio.to_thread.run_sync(store.find, real, digest)
    if known is not None:
        return TrustLevel.TRUSTED if known else TrustLevel.UNTRUSTED
    if approver is None:
        return None
    decision = await approver.ask(_question(real, files, wishes))
    if decision in (Decision.ALLOW_ALWAYS, Decision.REJECT_ALWAYS):
        await anyio.to_thread.run_sync(lambda: store.remember(real, digest, trusted=decision.allowed))
    match decision:
        case Decision.ALLOW_ALWAYS:
            return TrustLevel.TRUSTED
        case Decision.ALLOW_ONCE:
            return TrustLevel.PROVISIONAL
        case Decision.REJECT_ONCE | Decision.REJECT_ALWAYS | Decision.CANCELLED | Decision.UNANSWERED:
            return TrustLevel.UNTRUSTED
        case _:
            assert_never(decision)


def contents_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 in hex over names and contents; no two different sets of files share one."""
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        for part in (name.encode(errors="surrogateescape"), content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


def _question(folder: str, files: Mapping[str, bytes], wishes: Sequence[str]) -> Question:
    names = ", ".join(visible(name) for name in sorted(files))
    contents = (
        f"{visible(name)} ({len(content):,} bytes):\n{visible_lines(content.decode(errors='replace'))}"
        for name, content in sorted(files.items())
    )
    return Question(
        call_id=str(uuid4()),
        title=clipped(f"This folder brings its own settings ({names}): use them?"),
        kind=ToolKind.OTHER,
        raw_input={"folder": visible(folder), "files": [visible(name) for name in sorted(files)]},
        reasons=(f"they can start programs; folder: {visible(folder)}", *dict.fromkeys(map(visible, wishes))),
        always="exactly these contents of this folder; when they change, you are asked again",
        locations=tuple(os.path.join(folder, name) for name in sorted(files)),
        text="" if wishes else "\n\n".join(contents),
    )
