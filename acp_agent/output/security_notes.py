"""What is added to an output: one line about redactions (O4.2, O4.8), and lines a filter dropped that matter (O4.4).

This is where "loses no error" is kept: it looks at the whole output, so it does not matter which filter dropped a line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from acp_agent.output.error_lines import ERRORS, NO_ERRORS, WARNINGS
from acp_agent.output.filters.line_patterns import LinePatterns, decoded, encoded

_MOST_WARNINGS = 20
_MOST_ERRORS = 40
_LONGEST_LINE = 500  # characters shown of a line
_LONGEST_COMPARED = 2000  # characters by which lines are told apart
_MOST_DIFFERENT = 2000  # of one kind that are told apart; the count of the others says no more
_LONGEST_SEARCHED = 1 << 18  # characters of a filtered text in which a line is also looked for as part of another

_VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b|\b0x[0-9a-fA-F]{6,16}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_SPACES = re.compile(r"\s+")
_RULES = " \t=_-*│|"
_CATEGORY = re.compile(r"[a-z0-9_-]{1,40}")


def redaction_note(found: Mapping[str, int]) -> str:
    """`[security] 3 secrets redacted: api-key 2, password 1`, most first; "" when there were none.

    Categories are the redactor's own words: what does not look like one is not repeated.
    """
    counts = sorted(((name, count) for name, count in found.items() if count > 0), key=lambda one: (-one[1], one[0]))
    if not counts:
        return ""
    total = sum(count for _, count in counts)
    named = ", ".join(f"{name if _CATEGORY.fullmatch(name) else 'other'} {count}" for name, count in counts)
    return f"[security] {total} secret{'' if total == 1 else 's'} redacted: {named}"


def preserved(raw: str, filtered: str) -> str:
    """The lines of `raw` that matter and are not in `filtered`, as a block to append; "" when there are none.

    Both are redacted. At most 20 security warnings and 40 errors, each once however often it was printed; times,
    addresses and UUIDs do not make a line another one.
    """
    if raw == filtered:
        return ""
    data = encoded(raw)
    kept = _Kept(filtered)
    warnings = kept.missing(_lines(WARNINGS, data))
    said = {normalised for normalised, _ in warnings}
    errors = [one for one in kept.missing(_errors(data)) if one[0] not in said]
    blocks = (
        *_block("Security Warnings", [line for _, line in warnings], _MOST_WARNINGS),
        *_block("Errors", [line for _, line in errors], _MOST_ERRORS),
    )
    return "\n".join(blocks)


class _Kept:
    """The filtered text, to look lines up in. What it holds is worked out when the first line is looked up."""

    def __init__(self, filtered: str) -> None:
        self._filtered = filtered
        self._verbatim = frozenset(filtered.split("\n"))
        self._lines: frozenset[str] | None = None
        self._text = ""

    def missing(self, lines: Iterable[str]) -> list[tuple[str, str]]:
        """Those not there, each once: its normalised form and itself."""
        found: dict[str, str] = {}
        seen = set(self._verbatim)
        for line in lines:
            if line in seen or len(found) == _MOST_DIFFERENT:
                continue
            seen.add(line)
            normalised = _normalised(line)
            if normalised and normalised not in found and normalised not in self:
                found[normalised] = line
        return list(found.items())

    def __contains__(self, normalised: str) -> bool:
        if self._lines is None:
            lines = [_normalised(line) for line in self._filtered.split("\n")]
            self._lines = frozenset(lines)
            self._text = "\n".join(lines) if len(self._filtered) <= _LONGEST_SEARCHED else ""
        return normalised in self._lines or normalised in self._text


def _lines(patterns: LinePatterns, data: bytes) -> Iterator[str]:
    for start, end in patterns.runs(data):
        yield from decoded(data[start:end]).removesuffix("\n").split("\n")


def _errors(data: bytes) -> Iterator[str]:
    """Lines that report an error, in their order, without those that only look like it."""
    found: dict[int, bytes] = {}
    for patterns in ERRORS:
        for start, end in patterns.runs(data):
            at = start
            for line in data[start:end].removesuffix(b"\n").split(b"\n"):
                found[at] = line
                at += len(line) + 1
    looks_like_one = b"\n".join(found[at] for at in sorted(found))
    for start, end in NO_ERRORS.other_runs(looks_like_one):
        yield from decoded(looks_like_one[start:end]).removesuffix("\n").split("\n")


def _normalised(line: str) -> str:
    """A line without what varies, and without the mark in front of what pytest has to say."""
    line = line[:_LONGEST_COMPARED]
    if ":" in line or "-" in line or "0x" in line:
        line = _VARYING.sub("", line)
    return _SPACES.sub(" ", line.removeprefix("E  ")).strip(_RULES)


def _block(title: str, lines: list[str], most: int) -> list[str]:
    if not lines:
        return []
    shown = [_clipped(line) for line in islice(lines, most)]
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return [f"--- {title} (preserved) ---", *shown, *more]


def _clipped(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
