"""The outcome of the permission gate for a call: a verdict, or the question that the user decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.ports import Invocation
from acp_agent.core.types import (
    Access,
    Allow,
    ApprovedBy,
    Ask,
    Deny,
    Phase,
    ToolKind,
    Verdict,
)
from acp_agent.gates.facts import CallFacts
from acp_agent.gates.grants import Grant, GrantKind, host_of
from acp_agent.gates.rules.judgement import Judgement
from acp_agent.gates.rules.rules import Action, Rule, without_wildcards
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.programs import Programs, program_table

_UNASKED = "full-auto does not ask, so it is refused; at another approval level the user would be asked"
_TITLE = 100  # characters of a URL that every title shows


@dataclass(frozen=True, slots=True)
class Approved(Allow):
    """An Allow that says who approved the call."""

    by: ApprovedBy


class Settlement(NamedTuple):
    """The outcome for a call.

    verdict   if it is an Ask, its reason joins `reasons` by line ends
    reasons   why the user is asked, one line each
    always    what "always" would cover, in words; empty if it covers only this exact text
    grants    the grants of "allow always"
    denial    the grant of "reject always", as an approval: the exact text if there are several prefixes, since it is
              unknown which one the user means
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    always: str = ""
    grants: tuple[Grant, ...] = ()
    denial: Grant | None = None


def command_question(facts: CallFacts, judgement: Judgement, digest: str) -> Settlement:
    """Return the question about a command; "always" covers prefixes, or the text with this digest."""
    tool = facts.spec.name
    reasons = (*(ask.reason for ask in facts.asks), *judgement.reasons)
    # No prefix covers the questions of other gates (such as a path outside), only the exact text does.
    needed = () if facts.asks else judgement.needed
    exact = Grant(tool, GrantKind.PAYLOAD, digest, allowed=True)
    grants = tuple(Grant(tool, GrantKind.PREFIX, prefix, allowed=True) for prefix in needed) or (exact,)
    always = ", ".join((*(f"{prefix} …" for prefix in needed), *_but(needed)))
    shown = tuple(reason for reason in reasons if not reason.startswith("no rule allows"))
    verdict = Ask("\n".join(reasons) or "runs a command")
    return Settlement(verdict, shown, always, grants, grants[0] if len(grants) == 1 else exact)


def _but(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return what approvals of these prefixes do not cover, in words."""
    programs = Programs(program_table())
    spared = any(programs.spares(Command(tuple(prefix.split(" ")))) for prefix in prefixes)
    return ("nothing that destroys",) if spared else ()


def url_question(facts: CallFacts, sites: tuple[str, ...], digest: str) -> Settlement:
    """Return the question about URLs. "Always" covers their sites, or only this call if a site is in doubt."""
    tool = facts.spec.name
    hosts = ", ".join(map(host_of, sites)) if all(sites) else ""
    reached = f"reaches {hosts}" if hosts else "its host is not plain to see: read the whole address"
    shown = [f"address: {url}" for url in facts.urls if len(url) > _TITLE or not hosts]  # the title may be cut
    reasons = (*(ask.reason for ask in facts.asks), reached, *shown)
    exact = Grant(tool, GrantKind.PAYLOAD, digest, allowed=True)
    by_host = bool(hosts) and not facts.asks
    grants = tuple(Grant(tool, GrantKind.PREFIX, each, allowed=True) for each in sites) if by_host else (exact,)
    always = f"pages of {hosts}" if by_host else ""
    return Settlement(Ask("\n".join(reasons)), reasons, always, grants, grants[0] if len(grants) == 1 else exact)


def tool_question(facts: CallFacts, digest: str, whole: Grant, *, deletes: bool) -> Settlement:
    """Return the question about another call.

    "Always" covers `whole`, or only this call if it deletes something or another gate asks.
    """
    tool, mutates = facts.spec.name, facts.spec.mutates
    asked = tuple(ask.reason for ask in facts.asks)
    # A question about a call that changes nothing is unexpected, so it says where it comes from.
    reasons = asked or (() if mutates else (f"no rule for {tool} allows this",))
    verdict = Ask("\n".join(reasons) or facts.invocation.summary or f"{tool} changes things")
    if asked or deletes:
        payload = Grant(tool, GrantKind.PAYLOAD, digest, allowed=True)
        return Settlement(verdict, reasons, "", (payload,), payload)
    as_it_is = ", as its server describes it now" if whole.kind is GrantKind.PAYLOAD else ""
    return Settlement(verdict, reasons, f"every use of {tool}{as_it_is}", (whole,), whole_tool(tool, ""))


def whole_tool(tool: str, consent: str) -> Grant:
    """Return the grant of every use of a tool; with `consent`, only of its current definition."""
    return Grant(tool, GrantKind.PAYLOAD if consent else GrantKind.TOOL, consent, allowed=True)


def on_record(*answers: bool | None, action: Action | None = None) -> Approved | None:
    """Return the approval of a rule, or of a stored answer; None if there is neither."""
    if action is Action.ALLOW:
        return Approved(ApprovedBy.POLICY)
    return Approved(ApprovedBy.ALWAYS) if True in answers else None


def is_answered(
    asks: Sequence[Ask], rules: tuple[Rule, ...], decide: Callable[[tuple[Rule, ...]], Action | None]
) -> bool:
    """Return whether the questions of other gates need no answer: there are none, or a rule names their subject.

    decide   returns what rules say about the call
    """
    return not asks or (all(ask.by_name for ask in asks) and decide(without_wildcards(rules)) is Action.ALLOW)


def ours(invocation: Invocation) -> str:
    """Return the consent of a built-in tool: empty, since its name is enough."""
    del invocation
    return ""


def unasked(facts: CallFacts) -> Deny:
    """Return the refusal of a call that only the user could allow, at a level that does not ask."""
    reasons = "; ".join(ask.reason for ask in facts.asks if ask.firm)
    return Deny(f"{reasons}; {_UNASKED}", ToolErrorCategory.CONFIRMATION_REQUIRED, rule=reasons)


def denied_by(tool: str, rules: tuple[Rule, ...], at: int) -> Deny:
    """Return the refusal by one rule. Its pattern and place are for the audit."""
    return Deny("a permission rule denies this call", rule=f"{rules[at].pattern} (rule {at + 1} of {tool})")


def digest_of(settlement: Settlement) -> str:
    """Return the digest of the text that "always" would cover; empty if it covers more."""
    exact = (grant.key for grant in settlement.grants if grant.kind is GrantKind.PAYLOAD)
    return next(exact, "")


def is_housekeeping(facts: CallFacts) -> bool:
    """Return whether a call is the agent's own housekeeping, for which the user is not asked.

    A denial ends it like any other call. Commands, pages, servers and calls about which another gate asks are no
    housekeeping.
    """
    at_home = not facts.spec.server and len(facts.paths) == len(facts.subjects)
    return facts.call.phase is Phase.AUTONOMOUS and at_home and not facts.asks


def is_edit(facts: CallFacts) -> bool:
    """Return whether a call only changes files, by paths that the sandbox allows, and deletes none."""
    only_paths = bool(facts.paths) and len(facts.paths) == len(facts.subjects)
    deletes = any(each.access is Access.DELETE for each in facts.paths)
    return only_paths and not deletes and facts.spec.kind not in (ToolKind.DELETE, ToolKind.EXECUTE)
