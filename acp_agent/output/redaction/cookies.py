"""The values in a Cookie or Set-Cookie header that let somebody in."""

import re
from collections.abc import Iterator

from acp_agent.output.redaction.guards import is_random, stands_in

_PAIR = re.compile(rb"""[ ]?([\w.!#$%&*+^|~-]{1,64})=([^;\s"',\\]*)(?:;|(?=["'\s,\\])|\Z)""")
_SESSION = re.compile(rb"(?i)sess|sid\b|auth|token|jwt|login|secret|remember|csrf|xsrf|\Aid\Z|user_?id")
_ATTRIBUTES = frozenset((b"path", b"domain", b"expires", b"max-age", b"samesite", b"version", b"priority", b"comment"))
_SHORTEST = 6


def cookie_values(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where they lie, the pairs beginning at `start`."""
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
