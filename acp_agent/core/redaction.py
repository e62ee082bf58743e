"""Placeholders that stand where a secret stood. `output/redaction` finds the secrets; all packages share the words."""

import re
from collections import Counter
from collections.abc import Callable
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
