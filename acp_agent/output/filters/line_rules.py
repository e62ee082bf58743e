"""The strategies that decide about single lines, and `group_by_rule`, which gathers findings.

The first are keep_matching, strip_noise, truncate, strip_annotated and dedup.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import (
    Applied,
    Captures,
    CommandRun,
    LinePatterns,
    decoded,
    encoded,
    line_count,
    united,
)
from acp_agent.text import counted, lazy_regex, lines_left_out, lines_of, shortened_line


class KeepMatching:
    """The strategy `keep_matching`: only the lines that match an expression. Raises ValueError for an invalid one."""

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
    """The strategy `strip_noise`: no line that matches an expression, unless it also matches one of `keep`.

    Raises ValueError for an invalid expression.
    """

    def __init__(self, patterns: Sequence[str], keep: Sequence[str] = ()) -> None:
        self._noise = LinePatterns(patterns)
        self._keep = LinePatterns(keep) if keep else None

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return the other lines: Full, or Fallback without noise. If all are noise, return a line that says so."""
        del run
        data = encoded(text)
        runs = list(self._noise.other_runs(data))
        if self._keep is not None:
            runs = united(runs, list(self._keep.runs(data)))
        kept = b"".join([data[start:end] for start, end in runs])
        removed = line_count(data) - line_count(kept)
        if not removed:
            return Applied(text, Confidence.FALLBACK)
        return Applied(decoded(kept) or f"{lines_left_out(removed)}\n", Confidence.FULL)


_LONGEST_LINE = 500  # characters shown of a line of a truncated text
_INDEX = lazy_regex(r"\[\d+\]")  # names one of several things, such as Terraform's `web[3]`


