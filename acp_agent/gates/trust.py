"""Judge calls by their origin and by what the session has read, and decide whether what a folder brings is used.

A folder's `.acp-agent/config.toml` needs no trust: it can only tighten (config/load.py), so ignoring it would
loosen. Parts that could run or widen something - MCP servers, hooks - are used only if `workspace_trust` says so.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import anyio.to_thread

from acp_agent.core.ports import Approver, Decision, Invocation, Question
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import (
    AgentSubject,
    Allow,
    ApprovedBy,
    Ask,
    CallOrigin,
    Deny,
    McpSubject,
    Subject,
    ToolKind,
    ToolResult,
    ToolSpec,
    UrlSubject,
    Verdict,
)
from acp_agent.gates.gate import CallFacts, Gate, unasked
from acp_agent.gates.grants import host_of, site
from acp_agent.gates.question import clipped, visible, visible_lines
from acp_agent.gates.rules.policy_rules import TrustLevel, lowest
from acp_agent.store.decisions import TrustedFolders
from acp_agent.text import some_of

_AFTER_READING = TrustLevel.PROVISIONAL
"""The most that a conversation with untrusted text in it is trusted. Less would stop all work after one web page."""
_MOST_SOURCES = 20
_OTHERS = "more sources"
_SHOWN = 5  # sources in a sentence
_LONGEST = 100  # characters of a source's name


def _untrusted(invocation: Invocation) -> TrustLevel:
    del invocation
    return TrustLevel.UNTRUSTED


def _sources(subjects: Iterable[Subject]) -> Iterator[str]:
    """Yield the names of the hosts, the MCP servers and the agents that a call asks, for the user."""
    for subject in subjects:
        match subject:
            case UrlSubject(url):
                yield host_of(site(url))[:_LONGEST] or "a web page"
            case McpSubject(server):
                yield f"the MCP server {visible(server[:_LONGEST])}"
            case AgentSubject(agent):
                yield f"the agent {visible(agent[:_LONGEST])}"
            case _:
                pass


@dataclass(slots=True)
class SessionTrust:
    """The trust in the parts of one session. It is read for each call.

    turn        the trust in the source of the turn: the user, or a less trusted skill while its turn runs
    workspace   the user's trust in the folder
    tools       the trust in single tools, by name, if it is not the usual one
    served      the trust in other tools of MCP servers
    read_from   the sources of untrusted text in the conversation, and whether the user has agreed to go on since
    """

    turn: TrustLevel = TrustLevel.TRUSTED
    workspace: TrustLevel = TrustLevel.PROVISIONAL
    tools: dict[str, TrustLevel] = field(default_factory=dict[str, TrustLevel])
    served: Callable[[Invocation], TrustLevel] = _untrusted
    read_from: dict[str, bool] = field(default_factory=dict[str, bool])

    def trust_folder(self, level: TrustLevel) -> None:
        """Set the trust level of the session's folder, as the user answered."""
        self.workspace = level

    def trust_served(self, served: Callable[[Invocation], TrustLevel]) -> None:
        """Ask `served` how far tools of MCP servers are trusted."""
        self.served = served

    @property
    def conversation(self) -> TrustLevel:
        """The trust in what the model does next: the trust in the source of the turn, lowered by untrusted text."""
        return lowest(self.turn, _AFTER_READING) if self.read_from else self.turn

    def has_read(self, sources: Iterable[str]) -> None:
        """Trust the conversation less from now on, since untrusted text of these sources is in it."""
        for source in sources:
            if source in self.read_from:
                continue
            # Beyond the limit, sources share one name. They cannot be told apart, so each counts as new.
            self.read_from[source if len(self.read_from) < _MOST_SOURCES else _OTHERS] = False

    def agree(self) -> None:
        """Ask no more about what was read until now, as the user answered. The level stays as it is."""
        self.read_from = dict.fromkeys(self.read_from, True)

    def reset(self) -> None:
        """Trust the conversation again, because the user said so or because it was forgotten."""
        self.read_from.clear()

    def status(self) -> tuple[str, ...]:
        """Return a line for /status if untrusted text is in the conversation."""
        if not self.read_from:
            return ()
        return (
            f"Trust: {self.conversation}, since the agent has read {some_of(self.read_from, _SHOWN)} (`/trust reset`)",
        )

    def of_tool(self, invocation: Invocation) -> TrustLevel:
        """Return how far the tool of a call is trusted."""
        known = self.tools.get(invocation.spec.name)
        if known is not None:
            return known
        for subject in invocation.subjects:
            if isinstance(subject, McpSubject):
                return self.served(invocation)
            if isinstance(subject, AgentSubject):  # the user's configuration names it
                return TrustLevel.PROVISIONAL
        return TrustLevel.TRUSTED

    def of(self, invocation: Invocation) -> TrustLevel:
        """Return how far a call is trusted, for the policy and the audit: the least of all that it depends on.

        A folder about which there was no question does not reduce it.
        """
        folder = TrustLevel.TRUSTED if self.workspace.counts else self.workspace
        return lowest(self.conversation, folder, self.of_tool(invocation))


