"""Redacts a text that comes in pieces, so that a secret cut by a border between pieces is not missed (S9.7)."""

import re
from typing import Protocol

from acp_agent.output.redaction.blocks import header_end, headless_tail, open_block
from acp_agent.output.redaction.spans import Span

WINDOW = 8192
"""Bytes held back at least where a text has to be cut inside a line."""
LONGEST_LINE = 65536
"""Bytes of a line, or of lines that belong together, that are held before they are cut."""
_KEPT = 2048  # bytes of an endless secret that are held at either end: what is between changes nothing
_SEAM = re.compile(rb"[\s,;&](?=[^\s,;&]*\Z)")


class _Redacts(Protocol):
    def __call__(self, text: str) -> str: ...
    def spans(self, data: bytes) -> list[Span]: ...
    def unfinished(self, data: bytes) -> int | None: ...


class RedactionStream:
    """Takes pieces of a text, gives back what is certain: whole lines nothing behind them can change.

    All that is given back together equals the redaction of the whole text, except where a line is longer than 64 KiB
    (it is cut between secrets, at a blank if there is one near, and each part redacted by itself) and where the
    base64 lines above a footer of a private key, its header missing, are more than 8 KiB: the lines before have gone.
    """

    def __init__(self, redactor: _Redacts, *, blocks: bool = True) -> None:
        self._redactor = redactor
        self._blocks = blocks
        self._pending = b""

    def feed(self, chunk: str) -> str:
        """What is certain now, redacted; often nothing until the line ends."""
        new = chunk.encode("utf-8", "surrogatepass")
        self._pending += new
        given = ""
        if b"\n" in new:
            lines = self._pending.rfind(b"\n") + 1
            given = self._give(self._certain(self._pending[:lines]))
            self._shorten_block()
        while len(self._pending) > LONGEST_LINE:
            given += self._cut()
        return given

    def finish(self) -> str:
        """The rest, redacted. The stream is as new afterwards."""
        return self._give(len(self._pending))

    def _give(self, end: int) -> str:
        if not end:
            return ""
        data, self._pending = self._pending[:end], self._pending[end:]
        return self._redactor(data.decode("utf-8", "surrogatepass"))

    def _certain(self, lines: bytes) -> int:
        """Up to where no later line can change what is secret in these lines."""
        starts = [self._redactor.unfinished(lines)]
        if self._blocks:
            starts += (open_block(lines), headless_tail(lines, max(0, len(lines) - WINDOW)))
        start = min((start for start in starts if start is not None), default=len(lines))
        if start == len(lines):
            return start
        cut = lines.rfind(b"\n", 0, start) + 1
        for span in reversed(self._redactor.spans(lines)):
            if span.context < cut < span.end:  # what is held may itself be what an earlier line goes on with
                cut = lines.rfind(b"\n", 0, span.context) + 1
        return cut

    def _shorten_block(self) -> None:
        """Let go of the middle of a private key that still goes on: it is one placeholder however long it is."""
        if len(self._pending) < 3 * _KEPT or not self._blocks:
            return
        start = open_block(self._pending[: self._pending.rfind(b"\n") + 1])
        if start is not None:
            first = self._pending.find(b"\n", header_end(self._pending, start) + _KEPT) + 1
            last = self._pending.rfind(b"\n", 0, len(self._pending) - _KEPT) + 1
            if first < last:
                self._pending = self._pending[:first] + self._pending[last:]

    def _cut(self) -> str:
        """Give the beginning of too long a line, cut outside of all secrets."""
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
        # A secret from the beginning to the window: what is left of it is as secret as the whole.
        end = max(inside.start + _KEPT, min(inside.end, len(data)) - _KEPT)
        given = self._give(cut) if cut else ""
        self._pending = data[cut : inside.start + _KEPT] + data[end:]
        return given
