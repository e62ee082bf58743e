"""The last gate: decide whether a call may run, with one question to the user for all the questions of the gates.

The first of these that applies decides:

1. A rule that denies, or a stored denial, ends the call.
2. A call that the user typed (`/run`) runs. Full-auto runs calls without a firm Ask, which only the user can answer.
3. A stored approval of exactly this text lets it run.
4. If other gates asked, the user is asked. In full-auto a firm question refuses the call instead.
5. Rules and stored approvals let it run.
6. The approval level decides. Auto-edit runs the commands that walls of the kernel contain.

The user is asked each time, at every level, about a command that leaves the walls and about a call that acts later.

Tools that change nothing do not ask by themselves. There are two exceptions: they reach a host that the user has not
allowed yet, or they have rules and none matches the call. Commands that are proven to change nothing and to reach no
host do not ask either, unless reading is limited: a folder that they read may then contain a file that is denied.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar, NamedTuple, assert_never

import anyio

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Approver, Decision, Elicitor, Form, Invocation
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import (
    Access,
    AgentSubject,
    Allow,
    ApprovedBy,
    Ask,
    CallOrigin,
    Deny,
    JsonObject,
    PathSubject,
    Phase,
    ToolResult,
    ToolSpec,
    UrlSubject,
    Verdict,
)
from acp_agent.gates.gate import CallFacts, CommandFacts, Gate, unasked
from acp_agent.gates.grants import Grant, GrantKind, GrantsInForce, host_of, site
from acp_agent.gates.question import build, clipped
from acp_agent.gates.rules.permission_rules import (
    Action,
    Judgement,
    Rule,
    allowance,
    arguments_text,
    denial_of,
    denied_outright,
    judge,
    rule_action,
    rules_of,
    without_wildcards,
)
from acp_agent.gates.shell import programs
from acp_agent.gates.shell.command import Command
from acp_agent.text import visible
from acp_agent.workspace.roots import Roots

_READERS = ("read", "grep")  # tools: if a rule limits what they may show, commands that only read ask as well
_SHELL = "bash"  # denials of this tool also hold for input of a shell in the background
_TITLE = 100  # characters of a URL that every title shows


@frozen
class Approved(Allow):
    """An Allow that says who approved the call."""

    by: ApprovedBy


class Settlement(NamedTuple):
    """The outcome for a call.

    verdict   the reason of an Ask is all `reasons`, one a line
    reasons   why the user is asked, one line each
    always    what "always" would cover, in words; empty if it covers only this exact text
    grants    the grants of "allow always"
    denial    the grant that "reject always" turns into a denial. With several prefixes it is the exact text
    whole     the tool, if "always" covers every use of it
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    always: str = ""
    grants: tuple[Grant, ...] = ()
    denial: Grant | None = None
    whole: str = ""

    @property
    def option(self) -> str:
        """The calls that "allow always" covers, for the name of the option."""
        return _every(self.whole) if self.whole else ", ".join(map(_in_words, self.grants))


def _every(tool: str) -> str:
    """Return every use of a tool in words: "every edit" where the name is a verb."""
    return f"every {tool}" if tool.isalpha() and tool != _SHELL else f"every use of {tool}"


def _in_words(grant: Grant | None) -> str:
    """Return the calls that a grant covers, in words that are short enough for the name of an option."""
    if grant is None:
        return ""
    match grant.kind:
        case GrantKind.TOOL:
            return _every(grant.tool)
        case GrantKind.PREFIX:
            return f"`{grant.key} …`" if grant.tool == _SHELL else f"pages of {host_of(grant.key)}"
        case GrantKind.PAYLOAD:
            return "exactly this"
        case GrantKind.FOLDER:
            return f"reading {grant.key}"
        case _:
            assert_never(grant.kind)


