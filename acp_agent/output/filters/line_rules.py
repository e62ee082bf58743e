"""The strategy that keeps only lines known to matter (requirements O2, `keep_matching`)."""

import re
from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_patterns import LinePatterns, decoded, encoded, line_count, united
from acp_agent.output.filters.strategy import Applied, CommandRun, lines_of


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


class Truncate:
    """Of a text with more than `max_lines` lines, keeps the first `head` and the last `tail`.

    keep   expressions: of the lines between, the first that match stay, up to `max_lines` lines in all

    Raises ValueError if `head` and `tail` are more than `max_lines`, or none; or if RE2 does not take `keep`.
    """

    def __init__(self, max_lines: int, head: int = 20, tail: int = 20, keep: Sequence[str] = ()) -> None:
        if not 0 < head + tail <= max_lines or min(head, tail) < 0:
            raise ValueError(f"head = {head} and tail = {tail}: expected 1 to max_lines = {max_lines} in all")
        self._max_lines = max_lines
        self._head = head
        self._tail = tail
        self._keep = LinePatterns(keep) if keep else None

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Head, a line that says how many lines are left out, and tail: Partial. A short text: Fallback."""
        del run
        if lines_of(text) <= self._max_lines:
            return Applied(text, Confidence.FALLBACK)
        start, stop = _between(text, self._head, self._tail)
        kept = self._kept(text[start:stop])
        omitted = lines_of(text[start:stop]) - len(kept)
        around = f" around the next {len(kept)}" if kept else ""
        told = f"... ({omitted} line{'' if omitted == 1 else 's'} omitted{around}) ..."
        return Applied(text[:start] + "\n".join((told, *kept, "")) + text[stop:], Confidence.PARTIAL)

    def _kept(self, between: str) -> list[str]:
        room = self._max_lines - self._head - self._tail
        if self._keep is None or not room:
            return []
        data = encoded(between)
        kept: list[str] = []
        for start, end in self._keep.runs(data):
            kept += decoded(data[start:end]).removesuffix("\n").split("\n")
            if len(kept) >= room:
                break
        return kept[:room]


def ends(text: str, head: int, tail: int) -> str:
    """The first and last so many lines of a text that has more, and between them how many are left out."""
    start, stop = _between(text, head, tail)
    omitted = lines_of(text[start:stop])
    return f"{text[:start]}... ({omitted} line{'' if omitted == 1 else 's'} omitted) ...\n{text[stop:]}"


def _between(text: str, head: int, tail: int) -> tuple[int, int]:
    """Where the first `head` lines of a text that has more end, and where the last `tail` begin."""
    start = 0
    for _ in range(head):
        start = text.index("\n", start) + 1
    end = len(text.removesuffix("\n"))
    stop = end + 1 if tail == 0 else end
    for _ in range(tail):
        stop = text.rindex("\n", 0, stop)
    return start, stop + (tail > 0)


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


MAX_PATTERNS = 10_000
"""Different lines that are remembered; what is new after them stays as it is (O2)."""

_FEWEST_LINES = 3
_ANY = "\0"  # stands for what varies; sanitized text has none of its own

# One leading class, so that the search runs at memory speed; the character before the digit is looked at behind it.
_VARYING = re.compile(
    r"""[0-9](?:
        (?<=[^\w.]\d)(?:
            \d{3}[-/]\d\d[-/]\d\d(?:[T\x20]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|\x20?[+-]\d\d:?\d\d)?)?  # ISO 8601
          | \d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?:\x20[+-]\d{4})?                                    # web servers
          | \d?\x20\d\d:\d\d:\d\d(?:[.,]\d{1,9})?                                                      # syslog's day
          | \d:\d\d:\d\d(?:[.,]\d{1,9})?
          | \d{9}(?:\d{3})?(?:\.\d{1,9})?(?![\w.])                                            # seconds since 1970
          | \d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?(?![\w.])                          # IPv4, and its port
        )
      | (?:(?<=[oO][rR][tT][\x20=:].)|(?<=[pP][iI][dD][\x20=:].)|(?<=(?:[oO][rR][tT]|[pP][iI][dD]):\x20.))\d*
      | (?<=\w\[.)\d*(?=\])                                                                   # sshd[4711]
    )""",
    re.VERBOSE,
)
_UUID_FROM_9 = re.compile(r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_UUID_UP_TO_8 = 8


class Dedup:
    """Lines that are equal but for times, UUIDs, IP addresses, ports and process ids become the first of them."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Each line once, with " (xN)" behind it, and how many there were. Fallback if nothing was said twice.

        Full if all that went was repeated word for word, Partial if it differed in what does not matter.
        """
        del run
        lines = text.removesuffix("\n").split("\n")
        if len(lines) < _FEWEST_LINES:
            return Applied(text, Confidence.FALLBACK)
        patterns = normalised(text.removesuffix("\n")).split("\n")
        first: list[str] = []
        counts: list[int] = []
        place: dict[str, int] = {}
        for line, pattern in zip(lines, patterns, strict=True):
            at = place.get(pattern)
            if at is not None:
                counts[at] += 1
                continue
            if len(place) < MAX_PATTERNS:
                place[pattern] = len(first)
            first.append(line)
            counts.append(1)
        if len(first) == len(lines):
            return Applied(text, Confidence.FALLBACK)
        shown = [f"{line} (x{count})" if count > 1 else line for line, count in zip(first, counts, strict=True)]
        total = f"{len(first)} unique patterns ({len(lines)} total lines)\n"
        exact = len(set(lines)) == len(first)
        return Applied("\n".join((*shown, total)), Confidence.FULL if exact else Confidence.PARTIAL)


def normalised(text: str) -> str:
    """The text with one sign in place of each time, UUID, IPv4 address, port and process id; lines stay lines."""
    *before, last = _UUID_FROM_9.split(text)
    heads = (part[:-_UUID_UP_TO_8] if part[-_UUID_UP_TO_8:].isalnum() else part for part in before)
    return _VARYING.sub(_ANY, f"\n{_ANY.join((*heads, last))}")[1:]
