"""Secrets whose value we know: our own keys, the headers and environment of MCP servers (S9.4, security.md 2.6)."""

import base64
import json
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from urllib.parse import quote, quote_plus

from acp_agent.output.redaction.spans import Regex, Span, literals

SHORTEST = 8
"""Characters a value has at least: shorter ones stand in too many innocent places."""
CATEGORY = "known"
_MOST_TOGETHER = 128  # forms, of some ten values


class KnownSecrets:
    """Exact values and the forms they are met in: plain, base64, URL- and JSON-escaped.

    One for the process. Any thread may add and look; those who look see all values of before or all of after.
    """

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self._forms = Forms(frozenset())

    def add(self, values: Iterable[str]) -> None:
        """Know these values too. Blanks around them do not count; shorter than 8 characters are ignored."""
        new = frozenset(value for each in values if len(value := each.strip()) >= SHORTEST)
        with self._adding:
            if not new <= self._forms.values:
                self._forms = Forms(self._forms.values | new)

    @property
    def forms(self) -> "Forms | None":
        """All that is known now, for good; None when nothing is."""
        return self._forms if self._forms.values else None

    def unfinished(self, data: bytes) -> int | None:
        """Where a value of several lines begins of which `data`, whole lines, holds the beginning alone."""
        starts = [len(data) - len(head) for head in self._forms.heads if data.endswith(head)]
        return min(starts, default=None)


class Forms:
    """A fixed set of values, and where they stand."""

    def __init__(self, values: frozenset[str]) -> None:
        self.values = values
        self._hits: tuple[str, Regex] | None = None

    def spans(self, data: bytes) -> Iterator[Span]:
        """Where a value stands, in any form."""
        yield from self.spans_within(data, 0, len(data))
        yield from self.spans_across(data)

    def spans_within(self, data: bytes, start: int, end: int) -> Iterator[Span]:
        """Those within a line, of the lines between `start` and `end`."""
        return _spans(self._within, data, start, end)

    def spans_across(self, data: bytes) -> Iterator[Span]:
        """Those of several lines."""
        return _spans(self._across, data, 0, len(data))

    def hits(self, starts: str) -> Regex | None:
        """Finds values within a line and what `starts` matches, in one go, which takes no longer than either alone.

        None for many values: each multiplies the states that RE2 has to build before it is fast.
        """
        if len(self._inside) > _MOST_TOGETHER:
            return None
        if self._hits is None or self._hits[0] != starts:
            self._hits = starts, literals(self._inside, lines=False, beside=starts)
        return self._hits[1]

    @cached_property
    def _literals(self) -> list[bytes]:
        """Longest first, for of two that begin alike the longer one is to be taken."""
        return sorted({form for value in self.values for form in _forms(value)}, key=lambda form: (-len(form), form))

    @cached_property
    def _inside(self) -> list[bytes]:
        return [literal for literal in self._literals if b"\n" not in literal]

    @cached_property
    def _within(self) -> Regex:
        return literals(self._inside, lines=False)

    @cached_property
    def _across(self) -> Regex | None:
        across = [literal for literal in self._literals if b"\n" in literal]
        return literals(across, lines=True) if across else None

    @cached_property
    def heads(self) -> tuple[bytes, ...]:
        """The literals of several lines, cut behind each of their lines."""
        return tuple(
            literal[: at + 1] for literal in self._literals for at, byte in enumerate(literal[:-1]) if byte == 0x0A
        )


def _spans(regex: Regex | None, data: bytes, start: int, end: int) -> Iterator[Span]:
    for found in regex.finditer(data, start, end) if regex is not None else ():
        yield Span(found.start(), found.end(), CATEGORY, -1, found.start())


def _forms(value: str) -> Iterator[bytes]:
    raw = value.encode("utf-8", "surrogatepass")
    yield raw
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        for escaped in (once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]):  # JSON in JSON too
            yield escaped.encode("utf-8", "surrogatepass")
            yield escaped.replace("/", "\\/").encode("utf-8", "surrogatepass")
    for safe in ("", "/", "~", "!'()*~"):
        for escaped in (quote(raw, safe=safe), quote_plus(raw, safe=safe)):
            yield escaped.encode()
            yield _lower_escapes(escaped).encode()
    for encoded in _base64(raw):
        if len(encoded) >= SHORTEST:
            yield encoded
            yield encoded.translate(_URLSAFE)


_URLSAFE = bytes.maketrans(b"+/", b"-_")


def _base64(raw: bytes) -> Iterator[bytes]:
    """What base64 makes of the value at each of the three places it may have in a triple of bytes.

    Characters that also hold bits of a neighbour are left out; alone, the value is found with its whole encoding.
    """
    yield base64.b64encode(raw)
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw)
        first = (0, 2, 3)[before]
        last = (before + len(raw)) * 8 // 6
        yield encoded[first:last]


def _lower_escapes(escaped: str) -> str:
    first, *others = escaped.split("%")
    return "%".join((first, *(other[:2].lower() + other[2:] for other in others)))