def folder_question(facts: CallFacts) -> Settlement:
    """Return the question about a call that only asks for folders outside the roots. "Always" covers them."""
    folders = tuple(dict.fromkeys(folder for ask in facts.asks for folder in ask.folders))
    reasons = tuple(ask.reason for ask in facts.asks)
    grants = tuple(reading(folder, allowed=True) for folder in folders)
    always = f"reading {', '.join(folders)}, except files that may hold secrets"
    return Settlement(Ask("\n".join(reasons)), reasons, always, grants, grants[0] if len(grants) == 1 else None)


def reading(folder: str, *, allowed: bool) -> Grant:
    """Return the grant of reading a folder outside the roots, by any tool."""
    return Grant(_READERS[0], GrantKind.FOLDER, folder, allowed=allowed)


def command_question(facts: CallFacts, judgement: Judgement, digest: str) -> Settlement:
    """Return the question about a command; "always" covers prefixes, or the text with this digest."""
    tool = facts.spec.name
    reasons = (*(ask.reason for ask in facts.asks), *judgement.reasons)
    # A prefix never answers the questions of other gates, such as one about a path outside. Only the exact text does.
    needed = () if any(not ask.by_rule for ask in facts.asks) else judgement.needed
    exact = Grant(tool, GrantKind.PAYLOAD, digest, allowed=True)
    grants = tuple(Grant(tool, GrantKind.PREFIX, prefix, allowed=True) for prefix in needed) or (exact,)
    always = ", ".join((*(f"{prefix} …" for prefix in needed), *_but(needed)))
    shown = tuple(reason for reason in reasons if not reason.startswith("no rule allows"))
    verdict = Ask("\n".join(reasons) or "runs a command")
    return Settlement(verdict, shown, always, grants, grants[0] if len(grants) == 1 else exact)


