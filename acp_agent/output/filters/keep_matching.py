"""The strategy that keeps only lines known to matter (requirements O2, `keep_matching`)."""

from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_patterns import LinePatterns, decoded, encoded
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied


class KeepMatching:
    """Keeps the lines that hold one of the expressions. Raises ValueError for one that RE2 does not take."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._wanted = LinePatterns(patterns)

    def apply(self, text: str, run: CommandRun) -> Applied:
        """The lines that match: Full. The whole text, as Fallback, if none does or the command failed.

        Why it failed may be said in any words, so a rule that only knows those of success has no say then.
        """
        if run.failed:
            return Applied(text, Confidence.FALLBACK)
        data = encoded(text)
        kept = self._wanted.lines(data)
        return Applied(decoded(kept), Confidence.FULL) if kept else Applied(text, Confidence.FALLBACK)
