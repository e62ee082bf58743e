"""Remove secrets from texts and from JSON values, also from texts that arrive in pieces.

The end of each piece is held back until the next one arrives, so that a secret that is split over two pieces is found.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from acp_agent.core.secrets import Redact, placeholder
from acp_agent.core.types import Json
from acp_agent.output.redaction.assignments import category_of, is_secret, key_of
from acp_agent.output.redaction.rules import Forms, KnownSecrets, built_in
from acp_agent.output.redaction.spans import Span, header_end, headless_tail, open_block, replaced, settled
from acp_agent.regex import Regex, compiled_rule

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
        """Return the offset in the original text of the byte at `offset`."""
        piece = bisect_right(self._here, offset) - 1
        return self._there[piece] + offset - self._here[piece]


def uncoloured(data: bytes) -> Uncoloured | None:
    """Return a text without colours. None if it has no colours."""
    return Uncoloured(data) if b"\x1b" in data and _COLOUR.search(data) else None


WINDOW = 8192
"""The fewest bytes that are held back when a text has to be cut inside a line."""
LONGEST_LINE = 65536
"""The most bytes of a line, or of lines that belong together, that are held back. Longer ones are cut."""
_KEPT = 2048  # bytes at either end of an endless secret that are held; its middle is not needed
_LONGEST_REMEMBERED, _MOST_REMEMBERED = 200, 1000
"""The most characters of a text that is remembered, and the most such texts."""
_SEAM = re.compile(rb"[\s,;&](?=[^\s,;&]*\Z)")


class RedactionStream:
    """A redactor of a text that arrives in pieces. It returns the lines that no later text can change.

    A carriage return ends a line too, since progress bars write it. The joined results equal the redaction of the
    whole text, except in these cases:

    - a secret continues after a single carriage return;
    - a line is longer than 64 KiB: it is cut between secrets, at a blank if one is near, and each part is redacted by
      itself;
    - the base64 lines above the footer of a private key without header are more than 8 KiB, or they are only its short
      last line behind a timestamp or the like;
    - `hurry` was called.
    """

    def __init__(self, redactor: "Redactor") -> None:
        self._redactor = redactor
        self._pending = b""
        self._given = 0  # bytes of the pending text that were returned already and only give context

    def follow(self, before: str) -> None:
        """Take a text that was already shown as context of the first piece."""
        self.feed(before)
        self._given = len(self._pending)

    @property
    def waiting(self) -> int:
        """The number of bytes held back."""
        return len(self._pending) - self._given

    def feed(self, chunk: str) -> str:
        """Return the text that no later text can change, redacted. It is often empty until the line ends."""
        before = max(0, len(self._pending) - 1)
        self._pending += chunk.encode("utf-8", "surrogatepass")
        given = ""
        # A line ends at a line feed or a carriage return. A final carriage return may be the first half of a line end.
        end = self._pending.rfind(b"\n", before) + 1
        end = max(end, self._pending.rfind(b"\r", max(before, end), len(self._pending) - 1) + 1)
        if end:
            given = self._give(self._certain(self._pending[:end]))
            if len(self._pending) >= 3 * _KEPT and self._redactor.enabled:
                self._shorten_block()
        while len(self._pending) > LONGEST_LINE:
            given += self._cut()
        return given

    def hurry(self) -> str:
        """Return the visible part of an unfinished line: up to its last blank outside of all secrets.

        The returned text still gives context: `hunter2` after `Password: ` is redacted. If the words of a secret arrive
        one by one, its first words may be shown.
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
        """Drop the first `end` bytes. Return the part of them that was not returned yet, redacted."""
        seen = self._seen(self._pending[:end]) if end > self._given else ""
        self._pending, self._given = self._pending[end:], max(0, self._given - end)
        return seen

    def _seen(self, data: bytes, spans: Sequence[Span] = ()) -> str:
        """Return the part of a text that was not returned yet, redacted."""
        given = self._given
        if given or spans:
            later = (span._replace(start=max(span.start, given)) for span in spans or self._redactor.spans(data))
            data = replaced(data, [span for span in later if span.start < span.end])[given:]
        return self._redactor(data.decode("utf-8", "surrogatepass"))

    def _certain(self, lines: bytes) -> int:
        """Return the end of the lines in which no later line can change what is secret."""
        plain = uncoloured(lines) if b"\x1b" in lines else None
        text = lines if plain is None else plain.text
        start = self._redactor.unfinished(text)
        if start == len(text):
            return len(lines)
        cut = text.rfind(b"\n", 0, start) + 1
        for span in reversed(self._redactor.spans(text)):
            if span.context < cut < span.end:  # the held lines may continue a secret that an earlier line began
                cut = text.rfind(b"\n", 0, span.context) + 1
        return cut if plain is None else plain.at(cut)

    def _shorten_block(self) -> None:
        """Drop the middle of a private key that still continues. It becomes one placeholder, however long it is."""
        lines = self._pending[: self._pending.rfind(b"\n") + 1]
        start = open_block(lines)
        if start < len(lines):
            first = self._pending.find(b"\n", header_end(self._pending, start) + _KEPT) + 1
            last = self._pending.rfind(b"\n", 0, len(self._pending) - _KEPT) + 1
            if first < last:
                self._pending = self._pending[:first] + self._pending[last:]

    def _cut(self) -> str:
        """Return the beginning of a line that is too long. It is cut outside of all secrets."""
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
        # The secret reaches from the beginning to the window, so the rest of it is secret too.
        end = max(inside.start + _KEPT, min(inside.end, len(data)) - _KEPT)
        given = self._give(cut) if cut else ""
        self._pending = data[cut : inside.start + _KEPT] + data[end:]
        self._given = min(self._given, inside.start + _KEPT - cut)
        return given


