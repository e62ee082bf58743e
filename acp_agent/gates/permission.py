"""The last gate: everything that needs the user's word is settled here, with one question (requirements A20, S3).

What decides, in this order: a denying rule or a stored denial ends the call; a call the user typed himself
(`/run`) and full-auto run; a stored approval of exactly this text runs; questions of other gates ask; rules and
stored approvals allow; else the approval level decides. Tools that change nothing do not ask by themselves.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

import anyio

from acp_agent.core.conduct import AutoApprove, Conduct
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import Approver, Decision, Invocation, ToolExecutor
from acp_agent.core.types import (
    Access,
    Allow,
    Ask,
    CallOrigin,
    CommandSubject,
    Deny,
    PathSubject,
    ToolKind,
    ToolResult,
    ToolSpec,
    Verdict,
)
from acp_agent.core.wrapper import Gate
from acp_agent.gates.grants import Grant, GrantKind, GrantStore
from acp_agent.gates.judgement import Judgement, judge
from acp_agent.gates.question import build
from acp_agent.gates.rules import Action, Rule, denied_outright
from acp_agent.gates.tool_rules import Resolve, arguments_text, rule_action

_RULE_DENIES = "a permission rule denies this call"
_USER_DENIED = "denied by the user"
_NO_ANSWER = "the editor gave no usable answer to the question whether this may run, so it did not"
_NOBODY = "this call needs the user's approval, and there is nobody to ask"


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to be done about a call.

    verdict   Ask: its reason joins `reasons` by line ends
    reasons   why it is asked, one line each
    always    what "always" would cover, in words; empty when it binds to this exact text
    grants    what "allow always" would keep
    denial    what "reject always" would keep, as an approval: of several prefixes nobody knows which one was
              meant, so it is the exact text then
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    always: str = ""
    grants: tuple[Grant, ...] = ()
    denial: Grant | None = None


class PermissionGate(Gate):
    """Asks, remembers, refuses. One question at a time in a session; `rules` may be replaced at any time.

    rules      by tool name, in order
    conduct    the approval level in force; read anew for each call
    approver   None when there is nobody to ask: what would be asked is refused as confirmation_required
    resolve    FileSystem.resolve: paths are matched as given and as they really are (S3.7)
    """

    def __init__(
        self,
        wrapped: ToolExecutor,
        *,
        rules: Mapping[str, tuple[Rule, ...]],
        conduct: Conduct,
        grants: GrantStore,
        approver: Approver | None,
        resolve: Resolve,
    ) -> None:
        super().__init__(wrapped)
        self.rules = rules
        self._conduct = conduct
        self._grants = grants
        self._approver = approver
        self._resolve = resolve
        self._one_question = anyio.Lock()

    def allows(self, spec: ToolSpec) -> bool:
        """Whether a tool belongs in the catalogue: not when it is denied whole (S3.2, A20.16)."""
        stored = self._grants.find(spec.name, GrantKind.TOOL)
        return stored is not False and not denied_outright(self.rules.get(spec.name, ()))

    def check(self, invocation: Invocation) -> Verdict:
        return self.settle(invocation).verdict

    async def execute(self, invocation: Invocation) -> ToolResult:
        settlement = self.settle(invocation)
        if isinstance(settlement.verdict, Ask):
            return await self._ask(invocation)
        return await self._settled(invocation, settlement.verdict)

    def requires_confirmation(self, invocation: Invocation) -> bool:
        verdict = self.check(invocation)
        match verdict:
            case Deny():
                return False
            case Ask():
                return invocation.flaw is None
            case Allow():
                return self.wrapped.requires_confirmation(invocation)
            case _:
                assert_never(verdict)

    async def _settled(self, invocation: Invocation, verdict: Allow | Deny) -> ToolResult:
        if isinstance(verdict, Deny):
            return ToolResult.refused(verdict.reason, verdict.category)
        return await self.wrapped.execute(invocation)

    async def _ask(self, invocation: Invocation) -> ToolResult:
        if invocation.flaw is not None:
            return invocation.flaw  # whatever the answer, it could not be done: not worth a question
        if self._approver is None:
            return ToolResult.refused(_NOBODY, ToolErrorCategory.CONFIRMATION_REQUIRED)
        async with self._one_question:
            # While this call waited for its turn, "always" may have been said to the same thing.
            settlement = self.settle(invocation)
            if isinstance(settlement.verdict, Ask):
                question = build(invocation, settlement.reasons, settlement.always, _digest_of(settlement))
                decision = await self._approver.ask(question)
                await self._remember(decision, settlement)
            else:
                decision = None
        if decision is None:
            assert not isinstance(settlement.verdict, Ask)
            return await self._settled(invocation, settlement.verdict)
        return await self._decided(invocation, decision)

    async def _decided(self, invocation: Invocation, decision: Decision) -> ToolResult:
        match decision:
            case Decision.ALLOW_ONCE | Decision.ALLOW_ALWAYS:
                return await self.wrapped.execute_confirmed(invocation)
            case Decision.REJECT_ONCE | Decision.REJECT_ALWAYS:
                return ToolResult.refused(_USER_DENIED)
            case Decision.CANCELLED:
                return ToolResult.refused("the question was cancelled", ToolErrorCategory.CANCELLED)
            case Decision.UNANSWERED:
                return ToolResult.refused(_NO_ANSWER, ToolErrorCategory.CONFIRMATION_REQUIRED)
            case _:
                assert_never(decision)

    async def _remember(self, decision: Decision, settlement: Settlement) -> None:
        match decision:
            case Decision.ALLOW_ALWAYS:
                await self._grants.remember(*settlement.grants)
            case Decision.REJECT_ALWAYS:
                assert settlement.denial is not None
                await self._grants.remember(replace(settlement.denial, allowed=False))
            case Decision.ALLOW_ONCE | Decision.REJECT_ONCE | Decision.CANCELLED | Decision.UNANSWERED:
                return
            case _:
                assert_never(decision)

    def settle(self, invocation: Invocation) -> Settlement:
        """What is to be done about a call, before anybody is asked."""
        commands = [subject.command for subject in invocation.subjects if isinstance(subject, CommandSubject)]
        if commands:
            return self._settle_command(invocation, "\n".join(commands))
        return self._settle_tool(invocation)

    def _settle_command(self, invocation: Invocation, text: str) -> Settlement:
        tool = invocation.spec.name
        whole = self._grants.find(tool, GrantKind.TOOL)

        def granted(prefix: str) -> bool | None:
            stored = self._grants.find(tool, GrantKind.PREFIX, prefix)
            return whole if stored is None else stored

        judgement = judge(text, self.rules.get(tool, ()), granted)
        digest = self._digest(tool, text)
        exact = self._grants.find(tool, GrantKind.PAYLOAD, digest)
        denial = self._denial(
            judgement.action is Action.DENY and bool(judgement.pattern), exact is False or whole is False
        )
        denial = denial or (Deny(_USER_DENIED) if judgement.action is Action.DENY else None)
        if denial is not None:
            return Settlement(denial)
        if self._free(invocation) or exact:
            return Settlement(Allow())
        if judgement.action is Action.ALLOW and not invocation.asks:
            return Settlement(Allow())
        return _command_question(invocation, judgement, digest)

    def _settle_tool(self, invocation: Invocation) -> Settlement:
        spec = invocation.spec
        stored = self._grants.find(spec.name, GrantKind.TOOL)
        action = rule_action(invocation, self.rules.get(spec.name, ()), self._resolve)
        digest = self._digest(spec.name, arguments_text(invocation))
        exact = self._grants.find(spec.name, GrantKind.PAYLOAD, digest)
        denied = action is Action.DENY or self._reading_denied(invocation)
        denial = self._denial(denied, exact is False or stored is False)
        if denial is not None:
            return Settlement(denial)
        if self._free(invocation) or exact or not self._asks(invocation, action, stored=stored):
            return Settlement(Allow())
        reasons = tuple(ask.reason for ask in invocation.asks)
        verdict = Ask("\n".join(reasons) or f"{spec.name} changes things")
        payload = Grant(spec.name, GrantKind.PAYLOAD, digest, allowed=True)
        if invocation.asks:
            return Settlement(verdict, reasons, "", (payload,), payload)
        tool = Grant(spec.name, GrantKind.TOOL, "", allowed=True)
        return Settlement(verdict, (), f"every use of {spec.name}", (tool,), tool)

    def _reading_denied(self, invocation: Invocation) -> bool:
        """What may not be read may not be edited or searched either: the result would show it (T4.9)."""
        read = tuple(s for s in invocation.subjects if isinstance(s, PathSubject) and s.access is Access.READ)
        rules = self.rules.get("read", ())
        return bool(read) and rule_action(replace(invocation, subjects=read), rules, self._resolve) is Action.DENY

    def _asks(self, invocation: Invocation, action: Action | None, *, stored: bool | None) -> bool:
        if invocation.asks:
            return True
        if action is Action.ALLOW or stored:
            return False
        return action is Action.ASK or (invocation.spec.mutates and not self._silent_edit(invocation))

    def _silent_edit(self, invocation: Invocation) -> bool:
        """Auto-edit: a change of files, by paths the sandbox has let through, is silent; a deletion is not."""
        paths = [isinstance(subject, PathSubject) for subject in invocation.subjects]
        kind = invocation.spec.kind
        return (
            self._conduct.auto_approve is AutoApprove.AUTO_EDIT
            and bool(paths)
            and all(paths)
            and kind not in (ToolKind.DELETE, ToolKind.EXECUTE)
        )

    def _free(self, invocation: Invocation) -> bool:
        """Whether nothing asks: the user typed the call himself (T3.12), or said so for the session (A15.8)."""
        return invocation.call.origin is CallOrigin.USER or self._conduct.auto_approve is AutoApprove.FULL_AUTO

    def _denial(self, by_rule: bool, by_user: bool) -> Deny | None:  # noqa: FBT001 - two named facts, not options
        if by_rule:
            return Deny(_RULE_DENIES)
        return Deny(_USER_DENIED) if by_user else None

    def _digest(self, tool: str, text: str) -> str:
        """The text is bound to its folder: `python build.py` is another program elsewhere."""
        try:
            folder = self._resolve(".", Access.READ)
        except (Refused, ToolError):
            folder = ""
        return hashlib.sha256(f"{tool}\x01{folder}\x01{text}".encode(errors="replace")).hexdigest()


def _command_question(invocation: Invocation, judgement: Judgement, digest: str) -> Settlement:
    tool = invocation.spec.name
    reasons = (*(ask.reason for ask in invocation.asks), *judgement.reasons)
    # What another gate asks about (a path outside, say) is no part of a prefix: only the exact text covers it.
    needed = () if invocation.asks else judgement.needed
    exact = Grant(tool, GrantKind.PAYLOAD, digest, allowed=True)
    grants = tuple(Grant(tool, GrantKind.PREFIX, prefix, allowed=True) for prefix in needed) or (exact,)
    always = ", ".join(f"{prefix} …" for prefix in needed)
    shown = tuple(reason for reason in reasons if not reason.startswith("no rule allows"))
    verdict = Ask("\n".join(reasons) or "runs a command")
    return Settlement(verdict, shown, always, grants, grants[0] if len(grants) == 1 else exact)


def _digest_of(settlement: Settlement) -> str:
    exact = (grant.key for grant in settlement.grants if grant.kind is GrantKind.PAYLOAD)
    return next(exact, "")
