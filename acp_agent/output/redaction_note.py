"""What is added to an output that secrets were taken out of: one line (O4.2, O4.8)."""

import re
from collections.abc import Mapping

_CATEGORY = re.compile(r"[a-z0-9_-]{1,40}")


def redaction_note(found: Mapping[str, int]) -> str:
    """`[security] 3 secrets redacted: api-key 2, password 1`, most first; "" when there were none.

    Categories are the redactor's own words: what does not look like one is not repeated.
    """
    counts = sorted(((name, count) for name, count in found.items() if count > 0), key=lambda one: (-one[1], one[0]))
    if not counts:
        return ""
    total = sum(count for _, count in counts)
    named = ", ".join(f"{name if _CATEGORY.fullmatch(name) else 'other'} {count}" for name, count in counts)
    return f"[security] {total} secret{'' if total == 1 else 's'} redacted: {named}"
