"""Characters of a new text that no diff shows: controls, zero-width and direction-changing ones."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from acp_agent.core.types import Diff

_ASCII = re.compile(r"[\t\n\r -~]*")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_ORDINARY = frozenset("\t\n")
_PRESENTATION = frozenset("\ufe0e\ufe0f")  # of the symbol before it: ✔ as a sign or as a picture
_JOINER = "\u200d"  # of two pictures to one
# Letters, marks and symbols that show nothing: Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties, as far
# as categories do not tell, and the blank Braille pattern.
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_MOST_LINES = 5
_MOST_CHARACTERS = 10


def unseen(diffs: Sequence[Diff]) -> Iterator[str]:
    """Yield a warning for each diff whose new lines hold characters that nobody sees, with their lines' numbers."""
    for diff in diffs:
        found = _found(diff)
        if not found:
            continue
        told = [f"{_named(char)} at {_lines(numbers)}" for char, numbers in list(found.items())[:_MOST_CHARACTERS]]
        if len(found) > _MOST_CHARACTERS:
            told.append(f"and {len(found) - _MOST_CHARACTERS} more kinds")
        yield f"WARNING: the new text holds characters that cannot be seen: {'; '.join(told)}"


def _found(diff: Diff) -> dict[str, list[int]]:
    """Return the unseen characters of new lines and the lines they stand in, from 1."""
    if _ASCII.fullmatch(diff.new_text) and "\r" not in diff.new_text.replace("\r\n", ""):
        return {}
    old = frozenset((diff.old_text or "").split("\n"))
    found: dict[str, list[int]] = {}
    for number, line in enumerate(diff.new_text.split("\n"), start=1):
        if line in old:
            continue
        for char in dict.fromkeys(_unseen_in(line.removesuffix("\r"))):
            found.setdefault(char, []).append(number)
    return found


def _unseen_in(line: str) -> Iterator[str]:
    if line.isascii() and line.isprintable():
        return
    for index, char in enumerate(line):
        if char in _ORDINARY or not (unicodedata.category(char) in _HIDDEN or BLANK.match(char)):
            continue
        before, after = line[index - 1 : index] if index else "", line[index + 1 : index + 2]
        if char in _PRESENTATION and _is_symbol(before):
            continue
        if char == _JOINER and (_is_symbol(before) or before in _PRESENTATION) and _is_symbol(after):
            continue
        yield char


def _is_symbol(char: str) -> bool:
    """Whether a character is a picture or a sign that a presentation can be chosen for."""
    return bool(char) and (char in "#*0123456789" or unicodedata.category(char) in ("So", "Sk", "Sm", "Po"))


def _named(char: str) -> str:
    name = unicodedata.name(char, "").lower()
    return f"U+{ord(char):04X} ({name})" if name else f"U+{ord(char):04X}"


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_LINES]))
    more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {shown}{more}"
