"""Whether `key = value` contains a secret, and which bytes of it are the secret.

`values.py` decides what a key announces and whether a value fits. This module finds where the value lies.
"""

import re
from collections.abc import Iterator

from acp_agent.output.redaction.values import KeyKind, Meant, is_bare_secret, is_random, is_secret, meant_by

_VALUE = re.compile(
    rb"""[ \t]*+(?:
        [bBrRuUfF@$]{0,2}"(?P<double>(?:[^"\\\n]|\\.)*+)
      | [bBrRuUfF]{0,2}'(?P<single>(?:[^'\\\n]|\\.)*+)
      | `(?P<tick>[^`\n]*+)
      | \\+["'](?P<escaped>[^"'\\\n]*+)
      | (?P<bare>[^\s"'`]{1,256}+)
    )""",
    re.VERBOSE,
)
_LONGEST_LOOK = 256  # bytes of an unquoted value that are looked at
_MOST_SIGNS = 8
_MIXED = re.compile(rb"[^\s.,;:]*[A-Za-z][^\s.,;:]*\d|[^\s.,;:]*\d[^\s.,;:]*[A-Za-z]")
_REST = re.compile(rb"""[^\s"'`]*+""")
_NEIGHBOUR = re.compile(  # ends an unquoted value: the next of several values, an escape, a closing bracket
    r"(?<![,;&|])[,;&|]++[\w.-]*+(?:[=:]|\Z)|\\[nrt]|&quot;|</|(?<![)\]}>,;])[)\]}>,;]++\Z|[)\]}][,;.:{)\]}]"
)
_ELEMENT = re.compile(rb"[ \t]*(?:<!\[CDATA\[)?([^<\n\]]{1,512}+)(?:\]\]>)?<\\?/")
_PLACE = re.compile(rb"\d{1,7}[:-]")  # the line number after a file name and a colon
_RESULT = re.compile(rb"X?PASS")  # the result of a test
_TEST = re.compile(r"[A-Za-z_./-]+\d{0,6}")  # a possible name of that test
_SIGNS = re.compile(rb"[^a-z0-9]")
_ARN = re.compile(rb"\barn:[^\s\"']{0,200}\Z")
_VARIABLE = re.compile(rb"[A-Za-z]+(?:_[A-Za-z0-9]+)+[,;)}\]]*\Z")

_SIGN = rb"""["'`\\\])]{0,6}+([ \t]*+(?::=|=>|[!=]?={1,3}+|:|=)[ \t]*+)(?!["']?\[REDACTED)"""
_PAIR = re.compile(  # skips placeholders, and words without a sign and a value after them: each is tried only once
    rb"(?:[^A-Za-z0-9_.\[-]++|\[(?:REDACTED[:a-z0-9_-]*+\])?+|[A-Za-z0-9_.-]++(?!%(sign)s))*+"
    rb"(?:([A-Za-z0-9_.-]++)%(sign)s|\Z)" % {b"sign": _SIGN}
)
_CLEAR = re.compile(  # values that can only be random, so that no further check is needed
    rb"""(["']?+) (?!(?i:AAAA|iVBOR|R0lGOD|changeme))
        (?=[A-Za-z]*+[0-9]++[A-Za-z])                    # no name with a number
        (?=[a-z0-9]|[A-Za-z0-9]*?[0-9][a-z0-9])          # no type
        (?=[A-Za-z0-9]*?[A-SU-Ya-z][A-Za-z0-9]{4})       # no number with a unit, no time
        ([A-Za-z0-9]{20,200}+) (?=(["'])|\s|\Z)""",
    re.VERBOSE,
)
_QUOTES = (b'"', b"'")
_BEFORE = re.compile(  # the end of an escape or of a colour before a key
    rb"(?<=\\)(?:[nrtbf]|u00[0-9a-fA-F]{2})|(?<=%)[0-9A-Fa-f]{2}|(?<=[\[;])\d{0,3}[mK]"
)
_MAY_PRECEDE = b"\\%[;"


def pairs(data: bytes, start: int, end: int, meant: Meant) -> Iterator[tuple[int, int, str, int]]:
    """Yield every `key = value` with a secret in the whole lines from `start` to `end`.

    Each has the start and end of the secret, its category, and the start of the key.
    """
    match, position = _PAIR.match, start
    while (found := match(data, position, end)) is not None and (word := found[2]) is not None:
        position = found.end()
        low, high = found.span(2)
        if low and data[low - 1] in _MAY_PRECEDE and (before := _BEFORE.match(data, low, high)) is not None:
            low = before.end()
            word = data[low:high]
        if (meaning := meant(word)) is None:
            continue
        span = _clear(data, (low, high), found[3], position, end)
        if span is None and (span := assigned(data, (low, high), found[3], position, end)) is None:
            continue
        if not meaning.random or is_random(data[slice(*span)].decode("latin-1")):
            yield (*span, meaning.category, low)
            position = max(position, span[1])  # what looks like assignments inside a value is skipped


