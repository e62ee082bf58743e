"""Rules of the policy, what they compare with a call (name, texts, paths, URLs, trust), and which calls they match.

A deny rule applies if any part of a call matches in any spelling. An allow rule applies if every part matches as
resolved. For a command with unclear paths, an allow rule on paths does not apply, and a deny rule on paths leaves a
doubt.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, StrEnum, auto
from typing import NamedTuple, TypeVar, assert_never

from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Phase, tool_id
from acp_agent.gates.gate import CallFacts, CommandFacts, texts_in
from acp_agent.gates.paths.command_paths import path_words
from acp_agent.gates.rules.patterns import compile_glob
from acp_agent.gates.shell.command import Command, Plain
from acp_agent.gates.shell.programs import subcommand_words
from acp_agent.regex import LinearRegex


class TrustLevel(StrEnum):
    """A level of trust, least first.

    BLOCKED       nothing may be done with it or by it
    UNTRUSTED     it is not used until the user trusts it
    PROVISIONAL   there was no reason to ask, or the user said yes for now
    TRUSTED       it is ours or the user's own, or the user said yes for good
    """

    BLOCKED = "blocked"
    UNTRUSTED = "untrusted"
    PROVISIONAL = "provisional"
    TRUSTED = "trusted"

    @property
    def rank(self) -> int:
        """The place in the order of levels, from 0 for the least."""
        return _LEVELS.index(self)

    @property
    def counts(self) -> bool:
        """Whether something with this level is used."""
        return self in (TrustLevel.PROVISIONAL, TrustLevel.TRUSTED)


_LEVELS = [*TrustLevel]


def lowest(*levels: TrustLevel) -> TrustLevel:
    """Return the least of several levels."""
    return min(levels, key=_LEVELS.index)


MAX_WORDS = 1000
"""The most paths of one command that are resolved. With more, its paths are unclear."""

_SEPARATORS = re.compile(r"[=:,@]")
_PATTERN = re.compile(r"[*?\[]")

RealPath = Callable[[str], str]
"""Returns where an absolute path leads, links followed, like `os.path.realpath`."""


@frozen
class Target:
    """A path or URL of a call.

    real        the resolved path: absolute, and relative to the session's folder if below it; empty if unresolvable
    spellings   all known ways to write it, with `real`
    taken       the spellings of a folder that is moved or deleted with everything below it
    above       the beginnings of all paths below it, if it is a folder that a command may search
    named       whether it may be no path: a deny rule applies to it, an allow rule ignores it
    """

    real: tuple[str, ...]
    spellings: tuple[str, ...]
    taken: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    named: bool = False


class PolicyFacts(NamedTuple):
    """The facts of a call that rules compare.

    texts     every text among the arguments
    targets   its paths and URLs
    unclear   why it may have more of them; empty if these are all
    phase     the point of the turn at which it is made
    """

    tool: str
    trust: TrustLevel
    texts: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    unclear: str = ""
    phase: Phase = Phase.EXECUTOR


def tool_name(name: str) -> str:
    """Return a tool's name as rules see it: its id in lower case. Tools of MCP servers have qualified names."""
    return tool_id(name.strip()).lower()


def policy_facts(facts: CallFacts, trust: TrustLevel, cwd: str, realpath: RealPath, *, targets: bool) -> PolicyFacts:
    """Return what rules compare with a call. Paths are resolved only if a rule needs `targets`."""
    tool, call = tool_name(facts.spec.name), facts.call
    texts = (call.raw_arguments,) if call.arguments is None else tuple(texts_in(call.arguments))
    if not targets:
        return PolicyFacts(tool, trust, texts, phase=call.phase)
    found = [_path(each.path, cwd, realpath, entry=each.access.of_the_entry) for each in facts.paths]
    found += [Target((url,), (url,)) for url in facts.urls]
    unclear = ""
    for command in facts.commands:
        words, doubt = _command_paths(command)
        found += [_named(word, kind, cwd, realpath) for word, kind in words.items()]
        unclear = unclear or doubt
    return PolicyFacts(tool, trust, texts, tuple(found), unclear, call.phase)


def _path(path: str, cwd: str, realpath: RealPath, *, entry: bool = False) -> Target:
    """Return a path as a target. For an `entry` that is moved or deleted, a link at its end is not followed."""
    joined = os.path.join(cwd, os.path.expanduser(path))
    lexical = _normal(joined)
    try:
        real = realpath(joined)
        folder, name = os.path.split(joined.rstrip("/"))
        if entry and name not in ("", ".", ".."):
            real = os.path.join(realpath(folder), name)
    except (OSError, ValueError):  # a NUL, or links in a circle: no allow rule applies
        return Target((), (path, lexical))
    names = (real, os.path.relpath(real, cwd)) if real.startswith(f"{cwd.rstrip('/')}/") else (real,)
    return Target(names, tuple(dict.fromkeys((*names, path, lexical))), (*names, lexical) if entry else ())


