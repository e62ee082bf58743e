"""One pattern of names that protects paths, and how it is held against a path (`protected_paths.toml`)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from itertools import dropwhile

from acp_agent.gates.protected import Protection

GLOB = frozenset("*?[")
_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a pattern: its text, and an expression when that is a glob."""

    text: str
    glob: re.Pattern[str] | None

    def fits(self, name: str, *, first: bool) -> bool:
        """Whether a name of a path may be this one. A name of a path may itself be a shell's pattern."""
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
        # A bare `*` of a command is about everything and means nothing; a dot is only met by a dot, as in bash.
        return (not first or dotted) and (not dotted or name[0] == ".") and fnmatchcase(self.text, name)


ANY_DEPTH = Name("**", None)


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern.

    anchored   it begins at the root; else anywhere in a path
    below      what lies below counts as well
    free       what is excepted
    whole      a folder that it may lie in counts where it goes or comes whole
    """

    names: tuple[Name, ...]
    protection: Protection
    anchored: bool = False
    below: bool = True
    free: "tuple[Rule, ...]" = ()
    whole: bool = True

    def matches(self, path: Sequence[str], *, holding: bool = False) -> bool:
        """Whether it names this path. Linear in the length of the path, whatever the pattern."""
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
        """A `**` may stand for no name at all."""
        for at, name in enumerate(self.names):
            if name is ANY_DEPTH and at in active:
                active.add(at + 1)
        return active

    @property
    def _holds(self) -> bool:
        """Whether a folder with only the first names of the pattern is told by them: `.vscode` is, `bin` is not."""
        return self.whole and (self.anchored or self.names[0].text.startswith("."))


def rule_of(pattern: str, protection: Protection, *, below: bool = True, free: tuple[Rule, ...] = ()) -> Rule:
    """The rule of a pattern, folded or not as it shall be compared. Raises re.error for a glob that is none."""
    given = names_of(pattern)
    leading = len(given) - len(tuple(dropwhile("**".__eq__, given)))  # anywhere in a path is where rules begin anyway
    names = tuple(ANY_DEPTH if name == "**" else _name(name) for name in given[leading:])
    return Rule(names, protection, pattern.startswith("/") and not leading, below, free)


def _name(text: str) -> Name:
    return Name(text, None if GLOB.isdisjoint(text) else re.compile(translate(text)))


def names_of(path: str) -> tuple[str, ...]:
    """The names a path is made of."""
    return tuple(name for name in path.split("/") if name not in ("", "."))
