"""Removes secrets from texts and from JSON values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from acp_agent.core.redaction import placeholder
from acp_agent.core.types import Json
from acp_agent.output.redaction.known import KnownSecrets
from acp_agent.output.redaction.rules import built_in
from acp_agent.output.redaction.spans import Span, counted, replaced, settled
from acp_agent.output.redaction.stream import RedactionStream, uncoloured
from acp_agent.output.redaction.values import category_of, is_secret, key_of
from acp_agent.regex import Regex, compiled_rule

LONGEST_PATTERN = 512
"""The longest pattern of the user, in characters."""
CUSTOM = "custom"
_DEEPEST = 200  # levels of nested JSON: deeper values are left out
_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie"))


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the number of secrets of each category."""

    text: str
    found: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


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
    """Removes what looks like a secret, what is a known one, and what the user's patterns match.

    It has no state but its settings, and any thread may use it. `enabled=False` switches everything off but the known
    values, since our own keys are never shown. Invalid patterns are left out; `compile_extra` reports them.
    """

    def __init__(
        self, known: KnownSecrets | None = None, *, extra_patterns: Sequence[str] = (), enabled: bool = True
    ) -> None:
        self._known = known
        self._enabled = enabled
        self._extra = compile_extra(extra_patterns)[0] if enabled else ()

    def redact(self, text: str) -> Redacted:
        """Return the text with `[REDACTED:<category>]` for each secret. Placeholders are not changed. Never raises."""
        data = text.encode("utf-8", "surrogatepass")
        found = Counter[str]()
        # Repeat until nothing is found: a placeholder may end a word that hid another secret. Each round has less text.
        while spans := self.spans(data):
            data = replaced(data, spans)
            found += counted(spans)
        return Redacted(data.decode("utf-8", "surrogatepass"), MappingProxyType(found)) if found else Redacted(text)

    def __call__(self, text: str) -> str:
        return self.redact(text).text

    def spans(self, data: bytes) -> list[Span]:
        """Return the secrets that one pass finds: in order, without overlap, none inside a placeholder.

        Colours inside a secret belong to it; all other colours are ignored.
        """
        plain = uncoloured(data)
        if plain is None:
            return self._spans(data)
        return [
            span._replace(start=plain.at(span.start), end=plain.at(span.end - 1) + 1, context=plain.at(span.context))
            for span in self._spans(plain.text)
        ]

    def _spans(self, data: bytes) -> list[Span]:
        spans = list[Span]()
        known = self._known.forms if self._known is not None else None
        if self._enabled:
            spans += built_in().spans(data, known)
        elif known is not None:
            spans += known.spans(data)
        for regex in self._extra:
            spans += (Span(m.start(), m.end(), CUSTOM, -2, m.start()) for m in regex.finditer(data, 0, len(data)))
        return settled(data, spans) if spans else []

    def unfinished(self, data: bytes) -> int | None:
        """Return where something begins in the lines that the next line may complete to a secret. Else None."""
        starts = [self._known.unfinished(data)] if self._known is not None else []
        if self._enabled:
            starts.append(built_in().unfinished(data))
        return min((start for start in starts if start is not None), default=None)

    def json(self, value: Json) -> Json:
        """Return the value with every string and key redacted. The key or `name` of a value counts, too."""
        return self._json(value, "", 0)

    def stream(self) -> RedactionStream:
        """Return a redactor for a text that arrives in pieces."""
        return RedactionStream(self, blocks=self._enabled)

    def _json(self, value: Json, key: str, depth: int) -> Json:
        if isinstance(value, str):
            return self._leaf(key, value)
        if not isinstance(value, (list, dict)):
            return value
        if depth == _DEEPEST:
            return placeholder("too-deep")
        if isinstance(value, list):
            return [self._json(item, key, depth + 1) for item in value]
        name = _name(value)
        return {
            self(each): self._json(item, name if each == "value" and name else each, depth + 1)
            for each, item in value.items()
        }

    def _leaf(self, key: str, text: str) -> str:
        if not self._enabled:
            return self(text)
        if key.lower() in _HEADERS:
            prefix = f"{key}: "
            return self(prefix + text).removeprefix(prefix)
        if built_in().is_key(key):
            meant = key_of(key)
            if meant is not None and is_secret(meant, text):
                return placeholder(category_of(key.encode("utf-8", "replace")))
        return self(text)


def _name(value: Mapping[str, Json]) -> str:
    """Return the header or variable that an object with a `value` names."""
    named = value.get("name") or value.get("key")
    return named if isinstance(named, str) and "value" in value else ""
