"""Rules of the policy: what they say of a call (requirements S5).

One principle runs through all of it: a deny rule applies when any part of a call matches, in any spelling; an allow
rule applies when every part does, as it really is. Of a command whose paths cannot be told, an allow rule on paths
says nothing, and a deny rule on paths leaves a doubt.
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
"""Compiles a regular expression that runs in linear time into a search. Raises ValueError with the reason."""

T = TypeVar("T")


class Effect(StrEnum):
    """What a rule does with a call it matches."""

    ALLOW = "allow"
    DENY = "deny"


class Miss(NamedTuple):
    """Why a rule says nothing of a call. `doubtful`: it denies what the call may do unseen."""

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
        """Compile; `~` is the user's home. Raises ValueError with the reason."""
        full = os.path.expanduser(pattern)
        first = min((full.find(char) for char in _WILD if char in full), default=len(full))
        return cls(RuleGlob.parse(full), RuleGlob.parse(_folded(full)), _folded(full[:first]))

    def covers(self, target: Target) -> bool:
        """Whether an allow reaches a target."""
        return any(self.exact.matches(text) for text in target.real)

    def touches(self, target: Target) -> bool:
        """Whether a deny reaches it: `/a/*` also names /a, and what takes /a away takes what is below it."""
        if any(self.folded.matches(_folded(text) + end) for text in target.spellings for end in ("", "/")):
            return True
        return any(self.literal.startswith(_folded(folder).rstrip("/") + "/") for folder in target.taken)

    def may_lie_below(self, target: Target) -> bool:
        """Whether a deny reaches something in a folder that a command looks into."""
        relative = self.literal and not self.literal.startswith("/") and "://" not in self.literal
        return any(self.literal.startswith(_folded(start)) for start in target.above if start or relative)


def _folded(text: str) -> str:
    """Without case, and without line feeds: a `*` does not cross them, and a file's name may hold one."""
    return text.casefold().replace("\n", " ")


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule, compiled. Made by `parse`.

    place   what to call it: "tools.policy.rules[0]"
    unset   the variables it wants that are not there
    phases  the only ones it is about; empty for all (S7)
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
    def parse(  # noqa: PLR0913 - a rule has that many fields (S5.2)
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
        """Whether it decides every call of the tools it names."""
        return not (self.paths or self.unset or self.trust or self.search or self.reserved or self.phases)

    def misses(self, call: PolicyFacts) -> Miss | None:
        """Why the rule says nothing of a call; None when it decides."""
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
        """Less trust never gets more: an allow wants at least so much, a deny holds for at most so much."""
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
