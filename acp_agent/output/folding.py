"""Long lines on several, where a reader may not see the end of one."""

import re

CONTINUED = "↪ "
"""Stands before the rest of a line. A text that is folded must not have the sign itself at the beginning of a line."""

_BLANK = re.compile(r".*\s", re.DOTALL)
_BETWEEN_WORDS = re.compile(r".*[^\w]", re.DOTALL)


def pieces(line: str, width: int) -> list[str]:
    """Return the line in pieces of at most `width` characters, which join to the line. No word is torn if possible."""
    found: list[str] = []
    start, half = 0, width // 2
    while len(line) - start > width:
        late = line[start + half : start + width]
        break_ = _BLANK.match(late) or _BETWEEN_WORDS.match(late)
        end = start + (half + break_.end() if break_ else width)
        found.append(line[start:end])
        start = end
    return [*found, line[start:]]