def _but(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the exceptions from approvals of these prefixes, in words."""
    spared = any(programs.spares(Command(tuple(prefix.split(" ")))) for prefix in prefixes)
    return ("but nothing that destroys",) if spared else ()


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

    "Always" covers `whole`, but only this call if the call deletes something or a gate asks about the call itself.
    """
    tool, mutates = facts.spec.name, facts.spec.mutates
    asked = tuple(ask.reason for ask in facts.asks)
    whole_covers = whole.kind is GrantKind.PAYLOAD and all(ask.of_tool for ask in facts.asks)
    # A question about a call that changes nothing is unexpected, so it says where it comes from.
    reasons = asked or (() if mutates else (f"no rule for {tool} allows this",))
    verdict = Ask("\n".join(reasons) or facts.invocation.summary or f"{tool} changes things")
    if deletes or (asked and not whole_covers):
        payload = Grant(tool, GrantKind.PAYLOAD, digest, allowed=True)
        return Settlement(verdict, reasons, "", (payload,), payload)
    agent = " and ".join(each.agent for each in facts.subjects if isinstance(each, AgentSubject))
    if agent:
        covered = f"every use of {tool} for {agent}, as now configured"
        return Settlement(verdict, reasons, covered, (whole,), whole, whole=f"{tool} {agent}")
    as_it_is = ", as its server describes it now" if whole.kind is GrantKind.PAYLOAD else ""
    return Settlement(verdict, reasons, f"every use of {tool}{as_it_is}", (whole,), whole_tool(tool, ""), whole=tool)


def whole_tool(tool: str, consent: str) -> Grant:
    """Return the grant of every use of a tool; with `consent`, only of its current definition."""
    return Grant(tool, GrantKind.PAYLOAD if consent else GrantKind.TOOL, consent, allowed=True)


def on_record(*answers: bool | None, action: Action | None = None) -> Approved | None:
    """Return the approval by a rule or a stored answer, or None if there is neither."""
    if action is Action.ALLOW:
        return Approved(ApprovedBy.POLICY)
    return Approved(ApprovedBy.ALWAYS) if True in answers else None


def _is_answered(
    asks: Sequence[Ask], rules: tuple[Rule, ...], decide: Callable[[tuple[Rule, ...]], Action | None]
) -> bool:
    """Return whether the questions of other gates need no answer: there are none, or a rule names their subject.

    decide   returns the action of given rules on the call
    """
    asks = [ask for ask in asks if not ask.by_rule]
    return not asks or (all(ask.by_name for ask in asks) and decide(without_wildcards(rules)) is Action.ALLOW)


def ours(invocation: Invocation) -> str:
    """Return the additional key of an approval for a built-in tool: empty, since its name is enough."""
    del invocation
    return ""


def _program_consent(invocation: Invocation) -> str:
    """Return the identity of another agent's program, which an "always" answer covers. Empty for other calls."""
    return " ".join(each.identity for each in invocation.subjects if isinstance(each, AgentSubject))


def denied_by(tool: str, rules: tuple[Rule, ...], at: int) -> Deny:
    """Return the refusal by one rule. It names the rule and its place in the configuration."""
    place = rules[at].where or f"[[tools.permissions.{tool}]] rule {at + 1}"
    told = f"{visible(rules[at].pattern)!r} ({visible(place)})"
    return Deny(f"a permission rule denies this call: {told}", rule=f"{rules[at].pattern} (rule {at + 1} of {tool})")


def invocation_sites(invocation: Invocation) -> Iterator[str]:
    """Yield the sites that a call reaches."""
    return (site(each.url) for each in invocation.subjects if isinstance(each, UrlSubject))


_USER_DENIED = "denied by the user"
_WHY = "Why not? The model is told what you write here. Leave it empty to say nothing."
_REASON: JsonObject = {
    "type": "object",
    "properties": {"reason": {"type": "string", "title": "Reason", "maxLength": 500}},
}
_NO_ANSWER = "the editor gave no usable answer to the question whether this call may run, so it did not run"
_NOBODY = "this call needs the user's approval, and there is nobody to ask"


@frozen
class _PredictedFailure(Deny):
    """The end of a call whose preview failed. The call would fail whatever the user answers."""

    result: ToolResult = field(kw_only=True)


def _answer(decision: Decision, denied: str) -> Verdict:
    """Return the verdict for the user's answer. `denied` is the reason for the model if the answer is no."""
    match decision:
        case Decision.ALLOW_ONCE | Decision.ALLOW_SESSION | Decision.ALLOW_ALWAYS:
            return Approved(ApprovedBy.USER)
        case Decision.REJECT_ONCE | Decision.REJECT_ALWAYS:
            return Deny(denied)
        case Decision.CANCELLED:
            return Deny("the question was cancelled", ToolErrorCategory.CANCELLED)
        case Decision.UNANSWERED:
            return Deny(_NO_ANSWER, ToolErrorCategory.CONFIRMATION_REQUIRED)
        case _:
            assert_never(decision)


class PermissionGate(Gate):
    """The gate that decides about the questions of the other gates. A session has one open question at a time.

    rules      by tool name, in order
    options    the approval level in force, which is read for each call
    approver   None if no user can be asked; then calls that ask are refused as confirmation_required
    files      the roots of the file tools. Rules are compared with paths as given and as resolved
    consent    returns the key that an approval of a tool has besides its name; "" for a built-in tool. The approval
               ends if the server or the definition behind the name changes. A denial holds for the name alone
    all_readable  whether every file of the roots may be read, so that commands that only read need no approval
    elicitor   shows a form for the reason of a rejection; None if no form can be shown
    """

    name: ClassVar[str] = "permission"

    def __init__(
        self,
        *,
        rules: Mapping[str, tuple[Rule, ...]],
        options: SessionOptions,
        grants: GrantsInForce,
        approver: Approver | None,
        files: Roots,
        consent: Callable[[Invocation], str] = ours,
        all_readable: bool = True,
        elicitor: Elicitor | None = None,
    ) -> None:
        self.rules = rules
        self._files = files
        self._elicitor = elicitor
        self._all_readable = all_readable
        self._consent = consent
        self._options = options
        self._grants = grants
        self._approver = approver
        self._resolve = files.resolve_readable
        self._one_question = anyio.Lock()

    @property
    def chooses(self) -> bool:
        return bool(self.rules) or self._grants.deny_some

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model: not if all its calls are denied."""
        names = {spec.name, _SHELL} if spec.commands else {spec.name}
        if any(self._stored(name, GrantKind.TOOL) is False for name in names):
            return False
        return not any(denied_outright(rules_of(self.rules, name, spec.server)) for name in names)

    def judge(self, facts: CallFacts) -> Verdict:
        return self.settle(facts).verdict

    async def examine(self, facts: CallFacts) -> Verdict:
        """Decide the call. Ask the user if nothing else decides. The result is never an Ask.

        An approved call may read the folders outside the roots that it asked for, until it has ended.
        """
        verdict = await self._decide(facts)
        folders = [folder for ask in facts.asks for folder in ask.folders]
        if folders and isinstance(verdict, Approved):
            facts.clean_up.append(self._files.readable.open(folders))
        return verdict

    async def _decide(self, facts: CallFacts) -> Verdict:
        verdict = self.settle(facts).verdict
        if not isinstance(verdict, Ask):
            return verdict
        if facts.invocation.predicted_failure is not None:  # the call would fail, so the user is not asked
            return _PredictedFailure("", result=facts.invocation.predicted_failure)
        if self._approver is None:
            return Deny(_NOBODY, ToolErrorCategory.CONFIRMATION_REQUIRED)
        async with self._one_question:
            # While this call waited, the user may have said "always" to the same thing.
            settlement = self.settle(facts)
            if not isinstance(settlement.verdict, Ask):
                return settlement.verdict
            question = build(facts, settlement.reasons, settlement.always)
            once = any(ask.each_time for ask in facts.asks)
            question = replace(question, option=settlement.option, denial=_in_words(settlement.denial), once=once)
            try:
                decision = await self._approver.ask(question)
            except ToolError as error:  # there was no answer in time
                return Deny(error.failure.message, error.failure.category)
            await self._remember(decision, settlement)
            why = await self._why(facts) if decision is Decision.REJECT_ONCE else ""
        # The model may do the same without the part that was asked about. Reasons may quote what a server says.
        told = settlement.reasons and not facts.spec.server
        asked = f" (asked about: {clipped('; '.join(settlement.reasons))})" if told else ""
        denied = f"{_USER_DENIED}, who says: {why}" if why else f"{_USER_DENIED}{asked}"
        return _answer(decision, denied)

    def refusal(self, denial: Deny) -> ToolResult:
        return denial.result if isinstance(denial, _PredictedFailure) else super().refusal(denial)

    def answers(self) -> tuple[Grant, ...]:
        """Return the answers that hold in the session, and the stored ones that hold in its project."""
        return self._grants.listed(self._files.cwd)

    async def revoke(self, grant: Grant) -> bool:
        """Forget an answer. Return False if it could not be removed from the file."""
        return await self._grants.revoke(grant)

    async def widen(self, grant: Grant) -> bool:
        """Let an answer of the project hold everywhere. Return False if the file could not be written."""
        return await self._grants.widen(grant)

    async def _why(self, facts: CallFacts) -> str:
        """Ask the user why they rejected a call, if the editor has forms. Return their words; empty for none."""
        if self._elicitor is None or not self._elicitor.forms:
            return ""
        answer = await self._elicitor.fill_in(Form(_WHY, _REASON, call_id=facts.call.id))
        return visible(reason.strip()) if isinstance(reason := answer.content.get("reason"), str) else ""

    async def _remember(self, decision: Decision, settlement: Settlement) -> None:
        """Remember an answer for the session, or store an "always" for its project."""
        if decision is Decision.ALLOW_SESSION:
            await self._grants.remember(*(replace(each, session=True) for each in settlement.grants))
        elif decision is Decision.ALLOW_ALWAYS:
            await self._grants.remember(*(replace(each, project=self._files.cwd) for each in settlement.grants))
        elif decision is Decision.REJECT_ALWAYS and settlement.denial is not None:
            await self._grants.remember(replace(settlement.denial, allowed=False, project=self._files.cwd))

    def _stored(self, tool: str, kind: GrantKind, key: str = "") -> bool | None:
        return self._grants.find(tool, kind, key, self._files.cwd)

    def _denied(self, tool: str, *grants: Grant) -> Deny:
        """Return the refusal by a stored answer. It names the answer."""
        found = next((each for each in grants if self._stored(each.tool, each.kind, each.key) is False), None)
        what = found.covered if found else tool
        told = f'denied by the user: they answered "always reject" to {what}'
        return Deny(told, rule=what, advice="Do it another way, or ask the user to revoke that answer (/permissions).")

    def settle(self, facts: CallFacts) -> Settlement:
        """Return the outcome for a call, before the user is asked."""
        if not facts.asks:
            return self._settle_asking(facts)
        answers = {
            folder: self._stored(_READERS[0], GrantKind.FOLDER, folder) for ask in facts.asks for folder in ask.folders
        }
        refused = [reading(folder, allowed=False) for folder, answer in answers.items() if answer is False]
        if refused:
            return Settlement(self._denied(_READERS[0], *refused))
        open_asks = [ask for ask in facts.asks if not (ask.folders and all(answers[each] for each in ask.folders))]
        return self._settle_asking(facts.asking(open_asks))

    def _settle_asking(self, facts: CallFacts) -> Settlement:
        # Rules also hold for input of a shell that is already running, and for other tools that do the same.
        for tool in (*facts.spec.acts_as, *((_SHELL,) if facts.typed else ())):
            if denial := self._denied_as(tool, facts):
                return Settlement(denial)
        if facts.command is not None:
            settlement = self._settle_command(facts, facts.command)
        else:
            settlement = self._settle_urls(facts) if facts.urls else self._settle_tool(facts)
        full_auto = self._options.auto_approve is AutoApprove.FULL_AUTO
        if isinstance(settlement.verdict, Ask) and full_auto and not any(ask.each_time for ask in facts.asks):
            return Settlement(unasked("; ".join(ask.reason for ask in facts.asks if ask.firm)))
        return settlement

    def _denied_as(self, tool: str, facts: CallFacts) -> Deny | None:
        """Return the refusal of a call that does the same as `tool`, because that is denied; None if it is not."""
        if tool == _SHELL and facts.command is not None:
            verdict = self._settle_command_of(tool, facts, facts.command).verdict
            return verdict if isinstance(verdict, Deny) else None
        action = rule_action(facts.invocation, rules_of(self.rules, tool), self._resolve)
        sites = (self._stored(tool, GrantKind.PREFIX, each) for each in invocation_sites(facts.invocation))
        return self._denial(facts.invocation, action, self._stored(tool, GrantKind.TOOL), *sites, tool=tool)

    def _settle_command(self, facts: CallFacts, line: CommandFacts) -> Settlement:
        tool = facts.spec.name
        if facts.custom:
            own = self._settle_command_of(facts.custom, facts, line)
            if isinstance(own.verdict, Deny):
                return own
            if judge(line, rules_of(self.rules, facts.custom), lambda _: None).action is Action.ASK:
                facts = facts.asking([*facts.asks, Ask(f"a rule for {facts.custom} asks")])
        return self._settle_command_of(tool, facts, line)

    def _settle_command_of(self, tool: str, facts: CallFacts, line: CommandFacts) -> Settlement:
        """Return the outcome for a command by the rules and the stored answers of a tool."""
        whole = self._stored(tool, GrantKind.TOOL)
        answers, prefixes = set[bool | None](), list[str]()

        def granted(prefix: str) -> bool | None:
            prefixes.append(prefix)
            stored = self._stored(tool, GrantKind.PREFIX, prefix)
            answers.add(answer := whole if stored is None else stored)
            return answer

        rules = rules_of(self.rules, tool) if self.rules else ()
        refusal = denial_of(line, rules, granted)
        digest = self._digest(tool, line.text)
        exact = self._stored(tool, GrantKind.PAYLOAD, digest)
        if refusal is not None and refusal.pattern:
            at = [(rule.pattern, rule.action) for rule in rules].index((refusal.pattern, Action.DENY))
            return Settlement(denied_by(tool, rules, at))
        if refusal is not None or exact is False or whole is False:
            return Settlement(self._denied(tool, *self._answers_to(tool, digest, prefixes)))
        approved = self._free(facts) or (None if any(ask.each_time for ask in facts.asks) else on_record(exact))
        if approved is not None:
            return Settlement(approved)
        judgement = allowance(line, rules, granted, reads=self._reads_freely and not line.stays)
        if not facts.asks and (judgement.reads or self._runs_contained(facts, judgement)):
            approved = Approved(ApprovedBy.AUTO)
        elif judgement.action is Action.ALLOW and _is_answered(
            facts.asks, rules, lambda named: judge(line, named, lambda _: None).action
        ):
            by_rules = True not in answers or judge(line, rules, lambda _: None).action is Action.ALLOW
            approved = Approved(ApprovedBy.POLICY if by_rules else ApprovedBy.ALWAYS)
        elif judgement.reads and all(ask.folders for ask in facts.asks):
            return folder_question(facts)
        return Settlement(approved) if approved else command_question(facts, judgement, digest)

    def _runs_contained(self, facts: CallFacts, judgement: Judgement) -> bool:
        """Return whether a command may run without a question because walls contain it and no rule asks about it."""
        return facts.contained and judgement.action is None and self._options.auto_approve is AutoApprove.AUTO_EDIT

    @property
    def _reads_freely(self) -> bool:
        """Whether a command may read any file of the roots, because no setting, rule or answer limits reading."""
        if not self._all_readable:
            return False
        limited = any(rule.action is not Action.ALLOW for tool in _READERS for rule in rules_of(self.rules, tool))
        return not limited and all(self._stored(tool, GrantKind.TOOL) is not False for tool in _READERS)

    def _settle_urls(self, facts: CallFacts) -> Settlement:
        """Ask once for each host. A host's grant does not cover what else a call touches."""
        invocation, tool = facts.invocation, facts.spec.name
        sites = tuple(dict.fromkeys(map(site, facts.urls))) if len(facts.urls) == len(facts.subjects) else ("",)
        granted = [self._stored(tool, GrantKind.PREFIX, each) if each else None for each in sites]
        whole = self._stored(tool, GrantKind.TOOL)
        digest = self._digest(tool, arguments_text(invocation))
        exact = self._stored(tool, GrantKind.PAYLOAD, digest)
        action = rule_action(invocation, rules_of(self.rules, tool), self._resolve)
        denial = self._denial(invocation, action, exact, whole, *granted)
        if denial is not None:
            return Settlement(denial)
        approved = self._free(facts) or on_record(exact)
        if approved is None and not facts.asks:
            approved = on_record(whole, all(granted), action=action)
        return Settlement(approved) if approved else url_question(facts, sites, digest)

    def _settle_tool(self, facts: CallFacts) -> Settlement:
        invocation, spec = facts.invocation, facts.spec
        consent = self._consent(invocation) or _program_consent(invocation)
        whole = whole_tool(spec.name, consent)
        stored = self._stored(spec.name, GrantKind.TOOL)
        if stored is not False and consent:
            stored = self._stored(spec.name, whole.kind, whole.key)
        rules = rules_of(self.rules, spec.name, spec.server)
        action = rule_action(invocation, rules, self._resolve)
        digest = self._digest(spec.name + consent, arguments_text(invocation))
        exact = self._stored(spec.name, GrantKind.PAYLOAD, digest)
        denial = self._denial(invocation, action, exact, stored)
        if denial is not None:
            return Settlement(denial)
        approved = self._free(facts) or on_record(exact)
        deletes = any(each.access is Access.DELETE for each in facts.paths)
        if deletes:
            stored = None  # a yes to one deletion does not cover the next one; a stored no has ended the call above
        if approved is None and not self._asks(facts, action, stored=stored, rules=rules):
            approved = on_record(stored, action=action) or Approved(ApprovedBy.AUTO)
        if approved is None and not spec.mutates and facts.asks and all(ask.folders for ask in facts.asks):
            return folder_question(facts)
        return Settlement(approved) if approved else tool_question(facts, digest, whole, deletes=deletes)

    def _denial(
        self, invocation: Invocation, action: Action | None, *stored: bool | None, tool: str = ""
    ) -> Deny | None:
        """Return the denial by a rule of the tool, by a rule of `read`, or by a stored answer. None if none denies.

        Files that may not be read may not be edited, listed or searched either, because the result would show them.
        """
        tool = tool or invocation.spec.name
        if action is Action.DENY:
            return self._by_rule_of(tool, invocation)
        read = tuple(s for s in invocation.subjects if isinstance(s, PathSubject) and not s.access.changes)
        reading = replace(invocation, subjects=read)
        if read and rule_action(reading, rules_of(self.rules, "read"), self._resolve) is Action.DENY:
            return self._by_rule_of("read", reading)
        if False not in stored:
            return None
        digest = self._digest(tool, arguments_text(invocation))
        return self._denied(tool, *self._answers_to(tool, digest, invocation_sites(invocation)))

    @staticmethod
    def _answers_to(tool: str, digest: str, prefixes: Iterable[str]) -> Iterator[Grant]:
        """Yield the answers that may have refused a call, the widest first."""
        yield whole_tool(tool, "")
        yield from (Grant(tool, GrantKind.PREFIX, prefix, allowed=False) for prefix in prefixes)
        yield Grant(tool, GrantKind.PAYLOAD, digest, allowed=False)

    def _by_rule_of(self, tool: str, invocation: Invocation) -> Deny:
        """Return the denial of a call that rules of `tool` deny, by the first rule that denies it."""
        rules = rules_of(self.rules, tool, invocation.spec.server if tool == invocation.spec.name else "")
        count = bisect_left(
            range(len(rules)), True, key=lambda n: rule_action(invocation, rules[:n], self._resolve) is Action.DENY
        )
        return denied_by(tool, rules, count - 1)

    def _asks(self, facts: CallFacts, action: Action | None, *, stored: bool | None, rules: tuple[Rule, ...]) -> bool:
        """Return whether a call asks. A tool that only reads asks if it has `rules` and none of them matches."""
        if action is Action.ASK:
            return True
        if not _is_answered(facts.asks, rules, lambda exact: rule_action(facts.invocation, exact, self._resolve)):
            return True
        if action is Action.ALLOW or stored:
            return False
        if not facts.spec.mutates:
            return bool(rules)
        return self._options.auto_approve is not AutoApprove.AUTO_EDIT or not facts.only_edits

    def _free(self, facts: CallFacts) -> Approved | None:
        """Return why the call runs without a question: the user typed it, chose full-auto, or it is housekeeping."""
        if facts.call.origin is CallOrigin.USER:
            return Approved(ApprovedBy.USER)
        # A call is not housekeeping if it needs a command, a URL or a server, or if another gate asks about it.
        at_home = not facts.spec.server and len(facts.paths) == len(facts.subjects)
        if facts.call.phase is Phase.AUTONOMOUS and at_home and not facts.asks:
            return Approved(ApprovedBy.AUTO)
        if self._options.auto_approve is not AutoApprove.FULL_AUTO or (facts.asks and any(a.firm for a in facts.asks)):
            return None
        return Approved(ApprovedBy.AUTO)

    def _digest(self, tool: str, text: str) -> str:
        """Return the digest of a text in its folder: `python build.py` is another program in another folder."""
        return hashlib.sha256(f"{tool}\x01{self._files.cwd}\x01{text}".encode("utf-8", "surrogatepass")).hexdigest()
