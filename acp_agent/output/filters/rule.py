"""A compiled filter rule: its matcher and its strategy."""

from dataclasses import dataclass
from typing import assert_never

from acp_agent.core.types import Confidence
from acp_agent.output.filters.git import GitDiff, GitStatus
from acp_agent.output.filters.group_by_rule import GroupByRule
from acp_agent.output.filters.line_patterns import Pattern
from acp_agent.output.filters.line_rules import Dedup, KeepMatching, StripAnnotated, StripNoise, Truncate
from acp_agent.output.filters.rule_model import (
    DedupSpec,
    FilterRule,
    GitDiffSpec,
    GitStatusSpec,
    GroupByRuleSpec,
    KeepMatchingSpec,
    Match,
    StrategySpec,
    StripAnnotatedSpec,
    StripNoiseSpec,
    TestSummarySpec,
    TruncateSpec,
)
from acp_agent.output.filters.strategy import Applied, CommandRun, Strategy
from acp_agent.output.filters.test_summary import SummaryOfTests


class CommandMatcher:
    """The compiled `match` of a rule.

    summary   the rule replaces the text by a summary. Text of other commands would be lost, so the matching command
              must be the only one that prints. Otherwise it is enough that it prints last
    unless    an expression for commands that the rule does not apply to, or None

    `exact` is compared with the whole command line. The other two are compared with it only if the printing commands
    are not known: in `pytest > log; tail log` the output is not pytest's, although the line begins with it.

    Raises ValueError for an invalid expression.
    """

    def __init__(self, match: Match, *, summary: bool, unless: str | None = None) -> None:
        self._exact = match.exact.strip() if match.exact is not None else None
        self._prefix = match.prefix.strip() if match.prefix is not None else None
        self._regex = Pattern(match.regex) if match.regex is not None else None
        self._unless = Pattern(unless) if unless is not None else None
        self._summary = summary

    def matches(self, run: CommandRun) -> bool:
        """Return whether the rule applies to the output of this command."""
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


_SUMMARIES = (KeepMatchingSpec, TestSummarySpec, GroupByRuleSpec, GitStatusSpec, GitDiffSpec)


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """An enabled rule."""

    name: str
    matcher: CommandMatcher
    strategy: Strategy


def compiled(rule: FilterRule) -> CompiledRule:
    """Compile the rule. Raises ValueError if its expressions are invalid or too large together."""
    # The missing end of a text may hold the output of the very command that the rule is for.
    endless = isinstance(rule.strategy, TruncateSpec) and not rule.strategy.tail
    summary = endless or isinstance(rule.strategy, _SUMMARIES)
    matcher = CommandMatcher(rule.match, summary=summary, unless=rule.unless)
    return CompiledRule(rule.name, matcher, _strategy(rule.strategy))


def _strategy(spec: StrategySpec) -> Strategy:  # noqa: PLR0911 - one return a strategy is the plainest form
    match spec:
        case StripNoiseSpec():
            return StripNoise(spec.patterns, spec.keep)
        case KeepMatchingSpec():
            return KeepMatching(spec.patterns)
        case StripAnnotatedSpec():
            return _strip_annotated(spec)
        case TruncateSpec():
            return Truncate(spec.max_lines, spec.head, spec.tail, spec.keep)
        case TestSummarySpec():
            return _summary_of_tests(spec)
        case GroupByRuleSpec():
            return GroupByRule(spec.location_pattern, spec.rule_pattern)
        case GitStatusSpec():
            return GitStatus()
        case GitDiffSpec():
            return GitDiff(spec.max_diff_lines)
        case DedupSpec():
            return Dedup()
        case _:
            assert_never(spec)


@dataclass(frozen=True, slots=True)
class _OrElse:
    """A strategy with another one for text that the first does not recognise."""

    first: Strategy
    second: Strategy

    def apply(self, text: str, run: CommandRun) -> Applied:
        applied = self.first.apply(text, run)
        return self.second.apply(text, run) if applied.confidence is Confidence.FALLBACK else applied


def _strip_annotated(spec: StripAnnotatedSpec) -> Strategy:
    return StripAnnotated(
        spec.patterns,
        summary_pattern=spec.summary_pattern,
        long_output_threshold=spec.long_output_threshold,
        keep_head=spec.keep_head,
        keep_tail=spec.keep_tail,
        keep_named=spec.keep_named,
    )


def _summary_of_tests(spec: TestSummarySpec) -> Strategy:
    summary = SummaryOfTests(spec.max_failures, spec.truncate_stack_trace)
    ends = spec.fallback
    return summary if ends is None else _OrElse(summary, Truncate(ends.max_lines, ends.head, ends.tail))