def _normal(path: str) -> str:
    """Return a path normalised as text, also without the second slash in front that POSIX keeps."""
    return "/" + os.path.normpath(path).lstrip("/")


class _Kind(Enum):
    """The meaning of a command's word for the policy."""

    ENTERED = auto()  # a folder of `cd`, which by itself reads nothing
    NAMED = auto()  # it may be a path
    PATH = auto()  # it has a slash


def _named(word: str, kind: _Kind, cwd: str, realpath: RealPath) -> Target:
    """Return a word of a command as a target."""
    target = _path(word, cwd, realpath)
    real = target.real[0] if target.real else ""
    above = [f"{name.rstrip('/')}/" for name in target.spellings if name not in ("", ".")]
    if real and f"{cwd.rstrip('/')}/".startswith(f"{real.rstrip('/')}/"):
        above.append("")  # it is above all paths relative to the session's folder
    return replace(target, above=() if kind is _Kind.ENTERED else tuple(above), named=kind is not _Kind.PATH)


def _command_paths(line: CommandFacts) -> tuple[dict[str, _Kind], str]:
    """Return the words of a command that may be paths, seen from its folders, and why there may be more."""
    unclear = "" if isinstance(line.analysis, Plain) else line.analysis.reason
    found: dict[str, _Kind] = {}
    for command, _, folders, after in line.surveyed_steps:
        for word, kind in _words(command):
            for place in (*folders.places(word), *([word] if kind is _Kind.PATH else ())):
                found[place] = max(kind, found.get(place, kind), key=lambda each: each.value)
            matches = folders.matches(word, command)
            found.update(dict.fromkeys(matches or (), _Kind.PATH))
            unread = matches is None or any(map(_PATTERN.search, matches))
            unclear = unclear or ("names files by a pattern" if unread else "")
            if len(found) > MAX_WORDS:
                return found, f"names more than {MAX_WORDS} paths"
        if after.lost:
            return found, "changes the folder more often than can be followed"
    return found, unclear


def _words(command: Command) -> Iterator[tuple[str, _Kind]]:
    """Yield the words of one command that may be paths."""
    targets = (redirection.target for redirection in command.redirections if not redirection.harmless)
    for word in (*command.argv, *command.assignments, *targets):
        yield from ((each, _Kind.PATH) for each in _paths(word))
    if command.name in ("cd", "pushd"):
        yield from ((word, _Kind.ENTERED) for word in path_words(command))
        return
    no_paths = subcommand_words(command)
    for word in path_words(command):
        if "/" in word or word not in no_paths:
            yield word, _Kind.NAMED


def _paths(word: str) -> Iterator[str]:
    """Yield the possible paths in a word: the whole, the value of an option, the parts of `--file=/a` and `/a:/b`."""
    for piece in _SEPARATORS.split(word):
        if piece.startswith("-") and "/" in piece:
            yield piece[piece.find("/") :]
        elif "/" in piece or piece in ("~", ".."):
            yield piece
    if word.startswith(("/", "~", ".")):
        yield word


_WILD = "*?[\\"

Compile = Callable[[str], Callable[[str], bool]]
"""Compiles a regular expression to a search in linear time. Raises ValueError with the reason."""

T = TypeVar("T")


class Effect(StrEnum):
    """The effect of a rule on a call that it matches."""

    ALLOW = "allow"
    DENY = "deny"


class Miss(NamedTuple):
    """The reason why a rule does not match a call.

    doubtful   whether the call may also touch paths that are not known, which this deny rule may match
    """

    reason: str
    doubtful: bool = False


_ELSEWHERE = Miss("other paths")


@frozen
class TargetGlob:
    """A glob on paths and URLs. `*` matches slashes as well."""

    exact: LinearRegex
    folded: LinearRegex
    literal: str

    @classmethod
    def parse(cls, pattern: str) -> "TargetGlob":
        """Compile a glob. `~` is the user's home. Raises ValueError with the reason."""
        full = os.path.expanduser(pattern)
        first = min((full.find(char) for char in _WILD if char in full), default=len(full))
        return cls(compile_glob(full), compile_glob(_folded(full)), _folded(full[:first]))

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


@frozen
class PolicyRule:
    """One compiled rule.

    place   its name for the user: "tools.policy.rules[0]"
    unset   the environment variables that it requires and that are missing now
    phases  the only phases to which it applies; empty for all
    """

    place: str
    effect: Effect
    pattern: str
    tool: LinearRegex
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
            tool=_compiled(compile_glob, place, "tool", tool_name(tool)),
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
        """Whether a deny rule decides every call of the tools that it names."""
        return not (self.paths or self.unset or self.trust or self.search or self.phases)

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
