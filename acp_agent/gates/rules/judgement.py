"""What permission rules say about a shell command line.

Every simple command is judged by itself. One denied command denies all, and all must be allowed; anything else asks. An
allowed command asks nevertheless if it redirects to files, sets variables, changes the shell, or uses options that run
programs (`programs.toml`). Text that the parser cannot prove is never allowed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from acp_agent.gates.paths.piped_names import feeds_names_below, name_list, names_only, takes_names
from acp_agent.gates.rules.rules import INNER_BLANK, Action, Call, Rule
from acp_agent.gates.shell.command import Command, Opaque, ShellText
from acp_agent.gates.shell.programs import URL, Doubt, Programs, program_table
from acp_agent.gates.shell.tables import tables
from acp_agent.gates.shell.wrappers import is_runner

Granted = Callable[[str], bool | None]
"""Returns the user's "always" answer for a prefix such as "git status": True, False, or None without one."""


class Judgement(NamedTuple):
    """The outcome for a whole text.

    action     None if no rule and no grant decides
    reasons    why it is not simply allowed, one line each
    pattern    the rule that denies or asks; empty if none does
    needed     the prefixes that an approval "always" would have to cover; empty if it must cover the whole text
    """

    action: Action | None
    reasons: tuple[str, ...] = ()
    pattern: str = ""
    needed: tuple[str, ...] = ()


class _Verdict(NamedTuple):
    """The outcome for one command. A `neutral` one neither allows nor needs to be allowed."""

    action: Action | None
    reasons: tuple[str, ...] = ()
    pattern: str = ""
    neutral: bool = False


def judge(shell: ShellText, rules: tuple[Rule, ...], granted: Granted) -> Judgement:
    """Judge a shell text."""
    denial = _denied(shell.text, tuple(shell.survey.walk()), rules, granted)
    if denial is not None:
        return denial
    analysis = shell.analysis
    if isinstance(analysis, Opaque):
        return Judgement(None, (f"cannot be checked: it {analysis.reason}",))
    court = _Court(Programs(program_table()), rules, granted)
    verdicts: list[_Verdict] = []
    pipeline: list[Command] = []
    for command in analysis.commands:
        pipeline = pipeline if command.joined == "|" else []
        verdicts.append(court.command(command, () if _may_be_fed_more(shell.text, pipeline) else pipeline))
        pipeline.append(command)
    reasons = tuple(dict.fromkeys(reason for verdict in verdicts for reason in verdict.reasons))
    asking = next((verdict for verdict in verdicts if verdict.action is Action.ASK), None)
    if asking is None and all(verdict.neutral or verdict.action is Action.ALLOW for verdict in verdicts):
        deciding = not all(verdict.neutral for verdict in verdicts)
        return Judgement(Action.ALLOW if deciding else None, needed=court.needed(analysis.commands, verdicts))
    pattern = asking.pattern if asking else ""
    return Judgement(asking and asking.action, reasons, pattern, court.needed(analysis.commands, verdicts))


def _denied(text: str, found: tuple[Command, ...], rules: tuple[Rule, ...], granted: Granted) -> Judgement | None:
    programs = Programs(program_table())
    calls = (Call.of(words) for command in found for words in programs.spellings(command)) if rules else ()
    matching = chain(
        (next((rule for rule in rules if rule.matches_command(text)), None),),
        (next((rule for rule in rules if rule.matches_call(call)), None) for call in calls),
    )
    for rule in matching:
        if rule is not None and rule.action is Action.DENY:
            return Judgement(Action.DENY, pattern=rule.pattern)
    for command in found:
        if any(granted(key) is False for key in programs.denials(command)):
            return Judgement(Action.DENY, ("rejected by the user, always",))
    return None