def _clear(data: bytes, key: tuple[int, int], sign: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return the span of an undoubtedly random value of letters and digits. None if `assigned` has to decide.

    The result equals that of `assigned`, in a tenth of the time.
    """
    found = _CLEAR.match(data, start, end)
    if found is None or found[1] != (found[3] or b""):
        return None
    low, high = key
    is_doubtful = sign == b":" and data[low - 1 : low] not in _QUOTES
    return None if is_doubtful or len(found[2]) <= high - low else found.span(2)  # it may only repeat its key


def assigned(data: bytes, key: tuple[int, int], sign: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return the span of the secret that the key at `key` is assigned at `start`, or None.

    `sign` is the text between them with blanks. It is empty after an option or an XML tag.
    """
    low, high = key
    low += data[low - 1 : low] == b"\\" and data[low : low + 1] in b"nrtbf"  # the escape of the character before it
    meant = meant_by(data[low:high])
    if meant is None or _is_no_key(data, low, sign, start):
        return None
    if not sign and data[start - 1 : start] == b">":
        found = _ELEMENT.match(data, start, end)
        return found.span(1) if found and is_secret(meant, found[1].decode("latin-1").strip()) else None
    found = _VALUE.match(data, start, end)
    if found is None:
        return None
    group = found.lastgroup or "bare"
    if group == "bare":
        is_variable = data[high : high + 1] in (b'"', b"'") and _VARIABLE.match(found[group]) is not None
        return None if is_variable else _bare(meant, data[low:high], found, sign, data, end)
    span, value = found.span(group), found[group].decode("latin-1")
    if _repeats(data[low:high], found[group]) or not is_secret(meant, value):
        return None
    if b"," in sign and not is_random(value) and not _is_whole_pair(data, low - 1, span[1] + 1):
        return None
    return span


def _repeats(key: bytes, value: bytes) -> bool:
    """Return whether a value only repeats its key, as code does with variables: `clientSecret=client_secret`."""
    value = _SIGNS.sub(b"", value.lower())
    return len(value) >= 6 and _SIGNS.sub(b"", key.lower()).endswith(value)


def _is_no_key(data: bytes, low: int, sign: bytes, start: int) -> bool:
    """Return whether the key is a file name before a line number, a path of names, or a part of an ARN."""
    if sign.strip() != b":":
        return False
    if data[start : start + 1] == b":":
        return True
    return sign == b":" and bool(_PLACE.match(data, start) or _ARN.search(data, max(0, low - 200), low))


def _is_whole_pair(data: bytes, opening: int, closing: int) -> bool:
    """Return whether `"key", "value"` stand alone in brackets and are not two words of a list."""
    before, after = data[max(0, opening - 8) : opening].rstrip()[-1:], data[closing : closing + 8].lstrip()[:1]
    return before in (b"(", b"[", b"{") and after in (b")", b"]", b"}")


def _bare(
    meant: KeyKind, key: bytes, found: re.Match[bytes], sign: bytes, data: bytes, end: int
) -> tuple[int, int] | None:
    value = found["bare"].decode("latin-1")
    if b"," in sign or (sign[-2:-1].isalpha() and not _MIXED.match(found["bare"])):
        return None  # an argument of a call or a sentence: a name is not a value there
    if len(value) == _LONGEST_LOOK and value.count(":") + value.count("=", 0, -3) > _MOST_SIGNS:
        return None  # a chain of assignments: each is looked at by itself
    neighbour = _NEIGHBOUR.search(value)
    value = value[: neighbour.start()] if neighbour else value
    start = found.start("bare")
    end_of_value = start + len(value)
    after = data[end_of_value : found.end() + 16].decode("latin-1")
    if _RESULT.fullmatch(key) and sign[:1] == b":" and (_TEST.fullmatch(value) or not is_random(value)):
        return None
    if not is_bare_secret(meant, value, after, in_environment=sign == b"=") or _repeats(key, value.encode("latin-1")):
        return None
    rest = _REST.match(data, found.end(), end) if end_of_value == found.end() else None
    return start, rest.end() if rest else end_of_value