class TrustGate(Gate):
    """A gate that judges a call by its origin.

    A blocked tool or turn is refused. An untrusted turn may not run or change anything or reach the web. An untrusted
    tool may do none of that beyond its own server, and each of its calls asks, whatever rules allow. In an untrusted
    folder, calls that run or change something ask. Full-auto refuses instead of asking, except the user's own calls.

    A page, a text of an MCP server or a file of an untrusted folder lowers the trust in the conversation. The model's
    next command then asks, whatever rules allow, unless a sandbox contains it or it only reads. The user's yes holds
    until another source is read. Full-auto does not ask about this.

    options   the approval level in force, which is read for each call
    """

    name = "trust"

    def __init__(self, trust: SessionTrust, options: SessionOptions) -> None:
        self._trust = trust
        self._options = options

    @property
    def chooses(self) -> bool:
        return TrustLevel.BLOCKED in self._trust.tools.values()

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
            return self._after_reading(facts) if self._trust.read_from else Allow()
        else:
            reason = "this folder is not trusted"
        if self._options.auto_approve is AutoApprove.FULL_AUTO and facts.call.origin is CallOrigin.MODEL:
            return unasked(reason)
        return Ask(reason, of_tool=tool is TrustLevel.UNTRUSTED)

    def _after_reading(self, facts: CallFacts) -> Verdict:
        """Ask about a command that nothing contains, if untrusted text came since the user agreed last."""
        sources = [source for source, agreed in self._trust.read_from.items() if not agreed]
        free = facts.commands and not (facts.contained or facts.only_reads)
        if not (sources and free) or facts.call.origin is not CallOrigin.MODEL:
            return Allow()
        return Ask(f"no sandbox contains this command, and the agent has read {some_of(sources, _SHOWN)}")

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Note the user's yes, and what an executed call has brought into the conversation."""
        by = result.ruling.approved_by if result.ruling is not None else None
        if by is ApprovedBy.USER and self._trust.read_from and isinstance(self._after_reading(facts), Ask):
            self._trust.agree()
        if by is not None and facts.spec.external:
            self._trust.has_read(_sources(facts.subjects))
        elif by is not None and not self._trust.workspace.counts and (facts.paths or facts.commands):
            self._trust.has_read(("this folder, which is not trusted",))
        return result


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
    decision = await approver.ask(folder_question(real, files, wishes))
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


def folder_question(
    folder: str, files: Mapping[str, bytes], wishes: Sequence[str], why: str = "they can start programs"
) -> Question:
    """Return the question whether files of a folder are used. `wishes` are shown instead of their contents.

    why   what the files can do, as a part of a sentence
    """
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
        reasons=(f"{why}; folder: {visible(folder)}", *dict.fromkeys(map(visible, wishes))),
        always="exactly these contents of this folder; when they change, you are asked again",
        locations=tuple(os.path.join(folder, name) for name in sorted(files)),
        text="" if wishes else "\n\n".join(contents),
    )
