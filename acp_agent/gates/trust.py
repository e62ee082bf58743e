"""Judge calls by their origin, and decide whether the MCP servers and hooks of a folder are used.

A folder's `.acp-agent/config.toml` needs no trust: it can only tighten (config/load.py), so ignoring it would
loosen. Parts that could run or widen something - MCP servers, hooks - are used only if `workspace_trust` says so.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import anyio.to_thread

from acp_agent.core.ports import Approver, Decision, Invocation, Question
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import (
    Allow,
    Ask,
    CallOrigin,
    Deny,
    McpSubject,
    ToolKind,
    ToolSpec,
    Verdict,
)
from acp_agent.gates.gate import CallFacts, Gate, unasked
from acp_agent.gates.question import clipped, visible, visible_lines
from acp_agent.gates.rules.policy_rules import TrustLevel, lowest
from acp_agent.store.decisions import TrustedFolders


def _untrusted(invocation: Invocation) -> TrustLevel:
    del invocation
    return TrustLevel.UNTRUSTED


@dataclass(slots=True)
class SessionTrust:
    """The trust in the parts of one session. It is read for each call.

    turn        the trust in what drives the turn: the user, or a skill with less (set for the time of its turn)
    workspace   the user's trust in the folder
    tools       the changed trust in foreign tools, by name
    served      the trust in other tools of MCP servers
    """

    turn: TrustLevel = TrustLevel.TRUSTED
    workspace: TrustLevel = TrustLevel.PROVISIONAL
    tools: dict[str, TrustLevel] = field(default_factory=dict[str, TrustLevel])
    served: Callable[[Invocation], TrustLevel] = _untrusted

    def trust_folder(self, level: TrustLevel) -> None:
        """Set the trust level of the session's folder, as the user answered."""
        self.workspace = level

    def trust_served(self, served: Callable[[Invocation], TrustLevel]) -> None:
        """Ask `served` how far tools of MCP servers are trusted."""
        self.served = served

    def of_tool(self, invocation: Invocation) -> TrustLevel:
        """Return how far the tool of a call is trusted."""
        known = self.tools.get(invocation.spec.name)
        if known is not None:
            return known
        for subject in invocation.subjects:
            if isinstance(subject, McpSubject):
                return self.served(invocation)
        return TrustLevel.TRUSTED

    def of(self, invocation: Invocation) -> TrustLevel:
        """Return how far a call is trusted, for the policy and the audit: the least of all that it depends on.

        A folder about which there was no question does not reduce it.
        """
        folder = TrustLevel.TRUSTED if self.workspace.counts else self.workspace
        return lowest(self.turn, folder, self.of_tool(invocation))


class TrustGate(Gate):
    """A gate that judges a call by its origin.

    A blocked tool or turn is refused. An untrusted turn may not run or change anything or reach the web. An untrusted
    tool may do none of that beyond its own server, and each of its calls asks, whatever rules allow. In an untrusted
    folder, calls that run or change something ask. Full-auto refuses instead of asking, except the user's own calls.

    conduct   the approval level in force, which is read for each call
    """

    name = "trust"

    def __init__(self, trust: SessionTrust, conduct: SessionOptions) -> None:
        self._trust = trust
        self._conduct = conduct

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model."""
        return self._trust.tools.get(spec.name) is not TrustLevel.BLOCKED

    def judge(self, facts: CallFacts) -> Verdict:
        name, mutates, turn = facts.spec.name, facts.spec.mutates, self._trust.turn
        tool = self._trust.of_tool(facts.invocation)
        acts = bool(facts.commands)
        for path in facts.paths:
            acts = acts or path.access.changes
        own = acts or bool(facts.urls)
        if TrustLevel.BLOCKED in (tool, turn):
            return Deny(f"'{name}' is blocked in this session", rule=TrustLevel.BLOCKED.value)
        if turn is TrustLevel.UNTRUSTED and (own or mutates):
            return Deny(f"'{name}' is not available to an untrusted skill", rule=f"turn {turn.value}")
        if tool is TrustLevel.UNTRUSTED and own:
            return Deny(f"'{name}' is not trusted with this", rule=f"tool {tool.value}")
        if tool is TrustLevel.UNTRUSTED:
            servers = {subject.server for subject in facts.subjects if isinstance(subject, McpSubject)}
            reason = f"a tool of {', '.join(sorted(servers)) or 'somebody else'}, which is not trusted"
        elif self._trust.workspace.counts or not (acts or mutates):
            return Allow()
        else:
            reason = "this folder is not trusted"
        if self._conduct.auto_approve is AutoApprove.FULL_AUTO and facts.call.origin is CallOrigin.MODEL:
            return unasked(reason)
        return Ask(reason, of_tool=tool is TrustLevel.UNTRUSTED)


# ------------------------------------------------------------------------------------------- folders


async def workspace_trust(
    folder: str,
    files: Mapping[str, bytes],
    store: TrustedFolders,
    approver: Approver | None,
    wishes: Sequence[str] = (),
) -> TrustLevel | None:
    """Return the trust in files of a folder. The user is asked once for a folder with exactly these contents.

    PROVISIONAL if there are no files, and after "allow once", which holds for this session. TRUSTED after "always".
    UNTRUSTED after any other answer. None if there is no earlier answer and nobody can be asked.

    files      the contents of all files that would be used, by their names below the folder. The caller must use these
               bytes, since the user was not asked about later contents
    approver   None if no user can be asked, or asking is switched off
    wishes     what would be done with the files, one line each, which the question shows instead of the contents

    Raises ToolError (confirmation_required) if there is no answer in time.
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
    if decision is Decision.ALLOW_ALWAYS:
        return TrustLevel.TRUSTED
    return TrustLevel.PROVISIONAL if decision is Decision.ALLOW_ONCE else TrustLevel.UNTRUSTED


def contents_digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 in hex over names and contents, which no two different sets of files share."""
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
