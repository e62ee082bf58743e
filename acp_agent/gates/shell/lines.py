"""What `read` and `mapfile` put into variables, if the text that they read is known."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from acp_agent.core.data import frozen

READS = re.compile(rb"\b(?:read|mapfile|readarray|select)\b")
"""It finds the name of a command that reads lines."""

ARRAY_READERS = frozenset(("mapfile", "readarray"))
_BLANKS = " \t\n"
_VALUED = {"read": "aidnNptu", "mapfile": "dnOsuCc", "readarray": "dnOsuCc"}
_ESCAPED = 0x10FF00  # there, no character is assigned


@frozen
class ReadingText:
    """A text whose commands read lines of another text: a loop with a here-document, a function with a here-string.

    text     the shell text
    given    what its commands read
    known    the values that variables may have before it
    """

    text: str
    given: str
    known: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class ReadLines:
    """What is left of a text while the commands of a loop read it.

    left     what the next command reads
    behind   what was left after the first command, where the next round of the loop begins; None if nothing was read
    """

    left: str
    behind: str | None = None
    _before: tuple[str, str | None] = "", None
    _reader: object = None
    _taken: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def take(self, reader: object, argv: tuple[str, ...], marks: str) -> dict[str, list[str]]:
        """Return the values that a call of `read` or `mapfile` gives to variables, for an array also its elements.

        reader   the call itself. If it is the last one that read, nothing is read again
        marks    the value of IFS
        """
        if reader is not self._reader:
            self._reader, self._before = reader, (self.left, self.behind)
            self._taken = self._mapped(argv) if argv[0] in ARRAY_READERS else self._read(argv, marks)
            self.behind = self.left if self.behind is None else self.behind
        return self._taken

    def give_back(self, reader: object) -> None:
        """Put back what a call has read, because it turns out to have an input of its own."""
        if reader is self._reader:
            (self.left, self.behind), self._reader = self._before, None

    def _mapped(self, argv: tuple[str, ...]) -> dict[str, list[str]]:
        options, names = options_of(argv)
        delimiter = _delimiter(options)
        lines = self.left.removesuffix(delimiter).split(delimiter)
        self.left = ""
        return {(names or ["MAPFILE"])[0]: [" ".join(lines), *lines]}

    def _read(self, argv: tuple[str, ...], marks: str) -> dict[str, list[str]]:
        options, names = options_of(argv)
        line = self._part(options)
        if "a" in options:
            words = [*map(_plain, _fields(line, len(line) + 1, marks))]
            return {options["a"]: [" ".join(words), *words]}
        if not names:
            return {"REPLY": [_plain(line)]}
        values = [*map(_plain, [line] if "N" in options else _fields(line, len(names), marks))]
        return {name: [value] for name, value in zip(names, values + [""] * len(names), strict=False)}

    def _part(self, options: Mapping[str, str]) -> str:
        """Take the next line, or only as many characters as `-n` or `-N` says, with marks of escaped characters.

        Without `-r`, a backslash escapes the delimiter too, and joins a line with the next one.
        """
        size = options.get("n") or options.get("N") or ""
        room = int(size[:9]) if size.isdecimal() else None
        end = "" if "N" in options else re.escape(_delimiter(options))
        plain = f"[^{end}]" if "r" in options else rf"\\.|[^\\{end}]"
        piece = re.compile(plain.replace("[^]", ".") + ("+" if room is None else ""), re.DOTALL)
        at, taken = 0, list[str]()
        while room != 0 and (found := piece.match(self.left, at)) is not None:
            at = found.end()
            taken.append(found[0] if "r" in options else _unescaped(found[0]))
            room = None if room is None else room - len(taken[-1])
        self.left = self.left[at if room == 0 else at + 1 :]
        return "".join(taken)


def _delimiter(options: Mapping[str, str]) -> str:
    return (options.get("d", "\n") or "\0")[0]


def _unescaped(text: str) -> str:
    """Return a mark for a character behind a backslash, which separates no words; other texts as they are."""
    if text[0] != "\\":
        return text
    return "" if text[1] == "\n" else chr(_ESCAPED + ord(text[1])) if text[1].isascii() else text[1]


def _plain(text: str) -> str:
    """Return a text with the characters in place of the marks of `_unescaped`."""
    if text.isascii():
        return text
    return "".join(chr(ord(char) - _ESCAPED) if char >= chr(_ESCAPED) else char for char in text)


def options_of(argv: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Return the options of a call by their letters, with their values, and the names of its variables."""
    found, valued, words = dict[str, str](), _VALUED[argv[0]], list(argv[1:])
    while words and words[0][:1] == "-" and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        for at, letter in enumerate(word[1:], start=2):
            found[letter] = ""
            if letter in valued:
                found[letter] = word[at:] or (words.pop(0) if words else "")
                break
    return found, list(filter(str.isidentifier, map(variable_of, words)))


def variable_of(word: str) -> str:
    """Return the variable of a word that names it, or an element of it: `x` for `x[0]`."""
    return word.partition("[")[0]


def _fields(line: str, count: int, marks: str) -> list[str]:
    """Return the words of a line for so many variables. The last one has the rest of the line."""
    blanks = "".join(mark for mark in _BLANKS if mark in marks)
    others = "".join(mark for mark in marks if mark not in _BLANKS)
    line = line.strip(blanks) if blanks else line
    if not marks or not line:
        return [line]
    space, mark = f"[{re.escape(blanks)}]" if blanks else "(?!)", f"[{re.escape(others)}]" if others else "(?!)"
    return re.split(f"{space}*{mark}{space}*|{space}+", line, maxsplit=count - 1) if count > 1 else [line]
