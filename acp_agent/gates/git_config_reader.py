"""Read a file in git's configuration syntax.

Source: https://git-scm.com/docs/git-config#_syntax and the parser in git's config.c. Includes are not followed.
"""

import re
from typing import NamedTuple

MAX_BYTES = 512 * 1024
"""The largest file that is read."""

_BLANKS = " \t\r\n"
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_SECTION = re.compile(r"\[([A-Za-z0-9.-]+)(?:[ \t\r]+\"((?:[^\"\\\n]|\\[^\n])*)\")?\]")
_PLAIN = re.compile(r"[^\\\"\n \t\r;#]+")
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"', "\n": ""}
_ESCAPED = re.compile(r"\\(.)")


class Setting(NamedTuple):
    """One variable of a configuration file.

    key     as git prints it: section and name in lower case, the subsection between them as written
    value   None for a variable without `=`, which git takes for true
    """

    key: str
    value: str | None


class NotReadable(ValueError):
    """The file breaks the syntax, or is too large. The text says which."""


def read_settings(data: bytes) -> tuple[Setting, ...]:
    """Return every variable of a configuration file, in order.

    Raises:
        NotReadable: git would refuse the file too, or it may read more in it than this function does.

    """
    if len(data) > MAX_BYTES:
        raise NotReadable("is too large")
    if b"\0" in data:
        raise NotReadable("holds a NUL byte")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    return tuple(_Reader(text).settings())


class _Reader:
    """Reads one text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = f"{text}\n\n"  # the end of a file ends a line, also behind a backslash
        self._at = 0

    def settings(self) -> "list[Setting]":
        found, section = list[Setting](), ""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _BLANKS:
                self._at += 1
            elif char in "#;":
                self._at = self._text.index("\n", self._at)
            elif char == "[":
                section = self._section()
            else:
                found.append(self._setting(section))
        return found

    def _section(self) -> str:
        match = _SECTION.match(self._text, self._at)
        if match is None:
            raise NotReadable("has a section that is none")
        self._at = match.end()
        base, sub = match[1].lower(), match[2]
        return base if sub is None else f"{base}.{_ESCAPED.sub(lambda escaped: escaped[1], sub)}"

    def _setting(self, section: str) -> Setting:
        match = _KEY.match(self._text, self._at)
        if match is None or not section:
            raise NotReadable("has a line that is no variable")
        self._at = match.end()
        while self._text[self._at] in " \t":
            self._at += 1
        key = f"{section}.{match[0].lower()}"
        if self._text[self._at] == "\n":
            return Setting(key, None)
        if self._text[self._at] != "=":
            raise NotReadable("has a line that is no variable")
        self._at += 1
        return Setting(key, self._value())

    def _value(self) -> str:
        """Return the value that begins here; leave the end of its line to be read."""
        kept, blanks, quoted = "", "", False
        while (char := self._text[self._at]) != "\n":
            plain = _PLAIN.match(self._text, self._at)
            if not quoted and char in "#;":
                self._at = self._text.index("\n", self._at)
                break
            if not quoted and char in _BLANKS:
                self._at += 1
                blanks += char if kept else ""
                continue
            kept, blanks = kept + blanks, ""
            if plain is not None:
                kept += plain[0]
                self._at = plain.end()
            elif char == '"':
                quoted = not quoted
                self._at += 1
            else:
                kept += self._escape() if char == "\\" else char
                self._at += 2 if char == "\\" else 1
        if quoted:
            raise NotReadable("has a quote that is not closed")
        return kept

    def _escape(self) -> str:
        """Return what the backslash here and the character behind it stand for."""
        following = self._text[self._at + 1]
        if following not in _ESCAPES:
            raise NotReadable("has an escape that is none")
        return _ESCAPES[following]
