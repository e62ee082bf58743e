"""What counts as a secret: known values, and texts of the forms that `rules.toml` describes.

Known values are our own keys, and the headers and environment of MCP servers. A rule for a form matches `starts`
followed by `then`. The whole text is searched only for the `starts` of all rules, joined to one expression. Rules are
tried on the lines around a hit. The secret is the first group of the match, or the whole match if there is no group.
"""

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache, cached_property
from typing import NamedTuple, assert_never
from urllib.parse import quote, quote_plus

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
from acp_agent.output.redaction.spans import Span, block_at
from acp_agent.regex import Regex, RegexMatch, RegexSet, compiled_rule, compiled_set, literals
from acp_agent.text import packaged_table

SHORTEST = 8
"""The shortest known value, in characters. Shorter ones occur in too many harmless places."""
CATEGORY = "known"
_MOST_TOGETHER = 128  # forms; ten values have about as many


class KnownSecrets:
    """Known values in the forms in which they occur: plain, base64, hexadecimal, URL-escaped and JSON-escaped.

    There is one instance in the process. Any thread may add and read. Readers see all values of one `add`, or none.
    """

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self.forms: Forms | None = None
        """An immutable set of all current forms, None if there are none."""

    def add(self, values: Iterable[str]) -> None:
        """Add values. Surrounding blanks are removed; values under 8 characters are ignored."""
        new = frozenset(value for each in values if len(value := each.strip()) >= SHORTEST)
        with self._adding:
            old = self.forms.values if self.forms is not None else frozenset[str]()
            if not new <= old:
                self.forms = Forms(old | new)


