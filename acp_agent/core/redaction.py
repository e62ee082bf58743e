"""What stands where a secret stood (S9). The engine is `output/redaction`; these are the words all floors share."""

import re
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

Redact: TypeAlias = Callable[[str], str]
"""Takes secrets out of a whole text, putting placeholders in their place. Idempotent; never raises."""

_PLACEHOLDER = re.compile(r"\[REDACTED(?::[a-z0-9_-]{1,40})?\]")


def placeholder(kind: str) -> str:
    """`[REDACTED:kind]`, `kind` being lower-case words joined by `-`."""
    return f"[REDACTED:{kind}]"


def placeholders(text: str) -> Counter[str]:
    """Every placeholder in a text, with how often it stands there."""
    return Counter(_PLACEHOLDER.findall(text))


def verbatim(text: str) -> str:
    """The Redact of those who have nothing to hide: tests, mostly."""
    return text
