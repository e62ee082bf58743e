"""A rule ready to be applied: its matcher and its strategy (requirements O1.19)."""

from dataclasses import dataclass
from typing import assert_never

from acp_agent.core.types import Confidence
from acp_agent.output.filters.dedup import Dedup
from acp_agent.output.filters.git_diff import GitDiff
from acp_agent.output.filters.git_status import GitStatus
from acp_agent.output.filters.group_by_rule import GroupByRule
from acp_agent.output.filters.keep_matching import KeepMatching
from acp_agent.output.filters.matching import CommandMatcher
from acp_agent.output.filters.rule_model import (
    DedupSpec,
    GitDiffSpec,
    GitStatusSpec,
    GroupByRuleSpec,
    KeepMatchingSpec,
    Rule,
    StrategySpec,
    StripAnnotatedSpec,
    StripNoiseSpec,
    TestSummarySpec,
    TruncateSpec,
)
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied, Strategy
from acp_agent.output.filters.strip_annotated import StripAnnotated
from acp_agent.output.filters.strip_noise import StripNoise
from acp_agent.output.filters.test_summary import SummaryOfTests
from acp_agent.output.filters.truncate import Truncate

_SUMMARIES = (KeepMatchingSpec, TestSummarySpec, GroupByRuleSpec, GitStatusSpec, GitDiffSpec)


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One enabled rule."""

    name: str
    matcher: CommandMatcher
    strategy: Strategy


def compiled(rule: Rule) -> CompiledRule:
    """The rule, compiled. Raises ValueError when its expressions are too much for RE2 together."""
    # Without its end, a text lacks the words of the very command the rule is for.
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
    """A strategy, and another for what the first does not recognise (requirements section 4 row 70)."""

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