LONGEST_PATTERN = 512
"""The longest pattern of the user, in characters."""
CUSTOM = "custom"
_DEEPEST = 200  # levels of nested JSON: deeper values are left out
_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie"))


class Redacted(NamedTuple):
    """A text without its secrets, and the number of secrets of each category."""

    text: str
    found: Mapping[str, int] = MappingProxyType({})


def compile_extra(patterns: Sequence[str]) -> tuple[tuple[Regex, ...], tuple[str, ...]]:
    """Return the user's compiled patterns (`extra_patterns`), and a warning for each pattern that is left out.

    They are RE2 expressions of at most 512 characters and match within a line. Never raises.
    """
    good, problems = list[Regex](), list[str]()
    for pattern in patterns:
        if len(pattern) > LONGEST_PATTERN:
            problems.append(
                f"extra_patterns: {pattern[:40]!r}... has {len(pattern)} characters: expected at most {LONGEST_PATTERN}"
            )
            continue
        try:
            good.append(compiled_rule(pattern, captures=False, utf8=True))
        except (ValueError, UnicodeEncodeError) as error:
            problems.append(f"extra_patterns: {pattern!r} is no RE2 expression: {error}")
    return tuple(good), tuple(problems)


class Redactor:
    """Removes texts that look like secrets, known secrets, and texts that the user's patterns match.

    Any thread may use it. With `enabled=False` only known values are removed, since our own keys are never shown.
    Invalid patterns are left out; `compile_extra` reports them. It remembers short texts without a secret, because the
    names, the command and the folder of a call are redacted again and again.
    """

    def __init__(
        self, known: KnownSecrets | None = None, *, extra_patterns: Sequence[str] = (), enabled: bool = True
    ) -> None:
        self._known = known
        self.enabled = enabled
        self._extra = compile_extra(extra_patterns)[0] if enabled else ()
        self._clean: tuple[Forms | None, set[str]] = None, set()  # the texts, and the known values that they have not

    def __call__(self, text: str) -> str:
        return self.redact(text).text

    def redact(self, text: str, before: str = "") -> Redacted:
        """Return the text with `[REDACTED:<category>]` for each secret. Placeholders are not changed. Never raises.

        before   the text before it; if a secret begins there, its part in `text` is replaced
        """
        known, clean = None if self._known is None else self._known.forms, self._clean
        if clean[0] is not known or len(clean[1]) >= _MOST_REMEMBERED:
            clean = self._clean = known, set()
        if not before and text in clean[1]:
            return Redacted(text)
        data = text.encode("utf-8", "surrogatepass")
        found = Counter[str]()
        if before:
            context = before.encode("utf-8", "surrogatepass")
            given = len(context)
            spans = [span._replace(start=max(span.start, given)) for span in self.spans(context + data)]
            spans = [span for span in spans if span.start < span.end]
            data = replaced(context + data, spans)[given:]
            found.update(span.category for span in spans)
        # Repeat until nothing is found: with a placeholder in place of a word, another secret beside it may be
        # recognized. The text outside placeholders becomes shorter in each round, so this ends.
        while spans := self.spans(data):
            data = replaced(data, spans)
            found.update(span.category for span in spans)
        if found:
            return Redacted(data.decode("utf-8", "surrogatepass"), MappingProxyType(found))
        if not before and len(text) <= _LONGEST_REMEMBERED:
            clean[1].add(text)
        return Redacted(text)

    def spans(self, data: bytes) -> list[Span]:
        """Return the secrets that one pass finds, in order, without overlaps, and none inside a placeholder.

        Colours inside a secret belong to it; all other colours are ignored.
        """
        plain = uncoloured(data) if b"\x1b" in data else None
        text = data if plain is None else plain.text
        spans = list[Span]()
        known = self._known.forms if self._known is not None else None
        if self.enabled:
            for kind in built_in().kinds:
                spans += kind.spans(text, known)
                known = None  # the first kind has searched for known values
        elif known is not None:
            spans += known.spans(text)
        for regex in self._extra:
            spans += (Span(m.start(), m.end(), CUSTOM, -2, m.start()) for m in regex.finditer(text, 0, len(text)))
        if not spans:
            return spans
        spans = settled(text, spans)
        if plain is None:
            return spans
        return [
            span._replace(start=plain.at(span.start), end=plain.at(span.end - 1) + 1, context=plain.at(span.context))
            for span in spans
        ]

    def unfinished(self, data: bytes) -> int:
        """Return where the text begins that the next line may complete to a secret, or the length if there is none.

        data   whole lines
        """
        start = len(data)
        known = self._known.forms if self._known is not None else None
        for head in known.heads if known is not None else ():
            if data.endswith(head):
                start = min(start, len(data) - len(head))
        if self.enabled:
            tail = headless_tail(data, max(0, len(data) - WINDOW))
            start = min(start, built_in().unfinished(data), open_block(data), tail)
        return start

    def stream(self) -> RedactionStream:
        """Return a redactor for a text that arrives in pieces."""
        return RedactionStream(self)

    def json(self, value: Json, key: str = "", depth: int = 0, clean: Redact | None = None) -> Json:
        """Return the value with every string and key redacted.

        A string is also judged by its key. In an object, the member `name` or `key` is the key of the member `value`.

        key     the key of the value
        depth   how many lists and objects contain it
        clean   redacts one string; None for this redactor
        """
        clean = clean or self
        if isinstance(value, str):
            if not self.enabled:
                return clean(value)
            if key.lower() in _HEADERS:
                prefix = f"{key}: "
                return clean(prefix + value).removeprefix(prefix)
            name = key.encode("utf-8", "replace")
            if built_in().is_key(name) and (meant := key_of(key)) is not None and is_secret(meant, value):
                return placeholder(category_of(name))
            return clean(value)
        if not isinstance(value, (list, dict)):
            return value
        if depth == _DEEPEST:
            return placeholder("too-deep")
        if isinstance(value, list):
            return [self.json(item, key, depth + 1, clean) for item in value]
        named = value.get("name") or value.get("key") if "value" in value else None
        redacted: dict[str, Json] = {}
        for each, item in value.items():
            meant = named if each == "value" and isinstance(named, str) else each
            redacted[clean(each)] = self.json(item, meant, depth + 1, clean)
        return redacted