@dataclass(frozen=True, slots=True)
class _Court:
    """Judges single commands by one set of rules and grants."""

    programs: Programs
    rules: tuple[Rule, ...]
    granted: Granted

    def command(self, command: Command, pipeline: Sequence[Command] = ()) -> _Verdict:
        """Return the verdict on a command and everything that it starts. `pipeline` writes its input."""
        shown = _shown(command)
        if command.unclear:
            return _Verdict(None, (f"cannot be checked: {command.unclear}",))
        if not command.argv:
            reason = f"sets {shown}" if command.assignments else "redirects nothing"
            return _Verdict(None, (reason,))
        rule = self._rule(command)
        doubts = [doubt.reason for doubt in self._doubts(command) if not _waived(doubt, rule)]
        doubts += (
            [f"{shown} overwrites, which the options in the rule do not say"] if self._exceeds(command, rule) else []
        )
        allowed = self._allowed(command, rule, pipeline)
        if allowed and not doubts:
            return _Verdict(Action.ALLOW)
        if rule is not None and rule.action is Action.ASK and not allowed:
            return _Verdict(Action.ASK, (f"a rule asks about {shown}", *doubts), rule.pattern)
        if rule is None and not doubts and command.name in self.programs.table.neutral and command.standard:
            return _Verdict(None, neutral=True)
        if doubts or allowed:
            return _Verdict(None, tuple(doubts))
        why = ", which opens whatever files its input names" if command.appended and takes_names(command) else ""
        return _Verdict(None, (f"no rule allows {shown}{why}",))

    def _exceeds(self, command: Command, rule: Rule | None) -> bool:
        """Return whether a rule that names options (`sed -n *`) matches a call that overwrites (`sed -n -i`)."""
        if rule is None or not any(word.startswith("-") for word in rule.literal[1:]):
            return False
        words = (command.name, *rule.literal[1:])
        return self.programs.overwrites(command) and not self.programs.overwrites(Command(words))

    def _rule(self, command: Command) -> Rule | None:
        """Return the first rule that matches. A rule that allows must match the words in their order."""
        calls = tuple(map(Call.of, self.programs.spellings(command))) if self.rules else ()
        exact = canonical(command)
        for rule in self.rules:
            if rule.action is Action.ALLOW:
                if rule.matches_command(exact):
                    return rule
            elif any(rule.matches_call(call) for call in calls):
                return rule
        return None

    def _allowed(self, command: Command, rule: Rule | None, pipeline: Sequence[Command]) -> bool:
        prefix = " ".join(self.programs.prefix(command))
        own = (rule is not None and rule.action is Action.ALLOW) or bool(prefix and self.granted(prefix))
        if not command.runs:
            return own
        inner = [self.command(each) for each in command.runs]
        inner_allowed = all(verdict.action is Action.ALLOW for verdict in inner)
        harmless = all(self._harmless(each) for each in command.runs)
        covered = own and rule is not None and _covers(rule, command)
        if command.appended and takes_names(command) and not all(map(names_only, command.runs)):
            return covered and feeds_names_below(pipeline, command)
        if command.appended:
            return covered or (harmless and (own or inner_allowed))
        if command.wrapper:
            return covered or (own and (harmless or inner_allowed)) or (inner_allowed and not is_runner(command))
        return inner_allowed or covered

    def _harmless(self, command: Command) -> bool:
        leaves = [each for each in command.walk() if not each.runs]
        return all(each.name in self.programs.table.harmless and each.standard for each in leaves)

    def _doubts(self, command: Command) -> Iterator[Doubt]:
        for each in command.walk():
            for redirection in each.redirections:
                if not redirection.harmless:
                    yield Doubt(f"{'writes to' if redirection.writes else 'reads'} {redirection.target}")
            for assignment in each.assignments:
                if assignment.partition("=")[0] not in self.programs.table.variables:
                    yield Doubt(f"sets {assignment[:80]}")
            listed = name_list(each)
            if listed:
                yield Doubt(f"{each.name} {listed} opens whatever files a list names", listed)
            yield from self.programs.doubts(each)

    def needed(self, commands: tuple[Command, ...], verdicts: Sequence[_Verdict]) -> tuple[str, ...]:
        """Return the prefixes that would have to be granted; empty if no prefix can cover one of the commands."""
        found: list[str] = []
        all_neutral = all(verdict.neutral for verdict in verdicts)
        for command, verdict in zip(commands, verdicts, strict=True):
            if verdict.action is Action.ALLOW or (verdict.neutral and not all_neutral):
                continue
            prefix = " ".join(self.programs.prefix(command))
            if not prefix or any(True for _ in self._doubts(command)):
                return ()
            found.append(prefix)
        return tuple(dict.fromkeys(found))


def _may_be_fed_more(text: str, pipeline: Sequence[Command]) -> bool:
    """Return whether more may write to a pipe than the commands seen: a group (`(a; b) | c`), or errors (`|&`)."""
    return "|&" in text or (bool(pipeline) and bool(pipeline[0].joined) and any(mark in text for mark in "({"))


def canonical(command: Command) -> str:
    """Return a command's text for rules that allow: base name, words joined by a blank, blanks in words replaced."""
    first = command.name if command.standard else command.argv[0]
    return " ".join("".join(_marked(char) for char in word) or "''" for word in (first, *command.argv[1:]))


def _marked(char: str) -> str:
    return INNER_BLANK if char.isspace() else char


def _covers(rule: Rule, command: Command) -> bool:
    """Return whether a rule names what the command starts, not only the command: `xargs wc *`, `bash -c *`."""
    if command.name in tables().shells:
        return "-c" in rule.literal
    leaves = [each for each in command.walk() if not each.runs]
    return all(each.name.casefold() in rule.literal[1:] for each in leaves)


def _waived(doubt: Doubt, rule: Rule | None) -> bool:
    if rule is None or not doubt.waived_by:
        return False
    if doubt.waived_by == URL:
        return any(URL in word for word in rule.literal[1:])
    names = {word.partition("=")[0] if word.startswith("-") else word for word in rule.literal[1:]}
    return doubt.waived_by in names


def _shown(command: Command) -> str:
    words = " ".join((*command.assignments, *command.argv))
    return f"'{words[:80]}…'" if len(words) > 80 else f"'{words}'"
