"""Ordered permission rules: a glob and an action each. The first match decides.

`*` matches any text without a newline, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of a set. A backslash takes
the next character as it is. For a rule that denies or asks, a newline counts as a blank, so that it hides nothing. In
command patterns that allow, a `*` at the end respects words: `git status*` matches `git status -s` but not
`git statusx`, and `git *` also matches `git` alone.

Case does not count for a rule that denies or asks. For a rule that allows, case counts in the paths, URLs and arguments
of tools. In commands it counts only in options, so that `git branch -d *` does not allow `-D`.

A rule that denies or asks finds its options anywhere in a command, bundled, apart or abbreviated: `rm -rf *` matches
`rm x -fr` and `rm -r -f x`. A rule that allows matches its words only in their order.

Every simple command of a line is judged by itself. One denied command denies all, and all must be allowed; anything
else asks. An allowed command asks nevertheless if it redirects to files, sets variables, changes the shell, or uses
options that run programs (`programs.toml`). Text that the parser cannot prove is never allowed.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError, Refused, ToolError
from acp_agent.core.ports import Invocation
from acp_agent.core.types import Access, PathSubject, UrlSubject
from acp_agent.gates.gate import Resolve
from acp_agent.gates.paths.unnamed_paths import feeds_names_below, name_list, names_only, takes_names
from acp_agent.gates.rules.patterns import Call, CallPattern, compile_glob, one_line
from acp_agent.gates.shell import programs
from acp_agent.gates.shell.command import Command, Opaque, ShellText
from acp_agent.gates.shell.options import tables
from acp_agent.gates.shell.programs import URL, Doubt, program_table
from acp_agent.gates.shell.wrappers import is_runner
from acp_agent.regex import LinearRegex

INNER_BLANK = "\x1f"
"""The character that replaces a blank inside a word before a rule that allows is compared.

So `git log *` does not match `git "log x"`.
"""


class Action(StrEnum):
    """The effect of a permission rule on a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_BLANK = re.compile(r"\s")
_UNFIT = re.compile(r"[^a-z0-9_-]")  # for the name of a tool
_STRICTEST = (Action.DENY, Action.ASK, Action.ALLOW)


@frozen
class Rule:
    """One rule of one tool. Made by `parse`.

    text      the glob for paths, URLs and arguments
    command   globs for commands; those of an allow rule keep the case of options
    literal   the words before the first wildcard, which the rule names itself
    loose     the pattern of a rule that denies or asks, which finds its options anywhere
    where     its place: the file, the table and the number there; empty if unknown
    """

    pattern: str
    action: Action
    text: LinearRegex
    command: tuple[LinearRegex, ...]
    literal: tuple[str, ...]
    loose: CallPattern | None
    where: str = ""

    @classmethod
    def parse(cls, pattern: str, action: Action, where: str = "") -> "Rule":
        """Compile a rule. Raises ConfigError with `where`, the pattern and its fault."""
        allow = action is Action.ALLOW
        try:
            compared = pattern if allow else one_line(pattern)
            text = compile_glob(compared if allow else compared.casefold())
            command = tuple(compile_glob(folded(each, options=not allow)) for each in _ends(compared, strict=allow))
        except ValueError as error:
            raise ConfigError(where or "rule", "pattern", pattern, f"a glob: {error}") from None
        loose = None if allow else CallPattern.parse(compared.casefold())
        return cls(pattern, action, text, command, _literal(pattern), loose, where)

    def matches_text(self, text: str) -> bool:
        """Return whether a path, URL or argument text matches."""
        compared = text if self.action is Action.ALLOW else one_line(text.casefold())
        return self.text.matches(compared)

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
    """Return the globs that a command pattern stands for, since a `*` at its end respects words."""
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
    """Return a command text in lower case.

    options   whether options are put in lower case as well
    """
    if options:
        return text.casefold()
    return " ".join(word if word.startswith("-") else word.casefold() for word in text.split(" "))


def rules_of(rules: Mapping[str, tuple[Rule, ...]], tool: str, server: str = "") -> tuple[Rule, ...]:
    """Return the rules for a tool: its own, and those of every `mcp_SERVER_*` that matches its name.

    server   the MCP server of the tool; empty for built-in ones

    In a tool's name the server's part has no `_`, so the rules for one server fit no other. For a server whose own name
    has a `_`, rules for `mcp_MY_SERVER_*` count too, but only those that deny or ask.

    Several lists have no order among each other. Their rules that deny come first, then those that ask, so that another
    list never loosens anything.
    """
    lists = [rules[tool]] if tool in rules else []
    for name, given in rules.items():
        if "*" in name and fnmatchcase(tool.lower(), name.lower()):
            lists.append(given)
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


