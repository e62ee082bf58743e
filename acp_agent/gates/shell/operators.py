"""What the operators of bash make of the value of a variable: `${x#a}`, `${x/a/b}`, `${x:1:2}`, `${x^^}`.

Only what has a simple answer is computed, in linear time: patterns with at most one `*`, and numbers.
"""

import re
from typing import NamedTuple

from acp_agent.text import lazy_regex

_ANY = "?"
_NUMBER = lazy_regex(r"[( \t]*([+-]?)[ \t]*(?:0[xX]([0-9A-Fa-f]+)|0([0-7]*)|([1-9][0-9]*))[ \t)]*", re.ASCII)
_BITS = 64  # of a number; to bash, 2 ** 64 + 1 is 1


class Pattern(NamedTuple):
    """A pattern: the text before its `*` and the text behind it, which is None if there is no `*`.

    anys   whether each `?` in `before` stands for any character
    """

    before: str
    behind: str | None = None
    anys: bool = False

    def mirrored(self) -> "Pattern":
        """Return the pattern that fits the mirrored texts."""
        if self.behind is None:
            return self._replace(before=self.before[::-1])
        return Pattern(self.behind[::-1], self.before[::-1])

    def end(self, value: str, *, longest: bool) -> int:
        """Return where the shortest or longest match at the beginning of a value ends; -1 if there is none."""
        size = len(self.before)
        if self.anys:
            fits = len(value) >= size and all(
                own in (_ANY, char) for own, char in zip(self.before, value, strict=False)
            )
        else:
            fits = value.startswith(self.before)
        if self.behind is None or not fits:
            return size if fits else -1
        at = (value.rfind if longest else value.find)(self.behind, size)
        return at + len(self.behind) if at >= 0 else -1


def pattern_of(parts: list[tuple[str, bool]]) -> Pattern | None:
    """Return the pattern of some texts, each with whether it is quoted; None if it is not a simple one."""
    before, behind, anys, literal = "", None, False, False
    for text, quoted in parts:
        if not quoted and not frozenset("\\[]($`").isdisjoint(text):
            return None
        first, star, rest = (text, "", "") if quoted else text.partition("*")
        rest = rest.lstrip("*")
        if "*" in rest or (star and behind is not None):
            return None
        anys, literal = anys or (not quoted and _ANY in text), literal or (quoted and _ANY in text)
        if behind is None:
            before += first
        else:
            behind += first
        behind = rest if star else behind
    if anys and (literal or behind is not None):
        return None
    return Pattern(before, behind, anys)


def without(value: str, operator: str, pattern: Pattern) -> str:
    """Return a value without what `#`, `##`, `%` or `%%` removes."""
    if operator[0] == "%":
        return without(value[::-1], "#" * len(operator), pattern.mirrored())[::-1]
    return value[max(pattern.end(value, longest=len(operator) == 2), 0) :]


def replaced(value: str, operator: str, pattern: Pattern, text: str) -> str | None:
    """Return a value in which `/`, `//`, `/#` or `/%` replaces a pattern; None if it is not simple."""
    if operator == "/%":
        mirrored = replaced(value[::-1], "/#", pattern.mirrored(), text[::-1])
        return mirrored if mirrored is None else mirrored[::-1]
    if operator == "/#":
        end = pattern.end(value, longest=True)
        return value if end < 0 else text.replace("&", value[:end]) + value[end:]
    if pattern.anys or pattern == Pattern(""):
        return None if pattern.anys else value
    parts, at = list[str](), 0
    while (start := value.find(pattern.before, at)) >= 0 and (at < len(value) or not parts):
        end = start + len(pattern.before)
        if pattern.behind is not None:
            last = value.rfind(pattern.behind, end)
            if last < 0:
                break
            end = last + len(pattern.behind)
        parts += [value[at:start], text.replace("&", value[start:end])]
        at = end
        if operator == "/" or end == start:
            break
    return "".join((*parts, value[at:]))


def sliced(value: str, numbers: list[str]) -> str | None:
    """Return the part of a value from an offset on, perhaps of some length; None if these are not plain numbers."""
    found = [_number(number) for number in numbers]
    if None in found:
        return None
    offset, *length = (number for number in found if number is not None)
    start = offset + len(value) if offset < 0 else offset
    if start < 0 or start > len(value):
        return ""
    end = len(value) if not length else start + length[0] if length[0] >= 0 else len(value) + length[0]
    return value[start:end]


def _number(text: str) -> int | None:
    """Return the value of a number as bash reads it: `010` is octal; None if it is no plain number."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, hexadecimal, octal, decimal = found.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(octal or "0", 8)
    for digit in decimal or "":
        number = (number * 10 + int(digit)) % 2**_BITS
    number = (-number if sign == "-" else number) % 2**_BITS
    return number if number < 2 ** (_BITS - 1) else number - 2**_BITS


CASES = frozenset(("^", "^^", ",", ",,", "U", "u", "L"))
"""The operators that change letters. The last three stand behind an `@`."""


def cased(value: str, operator: str) -> str:
    """Return a value with the letters that one of CASES changes."""
    first = value[:1] if operator in ("^", ",", "u") else value
    changed = first.lower() if operator in (",", ",,", "L") else first.upper()
    return changed + value[len(first) :]
