"""Ordered permission rules: a glob and an action each. The first match decides.

`*` matches any text without a newline, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of a set. A backslash takes
the next character as it is. For a rule that denies or asks, a newline counts as a blank, so that it hides nothing. In
command patterns a `*` at the end respects words: `git *` matches `git` and `git status`, and `git status*` matches
`git status -s` but not `git statusx`.

Case does not count for a rule that denies or asks. For a rule that allows, the case of paths and of options counts, so
that `git branch -d *` does not allow `-D`.

A rule that denies or asks finds its options anywhere in a command, bundled, apart or abbreviated: `rm -rf *` matches
`rm x -fr` and `rm -r -f x`. A rule that allows matches its words only in their order.
"""

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import chain

from acp_agent.core.errors import ConfigError, Refused, ToolError
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Access, PathSubject, UrlSubject
from acp_agent.gates.rules.patterns import Call, CallPattern, RuleGlob, one_line

INNER_BLANK = "\x1f"
"""Replaces a blank inside one word for a rule that allows, so that `git log *` does not match `git "log x"`."""


class Action(StrEnum):
    """What a rule says about a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_UNFIT = re.compile(r"[^a-z0-9_-]")  # for the name of a tool
_STRICTEST = (Action.DENY, Action.ASK, Action.ALLOW)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one tool. Made by `parse`.

    text      globs for paths, URLs and arguments
    command   globs for commands; those of an allow rule keep the case of options
    literal   the words before the first wildcard, which the rule names itself
    loose     the pattern of a rule that denies or asks, which finds its options anywhere
    """

    pattern: str
    action: Action
    text: tuple[RuleGlob, ...]
    command: tuple[RuleGlob, ...]
    literal: tuple[str, ...]
    loose: CallPattern | None

    @classmethod
    def parse(cls, pattern: str, action: Action, where: str = "rule") -> "Rule":
        """Compile a rule. Raises ConfigError with `where`, the pattern and its fault."""
        allow = action is Action.ALLOW
        try:
            compared = pattern if allow else one_line(pattern)
            text = (RuleGlob.parse(compared if allow else compared.casefold()),)
            command = tuple(RuleGlob.parse(folded(each, options=not allow)) for each in _ends(compared, strict=allow))
        except ValueError as error:
            raise ConfigError(where, "pattern", pattern, f"a glob: {error}") from None
        return cls(
            pattern, action, text, command, _literal(pattern), None if allow else CallPattern.parse(compared.casefold())
        )

    def matches_text(self, text: str) -> bool:
        """Return whether a path, URL or argument text matches."""
        compared = text if self.action is Action.ALLOW else one_line(text.casefold())
        return any(glob.matches(compared) for glob in self.text)

    def matches_command(self, canonical: str) -> bool:
        """Return whether a command's canonical text matches."""
        allows = self.action is Action.ALLOW
        text = folded(canonical, options=not allows)
        text = text if allows else one_line(text)
        return any(glob.matches(text) for glob in self.command)

    def matches_call(self, call: Call) -> bool:
        """Return whether the words of a command match. For a rule that allows, their order counts."""
        return self.matches_command(call.text) or (self.loose is not None and self.loose.matches(call))

    @property
    def is_exact(self) -> bool:
        """Whether the rule has no wildcard: it names one text."""
        return not any(char in self.pattern for char in "*?[\\")

    @property
    def everything(self) -> bool:
        """Whether the rule matches every call of the tool."""
        return self.pattern == "*"


def _ends(pattern: str, *, strict: bool) -> list[str]:
    """Return the patterns that a command pattern stands for, since a `*` at its end respects words."""
    if not pattern.endswith("*") or pattern.endswith("\\*") or pattern == "*":
        return [pattern]
    stem = pattern[:-1]
    if stem.endswith(" "):
        return [stem.rstrip(" "), pattern]
    if stem[-1].isalnum() or stem[-1] == "_":
        bounded = [stem, f"{stem} *"]
        return bounded if strict else [*bounded, pattern]
    return [pattern]


def _literal(pattern: str) -> tuple[str, ...]:
    words: list[str] = []
    for word in pattern.split(" "):
        start = min((word.find(char) for char in "*?[" if char in word), default=-1)
        if start >= 0:
            words += [word[:start]] if start else []
            break
        words.append(word)
    return tuple(word.casefold() if not word.startswith("-") else word for word in words if word)


