"""Protected paths: git hooks, editor tasks, shell start-up files and the like, which something runs or obeys later.

`protected_paths.toml` lists them with the reasons. No file tool changes the hard ones, even if a rule allows it:
`ProtectedPaths` is a PathPolicy for `Roots`, so every writer meets it. It judges by name, so that files which do not
exist yet are protected too. `gates/protected.py` asks about the soft ones, which users do let agents edit.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase, translate
from functools import cache
from itertools import chain, dropwhile
from typing import NamedTuple, TypeAlias, cast

from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import Access
from acp_agent.text import packaged_table
from acp_agent.workspace.read_policy import folded, resolving, spellings

GLOB = frozenset("*?[")
_MAX_NAME = 255


class Protection(NamedTuple):
    """A reason why a path is protected. `reason` continues "it is protected: ".

    hard       whether no tool may change it, even if a rule allows it
    everyday   whether projects edit it as often as their code: an approval level without questions lets it be changed
    """

    hard: bool
    reason: str
    everyday: bool = False


@frozen
class PatternName:
    """One name of a pattern: its text, and an expression if it is a glob."""

    text: str
    glob: re.Pattern[str] | None

    def fits(self, name: str, *, first: bool) -> bool:
        """Return whether a name of a path may match this one. The path's name may itself be a shell pattern."""
        if name == self.text:
            return True
        if len(name) > _MAX_NAME:
            return False
        if self.glob is not None and self.glob.fullmatch(name):
            return True
        if GLOB.isdisjoint(name):
            return False
        if self.glob is not None:
            return not first
        dotted = self.text.startswith(".")
        # A bare `*` of a command means no file in particular. As in bash, only a dot matches a dot at the beginning.
        return (not first or dotted) and (not dotted or name[0] == ".") and fnmatchcase(self.text, name)


ANY_DEPTH = PatternName("**", None)


@frozen
class ProtectionRule:
    """One pattern.

    anchored   whether it begins at the root; otherwise it begins anywhere in a path
    below      whether everything below counts as well
    free       its exceptions
    whole      whether moving or removing a folder that may contain it counts as changing it
    """

    names: tuple[PatternName, ...]
    protection: Protection
    anchored: bool = False
    below: bool = True
    free: "tuple[ProtectionRule, ...]" = ()
    whole: bool = True

    def matches(self, path: Sequence[str], *, holding: bool = False) -> bool:
        """Return whether it names this path, in time linear in the length of the path.

        holding   whether a folder counts that may contain such a path
        """
        return self._meets(path, holding=holding) and not any(rule.matches(path) for rule in self.free)

    def _meets(self, path: Sequence[str], *, holding: bool) -> bool:
        end, active = len(self.names), self._with_gaps({0})
        for name in path:
            if end in active and self.below:
                return True
            after = set[int]() if self.anchored else {0}
            for at in active:
                if at < end and self.names[at] is ANY_DEPTH:
                    after.add(at)
                elif at < end and self.names[at].fits(name, first=at == 0):
                    after.add(at + 1)
            active = self._with_gaps(after)
        return end in active or (holding and self._holds and max(active, default=0) > 0)

    def _with_gaps(self, active: set[int]) -> set[int]:
        """Return the states with the one after every active `**`, which may match no name at all."""
        for at, name in enumerate(self.names):
            if name is ANY_DEPTH and at in active:
                active.add(at + 1)
        return active

    @property
    def _holds(self) -> bool:
        """Whether the first names of the pattern alone identify a folder: `.vscode` does, `bin` does not."""
        return self.whole and (self.anchored or self.names[0].text.startswith("."))


def rule_of(
    pattern: str, protection: Protection, *, below: bool = True, free: tuple[ProtectionRule, ...] = ()
) -> ProtectionRule:
    """Return the rule of a pattern, which the caller has folded if case does not count. Raises re.error."""
    given = names_of(pattern)
    leading = len(given) - len(tuple(dropwhile("**".__eq__, given)))  # rules begin anywhere in a path anyway
    names = tuple(
        ANY_DEPTH if name == "**" else PatternName(name, None if GLOB.isdisjoint(name) else re.compile(translate(name)))
        for name in given[leading:]
    )
    return ProtectionRule(names, protection, pattern.startswith("/") and not leading, below, free)


def names_of(path: str) -> tuple[str, ...]:
    """Return the names of a path."""
    return tuple(name for name in path.split("/") if name not in ("", "."))


_MOST_REMEMBERED, _LONGEST_REMEMBERED = 128, 1024
"""The most paths whose protection is remembered, and the most characters of one."""
MAX_PATTERN = 1024
"""The most characters of a user's pattern."""

_OWN = Protection(hard=True, reason="it belongs to the agent itself")
_ADDED = Protection(hard=False, reason="tools.protection.protected_paths names it")
_OBEYED = Protection(hard=False, reason="coding agents obey it", everyday=True)
_HOOKS = Protection(hard=False, reason="git hooks are kept there")