class Forms:
    """An immutable set of values, with searches for them in a text."""

    def __init__(self, values: frozenset[str]) -> None:
        self.values = values
        self._hits: tuple[str, Regex] | None = None

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield the places of values in any form."""
        yield from self.spans_within(data, 0, len(data))
        yield from self.spans_across(data)

    def spans_within(self, data: bytes, start: int, end: int) -> Iterator[Span]:
        """Yield the places of values within a line, in the lines between `start` and `end`."""
        for found in self._within.finditer(data, start, end):
            yield Span(found.start(), found.end(), CATEGORY, -1, found.start())

    def spans_across(self, data: bytes) -> Iterator[Span]:
        """Yield the places of values of several lines."""
        for found in self._across.finditer(data, 0, len(data)) if self._across is not None else ():
            yield Span(found.start(), found.end(), CATEGORY, -1, found.start())

    def hits(self, starts: str) -> Regex | None:
        """Return a search for values within a line or for `starts`, as fast as either alone.

        Return None if there are many values, because RE2 would need too many states.
        """
        if len(self._inside) > _MOST_TOGETHER:
            return None
        if self._hits is None or self._hits[0] != starts:
            self._hits = starts, literals(self._inside, lines=False, beside=starts)
        return self._hits[1]

    @cached_property
    def _literals(self) -> list[bytes]:
        """Return the forms, longest first, so that a longer form is found before its own beginning."""
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
        """The beginnings of the forms that have several lines: the first line, the first two lines, and so on."""
        return tuple(
            literal[: at + 1] for literal in self._literals for at, byte in enumerate(literal[:-1]) if byte == 0x0A
        )


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
            yield re.sub("%..", lambda code: code[0].lower(), escaped).encode()
    for encoded in _base64(raw):
        if len(encoded) >= SHORTEST:
            yield encoded
            yield encoded.translate(_URLSAFE)
    if len(raw) <= _LONGEST_HEX:
        yield raw.hex().encode()
        yield raw.hex().upper().encode()


_LONGEST_HEX = 512
"""The longest value, in bytes, whose hexadecimal digits are searched for. Dumps of longer ones have several lines."""
_URLSAFE = bytes.maketrans(b"+/", b"-_")


def _base64(raw: bytes) -> Iterator[bytes]:
    """Yield the base64 of the value at each of its three possible offsets in a group of three bytes.

    Characters that also depend on adjacent bytes are left out. A value that is encoded alone is found as a whole.
    """
    yield base64.b64encode(raw)
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw)
        first = (0, 2, 3)[before]
        last = (before + len(raw)) * 8 // 6
        yield encoded[first:last]


_PAIR = re.compile(rb"""[ ]?([\w.!#$%&*+^|~-]{1,64})=([^;\s"',\\]*)(?:;|(?=["'\s,\\])|\Z)""")
_SESSION = re.compile(rb"(?i)sess|sid\b|auth|token|jwt|login|secret|remember|csrf|xsrf|\Aid\Z|user_?id")
_ATTRIBUTES = frozenset((b"path", b"domain", b"expires", b"max-age", b"samesite", b"version", b"priority", b"comment"))
_SHORTEST = 6


def cookie_values(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the places of secret values in a Cookie or Set-Cookie header whose pairs begin at `start`."""
    position = start
    while (pair := _PAIR.match(data, position, end)) or (pair := _FLAG.match(data, position, end)):
        position = pair.end()
        if pair.re is _FLAG or pair[1].lower() in _ATTRIBUTES or len(pair[2]) < _SHORTEST:
            continue
        value = pair[2].decode("latin-1")
        if not stands_in(value) and (_SESSION.search(pair[1]) or is_random(value)):
            yield pair.span(2)


_FLAG = re.compile(rb"[ ]?(?:[A-Za-z]+|Expires=\w{3}, [\w: -]+)(?:;|\Z)", re.IGNORECASE)


_WINDOW = 512  # bytes after a hit that are read together, up to the end of their last line
_MOST_KEYS = 4096  # keys whose meaning is cached
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_REACH = 1024  # bytes that a rule of several lines may reach beyond the window


_EDGE = r"(?:\b|\\[nrtbf]|\\u00[0-9a-fA-F]{2}|%[0-9A-Fa-f]{2}|\[[0-9;]{0,24}[mK])"
"""Where a token may begin: at the start of a word, or after an escape (JSON, URLs) or a colour code.

Only the part that all spellings of a colour code share is required: `[31m` of `\033[31m`, `\\e[31m`, `\x1b[31m`,
`\u001b[31m`.
"""


class Reads(StrEnum):
    """What a rule reads after its `starts`: its `then`, the value of an assignment, cookies or a block of lines.

    PAIRS are all assignments on the lines with `starts`.
    """

    THEN = "then"
    ASSIGNMENT = "assignment"
    PAIRS = "pairs"
    COOKIES = "cookies"
    BLOCK = "block"


class SecretRule(NamedTuple):
    """A rule for one kind of secret.

    starts    the expression at the beginning of each match, RE2 syntax, within one line
    then      the expression after it. For an ASSIGNMENT its groups are the key and, optionally, the sign; the value
              begins after the sign or, without a sign, after the match
    full      the whole expression, instead of `then`. Each match has one of `starts` on its line
    guard     a condition that the secret must meet in addition to its form
    lines     whether a match may contain line ends
    opens     if `lines`: matches the last lines of a text if the next line could complete them to a match
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


def beginnings(rules: Iterable[SecretRule]) -> str:
    """Return an expression that finds the `starts` of all rules.

    Most rules begin with `_EDGE`, which is put once before all of them, because compiling it for each takes 10 ms.
    """
    at_edge, others = list[str](), list[str]()
    for rule in rules:
        if rule.starts.startswith(_EDGE) and not rule.keyed:  # `starts` of a key has alternatives without `_EDGE`
            at_edge.append(f"(?:{rule.starts.removeprefix(_EDGE)})")
        else:
            others.append(f"(?:{rule.starts})")
    together = [f"{_EDGE}(?:{'|'.join(at_edge)})"] if at_edge else []
    return "|".join((*together, *others))


class SecretRules:
    """Rules that are compiled when they are first needed. Safe to use from several threads.

    Rules that begin with a key (%KEY%) and rules that begin with a form are searched separately. RE2 builds a state for
    each combination of beginnings, so a joint search would need the product of the states of both.
    """

    def __init__(self, rules: tuple[SecretRule, ...], key: str) -> None:
        self.rules = rules
        self._key = key
        self.kinds = tuple(
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

    def is_key(self, word: bytes) -> bool:
        """Return whether a word looks like the key of a secret."""
        return self._keys.search(word, 0, len(word)) is not None

    def unfinished(self, data: bytes) -> int:
        """Return where a match begins that the line after `data` may complete, or the length of `data`."""
        start = data.rfind(b"\n", 0, max(0, len(data) - _REACH)) + 1
        found = self._opens.search(data, start, len(data))
        return len(data) if found is None else found.start()

    def _meaning(self, word: bytes) -> Meaning | None:
        """Return the meaning of the key of a pair. Keys that differ only in digits share one entry of the cache."""
        word = word.translate(_DIGITS_ALIKE)
        try:
            return self._meanings[word]
        except KeyError:
            meaning = meaning_of(word, self.is_key)
            if len(self._meanings) >= _MOST_KEYS:
                self._meanings.clear()
            self._meanings[word] = meaning
            return meaning


class _Kind:
    """Rules that are searched together, by their rank in the list of all rules."""

    def __init__(self, rules: Mapping[int, SecretRule], meaning: Meant) -> None:
        self._rules = rules
        self._ranks = tuple(rules)
        self._meaning = meaning
        self._compiled = dict[int, Regex]()

    @cached_property
    def _start(self) -> str:
        return beginnings(self._rules.values())

    @cached_property
    def _starts(self) -> Regex:
        return compiled_rule(self._start, captures=False)

    @cached_property
    def _which(self) -> RegexSet:
        return compiled_set([rule.starts.encode() for rule in self._rules.values()])

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
                    after = span.end  # apparent assignments inside a value are skipped
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
            raise AssertionError("read by block_at and pairs")
        case _:
            assert_never(rule.reads)


@cache
def built_in() -> SecretRules:
    """Return the rules of `rules.toml`, which are read once in a process."""
    read = packaged_table("acp_agent.output.redaction", "rules")
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
