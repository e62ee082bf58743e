"""Whether a rule is for the output of a command (requirements O1.7, O1.8)."""

from acp_agent.output.filters.line_patterns import Pattern
from acp_agent.output.filters.rule_model import Match
from acp_agent.output.filters.run import CommandRun


class CommandMatcher:
    """The `match` of a rule, compiled.

    summary   the rule puts a summary in place of the text. Then the words of any other command would be lost, so its
              command must be the only one that prints; else it is enough that it is the last one.

    The command line itself is compared with `exact`; with the others only if nobody could tell what prints in it:
    of `pytest > log; tail log` the text is not pytest's, whatever the line begins with.

    unless    an expression for commands the rule leaves alone although they match; None = there are none

    Raises ValueError for an expression RE2 does not take.
    """

    def __init__(self, match: Match, *, summary: bool, unless: str | None = None) -> None:
        self._exact = match.exact.strip() if match.exact is not None else None
        self._prefix = match.prefix.strip() if match.prefix is not None else None
        self._regex = Pattern(match.regex) if match.regex is not None else None
        self._unless = Pattern(unless) if unless is not None else None
        self._summary = summary

    def matches(self, run: CommandRun) -> bool:
        """Whether the rule may be applied to what a command printed."""
        line = run.command.strip()
        if line == self._exact:
            return not self._excepted(line)
        if not run.printing:
            return not self._summary and self._fits(line)
        return (len(run.printing) == 1 or not self._summary) and self._fits(run.printing[-1])

    def _excepted(self, command: str) -> bool:
        return self._unless is not None and self._unless.found_in(command)

    def _fits(self, command: str) -> bool:
        if self._excepted(command):
            return False
        if self._exact is not None:
            return command == self._exact
        if self._prefix is not None:
            rest = command.removeprefix(self._prefix)
            return command.startswith(self._prefix) and (not rest or rest[0].isspace())
        return self._regex is not None and self._regex.found_in(command)
