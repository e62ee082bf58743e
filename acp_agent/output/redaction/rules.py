"""The rules for secrets by their form, from `rules.toml`, and one search for the places where any could apply.

A rule matches `starts` followed by `then`. Only the `starts` of all rules, joined to one expression, are searched in
the whole text. The rules themselves see the lines around a hit. The secret is the first group of the match, or the
whole match if there is no group.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files
from typing import NamedTuple, assert_never

from acp_agent.output.redaction.assignments import (
    Guard,
    Meaning,
    Meant,
    allows,
    assigned,
    category_of,
    is_random,
    meaning_of,
    pairs,
    stands_in,
)
from acp_agent.output.redaction.known import Forms
from acp_agent.output.redaction.spans import Span, block_at
from acp_agent.regex import Regex, RegexMatch, RegexSet, compiled_rule, compiled_set

_PAIR = re.compile(rb"""[ ]?([\w.!#$%&*+^|~-]{1,64})=([^;\s"',\\]*)(?:;|(?=["'\s,\\])|\Z)""")
_SESSION = re.compile(rb"(?i)sess|sid\b|auth|token|jwt|login|secret|remember|csrf|xsrf|\Aid\Z|user_?id")
_ATTRIBUTES = frozenset((b"path", b"domain", b"expires", b"max-age", b"samesite", b"version", b"priority", b"comment"))
_SHORTEST = 6


def cookie_values(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the places of secret values in a Cookie or Set-Cookie header whose pairs begin at `start`."""
    position = start
    while (pair := _PAIR.match(data, position, end)) or (pair := _FLAG.match(data, position, end)):
        position = pair.end()
        if pair.re is _PAIR and _lets_in(pair[1], pair[2]):
            yield pair.span(2)


_FLAG = re.compile(rb"[ ]?(?:[A-Za-z]+|Expires=\w{3}, [\w: -]+)(?:;|\Z)", re.IGNORECASE)


def _lets_in(name: bytes, value: bytes) -> bool:
    text = value.decode("latin-1")
    if name.lower() in _ATTRIBUTES or len(value) < _SHORTEST or stands_in(text):
        return False
    return _SESSION.search(name) is not None or is_random(text)


_WINDOW = 512  # bytes after a hit that are looked at together, up to the end of their last line
_MOST_KEYS = 4096  # keys that are remembered
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_REACH = 1024  # bytes that a rule of several lines may reach beyond the window


_EDGE = r"(?:\b|\\[nrtbf]|\\u00[0-9a-fA-F]{2}|%[0-9A-Fa-f]{2}|\[[0-9;]{0,24}[mK])"
"""Where a token may begin: at a word, or after an escape (JSON, URLs) or a colour.

Only the part of a colour that all spellings share is required: `[31m` of `\033[31m`, `\\e[31m`, `\x1b[31m`,
`\u001b[31m`.
"""


class Reads(StrEnum):
    """What a rule reads after its `starts`: its `then`, the value of an assignment, cookies, or a block of lines.

    PAIRS means all assignments on the lines with `starts`.
    """

    THEN = "then"
    ASSIGNMENT = "assignment"
    PAIRS = "pairs"
    COOKIES = "cookies"
    BLOCK = "block"


class SecretRule(NamedTuple):
    """A rule for one kind of secret.

    starts    the expression at the beginning of each match, RE2 syntax, within one line
    then      what follows. For an ASSIGNMENT its groups are the key and, optionally, the sign; the value begins after
              the sign or, without a sign, after the match
    full      instead of `then`: the whole expression. Each match has one of `starts` on its line
    guard     what a match must be beside its form
    lines     whether a match may contain line ends
    opens     for such a rule: the last lines of a text that the next line could complete to a match
    keyed     whether it begins with the key of an assignment
    """

    name: str
    category: str
    starts: str
    then: str = ""
    full: str = ""
    reads: Reads = Reads.THEN
    guard: Guard | None = None
    lines: bool = False
    opens: str = ""
    keyed: bool = False

    @property
    def pattern(self) -> str:
        """The whole expression. Its first group, if there is one, is the secret or the key."""
        whole = self.full or (f"(?:{self.starts})(?:{self.then})" if self.then else self.starts)
        if _EDGE not in whole:
            return whole
        before, after = whole.split(_EDGE, 1)
        if before not in ("", "(?:") or self.reads is not Reads.THEN or compiled_rule(whole).groups:
            return whole
        return f"{_EDGE}({after})" if not before else f"(?:{_EDGE})({before}{after})"


class SecretRules:
    """Rules that are compiled when they are first needed. Safe to use from several threads.

    Rules that begin with a key (%KEY%) and rules that begin with a form are searched separately. RE2 builds a state for
    each combination of beginnings, and together they would have the product of both.
    """

    def __init__(self, rules: tuple[SecretRule, ...], key: str) -> None:
        self.rules = rules
        self._key = key
        self._kinds = tuple(
            _Kind({rank: rule for rank, rule in enumerate(rules) if rule.keyed is keyed}, self._meaning)
            for keyed in (False, True)
        )
        self._meanings = dict[bytes, Meaning | None]()

    @cached_property
    def _keys(self) -> Regex:
        return compiled_rule(f"(?i)^(?:{self._key})$", captures=False)

    @cached_property
    def _opens(self) -> Regex:
        opens = "|".join(f"(?:{rule.opens})" for rule in self.rules if rule.opens)
        return compiled_rule(rf"(?:{opens})\z", captures=False, lines=True)

    def spans(self, data: bytes, known: Forms | None = None) -> Iterator[Span]:
        """Yield the places of secrets and of known values, unordered and possibly overlapping."""
        by_form, by_key = self._kinds
        yield from by_form.spans(data, known)
        yield from by_key.spans(data)

    def is_key(self, name: str) -> bool:
        """Return whether a name sounds like the key of a secret."""
        return self._sounds_secret(name.encode("utf-8", "replace"))

    def unfinished(self, data: bytes) -> int | None:
        """Return where in the last lines of `data` something begins that the next line may complete. Else None."""
        start = data.rfind(b"\n", 0, max(0, len(data) - _REACH)) + 1
        found = self._opens.search(data, start, len(data))
        return None if found is None else found.start()

    def _sounds_secret(self, word: bytes) -> bool:
        return self._keys.search(word, 0, len(word)) is not None

    def _meaning(self, word: bytes) -> Meaning | None:
        """Return what the key of a pair announces. Results are cached, except for numbers."""
        word = word.translate(_DIGITS_ALIKE)
        try:
            return self._meanings[word]
        except KeyError:
            meaning = meaning_of(word, self._sounds_secret)
            if len(self._meanings) >= _MOST_KEYS:
                self._meanings.clear()
            self._meanings[word] = meaning
            return meaning


class _Kind:
    """Some of the rules, by rank, that are searched together."""

    def __init__(self, rules: Mapping[int, SecretRule], meaning: Meant) -> None:
        self._rules = rules
        self._ranks = tuple(rules)
        self._meaning = meaning
        self._compiled = dict[int, Regex]()

    @cached_property
    def _start(self) -> str:
        return "|".join(f"(?:{rule.starts})" for rule in self._rules.values())

    @cached_property
    def _starts(self) -> Regex:
        return compiled_rule(self._start, captures=False)

    @cached_property
    def _which(self) -> RegexSet:
        return compiled_set([rule.starts for rule in self._rules.values()])

    def spans(self, data: bytes, known: Forms | None = None) -> Iterator[Span]:
        """Yield the places of secrets and of known values."""
        position = after = 0
        hits = None if known is None else known.hits(self._start)
        if known is not None:
            yield from known.spans(data) if hits is None else known.spans_across(data)
        is_together, hits = hits is not None, hits or self._starts
        while (hit := hits.search(data, position, len(data))) is not None:
            low, high = hit.span()
            start = max(position, data.rfind(b"\n", position, low) + 1)
            end = data.find(b"\n", max(high, min(low + _WINDOW, len(data))))
            end = len(data) if end < 0 else end
            if known is not None and is_together:
                yield from known.spans_within(data, start, end)
            for index in self._which.Match(data[start:end]) or ():
                rank = self._ranks[index]
                is_block = self._rules[rank].reads is Reads.BLOCK
                for span in self._rule_spans(rank, data, start, end, after if is_block else 0):
                    after = max(after, span.end) if is_block else after
                    yield span
            if end == len(data):
                return
            position = end + 1

    def _rule_spans(self, rank: int, data: bytes, start: int, end: int, after: int) -> Iterator[Span]:
        rule = self._rules[rank]
        if rule.reads is Reads.PAIRS:
            for low, high, category, context in pairs(data, start, end, self._meaning):
                yield Span(low, high, category, rank, context)
            return
        regex = self._regex(rank)
        window = end
        if rule.lines:
            end = data.find(b"\n", min(end + _REACH, len(data)))
            end = len(data) if end < 0 else end
        groups = regex.groups
        for match in regex.finditer(data, start, end):
            if match.start() > window:
                break  # belongs to the next window
            if rule.reads is Reads.BLOCK:
                block = block_at(data, *match.span(), after)
                after = max(after, match.end() if block is None else block.end)
                if block is not None:
                    yield Span(block.start, block.end, rule.category, rank, block.start)
            elif match.start() >= after or rule.reads is not Reads.ASSIGNMENT:
                for span in _secrets(rule, rank, data, match, groups, end):
                    after = span.end  # what looks like assignments inside a value is skipped
                    yield span

    def _regex(self, rank: int) -> Regex:
        if rank not in self._compiled:
            rule = self._rules[rank]
            self._compiled[rank] = compiled_rule(rule.pattern, lines=rule.lines)
        return self._compiled[rank]


def _secrets(rule: SecretRule, rank: int, data: bytes, match: RegexMatch, groups: int, end: int) -> Iterator[Span]:
    context, matched = match.span()
    match rule.reads:
        case Reads.THEN:
            low, high = match.span(1) if groups else (context, matched)
            if low >= 0 and (rule.guard is None or allows(rule.guard, data[low:high])):
                yield Span(low, high, rule.category, rank, context)
        case Reads.ASSIGNMENT:
            key = match.span(1)
            low, high = match.span(2) if groups > 1 else (matched, matched)
            span = assigned(data, key, data[low:high], high, end)
            if span is not None and (rule.guard is None or allows(rule.guard, data[slice(*span)])):
                yield Span(*span, category_of(data[slice(*key)]), rank, context)
        case Reads.COOKIES:
            for low, high in cookie_values(data, matched, end):
                yield Span(low, high, rule.category, rank, context)
        case Reads.BLOCK | Reads.PAIRS:
            raise AssertionError("read with what lies around it")
        case _:
            assert_never(rule.reads)


@cache
def built_in() -> SecretRules:
    """Return the rules of `rules.toml`, which are read once in a process."""
    read = tomllib.loads(files("acp_agent.output.redaction").joinpath("rules.toml").read_text("utf-8"))
    key = "".join(read["key"])
    return SecretRules(tuple(_rule(entry, key, read["gap"]) for entry in read["rule"]), key)


def _rule(entry: Mapping[str, object], key: str, gap: str) -> SecretRule:
    def word(name: str) -> str:
        return str(entry.get(name, "")).replace("%KEY%", key).replace("%GAP%", gap)

    def expression(name: str) -> str:
        text = word(name)
        return _EDGE + text.removeprefix(r"\b") if text.startswith(r"\b") else text

    return SecretRule(
        name=word("name"),
        category=word("category"),
        starts=expression("starts"),
        then=word("then"),
        full=expression("full"),
        reads=Reads(word("reads") or Reads.THEN),
        guard=Guard(word("guard")) if word("guard") else None,
        lines=bool(entry.get("lines", False)),
        opens=word("opens"),
        keyed="%KEY%" in str(entry["starts"]),
    )