def arguments_text(invocation: Invocation) -> str:
    """Return the arguments as canonical JSON, so that equal arguments give equal texts."""
    return json.dumps(invocation.call.arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def rule_action(invocation: Invocation, rules: tuple[Rule, ...], resolve: Resolve) -> Action | None:
    """Return the action of the rules on a call: deny or ask if they do so for one of its values, allow if for all.

    None if no rule denies or asks, and one of the values matches no rule.
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
    """Return the texts that rules are compared with: paths resolved and as given, URLs, or the arguments as JSON."""
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


Granted = Callable[[str], bool | None]
"""Returns the user's "always" answer for a prefix such as "git status": True, False, or None without one."""


class Judgement(NamedTuple):
    """The outcome for a whole text.

    action     None if no rule and no grant decides
    reasons    why it is not simply allowed, one line each
    pattern    the rule that denies or asks; empty if none does
    needed     the prefixes that an approval "always" would have to cover; empty if it must cover the whole text
    reads      whether no rule decides about any command, and all of them only read
    """

    action: Action | None
    reasons: tuple[str, ...] = ()
    pattern: str = ""
    needed: tuple[str, ...] = ()
    reads: bool = False


class _Verdict(NamedTuple):
    """The outcome for one command.

    neutral   whether the command needs no approval. The other commands of the line are judged as if it were not there
    reads     whether it may run because it only reads
    """

    action: Action | None
    reasons: tuple[str, ...] = ()
    pattern: str = ""
    neutral: bool = False
    reads: bool = False


def judge(shell: ShellText, rules: tuple[Rule, ...], granted: Granted) -> Judgement:
    """Judge a shell text."""
    return denial_of(shell, rules, granted) or allowance(shell, rules, granted)


def allowance(shell: ShellText, rules: tuple[Rule, ...], granted: Granted, *, reads: bool = False) -> Judgement:
    """Judge a shell text that nothing denies.

    reads   whether commands that only read need no rule
    """
    analysis = shell.analysis
    if isinstance(analysis, Opaque):
        return Judgement(None, (f"cannot be checked: it {analysis.reason}",))
    court = _Court(rules, granted, reads)
    verdicts: list[_Verdict] = []
    pipeline: list[Command] = []
    for command in analysis.commands:
        pipeline = pipeline if command.joined == "|" else []
        # The pipe may get more than the output of the commands in `pipeline`: a group `(a; b) | c`, or errors `|&`.
        group = pipeline and pipeline[0].joined and not {"(", "{"}.isdisjoint(shell.text)
        verdicts.append(court.command(command, () if group or "|&" in shell.text else pipeline))
        pipeline.append(command)
    reasons, asking, allowed, deciding = dict[str, None](), None, True, False
    for verdict in verdicts:
        reasons.update(dict.fromkeys(verdict.reasons))
        asking = verdict if asking is None and verdict.action is Action.ASK else asking
        allowed = allowed and (verdict.neutral or verdict.action is Action.ALLOW)
        deciding = deciding or not verdict.neutral
    needed = court.needed(analysis.commands, verdicts)
    if allowed:
        only_reads = bool(verdicts) and all(verdict.reads for verdict in verdicts)
        return Judgement(Action.ALLOW if deciding else None, needed=needed, reads=only_reads)
    return Judgement(asking and asking.action, tuple(reasons), asking.pattern if asking else "", needed)


def denial_of(shell: ShellText, rules: tuple[Rule, ...], granted: Granted) -> Judgement | None:
    """Return the denial of a shell text by a rule or a stored answer; None if nothing denies it."""
    found = tuple(shell.survey.walk())
    if rules:
        calls = (Call.of(words) for command in found for words in programs.spellings(command))
        matching = chain(
            (next((rule for rule in rules if rule.matches_command(shell.text)), None),),
            (next((rule for rule in rules if rule.matches_call(call)), None) for call in calls),
        )
        for rule in matching:
            if rule is not None and rule.action is Action.DENY:
                return Judgement(Action.DENY, pattern=rule.pattern)
    for command in found:
        for key in programs.denials(command):
            if granted(key) is False:
                return Judgement(Action.DENY, ('the user answered "always reject"',))
    return None


@frozen
class _Court:
    """Judges single commands by one set of rules and grants."""

    rules: tuple[Rule, ...]
    granted: Granted
    reads: bool = False

    def command(self, command: Command, pipeline: Sequence[Command] = ()) -> _Verdict:
        """Return the verdict on a command and everything that it starts. `pipeline` writes its input."""
        shown = _shown(command)
        if command.unclear:
            return _Verdict(None, (f"cannot be checked: {command.unclear}",))
        if not command.argv:
            reason = f"sets {shown}" if command.assignments else "redirects nothing"
            return _Verdict(None, (reason,))
        rule = self._rule(command) if self.rules else None
        doubts = list(self._doubts(command, rule))
        if rule is not None and any(programs.exceeds(each, rule.literal) for each in command.walk()):
            doubts.append(f"{shown} destroys or overwrites something, which the rule does not name")
        allowed = self._allowed(command, rule, pipeline)
        if allowed and not doubts:
            return _Verdict(Action.ALLOW)
        if rule is not None and rule.action is Action.ASK and not allowed:
            return _Verdict(Action.ASK, (f"a rule asks about {shown}", *doubts), rule.pattern)
        only_reads = self.reads and programs.only_reads(command) and not any(map(self._rule, command.walk()))
        if rule is None and not doubts and command.name in program_table().neutral and command.standard:
            return _Verdict(None, neutral=True, reads=only_reads)
        if only_reads:
            return _Verdict(None, neutral=True, reads=True)
        if doubts or allowed:
            return _Verdict(None, tuple(doubts))
        why = ", which opens whatever files its input names" if command.appended and takes_names(command) else ""
        return _Verdict(None, (f"no rule allows {shown}{why}",))

    def _rule(self, command: Command) -> Rule | None:
        """Return the first rule that matches. A rule that allows must match the words in their order."""
        calls = tuple(map(Call.of, programs.spellings(command)))
        exact = canonical(command)
        for rule in self.rules:
            if rule.action is Action.ALLOW:
                if rule.matches_command(exact):
                    return rule
            elif any(rule.matches_call(call) for call in calls):
                return rule
        return None

    def _allowed(self, command: Command, rule: Rule | None, pipeline: Sequence[Command]) -> bool:
        prefix = " ".join(programs.prefix(command))
        own = (rule is not None and rule.action is Action.ALLOW) or bool(prefix and self.granted(prefix))
        if not command.runs:
            return own
        inner = [self.command(each) for each in command.runs]
        inner_allowed = all(verdict.action is Action.ALLOW for verdict in inner)
        leaves = [leaf for each in command.runs for leaf in each.walk() if not leaf.runs]
        harmless = all(leaf.name in program_table().harmless and leaf.standard for leaf in leaves)
        covered = own and rule is not None and _covers(rule, command)
        if command.appended and takes_names(command) and not all(map(names_only, command.runs)):
            return covered and feeds_names_below(pipeline, command)
        if command.appended:
            return covered or (harmless and (own or inner_allowed))
        if command.wrapper:
            return covered or (own and (harmless or inner_allowed)) or (inner_allowed and not is_runner(command))
        return inner_allowed or covered

    def _doubts(self, command: Command, rule: Rule | None = None) -> Iterator[str]:
        """Yield the reasons why a command asks although a rule allows it, except those that the rule itself names."""
        for each in command.walk():
            for redirection in each.redirections:
                if not redirection.harmless:
                    yield f"{'writes to' if redirection.writes else 'reads'} {redirection.target}"
            for assignment in each.assignments:
                if assignment.partition("=")[0] not in program_table().variables:
                    yield f"sets {assignment[:80]}"
            listed = name_list(each)
            files = [Doubt(f"{each.name} {listed} opens whatever files a list names", listed)] if listed else []
            for doubt in (*files, *programs.doubts(each)):
                if rule is None or not _waived(doubt, rule):
                    yield doubt.reason

    def needed(self, commands: tuple[Command, ...], verdicts: Sequence[_Verdict]) -> tuple[str, ...]:
        """Return the prefixes that the user would have to grant. Empty if one of the commands has none."""
        found: list[str] = []
        for command, verdict in zip(commands, verdicts, strict=True):
            if verdict.action is Action.ALLOW or (verdict.neutral and not all(each.neutral for each in verdicts)):
                continue
            prefix = " ".join(programs.prefix(command))
            if not prefix or next(self._doubts(command), None) is not None:
                return ()
            found.append(prefix)
        return tuple(dict.fromkeys(found))


def canonical(command: Command) -> str:
    """Return a command's text for rules that allow: base name, words joined by a blank, blanks in words replaced."""
    first = command.name if command.standard else command.argv[0]
    return " ".join(_BLANK.sub(INNER_BLANK, word) or "''" for word in (first, *command.argv[1:]))


def _covers(rule: Rule, command: Command) -> bool:
    """Return whether a rule names not only a command but also what it starts, such as `xargs wc *` or `bash -c *`."""
    if command.name in tables().shells:
        return "-c" in rule.literal
    leaves = [each for each in command.walk() if not each.runs]
    return all(each.name.casefold() in rule.literal[1:] for each in leaves)


def _waived(doubt: Doubt, rule: Rule) -> bool:
    if not doubt.waived_by:
        return False
    if doubt.waived_by == URL:
        return any(URL in word for word in rule.literal[1:])
    names = {word.partition("=")[0] if word.startswith("-") else word for word in rule.literal[1:]}
    return doubt.waived_by in names


def _shown(command: Command) -> str:
    words = " ".join((*command.assignments, *command.argv))
    return f"'{words[:80]}…'" if len(words) > 80 else f"'{words}'"
