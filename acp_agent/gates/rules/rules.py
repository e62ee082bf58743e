"""Ordered permission rules: a glob and an action, first match wins (requirements S3.1).

`*` matches any text without a newline, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of a set; a backslash
takes the next character as it is. Where a rule denies or asks, a newline counts as a blank: it hides nothing. In
command patterns a `*` at the end respects words: `git *` matches `git` and
`git status`, `git status*` matches `git status -s` but not `git statusx`.

Case does not matter when a rule denies or asks. An allowing rule keeps the case of paths and of options, so that
`git branch -d *` does not allow `-D`.

A rule that denies or asks finds its options wherever they stand in a command, bundled, apart or abbreviated: `rm -rf *`
matches `rm x -fr` and `rm -r -f x`. An allowing rule means its words as they stand.
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
from acp_agent.gates.rules.patterns import Call, CallPattern, Glob, one_line

INNER_BLANK = "\x1f"
"""Stands for a blank inside one word when a rule allows, so that `git log *` does not match `git "log x"`."""


class Action(StrEnum):
    """What a rule says."""

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
    literal   the words before the first wildcard: what the rule names outright
    loose     the pattern of a rule that denies or asks, with its options anywhere
    """

    pattern: str
    action: Action
    text: tuple[Glob, ...]
    command: tuple[Glob, ...]
    literal: tuple[str, ...]
    loose: CallPattern | None

    @classmethod
    def parse(cls, pattern: str, action: Action, where: str = "rule") -> "Rule":
        """Compile a rule. Raises ConfigError naming `where`, the pattern and what is wrong with it."""
        allow = action is Action.ALLOW
        try:
            compared = pattern if allow else one_line(pattern)
            text = (Glob.parse(compared if allow else compared.casefold()),)
            command = tuple(Glob.parse(folded(each, options=not allow)) for each in _ends(compared, strict=allow))
        except ValueError as error:
            raise ConfigError(where, "pattern", pattern, f"a glob: {error}") from None
        return cls(
            pattern, action, text, command, _literal(pattern), None if allow else CallPattern.parse(compared.casefold())
        )

    def matches_text(self, text: str) -> bool:
        """Whether a path, URL or argument text matches."""
        compared = text if self.action is Action.ALLOW else one_line(text.casefold())
        return any(glob.matches(compared) for glob in self.text)

    def matches_command(self, canonical: str) -> bool:
        """Whether a command's canonical text matches."""
        allows = self.action is Action.ALLOW
        text = folded(canonical, options=not allows)
        text = text if allows else one_line(text)
        return any(glob.matches(text) for glob in self.command)

    def matches_call(self, call: Call) -> bool:
        """Whether the words of a command match: an allowing rule's as they stand."""
        return self.matches_command(call.text) or (self.loose is not None and self.loose.matches(call))

    @property
    def is_exact(self) -> bool:
        """Whether the rule has no wildcard: it names one text."""
        return not any(char in self.pattern for char in "*?[\\")

    @property
    def everything(self) -> bool:
        """Whether the rule matches whatever the tool is given."""
        return self.pattern == "*"


def _ends(pattern: str, *, strict: bool) -> list[str]:
    """The patterns a command pattern stands for, given what a `*` at its end means."""
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
    """A command text without its case; that of options only when asked."""
    if options:
        return text.casefold()
    return " ".join(word if word.startswith("-") else word.casefold() for word in text.split(" "))


def rules_of(rules: Mapping[str, tuple[Rule, ...]], tool: str, server: str = "") -> tuple[Rule, ...]:
    """The rules for a tool: its own, and those of every `mcp_SERVER_*` that matches its name.

    server   the MCP server it is a tool of

    A server's part in a tool's name holds no `_`, so what is written for a server is for no other. Where a server's own
    name holds one, `mcp_MY_SERVER_*` may be a slip: what denies or asks counts by that spelling, too.

    Of several lists nobody knows which comes first, so what denies does, and then what asks: a list more never loosens.
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
    """Whether rules deny a whole tool, so that it leaves the catalogue (S3.2): `*` denied, nothing before it."""
    for rule in rules:
        if rule.action is not Action.DENY:
            return False
        if rule.everything:
            return True
    return False


Resolve = Callable[[str, Access], str]
"""FileSystem.resolve: raises Refused for a path outside the roots."""


def arguments_text(invocation: Invocation) -> str:
    """The arguments as canonical JSON, one spelling for equal arguments."""
    return json.dumps(invocation.call.arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def rule_action(invocation: Invocation, rules: tuple[Rule, ...], resolve: Resolve) -> Action | None:
    """What the rules say of all values of a call: any denied, else any unsettled or asked, else allowed."""
    if not rules:
        return None
    actions = [_first(rules, exact, loose) for exact, loose in _values(invocation, resolve)]
    for action in (Action.DENY, Action.ASK, None):
        if action in actions:
            return action
    return Action.ALLOW


def _first(rules: tuple[Rule, ...], exact: tuple[str, ...], loose: tuple[str, ...]) -> Action | None:
    """The first matching rule's action. Allowing rules see only what is real, the others every spelling."""
    for rule in rules:
        if any(rule.matches_text(text) for text in (exact if rule.action is Action.ALLOW else (*exact, *loose))):
            return rule.action
    return None


def _values(invocation: Invocation, resolve: Resolve) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What rules are held against: resolved paths (and as given), URLs, else the arguments as JSON (S3.10)."""
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
    """The resolved path, absolute and relative to the session's folder; none when it is not allowed at all."""
    try:
        real, folder = resolve(path, access), resolve(".", Access.LIST)
    except (Refused, ToolError):
        return ()
    inside = real.startswith(f"{folder.rstrip('/')}/")
    return (real, posixpath.relpath(real, folder)) if inside else (real,)
