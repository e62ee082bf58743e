"""The lines of an output that matter although a filter dropped them (O4.4).

This is where "loses no error" is kept: it looks at the whole output, so it does not matter which filter dropped a line.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from acp_agent.output.error_lines import ERRORS, NO_ERRORS, PLAIN_ERRORS, TELLING, WARNINGS
from acp_agent.output.filters.line_patterns import decoded, encoded

_PIECE = 256 * 1024
_MOST_WARNINGS = 20
_MOST_ERRORS = 40
_LONGEST_LINE = 500  # characters shown of a line
_LONGEST_COMPARED = 2000  # characters by which lines are told apart
_MOST_DIFFERENT = 2000  # of one kind that are told apart; the count of the others says no more
_LONGEST_SEARCHED = 1 << 18  # characters of a filtered text in which a line is also looked for as part of another

_TIME = re.compile(
    r"""\d(?:  # the character before it is looked at behind it, so that the search for digits runs at memory speed
        \d{3}-\d\d-\d\d[T\x20]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?
      | (?<=\b\d)\d:\d\d:\d\d(?:[.,]\d+)?\b
      | (?<=\b0)x[0-9a-fA-F]{6,16}\b
    )""",
    re.VERBOSE,
)
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_RULES = " \t=_-*│|"


def preserved(raw: str, filtered: str) -> str:
    """The lines of `raw` that matter and are not in `filtered`, as a block to append; "" when there are none.

    Both are redacted. At most 20 security warnings and 40 errors, each once however often it was printed; times,
    addresses and UUIDs do not make a line another one.
    """
    if raw == filtered:
        return ""
    kept = _Kept(filtered)
    telling = list(dict.fromkeys(line for piece in _pieces(raw) for line in kept.telling(piece)))
    warnings = kept.missing([_split(WARNINGS.lines(encoded("\n".join(telling))))])
    said = {normalised for normalised, _ in warnings}
    errors = [one for one in kept.missing(_errors(telling)) if one[0] not in said]
    blocks = (
        *_block("Security Warnings", [line for _, line in warnings], _MOST_WARNINGS),
        *_block("Errors", [line for _, line in errors], _MOST_ERRORS),
    )
    return "\n".join(blocks)


def _pieces(text: str) -> Iterator[str]:
    """Whole lines of a text, some at a time: ten megabytes of lines in a list weigh fifty."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


class _Kept:
    """The filtered text, to look lines up in. What it holds is worked out when the first line is looked up."""

    def __init__(self, filtered: str) -> None:
        self._filtered = filtered
        self._verbatim = frozenset(filtered.split("\n"))
        self._lines: frozenset[str] | None = None
        self._words = frozenset[str]()
        self._text = ""

    def telling(self, piece: str) -> list[str]:
        """Lines that may matter and are not there word for word."""
        others = [line for line in piece.split("\n") if line not in self._verbatim]
        return _split(TELLING.lines(encoded("\n".join(others))))

    def missing(self, parts: Iterable[list[str]]) -> list[tuple[str, str]]:
        """Of lines that are not there word for word those that are not there otherwise: normalised form and itself."""
        found: dict[str, str] = {}
        for lines in parts:
            for line in lines:
                normalised = _normalised(line)
                if normalised and normalised not in found and normalised not in self:
                    found[normalised] = line
                    if len(found) == _MOST_DIFFERENT:
                        return list(found.items())
        return list(found.items())

    def __contains__(self, normalised: str) -> bool:
        if self._lines is None:
            self._lines = frozenset(map(_normalised, self._verbatim))
            self._text = "\n".join(self._lines) if len(self._filtered) <= _LONGEST_SEARCHED else ""
            self._words = frozenset(self._text.split())
        inner = normalised.split(" ")[1:-1]  # a search takes long, so first: are these words there at all?
        return normalised in self._lines or (self._words.issuperset(inner) and normalised in self._text)


def _split(data: bytes) -> list[str]:
    return decoded(data).removesuffix("\n").split("\n")


def _errors(telling: list[str]) -> Iterator[list[str]]:
    """Of different lines those that report an error, in their order, without those that only look like it."""
    for at in range(0, len(telling), _MOST_DIFFERENT):
        some = telling[at : at + _MOST_DIFFERENT]
        data = encoded("\n".join(some))
        found = frozenset(line for patterns in ERRORS for line in _split(patterns.lines(data)))
        reports = [line for line in some if line in found]
        data = encoded("\n".join(reports))
        vetoed = frozenset(_split(NO_ERRORS.lines(data))).difference(_split(PLAIN_ERRORS.lines(data)))
        yield [line for line in reports if line not in vetoed]


def _normalised(line: str) -> str:
    """A line without what varies, and without the mark in front of what pytest has to say."""
    line = line[:_LONGEST_COMPARED]
    if line.count(":") > 1 or "0x" in line:  # else there is no time in it, and no address
        line = _TIME.sub("", line)
    if line.count("-") > 3:  # a UUID has four
        line = _UUID.sub("", line)
    return " ".join(line.removeprefix("E  ").split()).strip(_RULES)


def _block(title: str, lines: list[str], most: int) -> list[str]:
    if not lines:
        return []
    shown = [_clipped(line) for line in islice(lines, most)]
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return [f"--- {title} (preserved) ---", *shown, *more]


def _clipped(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
