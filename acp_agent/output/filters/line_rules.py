"""The strategies that decide about single lines: keep_matching, strip_noise, truncate, strip_annotated and dedup."""

import re
from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, CommandRun, LinePatterns, decoded, encoded, line_count, united
from acp_agent.text import lines_of


class KeepMatching:
    """Keeps the lines that match one of the expressions. Raises ValueError for an invalid expression."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._wanted = LinePatterns(patterns)

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return the matching lines: Full. Return the whole text, as Fallback, if none matches or the command failed.

        The reason of a failure may have any form, so a rule that knows the lines of success does not apply to it.
        """
        if run.failed:
            return Applied(text, Confidence.FALLBACK)
        data = encoded(text)
        kept = self._wanted.lines(data)
        return Applied(decoded(kept), Confidence.FULL) if kept else Applied(text, Confidence.FALLBACK)


class StripNoise:
    """Removes every line that matches one of the expressions, unless it matches one of `keep`.

    Raises ValueError for an invalid expression.
    """

    def __init__(self, patterns: Sequence[str], keep: Sequence[str] = ()) -> None:
        self._noise = LinePatterns(patterns)
        self._keep = LinePatterns(keep) if keep else None

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return the other lines: Full, or Fallback without noise. If all are noise, return a line that says so."""
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
    """Return the line that stands for removed noise."""
    return f"({removed} noise line{'' if removed == 1 else 's'} removed)\n"


class Truncate:
    """Keeps the first `head` and the last `tail` of a text with more than `max_lines` lines.

    keep   expressions: the first lines between the ends that match stay, up to `max_lines` lines in all

    Raises ValueError for an invalid expression, or if `head + tail` is 0 or more than `max_lines`.
    """

    def __init__(self, max_lines: int, head: int = 20, tail: int = 20, keep: Sequence[str] = ()) -> None:
        if not 0 < head + tail <= max_lines or min(head, tail) < 0:
            raise ValueError(f"head = {head} and tail = {tail}: expected 1 to max_lines = {max_lines} in all")
        self._max_lines = max_lines
        self._head = head
        self._tail = tail
        self._keep = LinePatterns(keep) if keep else None

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return head, a line with the number of omitted lines, and tail: Partial. A short text is Fallback."""
        del run
        if lines_of(text) <= self._max_lines:
            return Applied(text, Confidence.FALLBACK)
        start, stop = _between(text, self._head, self._tail)
        kept = self._kept(text[start:stop])
        omitted = lines_of(text[start:stop]) - len(kept)
        around = f" around the next {len(kept)}" if kept else ""
        notice = f"... ({omitted} line{'' if omitted == 1 else 's'} omitted{around}) ..."
        return Applied(text[:start] + "\n".join((notice, *kept, "")) + text[stop:], Confidence.PARTIAL)

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
    """Return the first and last lines of a longer text, with the number of omitted lines between them."""
    start, stop = _between(text, head, tail)
    omitted = lines_of(text[start:stop])
    return f"{text[:start]}... ({omitted} line{'' if omitted == 1 else 's'} omitted) ...\n{text[stop:]}"


def _between(text: str, head: int, tail: int) -> tuple[int, int]:
    """Return where the first `head` lines of a longer text end, and where the last `tail` lines begin."""
    start = 0
    for _ in range(head):
        start = text.index("\n", start) + 1
    end = len(text.removesuffix("\n"))
    stop = end + 1 if tail == 0 else end
    for _ in range(tail):
        stop = text.rindex("\n", 0, stop)
    return start, stop + (tail > 0)


class StripAnnotated:
    """Removes lines that match one of `patterns`, and the middle of a long rest.

    summary_pattern       matching lines always stay. They move to the end if the middle is removed
    long_output_threshold lines that the rest may have; 0 means no limit
    keep_head, keep_tail  lines at the ends of a longer rest that stay
    keep_named            keep noise that a word of the command matches: `ls node_modules` asks for it

    Raises ValueError for an invalid expression, or if the ends are longer than the threshold.
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
        """Return the text: Full if only noise was removed, Partial if the middle was, Fallback if nothing was."""
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
        """Return the lines that are not noise or that are summaries, and the number of the others."""
        wanted = list(self._noise.other_runs(data))
        if self._summary is not None:
            wanted = united(wanted, list(self._summary.runs(data)))
        kept = b"".join(data[start:end] for start, end in wanted)
        return decoded(kept), line_count(data) - line_count(kept)

    def _shortened(self, rest: str) -> str:
        """Return the ends of the rest without its summary lines, and then the summary lines."""
        summaries = ""
        if self._summary is not None:
            data = encoded(rest)
            summaries, rest = decoded(self._summary.lines(data)), decoded(self._summary.other_lines(data))
        if lines_of(rest) > sum(self._ends):
            rest = ends(rest, *self._ends)
        return "".join(f"{part}\n" for part in (rest.removesuffix("\n"), summaries.removesuffix("\n")) if part)


MAX_PATTERNS = 10_000
"""The number of different lines that are remembered. Later new lines are not changed."""

_FEWEST_LINES = 3
_ANY = "\0"  # stands for varying parts; sanitized text does not contain it

# The pattern begins with one class, so that the search runs at memory speed. A lookbehind checks the character before.
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
    """Merges lines that differ only in times, UUIDs, IP addresses, ports and process ids into the first of them."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return each line once, with " (xN)" if repeated, and the number of lines. Fallback if none was repeated.

        The confidence is Full if all removed lines were repeated word for word, and Partial if they differed in varying
        parts.
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
    """Replace each time, UUID, IPv4 address, port and process id by one character. Lines stay lines."""
    *before, last = _UUID_FROM_9.split(text)
    heads = (part[:-_UUID_UP_TO_8] if part[-_UUID_UP_TO_8:].isalnum() else part for part in before)
    return _VARYING.sub(_ANY, f"\n{_ANY.join((*heads, last))}")[1:]