def folded(text: str, *, options: bool) -> str:
    """Return a command text in lower case. The case of options is kept unless `options`."""
    if options:
        return text.casefold()
    return " ".join(word if word.startswith("-") else word.casefold() for word in text.split(" "))


def rules_of(rules: Mapping[str, tuple[Rule, ...]], tool: str, server: str = "") -> tuple[Rule, ...]:
    """Return the rules for a tool: its own, and those of every `mcp_SERVER_*` that matches its name.

    server   the MCP server of the tool; empty for built-in ones

    The part of a tool's name for its server has no `_`, so rules for one server are for no other. If the server's own
    name has one, `mcp_MY_SERVER_*` may be a slip, so rules that deny or ask count by that spelling, too.

    Several lists have no order among each other. Their rules that deny come first, then those that ask, so that another
    list never loosens anything.
    """
    matching = [given for name, given in rules.items() if "*" in name and fnmatchcase(tool.lower(), name.lower())]
    lists = [rules[tool], *matching] if tool in rules else matching
    if "_" in (spelled := _UNFIT.sub("_", server.lower())):
        lists += _by_spelling(rules, f"mcp_{spelled}_", tool.lower().split("_", 2)[-1])
    if len(lists) < 2:
        return lists[0] if lists else ()
    return tuple(sorted(chain.from_iterable(lists), key=lambda rule: _STRICTEST.index(rule.action)))


def _by_spelling(rules: Mapping[str, tuple[Rule, ...]], prefix: str, rest: str) -> list[tuple[Rule, ...]]:
    return [
        tuple(rule for rule in given if rule.action is not Action.ALLOW)
        for name, given in rules.items()
        if name.lower().startswith(prefix) and fnmatchcase(prefix + rest, name.lower())
    ]


def without_wildcards(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules without those that allow by a wildcard."""
    return tuple(rule for rule in rules if rule.is_exact or rule.action is not Action.ALLOW)


def denied_outright(rules: tuple[Rule, ...]) -> bool:
    """Return whether rules deny a whole tool: `*` is denied, and no rule before it allows or asks.

    Such a tool is not offered to the model.
    """
    for rule in rules:
        if rule.action is not Action.DENY:
            return False
        if rule.everything:
            return True
    return False


Resolve = Callable[[str, Access], str]
"""FileSystem.resolve, which raises Refused for a path outside the roots."""


def arguments_text(invocation: Invocation) -> str:
    """Return the arguments as canonical JSON: equal arguments have one spelling."""
    return json.dumps(invocation.call.arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def rule_action(invocation: Invocation, rules: tuple[Rule, ...], resolve: Resolve) -> Action | None:
    """Return what the rules say of all values of a call: deny or ask if they do so for one, allow if for all.

    None if no rule decides about one of them.
    """
    if not rules:
        return None
    actions = [_first(rules, exact, loose) for exact, loose in _values(invocation, resolve)]
    for action in (Action.DENY, Action.ASK, None):
        if action in actions:
            return action
    return Action.ALLOW


def _first(rules: tuple[Rule, ...], exact: tuple[str, ...], loose: tuple[str, ...]) -> Action | None:
    """Return the first matching rule's action. Rules that allow see only resolved paths, the others every spelling."""
    for rule in rules:
        if any(rule.matches_text(text) for text in (exact if rule.action is Action.ALLOW else (*exact, *loose))):
            return rule.action
    return None


def _values(invocation: Invocation, resolve: Resolve) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return what rules are compared with: paths resolved and as given, URLs, or else the arguments as JSON."""
    values: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for subject in invocation.subjects:
        match subject:
            case PathSubject(path, access):
                values.append((_real(path, access, resolve), (path,)))
            case UrlSubject(url):
                values.append(((url,), ()))
            case _:
                continue
    if values:
        return values
    return [((arguments_text(invocation),), ())]


def _real(path: str, access: Access, resolve: Resolve) -> tuple[str, ...]:
    """Return the resolved path, absolute and relative to the session's folder; none if it is not allowed at all."""
    try:
        real, folder = resolve(path, access), resolve(".", Access.LIST)
    except (Refused, ToolError):
        return ()
    inside = real.startswith(f"{folder.rstrip('/')}/")
    return (real, posixpath.relpath(real, folder)) if inside else (real,)
