"""Ask the gates for their verdict on a call without running it, and answer /policy.

The user is not asked, and the call does not run.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, assert_never

from acp_agent.config.load import Loaded
from acp_agent.core.data import frozen
from acp_agent.core.ports import Invocation, never_run
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.types import (
    Access,
    AgentSubject,
    Allow,
    ApprovedBy,
    Ask,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    Subject,
    ToolCall,
    UrlSubject,
)
from acp_agent.gates.blocklist import BlocklistGate
from acp_agent.gates.gate import CallFacts, CommandFacts, Gate, Gates
from acp_agent.gates.permission import Approved, PermissionGate
from acp_agent.gates.policy import PolicyGate
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.rules.permission_rules import Action, Rule, canonical, judge
from acp_agent.gates.shell.command import Analysis, Plain
from acp_agent.session.toolset.settings import session_policy
from acp_agent.text import visible
from acp_agent.tools.registry import default_tools

if TYPE_CHECKING:  # `acp-agent check` has no session
    from acp_agent.session.session import SessionWorkspace

Word = Literal["blocked", "deny", "ask", "allow"]

_WHY_ALLOWED = {
    ApprovedBy.POLICY: "rules allow all of it",
    ApprovedBy.ALWAYS: 'you answered "always" to it',
    ApprovedBy.AUTO: "nothing asks about it",
    ApprovedBy.USER: "you typed it",
}
_READS = "it only reads"
_CONTAINED = "nothing asks about it within the sandbox"
_FULL_AUTO = "full-auto (acp.auto_approve, tools.autonomy_level): nothing asks"


@frozen
class Finding:
    """The outcome that a call would have.

    word      blocked (nothing lifts it), deny, ask or allow
    gate      the gate that ends it; empty if none does
    rule      the patterns that decided, in their author's words; empty if none did
    reasons   the reasons, one line each
    """

    word: Word
    gate: str
    rule: str
    reasons: tuple[str, ...]


def call_with(subject: Subject) -> Invocation:
    """Return a call of the model with this subject. The gates can judge it, but it cannot run."""
    match subject:
        case CommandSubject(command):
            tool, argument, target = "bash", "command", command
        case PathSubject(path, access):
            tool, argument, target = "write" if access.changes else "read", "path", path
        case UrlSubject(url):
            tool, argument, target = "fetch", "url", url
        case McpSubject():
            raise ValueError("only an MCP server can describe a call of its tools")
        case AgentSubject():
            raise ValueError("what another agent does by itself cannot be judged beforehand")
        case _:
            assert_never(subject)
    spec = next(each.spec() for each in default_tools() if each.name == tool)
    return Invocation(ToolCall("check", tool, {argument: target}), spec, target, never_run, (subject,))


def judged(facts: CallFacts, gates: Iterable[Gate]) -> Finding:
    """Return the verdict of the gates in their order. The first refusal decides, as in a real call.

    The permission gate settles the questions of the other gates. Without that gate the verdict stays "ask".
    """
    for gate in gates:
        if isinstance(gate, PermissionGate):
            return _settled(facts, gate)
        verdict = gate.judge(facts)
        if isinstance(verdict, Deny):
            word: Word = "blocked" if isinstance(gate, BlocklistGate) else "deny"
            return Finding(word, gate.name, verdict.rule, (verdict.reason,))
        if isinstance(verdict, Ask):
            facts.asks.append(verdict)
    return Finding("ask" if facts.asks else "allow", "", "", tuple(ask.reason for ask in facts.asks))


async def examined(facts: CallFacts, gates: Sequence[Gate]) -> Finding:
    """Return the verdict as `judged` does. Like a session, also ask git which files a command would bring."""
    before = tuple(facts.asks)
    found = judged(facts, gates)
    protected = next((gate for gate in gates if isinstance(gate, ProtectedGate)), None)
    if protected is None or found.word not in {"ask", "allow"}:
        return found
    brought = await protected.examine(facts)
    if isinstance(brought, Deny):
        return Finding("deny", protected.name, brought.rule, (brought.reason,))
    if isinstance(brought, Ask) and brought not in facts.asks:
        return judged(facts.asking([*before, brought]), gates)
    return found


def _settled(facts: CallFacts, gate: PermissionGate) -> Finding:
    rules, line = gate.rules.get(facts.spec.name, ()), facts.command
    verdict = gate.judge(facts)
    deciding = judge(line, rules, lambda _: None).pattern if line else ""
    match verdict:
        case Deny(reason):
            rule = deciding if line else verdict.rule
            return Finding("deny", gate.name, rule, (reason,))
        case Ask(reason):
            return Finding("ask", "", deciding, tuple(reason.split("\n")))
        case Allow():
            by = verdict.by if isinstance(verdict, Approved) else ApprovedBy.AUTO
            rule = ", ".join(_allowing(line.analysis, rules)) if line and by is ApprovedBy.POLICY else ""
            why = _by_itself(facts, line) if by is ApprovedBy.AUTO and line else _WHY_ALLOWED[by]
            return Finding("allow", "", rule, (why,))
        case _:
            assert_never(verdict)


def _by_itself(facts: CallFacts, line: CommandFacts) -> str:
    """Return why a command runs without a rule or an answer of the user."""
    if line.only_reads:
        return _READS
    return _CONTAINED if facts.contained else _FULL_AUTO


def _allowing(analysis: Analysis, rules: tuple[Rule, ...]) -> list[str]:
    """Return the patterns that allow the commands, or the commands that these start."""
    commands = analysis.commands if isinstance(analysis, Plain) else ()  # rules allow no text that cannot be parsed
    texts = [canonical(each) for outer in commands for each in outer.walk()]
    matching = (next((rule for rule in rules if rule.matches_command(text)), None) for text in texts)
    return list(dict.fromkeys(rule.pattern for rule in matching if rule is not None and rule.action is Action.ALLOW))


_MOST_STEPS = 20
"""The most rules of the policy that a check names, if the policy decides."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_PATH = re.compile(r"\S*/\S*|~|\.\.?|\S*\.[A-Za-z]\w*")
_WORDS = {"allow": "allowed", "ask": "asked about", "deny": "denied", "blocked": "blocked, and nothing lifts that"}
_USAGE = "Usage: `/policy status` or `/policy check COMMAND`, a path or a URL; `check command X` says which it is"


