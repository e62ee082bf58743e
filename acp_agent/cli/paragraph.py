"""Text that arrives in pieces, broken between words."""

from typing import TextIO


class Paragraph:
    """One message on the screen: `width` columns wide, later lines indented by `indent`.

    The caller has already written something of the indent's width in front of the first line.
    """

    def __init__(self, out: TextIO, indent: int, width: int) -> None:
        self._out = out
        self._indent = indent
        self._width = width
        self._column = indent
        self._word = ""
        self._gap = False  # a space is due before the next word

    def write(self, text: str) -> None:
        """Take in the next piece; its last word shows once it is known to be whole."""
        for character in text:
            if not character.isspace():
                self._word += character
                continue
            self._finish_word()
            if character == "\n":
                self._break()
            self._gap = self._column > self._indent
        self._out.flush()

    def end(self) -> None:
        """The message is over."""
        self._finish_word()
        self._out.write("\n")

    def _finish_word(self) -> None:
        if not self._word:
            return
        if self._gap and self._column + 1 + len(self._word) > self._width:
            self._break()
        elif self._gap:
            self._word = " " + self._word
        self._gap = False
        self._out.write(self._word)
        self._column += len(self._word)
        self._word = ""

    def _break(self) -> None:
        self._out.write("\n" + " " * self._indent)
        self._column = self._indent
