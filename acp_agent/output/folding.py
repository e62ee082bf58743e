"""Breaks long lines into several, for readers that may hide the end of a long line."""

import re

CONTINUED = "↪ "
"""Stands at the beginning of a continued line. A folded text must not contain it at the beginning of a line."""

_BLANK = re.compile(r".*\s", re.DOTALL)
_BETWEEN_WORDS = re.compile(r".*[^\w]", re.DOTALL)


def pieces(line: str, width: int) -> list[str]:
    """Return the pieces of a line, each of at most `width` characters. Words are broken only if they are longer."""
    found: list[str] = []
    start, half = 0, width // 2
    while len(line) - start > width:
        late = line[start + half : start + width]
        break_ = _BLANK.match(late) or _BETWEEN_WORDS.match(late)
        end = start + (half + break_.end() if break_ else width)
        found.append(line[start:end])
        start = end
    return [*found, line[start:]]
