"""Rules of the policy: which calls they match.

A deny rule applies if any part of a call matches in any spelling. An allow rule applies if every part matches as
resolved. For a command with unclear paths, an allow rule on paths does not apply, and a deny rule on paths leaves a
doubt.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar, assert_never

from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Phase
from acp_agent.gates.rules.patterns import RuleGlob
from acp_agent.gates.rules.policy_facts import PolicyFacts, Target, tool_name
from acp_agent.gates.rules.trust_level import TrustLevel

_WILD = "*?[\\"

Compile = Callable[[str], Callable[[str], bool]]
"""Compiles a regular expression to a search in linear time. Raises ValueError with the reason."""

T = TypeVar("T")


class Effect(StrEnum):
    """What a rule does with a call that it matches."""

    ALLOW = "allow"
    DENY = "deny"


class Miss(NamedTuple):
    """Why a rule does not apply to a call. `doubtful` if the rule denies what the call may do unseen."""

    reason: str
    doubtful: bool = False


_ELSEWHERE = Miss("other paths")


@dataclass(frozen=True, slots=True)
class TargetGlob:
    """A glob on paths and URLs. `*` matches slashes as well."""

    exact: RuleGlob
    folded: RuleGlob
    literal: str

    @classmethod
    def parse(cls, pattern: str) -> "TargetGlob":
        """Compile a glob. `~` is the user's home. Raises ValueError with the reason."""
        full = os.path.expanduser(pattern)
        first = min((full.find(char) for char in _WILD if char in full), default=len(full))
        return cls(RuleGlob.parse(full), RuleGlob.parse(_folded(full)), _folded(full[:first]))

    def covers(self, target: Target) -> bool:
        """Return whether an allow rule matches a target."""
        return any(self.exact.matches(text) for text in target.real)

    def touches(self, target: Target) -> bool:
        """Return whether a deny rule matches: `/a/*` also names /a, and a call that removes /a removes its entries."""
        if any(self.folded.matches(_folded(text) + end) for text in target.spellings for end in ("", "/")):
            return True
        return any(self.literal.startswith(_folded(folder).rstrip("/") + "/") for folder in target.taken)

    def may_lie_below(self, target: Target) -> bool:
        """Return whether a deny rule may match something in a folder that a command reads."""
        relative = self.literal and not self.literal.startswith("/") and "://" not in self.literal
        return any(self.literal.startswith(_folded(start)) for start in target.above if start or relative)


def _folded(text: str) -> str:
    """Return a text in lower case without line feeds, which names may contain and `*` does not cross."""
    return text.casefold().replace("\n", " ")


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One compiled rule.

    place   its name for the user: "tools.policy.rules[0]"
    unset   the environment variables that it requires and that are not set
    phases  the only phases to which it applies; empty for all
    """

    place: str
    effect: Effect
    pattern: str
    tool: RuleGlob
    paths: tuple[TargetGlob, ...]
    unset: tuple[str, ...]
    trust: TrustLevel | None
    search: Callable[[str], bool] | None
    reserved: bool
    phases: frozenset[Phase] = frozenset()

    @classmethod
    def parse(  # noqa: PLR0913 - a rule has that many fields
        cls,
        place: str,
        effect: Effect,
        tool: str,
        *,
        compile_regex: Compile,
        paths: Sequence[str] = (),
        env: Iterable[str] = (),
        variables: Iterable[str] = (),
        trust: TrustLevel | None = None,
        args_match: str | None = None,
        capabilities: Sequence[str] = (),
        phases: Iterable[Phase] = (),
    ) -> "PolicyRule":
        """Compile a rule; `variables` are the names in the environment.

        Raises ConfigError naming the rule, the pattern and what is wrong with it.
        """
        return cls(
            place=place,
            effect=effect,
            pattern=tool,
            tool=_compiled(RuleGlob.parse, place, "tool", tool_name(tool)),
            paths=tuple(_compiled(TargetGlob.parse, place, "paths", path) for path in paths),
            unset=tuple(sorted(set(env) - set(variables))),
            trust=trust,
            search=None if args_match is None else _compiled(compile_regex, place, "args_match", args_match),
            reserved=bool(capabilities),
            phases=frozenset(phases),
        )

    def __str__(self) -> str:
        return f"{self.place}: {self.effect} {self.pattern}"

    @property
    def unconditional(self) -> bool:
        """Whether it decides every call of the tools that it names."""
        return not (self.paths or self.unset or self.trust or self.search or self.reserved or self.phases)

    def misses(self, call: PolicyFacts) -> Miss | None:
        """Return why the rule does not apply to a call; None if it decides."""
        if not self.tool.matches(call.tool):
            return Miss("for other tools")
        if self.phases and call.phase not in self.phases:
            return Miss(f"the call is made in the phase {call.phase}")
        if self.unset:
            return Miss(f"not set: {', '.join(self.unset)}")
        if self.trust is not None and not self._fits(self.trust, call.trust):
            return Miss(f"the call is {call.trust.value}")
        match self.effect:
            case Effect.DENY:
                return self._deny_misses(call)
            case Effect.ALLOW:
                return self._allow_misses(call)
            case _:
                assert_never(self.effect)

    def _fits(self, threshold: TrustLevel, trust: TrustLevel) -> bool:
        """Return whether the trust fits: an allow rule needs at least its level, a deny rule holds for at most that."""
        return trust.rank <= threshold.rank if self.effect is Effect.DENY else trust.rank >= threshold.rank

    def _deny_misses(self, call: PolicyFacts) -> Miss | None:
        if self.search is not None and not any(map(self.search, call.texts)):
            return Miss("args_match is found nowhere")
        if not self.paths or any(glob.touches(target) for glob in self.paths for target in call.targets):
            return None
        if call.unclear:
            return Miss(f"the command {call.unclear}", doubtful=True)
        below = any(glob.may_lie_below(target) for glob in self.paths for target in call.targets)
        return Miss("the command looks into a folder above others", doubtful=True) if below else _ELSEWHERE

    def _allow_misses(self, call: PolicyFacts) -> Miss | None:
        if self.reserved:
            return Miss("capabilities are reserved")
        if self.search is not None and not (call.texts and all(map(self.search, call.texts))):
            return Miss("args_match is not found in every text")
        if not self.paths:
            return None
        if call.unclear:
            return Miss(f"the command {call.unclear}")
        covered = [any(glob.covers(target) for glob in self.paths) for target in call.targets if not target.named]
        return None if covered and all(covered) else _ELSEWHERE


def _compiled(compile_one: Callable[[str], T], place: str, key: str, pattern: str) -> T:
    try:
        return compile_one(pattern)
    except ValueError as error:
        raise ConfigError(place, key, pattern, f"another pattern: {error}") from None
