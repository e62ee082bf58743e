"""A message of the agent on a terminal: its Markdown wrapped as it comes, tables in columns, code as it is."""

import re
import unicodedata
from collections.abc import Callable
from itertools import accumulate, zip_longest
from typing import TextIO

from acp_agent.text import wrap_line

BOLD, DIM, RED, GREEN, YELLOW, BLUE = "1", "2", "31", "32", "33", "36"
_FENCE = re.compile(r"(`{3,}|~{3,})")
_BULLET = re.compile(r"[-*+]|\d+[.)]")
_MARKS = re.compile(r"(\*\*|`+)")  # around strong words and code
_CELL = re.compile(r"\|((?:[^|\\]|\\.?)*)(?=\||$)")
_RULE = re.compile(r":?-+:?")  # a cell of the line below a table's head
_LINE_START = 200  # characters of a line that say what it is: a heading, a fence
_NARROWEST = 6  # characters; no column of a table is made narrower than this


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes. Letters of East Asia take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped_at(line: str, columns: int) -> list[str]:
    """Return the pieces of a line, each of at most `columns` columns."""
    if line.isascii():
        return wrap_line(line, columns)
    filled = "".join(f"{each}\0" if _columns_of(each) == 2 else each for each in line)  # one character for each column
    return [piece.replace("\0", "") for piece in wrap_line(filled, columns)]


def cut_at(line: str, columns: int) -> str:
    """Return a line of at most `columns` columns. An ellipsis stands for what is left out."""
    if columns_of(line) <= columns:
        return line
    return line[: sum(used < columns for used in accumulate(map(_columns_of, line)))] + "…"


class Paragraph:
    """A message on the screen, wrapped at `width()` columns between words. Every line is indented by `indent`.

    Lines keep the spaces that they begin with. Code between fences is not wrapped. A table is drawn once it is whole,
    in columns. `paint` returns a text in a style. The caller has written the first `indent` columns of the first line.
    """

    def __init__(self, out: TextIO, indent: int, width: Callable[[], int], paint: Callable[[str, str], str]) -> None:
        self._out = out
        self._indent = indent
        self._width = width
        self._paint = paint
        self._line = ""  # the start of the present line as far as it was written, without indent and leading spaces
        self._indented = True
        self._is_empty = True  # blank lines at the beginning are left out
        self._word: list[str] = []  # the characters of the word that is not complete
        self._spaces = 0  # between the last word and the next
        self._hang = 0  # additional indent of the continuation lines of a wrapped line
        self._column = indent
        self._fence = ""  # the fence that opened the present block of code
        self._mark = ""  # the mark that opened the present strong words or inline code
        self._row: list[str] = []  # the characters of the present line, if it may belong to a table
        self._rows: list[str] = []  # the previous lines that may belong to the same table

    @property
    def column(self) -> int:
        """The column where the next word is written; 0 before a line that has not begun."""
        return self._column if self._indented else 0

    def write(self, text: str) -> None:
        """Write the next piece of the message. Its last word is shown once it is complete."""
        for character in text:
            if character == "\n":
                self._end_line()
            elif self._row:
                self._row.append("    " if character == "\t" else character)
            elif character == "|" and not (self._line or self._word or self._fence):
                self._row, self._spaces = [" " * self._spaces, character], 0
            elif character.isspace():
                self._finish_word()
                self._spaces += 4 if character == "\t" else 1
            elif not character.isascii() and _columns_of(character) == 2:
                self._finish_word()  # such letters have no spaces between their words
                self._word.append(character)
                self._finish_word()
            else:
                self._word.append(character)
        self._out.flush()

    def pause(self) -> None:
        """Show the last word, because the next piece of the message is late."""
        self._finish_word()

    def end(self) -> None:
        """End the message with a line end, unless it has one already."""
        if self._row:
            self._end_line()
        self._finish_word()
        self._finish_table()
        if self._indented:
            self._out.write("\n")

    def _finish_word(self) -> None:
        if not self._word:
            return
        word = "".join(self._word)
        self._word.clear()
        self._finish_table()
        columns = columns_of(word)
        if not self._line:
            self._hang = self._spaces + (len(word) + 1 if _BULLET.fullmatch(word) else 0)
        elif not self._fence and columns > self._width() - self._column - self._spaces:
            self._spaces = self._hang
            self._out.write("\n")
            self._indented = False
        self._begin_line()
        spaces = " " * self._spaces
        self._out.write(spaces + self._painted(word))
        if len(self._line) < _LINE_START:
            self._line += f"{spaces}{word}" if self._line else word
        self._column += self._spaces + columns
        self._spaces = 0

    def _begin_line(self) -> None:
        if not self._indented:
            self._out.write(" " * self._indent)
            self._indented, self._column = True, self._indent
        self._is_empty = False

    def _painted(self, word: str) -> str:
        """Return a word in the style of its context: code, a heading, strong words."""
        start = self._line or word
        if self._fence or _FENCE.match(start):
            return self._paint(word, BLUE if self._fence else DIM)
        if start.startswith("#"):
            return self._paint(word, BOLD)
        painted = ""
        for piece in filter(None, _MARKS.split(word)):
            is_mark = _MARKS.fullmatch(piece) is not None
            style = self._mark or (piece if is_mark else "")
            if is_mark and self._mark in ("", piece):
                self._mark = "" if self._mark else piece
            painted += self._paint(piece, {"": "", "**": BOLD}.get(style, BLUE))
        return painted

    def _end_line(self) -> None:
        if self._row:
            self._rows.append("".join(self._row))
            self._row.clear()
            return
        self._finish_word()
        self._finish_table()
        if self._is_empty:
            self._spaces = 0
            return
        if self._fence:
            if self._line.startswith(self._fence) and not self._line.strip(self._fence[0]):
                self._fence = ""
        elif opening := _FENCE.match(self._line):
            self._fence = opening[1]
        self._out.write("\n")
        self._line, self._spaces, self._indented, self._column, self._mark = "", 0, False, self._indent, ""

    def _finish_table(self) -> None:
        """Write the lines that may be a table: as a table if they are one, else unchanged."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        cells = [[cell.strip() for cell in _CELL.findall(row.strip().removesuffix("|") or "|")] for row in rows]
        is_table = len(rows) > 1 and all(map(_RULE.fullmatch, cells[1]))
        for line in drawn_table(cells, self._width() - self._indent, self._paint) if is_table else rows:
            self._begin_line()
            self._out.write(line + "\n")
            self._indented = False


def drawn_table(rows: list[list[str]], width: int, paint: Callable[[str, str], str]) -> list[str]:
    """Return the lines of a table. The first row is its head, the second one a rule. Wide cells are wrapped."""
    count = max(map(len, rows))
    rows = [[*row, *[""] * (count - len(row))] for row in (rows[0], *rows[2:])]
    widths = [max(1, *(columns_of(row[at]) for row in rows)) for at in range(count)]
    while sum(widths) + 2 * (count - 1) > width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    drawn: list[str] = []
    for number, row in enumerate(rows):
        cells = [[piece.strip() for piece in wrapped_at(cell, room)] for cell, room in zip(row, widths, strict=True)]
        for pieces in zip_longest(*cells, fillvalue=""):
            padded = (piece + " " * (room - columns_of(piece)) for piece, room in zip(pieces, widths, strict=True))
            line = "  ".join(padded).rstrip()
            drawn.append(paint(line, BOLD) if number == 0 else line)
        if number == 0:
            drawn.append(paint("  ".join("─" * room for room in widths), DIM))
    return drawn
