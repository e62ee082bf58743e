"""The verdict of the gates on a call that is only checked: the user is not asked, and nothing runs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, assert_never

from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Allow,
    ApprovedBy,
    Ask,
    CommandSubject,
    Deny,
    McpSubject,
    PathSubject,
    Subject,
    ToolCall,
    ToolResult,
    UrlSubject,
)
from acp_agent.gates.blocklist import BlocklistGate
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.permission import Approved, PermissionGate
from acp_agent.gates.rules.permission_rules import Action, Rule, canonical, judge
from acp_agent.gates.shell.command import Analysis, Plain, ShellText
from acp_agent.tools.registry import default_tools

Word = Literal["blocked", "deny", "ask", "allow"]

_ON_WHOSE_WORD = {
    ApprovedBy.POLICY: "rules allow all of it",
    ApprovedBy.ALWAYS: 'you answered "always" to it',
    ApprovedBy.AUTO: "nothing asks about it",
    ApprovedBy.USER: "you typed it",
}
_FULL_AUTO = "full-auto (acp.auto_approve, tools.autonomy_level): nothing asks"


@dataclass(frozen=True, slots=True)
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
            raise ValueError("tools of MCP servers are their servers' to describe")
        case _:
            assert_never(subject)
    spec = next(each.spec() for each in default_tools() if each.name == tool)
    return Invocation(ToolCall("check", tool, {argument: target}), spec, target, _never, (subject,))


async def _never(_: ToolContext) -> ToolResult:
    raise AssertionError("a call was to be judged, not made")


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
            facts.ask(verdict)
    return Finding("ask" if facts.asks else "allow", "", "", tuple(ask.reason for ask in facts.asks))


def _settled(facts: CallFacts, gate: PermissionGate) -> Finding:
    rules, line = gate.rules.get(facts.spec.name, ()), facts.command
    verdict = gate.judge(facts)
    match verdict:
        case Deny(reason):
            rule = _deciding(line, rules) if line else verdict.rule
            return Finding("deny", gate.name, rule, (reason,))
        case Ask(reason):
            return Finding("ask", "", _deciding(line, rules) if line else "", tuple(reason.split("\n")))
        case Allow():
            by = verdict.by if isinstance(verdict, Approved) else ApprovedBy.AUTO
            rule = ", ".join(_allowing(line.analysis, rules)) if line and by is ApprovedBy.POLICY else ""
            runs_unasked = by is ApprovedBy.AUTO and line
            return Finding("allow", "", rule, (_FULL_AUTO if runs_unasked else _ON_WHOSE_WORD[by],))
        case _:
            assert_never(verdict)


def _deciding(line: ShellText, rules: tuple[Rule, ...]) -> str:
    """Return the pattern that denies or asks."""
    return judge(line, rules, lambda _: None).pattern


def _allowing(analysis: Analysis, rules: tuple[Rule, ...]) -> list[str]:
    """Return the patterns that allow the commands, or the commands that these start."""
    if not isinstance(analysis, Plain):
        return []
    texts = [canonical(each) for outer in analysis.commands for each in outer.walk() if each.argv]
    matching = (next((rule for rule in rules if rule.matches_command(text)), None) for text in texts)
    return list(dict.fromkeys(rule.pattern for rule in matching if rule is not None and rule.action is Action.ALLOW))
