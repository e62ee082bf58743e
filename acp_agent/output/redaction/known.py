"""Secrets whose value is known: our own keys, and the headers and environment of MCP servers."""

import base64
import json
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from urllib.parse import quote, quote_plus

from acp_agent.output.redaction.spans import Span
from acp_agent.regex import Regex, literals

SHORTEST = 8
"""The shortest known value, in characters. Shorter ones occur in too many harmless places."""
CATEGORY = "known"
_MOST_TOGETHER = 128  # forms, of some ten values


class KnownSecrets:
    """Known values in the forms in which they occur: plain, base64, URL-escaped and JSON-escaped.

    There is one for the process. Any thread may add and read. Readers see all values of a call of `add`, or none.
    """

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self._forms = Forms(frozenset())

    def add(self, values: Iterable[str]) -> None:
        """Add values. Surrounding blanks are removed; values under 8 characters are ignored."""
        new = frozenset(value for each in values if len(value := each.strip()) >= SHORTEST)
        with self._adding:
            if not new <= self._forms.values:
                self._forms = Forms(self._forms.values | new)

    @property
    def forms(self) -> "Forms | None":
        """Return an immutable set of all current forms, None if there are none."""
        return self._forms if self._forms.values else None

    def unfinished(self, data: bytes) -> int | None:
        """Return where a value of several lines begins that `data` ends in the middle of. `data` has whole lines."""
        starts = [len(data) - len(head) for head in self._forms.heads if data.endswith(head)]
        return min(starts, default=None)


class Forms:
    """An immutable set of values that finds them in a text."""

    def __init__(self, values: frozenset[str]) -> None:
        self.values = values
        self._hits: tuple[str, Regex] | None = None

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield the places of values in any form."""
        yield from self.spans_within(data, 0, len(data))
        yield from self.spans_across(data)

    def spans_within(self, data: bytes, start: int, end: int) -> Iterator[Span]:
        """Yield the places of values within a line, in the lines between `start` and `end`."""
        return _spans(self._within, data, start, end)

    def spans_across(self, data: bytes) -> Iterator[Span]:
        """Yield the places of values of several lines."""
        return _spans(self._across, data, 0, len(data))

    def hits(self, starts: str) -> Regex | None:
        """Return a search for values within a line or for `starts`, as fast as either alone.

        Return None for many values: each of them multiplies the states that RE2 has to build.
        """
        if len(self._inside) > _MOST_TOGETHER:
            return None
        if self._hits is None or self._hits[0] != starts:
            self._hits = starts, literals(self._inside, lines=False, beside=starts)
        return self._hits[1]

    @cached_property
    def _literals(self) -> list[bytes]:
        """Return the forms, longest first: of two with the same beginning the longer one must be found."""
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
        """Return the forms of several lines, cut after each of their lines."""
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
        for escaped in (once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]):  # JSON may contain JSON
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
    """Yield the base64 of the value at each of its three possible offsets in a group of three bytes.

    Characters that also depend on neighbouring bytes are left out. A value that is encoded alone is found whole.
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
