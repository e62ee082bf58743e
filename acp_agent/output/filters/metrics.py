"""What the filters did so far (requirements O1.15)."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from acp_agent.core.types import Confidence
from acp_agent.log import Log
from acp_agent.output.filters.run import Filtered

_LOG_EVERY = 50
_LOG = Log(__name__)


class FilterTotals(NamedTuple):
    """Counts since the start.

    commands         whose output was offered to the filters
    filtered         of these, those whose output became shorter
    skipped          those no rule matched
    raw_chars        characters of all outputs; `shown_chars` of what is left of them
    confidence       how often each was the worst of the rules that matched
    rules            how often each rule was applied, by name
    """

    commands: int
    filtered: int
    skipped: int
    raw_chars: int
    shown_chars: int
    confidence: Mapping[Confidence, int]
    rules: Mapping[str, int]

    @property
    def saved(self) -> float:
        """The part of all characters that was left out, 0 to 1."""
        return 1 - self.shown_chars / self.raw_chars if self.raw_chars else 0.0


class FilterMetrics:
    """Counts, from several threads. Every 50 commands the log gets a debug line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._confidence: Counter[Confidence] = Counter(dict.fromkeys(Confidence, 0))
        self._rules: Counter[str] = Counter()

    def record(self, raw: str, filtered: Filtered | None) -> None:
        """A command's output, and what came of it; None when no rule matched."""
        shown = len(raw if filtered is None else filtered.text)
        with self._lock:
            self._counts.update(commands=1, raw_chars=len(raw), shown_chars=shown)
            if filtered is None:
                self._counts.update(skipped=1)
            else:
                self._counts.update(filtered=int(shown < len(raw)))
                self._confidence[filtered.confidence] += 1
                self._rules.update(filtered.rules)
            due = self._counts["commands"] % _LOG_EVERY == 0
        if due:
            self._log()

    def totals(self) -> FilterTotals:
        """The counts now."""
        with self._lock:
            return FilterTotals(
                commands=self._counts["commands"],
                filtered=self._counts["filtered"],
                skipped=self._counts["skipped"],
                raw_chars=self._counts["raw_chars"],
                shown_chars=self._counts["shown_chars"],
                confidence=dict(self._confidence),
                rules=dict(self._rules),
            )

    def _log(self) -> None:
        totals = self.totals()
        _LOG.debug(
            "output filters",
            commands=totals.commands,
            filtered=totals.filtered,
            skipped=totals.skipped,
            saved=f"{totals.saved:.1%}",
            **{str(each): count for each, count in totals.confidence.items()},
        )