class Truncate:
    """The strategy `truncate`: the first `head` and the last `tail` lines of a text with more than `max_lines` lines.

    keep        expressions: different lines between the ends that match stay, up to `max_lines` lines in all. Lines
                that differ only in times, ports and the like count as one
    over_chars  a text of at most so many characters is not changed

    `head + tail` is from 1 to `max_lines`. A line over 500 characters loses its middle. Raises ValueError for an
    invalid expression.
    """

    def __init__(
        self, max_lines: int, head: int = 20, tail: int = 20, keep: Sequence[str] = (), over_chars: int = 0
    ) -> None:
        self._max_lines = max_lines
        self._head = head
        self._tail = tail
        self._keep = LinePatterns(keep) if keep else None
        self._over_chars = over_chars

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return head, a note with the number of lines left out, and tail: Partial. A short text is Fallback."""
        del run
        if len(text) <= self._over_chars or lines_of(text) <= self._max_lines:
            return Applied(text, Confidence.FALLBACK)
        start, stop = _between(text, self._head, self._tail)
        shorter = _with_notice(text, start, stop, self._kept(text, start, stop))
        return Applied(
            "\n".join(shortened_line(line, _LONGEST_LINE) for line in shorter.split("\n")), Confidence.PARTIAL
        )

    def _kept(self, text: str, start: int, stop: int) -> list[str]:
        room = self._max_lines - self._head - self._tail
        if self._keep is None or not room:
            return []
        data = encoded(text[start:stop])
        kept: dict[tuple[str, ...], str] = {}
        for begin, end in self._keep.runs(data):
            for line in decoded(data[begin:end]).removesuffix("\n").split("\n"):
                kept.setdefault((normalised(line), *_INDEX.findall(line)), line)
            if len(kept) >= room:
                break
        return list(kept.values())[:room]


def _with_notice(text: str, start: int, stop: int, kept: Sequence[str] = ()) -> str:
    """Return a text with only the kept lines between `start` and `stop`, and the number of lines left out."""
    last = stop >= len(text) and not text.endswith("\n")  # a line without a line feed
    note = lines_left_out(text.count("\n", start, stop) + last - len(kept))
    if kept:
        note = f"{note[:-1]} around the next {counted(len(kept), 'line')}]"
    return text[:start] + "\n".join((note, *kept, "")) + text[stop:]


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
    """The strategy `strip_annotated`: no lines that match one of `patterns`, and only the ends of a long rest.

    summary_pattern       matching lines always stay. They move to the end if the middle is removed
    long_output_threshold lines that the rest may have; 0 means no limit
    keep_head, keep_tail  lines at the ends of a longer rest that stay
    keep_named            keep noise that a word of the command matches: `ls node_modules` asks for it

    The ends are not longer than the threshold. Raises ValueError for an invalid expression.
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
        self._noise = LinePatterns(patterns)
        self._summary = LinePatterns([summary_pattern]) if summary_pattern else None
        self._threshold = long_output_threshold
        self._ends = (keep_head, keep_tail)
        self._keep_named = keep_named

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return the text: Full if only noise was removed, Partial if the middle was, Fallback if nothing was."""
        words = (run.printing[-1] if run.printing else run.command).split()[1:]
        asked_for = self._keep_named and any(self._noise.found_in(word.strip("'\"")) for word in words)
        rest, removed = (text, 0) if asked_for else self._without_noise(encoded(text))
        note = f"{lines_left_out(removed, 'other ')}\n" if removed else ""
        if self._threshold and lines_of(rest) > self._threshold:
            return Applied(self._shortened(rest) + note, Confidence.PARTIAL)
        if not removed:
            return Applied(text, Confidence.FALLBACK)
        newline = "" if rest.endswith("\n") or not rest else "\n"
        return Applied(f"{rest}{newline}{note}", Confidence.FULL)

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
            rest = _with_notice(rest, *_between(rest, *self._ends))
        return "".join(f"{part}\n" for part in (rest.removesuffix("\n"), summaries.removesuffix("\n")) if part)


MAX_PATTERNS = 10_000
"""The number of different lines that are remembered. Later new lines are not changed."""

_FEWEST_LINES = 3
_ANY = "\0"  # stands for varying parts; sanitized text does not contain it

# The pattern begins with one character class, so that the search is as fast as reading memory. A lookbehind checks the
# character before.
_VARYING = lazy_regex(
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
_UUID_FROM_9 = lazy_regex(r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_UUID_UP_TO_8 = 8


class Dedup:
    """The strategy `dedup`: one line for all that differ only in times, UUIDs, IP addresses, ports and process ids."""

    def apply(self, text: str, run: CommandRun) -> Applied:
        """Return each line once, with " [xN]" if repeated, and the number of lines. Fallback if none was repeated.

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
        shown = [f"{line} [x{count}]" if count > 1 else line for line, count in zip(first, counts, strict=True)]
        total = f"[{len(lines):,} lines, {len(first):,} of them different]\n"
        exact = len(set(lines)) == len(first)
        return Applied("\n".join((*shown, total)), Confidence.FULL if exact else Confidence.PARTIAL)


def normalised(text: str) -> str:
    """Replace each time, UUID, IPv4 address, port and process id by one character. Lines stay lines."""
    *before, last = _UUID_FROM_9.split(text)
    heads = (part[:-_UUID_UP_TO_8] if part[-_UUID_UP_TO_8:].isalnum() else part for part in before)
    return _VARYING.sub(_ANY, f"\n{_ANY.join((*heads, last))}")[1:]


_HEADING = lazy_regex(r"(?P<level>warning|error)(?:\[\w+\])?: (?P<message>.+)$")
_ANY_ERROR = lazy_regex(r"^(?:error(?:\[\w+\])?: |\S+:\d+:\d+: error)", re.MULTILINE)
_LEVELS = ("warning", "error")
_GENERATED = lazy_regex(r"(?:`[^`]+` \([^)]*\) generated \d+ warnings?|build failed, waiting|\d+ warnings? emitted)")
_CLIPPY_PAGE = lazy_regex(r"rust-clippy/\S{0,200}#(\w+)")
_PROGRESS = lazy_regex(
    r" {0,11}(?:Compiling|Downloading|Downloaded|Updating|Fetching|Fresh|Locking|Adding|Checking|Finished|Blocking) "
)
_NAMES = lazy_regex(r"`[^`]*`")