class ProtectedPaths:
    """The protected paths of a session. Raises ConfigError for an invalid pattern.

    added    patterns of further soft ones: absolute, `~/…`, or names found anywhere (`deploy/*.sh`)
    lifted   patterns of soft ones that are not protected; compared with case
    own      the agent's own files and folders: literal absolute paths, hard
    obeyed   files whose text the agent obeys, besides those in the table
    hooks    folders that repositories name as places of hooks: absolute
    """

    def __init__(
        self,
        added: Sequence[str] = (),
        lifted: Sequence[str] = (),
        own: Iterable[str] = (),
        obeyed: Iterable[str] = (),
        hooks: Iterable[str] = (),
    ) -> None:
        real = resolving()
        mine = tuple(_literal_rule(path, _OWN) for given in own for path in dict.fromkeys(spellings(given, real)))
        more = (
            *(_users_rule("protected_paths", pattern, fold=True) for pattern in added),
            *(rule_of(re.sub(r"([*?[])", r"[\1]", folded(path)), _OBEYED) for path in obeyed),
            *(_literal_rule(path, _HOOKS) for given in hooks for path in dict.fromkeys(spellings(given, real))),
        )
        self._mine, self._more = mine, more
        self._packaged = _by_first_name()  # shared by all sessions
        # By first name: these rules, and the packaged rules with the same first names.
        self._by_name = _grouped(mine)
        for name in {*self._by_name, *map(_first_name, more)}:
            self._by_name[name] = [*self._by_name.get(name, ()), *self._packaged.get(name, ())]
        for rule in more:
            self._by_name[_first_name(rule)].append(rule)
        self._lifted = tuple(_users_rule("unprotected_paths", pattern, fold=False) for pattern in lifted)
        self._found = dict[tuple[str, bool], Protection | None]()  # a call judges each of its paths a dozen times

    def __call__(self, path: str, access: Access) -> str | None:
        """Return why a resolved absolute path may not be changed, as a PathPolicy. Soft ones may be."""
        found = self.find(path) if access.changes else None
        return f"is protected: {found.reason}" if found is not None and found.hard else None

    def find(self, path: str, *, holding: bool = False) -> Protection | None:
        """Return the hardest protection of a path, or None. It judges the text alone, without a look at the disk.

        path      absolute or relative, resolved or not; its names may be shell patterns (`.g?t`)
        holding   whether a folder counts that contains protected paths: for operations on a whole folder
        """
        key, known = (path, holding), self._found  # other threads may put an empty dict in its place
        if key in known:
            return known[key]
        found = self._find(path, holding=holding)
        if len(known) >= _MOST_REMEMBERED:
            known = self._found = {}
        if len(path) <= _LONGEST_REMEMBERED:
            known[key] = found
        return found

    def _find(self, path: str, *, holding: bool) -> Protection | None:
        plain = posixpath.normpath(path)
        names, anchored = names_of(folded(plain)), plain.startswith("/")
        literal = GLOB.isdisjoint(plain)
        found: Protection | None = None
        for rule in self._about(names) if literal else chain(self._mine, _packaged(), self._more):
            if (not rule.anchored or anchored) and rule.matches(names, holding=holding):
                if rule.protection.hard:
                    return rule.protection
                if found is None or found.everyday:
                    found = rule.protection
        lifted = literal and found is not None and any(rule.matches(names_of(plain)) for rule in self._lifted)
        return None if lifted else found

    def _about(self, names: Sequence[str]) -> Iterator[ProtectionRule]:
        """Yield the rules whose first name is in the path: the files of a tree are judged one by one, so it is fast."""
        for rule in self._by_name.get("") or self._packaged.get("", ()):
            if any(rule.names[0].fits(name, first=True) for name in names):
                yield rule
        for name in dict.fromkeys(names):
            yield from self._by_name.get(name) or self._packaged.get(name, ())


def _literal_rule(path: str, protection: Protection) -> ProtectionRule:
    """Return the rule of an absolute path."""
    return ProtectionRule(tuple(PatternName(name, None) for name in names_of(folded(path))), protection, anchored=True)


def _first_name(rule: ProtectionRule) -> str:
    return "" if rule.names[0].glob else rule.names[0].text


def _grouped(rules: Iterable[ProtectionRule]) -> dict[str, list[ProtectionRule]]:
    """Return the rules by their first name; those that begin with a glob under ""."""
    grouped: dict[str, list[ProtectionRule]] = {}
    for rule in rules:
        grouped.setdefault(_first_name(rule), []).append(rule)
    return grouped


@cache
def _by_first_name() -> dict[str, list[ProtectionRule]]:
    return _grouped(_packaged())


_Table: TypeAlias = dict[str, object]


@cache
def _packaged() -> tuple[ProtectionRule, ...]:
    """Return the packaged rules, a constant that is read late so that the start does not pay for it."""
    groups = cast("list[_Table]", packaged_table("acp_agent.workspace", "protected_paths")["group"])
    return tuple(rule for group in groups for rule in _group(group))


def _group(group: _Table) -> Iterator[ProtectionRule]:
    everyday, whole = group.get("everyday", False) is True, group.get("whole", True) is True
    protection = Protection(hard=group["hard"] is True, reason=cast("str", group["reason"]), everyday=everyday)

    def rules(key: str, *, below: bool, free: tuple[ProtectionRule, ...] = ()) -> Iterator[ProtectionRule]:
        for pattern in cast("list[str]", group.get(key, [])):
            yield replace(rule_of(folded(pattern), protection, below=below, free=free), whole=whole)

    free = tuple(rules("free", below=True))
    yield from rules("paths", below=True, free=free)
    yield from rules("entries", below=False)


def _users_rule(setting: str, pattern: str, *, fold: bool) -> ProtectionRule:
    """Return the rule of a user's pattern. Raises ConfigError."""
    path = os.path.expanduser(pattern) if pattern.startswith("~") else pattern
    names = [name for name in names_of(path) if name != "**"]
    usable = bool(names) and ".." not in names and not path.startswith("~") and "\0" not in path
    try:
        if usable and len(pattern) <= MAX_PATTERN:
            return rule_of(folded(path) if fold else path, _ADDED)
    except re.error:
        pass
    expected = f"an absolute path, ~/… or names anywhere (deploy/*.sh), without .., at most {MAX_PATTERN} characters"
    raise ConfigError("configuration", f"tools.protection.{setting}", f"{pattern[:100]!r}", expected)