class Kind(StrEnum):
    """The kind of text that /policy check judges."""

    COMMAND = "command"
    PATH = "path"
    URL = "url"


class PolicyCommand:
    """The command /policy for one session. It uses the configuration and the gates in force.

    gates   the gates of the session
    """

    def __init__(self, loaded: Loaded, workspace: "SessionWorkspace", active: SessionOptions, gates: Gates) -> None:
        self._loaded = loaded
        self._workspace = workspace
        self._active = active
        self._gates = gates

    async def answer(self, text: str) -> str:
        verb, *rest = text.split(maxsplit=1) or ["status"]
        given = "".join(rest).strip()
        if verb == "check" and given:
            return await self._check(given)
        return "\n".join(f"- {line}" for line in self._status()) if verb == "status" and not given else _USAGE

    # ------------------------------------------------------------------------------------------ status

    def _status(self) -> Iterator[str]:
        if self._loaded.fault is not None:
            yield f"Nothing runs: {self._loaded.fault}"
            return
        tools, active = self._loaded.settings.tools, self._active
        policy = session_policy(self._loaded, self._workspace.cwd)
        yield f"{policy.status[:1].upper()}{policy.status[1:]}"
        rules = ", ".join(f"{tool} {len(rules)}" for tool, rules in tools.permissions.items() if rules)
        yield f"Permission rules: {rules or 'none'}"
        yield f"Mode: {active.mode}; approval: {active.auto_approve}; autonomy: {active.autonomy}"
        yield _folders("Folders", self._workspace.folders)
        if tools.file.allowed_paths:
            yield _folders("And for file tools", tools.file.allowed_paths)
        if tools.shell.allowed_paths:
            yield _folders("And for commands", tools.shell.allowed_paths)
        yield f"Gates, in their order: {', '.join(gate.name for gate in self._gates.in_order)}"

    # ------------------------------------------------------------------------------------------- check

    async def _check(self, text: str) -> str:
        word, *rest = text.split(maxsplit=1)
        kind, target = (Kind(word), rest[0]) if rest and word in set(Kind) else (_kind(text), text)
        lines = [f"{_code(target)}, as a {'URL' if kind is Kind.URL else kind}:", ""]
        if not self._gates.in_order:
            return "\n".join((*lines, f"- denied: {self._loaded.fault or 'nothing runs in this session'}"))
        for verb, subject in _calls(kind, target):
            lines += await self._judge(verb, subject)
        return "\n".join(lines)

    async def _judge(self, verb: str, subject: Subject) -> list[str]:
        """Judge a call of the model with this subject."""
        facts = self._gates.facts(call_with(subject))
        found = await examined(facts, self._gates.in_order)
        policy = next((gate for gate in self._gates.in_order if isinstance(gate, PolicyGate)), None)
        steps = policy.trace(facts)[-_MOST_STEPS:] if policy is not None and found.gate == policy.name else ()
        return [f"- {verb}: {_told(found)}", *(f"  - {visible(step)}" for step in steps)]


def _calls(kind: Kind, target: str) -> tuple[tuple[str, Subject], ...]:
    """Return the calls with a text of this kind, each with its verb."""
    match kind:
        case Kind.COMMAND:
            return (("run", CommandSubject(target)),)
        case Kind.PATH:
            return ("read", PathSubject(target, Access.READ)), ("write", PathSubject(target, Access.WRITE))
        case Kind.URL:
            return (("fetch", UrlSubject(target)),)
        case _:
            assert_never(kind)


def _kind(text: str) -> Kind:
    """Guess the kind from the text alone: a URL has a scheme, a path is one word with a slash or an extension."""
    if _URL.fullmatch(text):
        return Kind.URL
    return Kind.PATH if _PATH.fullmatch(text) else Kind.COMMAND


def _told(found: Finding) -> str:
    by = f" by {found.gate}" if found.gate else ""
    rule = f", rule {_code(found.rule)}" if found.rule else ""
    why = "; ".join(map(visible, found.reasons))
    return f"**{_WORDS[found.word]}**{by}{rule}{f': {why}' if why else ''}"


def _folders(what: str, folders: Sequence[str]) -> str:
    return f"{what}: {', '.join(map(_code, folders))}"


def _code(text: str) -> str:
    """Return a text as markdown code on one line."""
    shown = visible(text)
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"