@dataclass(slots=True)
class _Finding:
    message: str
    places: list[str] = field(default_factory=list[str])
    rule: str = ""


class GroupByRule:
    """The strategy `group_by_rule`: findings under the rule that they break.

    location_pattern   RE2; the place of a finding is the first group, or the whole match if there is no group
    rule_pattern       RE2; the same for its rule

    A finding begins with `warning: ...`. If the output has no such line, it begins with a line that contains a place.
    Linters often name a rule only at its first finding, so a later finding with a similar message gets the same rule.
    Findings without a rule are grouped by message. The confidence is Full, or Fallback with the unchanged text if there
    are no findings or if there is an error among them. Raises ValueError for an invalid pattern.
    """

    def __init__(self, location_pattern: str, rule_pattern: str) -> None:
        self._location = Captures(location_pattern)
        self._rule = Captures(rule_pattern)

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`."""
        del run
        if ("\nerror" in f"\n{text[:6]}" or "\nerror" in text or ": error" in text) and _ANY_ERROR.search(text):
            return Applied(text, Confidence.FALLBACK)
        findings, other = self._findings(encoded(text))
        if not findings:
            return Applied(text, Confidence.FALLBACK)
        shorter = "\n".join([*_grouped(findings), *other]) + "\n"
        return Applied(shorter if len(shorter) < len(text) else text, Confidence.FULL)

    def _findings(self, data: bytes) -> tuple[list[_Finding], list[str]]:
        """Return the findings, and the lines that belong to none."""
        places, rules = self._location.by_line(data), self._rule.by_line(data)
        headed = b"\nwarning: " in data or data.startswith(b"warning: ")
        findings: list[_Finding] = []
        other: list[str] = []
        current: _Finding | None = None
        previous, start = "", 0
        ascii_only = data.isascii()
        for line in decoded(data).split("\n"):
            place = places.get(start)
            if headed and line.startswith(_LEVELS) and (heading := _HEADING.match(line)):
                current = _Finding(heading["message"])
                findings.append(current)
            elif not headed and place is not None:
                rest = line.replace(place, "", 1).strip(" \t:->")
                current = _Finding(rest or previous.strip(), [place])  # the place may stand alone
                findings.append(current)
                other = other[:-1] if other and other[-1].strip() == current.message else other
            elif current is None or not line or line.isspace():
                current = None
                other += [line] if line.strip() and not _PROGRESS.match(line) else []
            elif place is not None and not current.places:
                current.places.append(place)
            if current is not None and not current.rule and (start in rules or "rust-clippy/" in line):
                page = _CLIPPY_PAGE.search(line)  # the address of clippy's help; every finding names it
                current.rule = rules.get(start) or (f"clippy::{page[1]}" if page else "")
            previous = line
            start += (len(line) if ascii_only else len(encoded(line))) + 1
        # Of the findings without a place, cargo's counts are dropped.
        other += [f"warning: {one.message}" for one in findings if not one.places and not _GENERATED.match(one.message)]
        return [one for one in findings if one.places], other


def _grouped(findings: Sequence[_Finding]) -> list[str]:
    # Messages are alike if they differ only in names.
    by_shape = {_NAMES.sub("`", one.message): one.rule for one in reversed(findings) if one.rule}
    groups: dict[str, list[_Finding]] = {}
    for one in findings:
        groups.setdefault(one.rule or by_shape.get(_NAMES.sub("`", one.message), "") or one.message, []).append(one)
    lines: list[str] = []
    for rule, group in groups.items():
        first = group[0].message
        said = "" if first == rule else f" {first}"
        lines.append(f"{rule} ({_count(len(group), 'warning')}):{said}")
        lines += [f"    {one.places[0]}" + ("" if one.message == first else f" {one.message}") for one in group]
    note = f"[{_count(len(findings), 'warning')}, grouped by {_count(len(groups), 'rule')}]"
    return [note, *lines]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
