"""Redacts a text that arrives in pieces, so that a secret which is cut by the end of a piece is found."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from acp_agent.output.redaction.blocks import header_end, headless_tail, open_block
from acp_agent.output.redaction.spans import Span, replaced

_COLOUR = re.compile(rb"\x1b(?:\[[0-?]{0,64}+[ -/]{0,8}+[@-~]|\([0-9A-Za-z])")


class Uncoloured:
    """A text without colours and other short terminal codes, with the place of each byte in the original text.

    `grep --color` writes the `ghp_` that it searched for and the rest of the token in two colours.
    """

    def __init__(self, data: bytes) -> None:
        pieces, self._here, self._there, position = list[bytes](), [0], [0], 0
        for code in _COLOUR.finditer(data):
            pieces.append(data[position : code.start()])
            position = code.end()
            self._here.append(self._here[-1] + len(pieces[-1]))
            self._there.append(position)
        self.text = b"".join((*pieces, data[position:]))

    def at(self, offset: int) -> int:
        """Return where the byte at `offset` stands in the original text, after the codes before it."""
        piece = bisect_right(self._here, offset) - 1
        return self._there[piece] + offset - self._here[piece]


def uncoloured(data: bytes) -> Uncoloured | None:
    """Return a text without colours. None if it has no colours."""
    return Uncoloured(data) if b"\x1b" in data and _COLOUR.search(data) else None


WINDOW = 8192
"""How many bytes are held back at least when a text has to be cut inside a line."""
LONGEST_LINE = 65536
"""How many bytes of a line, or of lines that belong together, are held before they are cut."""
_KEPT = 2048  # bytes at either end of an endless secret that are held: the middle changes nothing
_SEAM = re.compile(rb"[\s,;&](?=[^\s,;&]*\Z)")


class _Redacts(Protocol):
    def __call__(self, text: str) -> str: ...
    def spans(self, data: bytes) -> list[Span]: ...
    def unfinished(self, data: bytes) -> int | None: ...


class RedactionStream:
    """Takes pieces of a text and returns what is certain: whole lines that no later text can change.

    A carriage return ends a line, too, since progress bars write it. The joined results equal the redaction of the
    whole text, except in these cases:

    - a secret continues after a single carriage return;
    - a line is longer than 64 KiB: it is cut between secrets, at a blank if one is near, and each part is redacted by
      itself;
    - the base64 lines above the footer of a private key without header are more than 8 KiB;
    - `hurry` was called.
    """

    def __init__(self, redactor: _Redacts, *, blocks: bool = True) -> None:
        self._redactor = redactor
        self._blocks = blocks
        self._pending = b""
        self._given = 0  # bytes of the pending text that were returned and only give context to what follows

    @property
    def waiting(self) -> int:
        """The number of bytes held back."""
        return len(self._pending) - self._given

    def feed(self, chunk: str) -> str:
        """Return what is certain now, redacted. It is often empty until the line ends."""
        new = chunk.encode("utf-8", "surrogatepass")
        before = max(0, len(self._pending) - 1)
        self._pending += new
        given = ""
        if settled := _lines_end(self._pending, before):
            given = self._give(self._certain(self._pending[:settled]))
            self._shorten_block()
        while len(self._pending) > LONGEST_LINE:
            given += self._cut()
        return given

    def hurry(self) -> str:
        """Return the visible part of an unfinished line: up to its last blank outside of all secrets.

        What was returned stays known as context: `hunter2` after `Password: ` is still redacted. Of a secret of several
        words that arrive one by one, the first words may be shown.
        """
        if b"\n" in self._pending:
            return ""  # lines that wait for the next one
        spans = self._redactor.spans(self._pending)
        cut = max(self._pending.rfind(blank) for blank in (b" ", b"\t")) + 1
        for span in reversed(spans):
            if span.context < cut < span.end:
                cut = self._pending.rfind(b" ", 0, span.context) + 1
        if cut <= self._given:
            return ""
        seen = self._seen(self._pending[:cut], [span for span in spans if span.end <= cut])
        self._given = cut
        return seen

    def finish(self) -> str:
        """Return the rest, redacted. The stream can then be used again."""
        return self._give(len(self._pending))

    def _give(self, end: int) -> str:
        if not end:
            return ""
        seen = self._seen(self._pending[:end])
        self._pending, self._given = self._pending[end:], max(0, self._given - end)
        return seen

    def _seen(self, data: bytes, spans: Sequence[Span] = ()) -> str:
        """Return the part of a text that was not returned yet, redacted."""
        given = self._given
        if given >= len(data):
            return ""
        if given or spans:
            later = (span._replace(start=max(span.start, given)) for span in spans or self._redactor.spans(data))
            data = replaced(data, [span for span in later if span.start < span.end])[given:]
        return self._redactor(data.decode("utf-8", "surrogatepass"))

    def _certain(self, lines: bytes) -> int:
        """Return the end of the part in which no later line can change what is secret."""
        plain = uncoloured(lines)
        return self._certain_plainly(lines) if plain is None else plain.at(self._certain_plainly(plain.text))

    def _certain_plainly(self, lines: bytes) -> int:
        starts = [self._redactor.unfinished(lines)]
        if self._blocks:
            starts += (open_block(lines), headless_tail(lines, max(0, len(lines) - WINDOW)))
        start = min((start for start in starts if start is not None), default=len(lines))
        if start == len(lines):
            return start
        cut = lines.rfind(b"\n", 0, start) + 1
        for span in reversed(self._redactor.spans(lines)):
            if span.context < cut < span.end:  # the held part may itself continue what an earlier line began
                cut = lines.rfind(b"\n", 0, span.context) + 1
        return cut

    def _shorten_block(self) -> None:
        """Drop the middle of a private key that still continues. It becomes one placeholder, however long it is."""
        if len(self._pending) < 3 * _KEPT or not self._blocks:
            return
        start = open_block(self._pending[: self._pending.rfind(b"\n") + 1])
        if start is not None:
            first = self._pending.find(b"\n", header_end(self._pending, start) + _KEPT) + 1
            last = self._pending.rfind(b"\n", 0, len(self._pending) - _KEPT) + 1
            if first < last:
                self._pending = self._pending[:first] + self._pending[last:]

    def _cut(self) -> str:
        """Return the beginning of a line that is too long, cut outside of all secrets."""
        data = self._pending
        cut = len(data) - WINDOW
        seam = _SEAM.search(data, cut - 1024, cut)
        cut = seam.end() if seam else cut
        while data[cut] & 0xC0 == 0x80:
            cut -= 1
        inside = None
        for span in reversed(self._redactor.spans(data)):
            if span.context < cut < span.end:
                cut, inside = span.context, span
        if inside is None or cut > _KEPT:
            return self._give(cut)
        # The secret reaches from the beginning to the window: what is left of it is as secret as the whole.
        end = max(inside.start + _KEPT, min(inside.end, len(data)) - _KEPT)
        given = self._give(cut) if cut else ""
        self._pending = data[cut : inside.start + _KEPT] + data[end:]
        self._given = min(self._given, inside.start + _KEPT - cut)
        return given


def _lines_end(data: bytes, start: int) -> int:
    """Return the position after the last line end or lone carriage return, 0 if there is none after `start`.

    A carriage return at the very end may be the first half of a line end.
    """
    lines = data.rfind(b"\n", start) + 1
    bare = data.rfind(b"\r", max(start, lines), len(data) - 1) + 1
    return max(lines, bare)
