"""The shared parts of redaction: the placeholders that replace secrets, and the questions that ask for one.

`output/redaction` finds the secrets. ACP and MCP forbid forms ("Elicitation") that ask for passwords and keys.
The checks for them look at names and sentences, so they stop only servers and models that ask openly.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

Redact: TypeAlias = Callable[[str], str]
"""Replaces the secrets of a whole text by placeholders. It is idempotent and never raises."""

_PLACEHOLDER = re.compile(r"\[REDACTED(?::[a-z0-9_-]{1,40})?\]")


def placeholder(kind: str) -> str:
    """Return `[REDACTED:kind]`. `kind` is lower-case words joined by `-`."""
    return f"[REDACTED:{kind}]"


def placeholders(text: str) -> Counter[str]:
    """Return every placeholder in a text, and how often it occurs."""
    return Counter(_PLACEHOLDER.findall(text))


def verbatim(text: str) -> str:
    """Return the text as it is: a Redact for texts without secrets."""
    return text


_WORDS = frozenset(
    (
        *("password", "passwd", "pwd", "passphrase", "passcode", "pin", "otp", "totp", "cvv", "cvc"),
        *("secret", "secrets", "token", "tokens", "credential", "credentials", "apikey"),
    )
)
_PAIRS = frozenset(
    (kind, "key") for kind in ("api", "access", "private", "secret", "auth", "ssh", "signing", "encryption", "recovery")
)
_PAIRED = frozenset((*_PAIRS, ("card", "number"), ("seed", "phrase"), ("security", "code")))
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_CREDENTIAL = (
    r"(?:passwords?|passwd|passphrase|passcode|otp|cvv|credentials?|client secret|seed phrase|card number|pin code"
    r"|(?:api|access|private|secret|ssh|auth|signing|encryption|recovery)[ _-]?keys?"
    r"|(?:api|access|auth|bearer|refresh|session)[ _-]?tokens?|(?:one-time|2fa|security) code)"
)
_ABOUT_IT = (
    r"(?!['\u2019]?s?[ _-]+(?:hash|field|polic|length|format|rotat|reset|manag|provid|stor|input|column|name|limit))"
)
_TELL = r"(?:enter|type in|type|paste|provide|send|share|give|tell|supply|insert|what(?: is|['\u2019]s))"
_ASKED = re.compile(
    rf"\b{_TELL}\b(?: me| us)? (?:your|the|an?)\b[^.?!;\n]{{0,40}}?\b{_CREDENTIAL}\b{_ABOUT_IT}"
    rf"|\byour\b[^.?!;\n]{{0,40}}?\b(?:{_CREDENTIAL}|tokens?|secret|pin)\b{_ABOUT_IT}"
    rf"|^\W*(?:{_CREDENTIAL}|token)\W*$",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(r"\benv(?:ironment)?[ _-]?var(?:iable)?s?\b", re.IGNORECASE)
_SCANNED = 4000


def names_secret(name: str) -> bool:
    """Return whether a field of this name or label is for a secret: `apiKey`, `db_password`, `Access token`."""
    words = [word.lower() for word in _WORD.findall(name[:_SCANNED])]
    return bool(set(words) & _WORDS or words == ["key"] or set(pairwise(words)) & _PAIRED)


def asks_for_secret(text: str) -> bool:
    """Return whether a sentence asks for a secret. A sentence that only mentions secrets does not.

    A question about the environment variable that holds a secret is allowed.
    """
    scanned = text[:_SCANNED]
    return _ASKED.search(scanned) is not None and _ELSEWHERE.search(scanned) is None
