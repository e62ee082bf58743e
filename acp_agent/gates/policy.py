"""Refuse calls by the policy and the authorization. Both are lists of rules, and the first rule that matches decides.

A call that these rules allow must still pass every other gate.
"""

from collections.abc import Callable
from typing import assert_never

from acp_agent.core.data import frozen
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Allow, Ask, Deny, ToolSpec, Verdict
from acp_agent.gates.gate import CallFacts, Gate
from acp_agent.gates.rules.policy_rules import (
    Effect,
    PolicyFacts,
    PolicyRule,
    RealPath,
    TrustLevel,
    policy_facts,
    tool_name,
)

_BLOCKED = "blocked by policy"
_SHELL = "bash"


@frozen
class PolicyDecision:
    """The policy's decision about a call.

    rule     the rule that decided; None if it was the default
    doubt    why an earlier rule might match the call and deny it; empty if none might
    steps    a line about each rule that was compared, for the user
    """

    effect: Effect
    rule: PolicyRule | None
    doubt: str
    steps: tuple[str, ...]


@frozen
class Policy:
    """All rules in their order, those of the authorization last, and the default if none matches.

    fault   why the policy cannot be read, with file, rule and reason; then no call runs
    """

    rules: tuple[PolicyRule, ...] = ()
    default: Effect = Effect.ALLOW
    fault: str = ""

    @property
    def status(self) -> str:
        """One line about the policy in force, for `/policy status`."""
        if self.fault:
            return f"the policy cannot be read, so nothing runs: {self.fault}"
        if not self.rules and self.default is Effect.ALLOW:
            return "no policy is in force"
        return f"policy rules in force: {len(self.rules)}; calls that no rule matches: {self.default}"

    def decide(self, call: PolicyFacts) -> PolicyDecision:
        """Return the decision of the first rule that matches, else of the default."""
        steps: list[str] = []
        doubt = ""
        for rule in self.rules:
            miss = rule.misses(call)
            steps.append(f"{rule}: {f'no match, {miss.reason}' if miss else 'matches'}")
            if miss is None:
                return PolicyDecision(rule.effect, rule, doubt, tuple(steps))
            doubt = miss.reason if miss.doubtful else doubt
        return PolicyDecision(self.default, None, doubt, tuple(steps))

    def offers(self, tool: str) -> bool:
        """Return whether any call of a tool may pass."""
        if self.fault:
            return False
        for rule in self.rules:
            if not rule.tool.matches(tool_name(tool)):
                continue
            if rule.effect is Effect.ALLOW:
                return True  # some calls may pass
            if rule.unconditional:
                return False
        return self.default is Effect.ALLOW


class PolicyGate(Gate):
    """A gate that judges calls by the policy. The audit records the rule. The model learns only that a rule decided.

    policy     the rules as they were when this gate was made. A change of the configuration or of the policy file makes
               a new gate
    cwd        the session's folder, absolute, links resolved
    realpath   returns an absolute path with links resolved
    trust      returns the present trust in a call
    """

    name = "policy"

    def __init__(
        self,
        policy: Policy,
        *,
        cwd: str,
        realpath: RealPath,
        trust: Callable[[Invocation], TrustLevel],
    ) -> None:
        self._policy = policy
        self._cwd = cwd
        self._realpath = realpath
        self._trust = trust

    @property
    def chooses(self) -> bool:
        return bool(self._policy.fault or self._policy.rules) or self._policy.default is not Effect.ALLOW

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether a tool is offered to the model."""
        return self._policy.offers(spec.name) and (not spec.commands or self._policy.offers(_SHELL))

    def judge(self, facts: CallFacts) -> Verdict:
        policy = self._policy
        if policy.fault:
            return Deny(policy.status, rule="unreadable")
        if not policy.rules and policy.default is Effect.ALLOW:
            return Allow()
        decision = self._decide(facts)
        match decision.effect:
            case Effect.DENY:
                return Deny(_BLOCKED, rule=str(decision.rule or ""))
            case Effect.ALLOW:
                doubt = f"{decision.doubt}, and the policy denies some paths"
                return Ask(doubt, firm=True) if decision.doubt else Allow()
            case _:
                assert_never(decision.effect)

    def trace(self, facts: CallFacts) -> list[str]:
        """Return a line for each rule up to the one that decides. It is for the user, never the model."""
        if self._policy.fault:
            return [self._policy.status]
        decision = self._decide(facts)
        because = "" if decision.rule else ", since no rule matches"
        asks = decision.doubt and decision.effect is Effect.ALLOW
        return [*decision.steps, f"decision: {'ask' if asks else decision.effect}{because}"]

    def _decide(self, facts: CallFacts) -> PolicyDecision:
        """Decide for the tool and for each name that it acts as. A denial counts most, then a doubt."""
        targets = any(rule.paths for rule in self._policy.rules)
        trust = self._trust(facts.invocation)
        found = policy_facts(facts, trust, self._cwd, self._realpath, targets=targets)
        decision = self._policy.decide(found)
        for name in (*facts.spec.acts_as, *((facts.custom,) if facts.custom else ())):
            if decision.effect is Effect.DENY:
                break
            other = self._policy.decide(found._replace(tool=tool_name(name)))
            decision = other if other.effect is Effect.DENY or not decision.doubt else decision
        return decision
