"""The strategy that drops progress lines and shortens a long rest (requirements O2 and 2.11, `strip_annotated`)."""

from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_patterns import LinePatterns, decoded, encoded, line_count, united
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied
from acp_agent.output.filters.strip_noise import noise_note
from acp_agent.output.filters.truncate import ends, lines_of


class StripAnnotated:
    """Drops lines that hold one of `patterns`, and the middle of what is left if that is long.

    summary_pattern       lines that stay wherever they stand, and move to the end if the middle goes
    long_output_threshold lines the rest may have; 0 = as many as there are
    keep_head, keep_tail  lines of a longer rest that stay
    keep_named            drop no noise if a word of the command is such noise itself: `ls node_modules` asks for it

    Raises ValueError for an expression RE2 does not take, or ends that are longer than the threshold.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        summary_pattern: str | None = None,
        long_output_threshold: int = 30,
        keep_head: int = 10,
        keep_tail: int = 5,
        keep_named: bool = False,
    ) -> None:
        if long_output_threshold and keep_head + keep_tail > long_output_threshold:
            raise ValueError(
                f"keep_head = {keep_head} and keep_tail = {keep_tail}: expected at most "
                f"long_output_threshold = {long_output_threshold} in all"
            )
        self._noise = LinePatterns(patterns)
        self._summary = LinePatterns([summary_pattern]) if summary_pattern else None
        self._threshold = long_output_threshold
        self._ends = (keep_head, keep_tail)
        self._keep_named = keep_named

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Full if only noise went, Partial if the middle did, Fallback if nothing."""
        asked_for = self._keep_named and self._asks_for_noise(run)
        rest, removed = (text, 0) if asked_for else self._without_noise(encoded(text))
        note = noise_note(removed) if removed else ""
        if self._threshold and lines_of(rest) > self._threshold:
            return Applied(self._shortened(rest) + note, Confidence.PARTIAL)
        if not removed:
            return Applied(text, Confidence.FALLBACK)
        newline = "" if rest.endswith("\n") or not rest else "\n"
        return Applied(f"{rest}{newline}{note}", Confidence.FULL)

    def _asks_for_noise(self, run: CommandRun) -> bool:
        command = run.printing[-1] if run.printing else run.command
        return any(self._noise.found_in(word.strip("'\"")) for word in command.split()[1:])

    def _without_noise(self, data: bytes) -> tuple[str, int]:
        """What is no noise, or is a summary, and the number of the other lines."""
        wanted = list(self._noise.other_runs(data))
        if self._summary is not None:
            wanted = united(wanted, list(self._summary.runs(data)))
        kept = b"".join(data[start:end] for start, end in wanted)
        return decoded(kept), line_count(data) - line_count(kept)

    def _shortened(self, rest: str) -> str:
        """The ends of the rest, without its summary lines, and then those."""
        summaries = ""
        if self._summary is not None:
            data = encoded(rest)
            summaries, rest = decoded(self._summary.lines(data)), decoded(self._summary.other_lines(data))
        if lines_of(rest) > sum(self._ends):
            rest = ends(rest, *self._ends)
        return "".join(f"{part}\n" for part in (rest.removesuffix("\n"), summaries.removesuffix("\n")) if part)
