"""The filter engine: the rules that match a command, applied to what it printed one after another (requirements O1)."""

from typing import TYPE_CHECKING

from acp_agent.core.types import Confidence
from acp_agent.output.filters.echoes import set_apart
from acp_agent.output.filters.metrics import FilterMetrics
from acp_agent.output.filters.rule_source import RuleSource
from acp_agent.output.filters.run import CommandRun, Filtered
from acp_agent.output.filters.truncate import lines_of

if TYPE_CHECKING:  # loaded for the first command
    from acp_agent.output.filters.rule import CompiledRule

_FROM_BEST = tuple(Confidence)


class FilterEngine:
    """Shortens what commands print. Safe to use from several threads."""

    def __init__(self, source: RuleSource | None = None) -> None:
        self._source = source or RuleSource()
        self.metrics = FilterMetrics()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the user's rules now, a sentence each."""
        return self._source.warnings

    def apply(self, text: str, run: CommandRun) -> Filtered | None:
        """The text after every rule that matches the command; None when none does. Never raises (O1.12).

        `text` is sanitized and redacted. Where a rule saves neither characters nor lines, its text is not taken.
        """
        apart = set_apart(text, run)
        rules = [rule for rule in self._source.current().rules if rule.matcher.matches(apart.run)]
        filtered: Filtered | None = None
        if rules and apart.body:
            body, confidence = _composed(apart.body, apart.run, rules)
            newline = "\n" if apart.after and not body.endswith("\n") else ""
            whole = f"{apart.before}{body}{newline}{apart.after}"
            filtered = Filtered(whole, tuple(rule.name for rule in rules), confidence, removed=whole != text)
        self.metrics.record(text, filtered)
        return filtered


def _composed(text: str, run: CommandRun, rules: "list[CompiledRule]") -> tuple[str, Confidence]:
    """The text after all rules, and the worst of their confidences (O1.9)."""
    worst = Confidence.FULL
    for rule in rules:
        applied = rule.strategy.apply(text, run)
        confidence = applied.confidence
        if len(applied.text) < len(text) or lines_of(applied.text) < lines_of(text):
            text = applied.text
        elif confidence is Confidence.PARTIAL:
            confidence = Confidence.FULL  # nothing is left out
        worst = max(worst, confidence, key=_FROM_BEST.index)
    return text, worst
