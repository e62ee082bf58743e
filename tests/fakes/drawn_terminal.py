"""A terminal that only draws: what a person would see of the text that a program wrote to it."""

import re
from typing import NamedTuple

from acp_agent.cli.paragraph import columns_of

_PIECE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|([\s\S])")


class Cell(NamedTuple):
    """A character of the screen. `style` is the last SGR sequence before it, such as "1;31", or ""."""

    character: str
    style: str


_BLANK = Cell(" ", "")


class DrawnTerminal:
    """A terminal of `columns` columns that forgets no line, in whose lines sequences move the cursor and paint.

    It knows what `Screen` writes: carriage return, line end, and the sequences `K`, `A`, `G` and `m`. Raises ValueError
    for other sequences.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.cells: list[list[Cell]] = [[]]
        self._row = 0
        self._column = 0
        self._style = ""

    def feed(self, text: str) -> None:
        """Draw what a program wrote."""
        for found in _PIECE.finditer(text):
            numbers, command, character = found.groups()
            if command is None:
                self._draw(character)
            elif command == "m":
                self._style = "" if numbers in ("", "0") else numbers
            elif command == "K":
                del self._line[self._column :]
            elif command == "A":
                self._row -= int(numbers or 1)
            elif command == "G":
                self._column = int(numbers or 1) - 1
            else:
                raise ValueError(f"{found[0]!r}: a sequence that the terminal does not know")

    @property
    def lines(self) -> list[str]:
        """The lines as text, without blanks at their ends."""
        return ["".join(cell.character for cell in line).rstrip() for line in self.cells]

    @property
    def _line(self) -> list[Cell]:
        return self.cells[self._row]

    def _draw(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down()
        elif (width := columns_of(character)) == 0:
            last = self._line[self._column - 1]
            self._line[self._column - 1] = Cell(last.character + character, last.style)
        else:
            if self._column + width > self.columns:
                self._down()
            self._line.extend([_BLANK] * (self._column + width - len(self._line)))
            self._line[self._column : self._column + width] = [
                Cell(character, self._style),
                *[Cell("", "")] * (width - 1),
            ]
            self._column += width

    def _down(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self.cells):
            self.cells.append([])
