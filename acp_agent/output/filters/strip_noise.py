"""The strategy that drops lines known to say nothing (requirements O2, `strip_noise`)."""

from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_patterns import LinePatterns, decoded, encoded, line_count, united
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied


class StripNoise:
    """Drops every line that holds one of the expressions, but for those that hold one of `keep`.

    Raises ValueError for an expression RE2 does not take.
    """

    def __init__(self, patterns: Sequence[str], keep: Sequence[str] = ()) -> None:
        self._noise = LinePatterns(patterns)
        self._keep = LinePatterns(keep) if keep else None

    def apply(self, text: str, run: CommandRun) -> Applied:
        """The other lines: Full, or Fallback if there was no noise. If all is noise, a line that says so."""
        del run
        data = encoded(text)
        kept = b"".join([data[start:end] for start, end in self._kept(data)])
        removed = line_count(data) - line_count(kept)
        if not removed:
            return Applied(text, Confidence.FALLBACK)
        return Applied(decoded(kept) or noise_note(removed), Confidence.FULL)

    def _kept(self, data: bytes) -> list[tuple[int, int]]:
        runs = list(self._noise.other_runs(data))
        return runs if self._keep is None else united(runs, list(self._keep.runs(data)))


def noise_note(removed: int) -> str:
    """The line that stands for noise."""
    return f"({removed} noise line{'' if removed == 1 else 's'} removed)\n"
