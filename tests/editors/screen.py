"""A terminal with a screen, in which clients of the terminal are driven: tmux, with a server of its own."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import count
from pathlib import Path

from tests.editors.cache import program
from tests.editors.drive import Driver
from tests.editors.stage import NotSeenError, until

_numbers = count(1)
_ATTRIBUTES = re.compile(r"\x1b\[([0-9;:]*)m")
_COLOURS = ("#808080", "#f14c4c", "#23d18b", "#d7ba3d", "#3b8eea", "#d670d6", "#29b8db", "#e5e5e5")


class Screen:
    """A program in a terminal of `columns` x `rows`."""

    def __init__(
        self, words: Sequence[str | Path], env: Mapping[str, str], cwd: Path, columns: int = 110, rows: int = 40
    ) -> None:
        self._tmux = [program("tmux", "apt install tmux"), "-L", f"acp-editors-{os.getpid()}-{next(_numbers)}"]
        command = "exec " + shlex.join(str(each) for each in words)
        size = ["-x", str(columns), "-y", str(rows)]
        subprocess.run(
            [*self._tmux, "-f", "/dev/null", "new-session", "-d", *size, "-c", str(cwd), command],
            env=dict(env),
            check=True,
        )
        self._do("set-option", "-g", "history-limit", "20000")
        self._do("set-option", "-g", "remain-on-exit", "on")
        self._do("set-option", "-s", "escape-time", "10")
        self._size = columns, rows

    def _do(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def type(self, text: str) -> None:
        """Type text, without the return key."""
        self._do("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names, such as Enter, Escape and C-c."""
        self._do("send-keys", *keys)

    def text(self, past: bool = True) -> str:
        """Return the screen, with the lines above it unless `past` is False."""
        return self._do("capture-pane", "-p", *(["-S", "-5000"] if past else []))

    def svg(self, file: Path) -> None:
        """Draw the screen as a picture."""
        lines = self._do("capture-pane", "-p", "-e").splitlines()
        columns, rows = self._size
        width, height = columns * 8.4 + 16, rows * 18 + 16
        font = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
        box = f'viewBox="0 0 {width:.0f} {height}" font-size="14" font-family="{font}"'
        drawn = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}><rect width="100%" height="100%" fill="#1e1e1e"/>']
        drawn += (_line(line, 8, 22 + 18 * row) for row, line in enumerate(lines))
        file.write_text("".join(drawn) + "</svg>\n")

    def stop(self) -> None:
        """End the program and its terminal."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


class ScreenDriver(Driver):
    """A client of the terminal. `start` makes `screen`."""

    screen: Screen

    def drawn(self) -> str:
        return self.screen.text()

    def shot(self, file: Path) -> None:
        super().shot(file)
        self.screen.svg(file.with_suffix(".svg"))

    def stop(self) -> None:
        if hasattr(self, "screen"):
            self.screen.stop()

    def enter(self, line: str) -> None:
        """Type a line, and when it is drawn the return key: what comes with the text may be taken for a paste."""
        self.screen.type(line)
        with suppress(NotSeenError):
            until(lambda: "".join(line.split()) in "".join(self.drawn().split()), "what was typed", 5)
        self.screen.press("Enter")


def _line(line: str, x: float, y: int) -> str:
    pieces = _ATTRIBUTES.split(line)
    colour, bold, column, drawn = "#d4d4d4", False, 0, ""
    for index, piece in enumerate(pieces):
        if index % 2:
            colour, bold = _style(piece, colour, bold)
        elif piece:
            weight = ' font-weight="bold"' if bold else ""
            if word := piece.strip():
                begin = column + len(piece) - len(piece.lstrip())
                at = f'x="{x + begin * 8.4:.1f}" y="{y}" textLength="{len(word) * 8.4:.1f}"'
                text = escape(word).replace(" ", "\u00a0")  # a picture would join spaces
                drawn += f'<text {at} fill="{colour}"{weight}>{text}</text>'
            column += len(piece)
    return drawn


def _indexed(number: int) -> str:
    """Return a colour of the 256 of xterm."""
    if number < 16:
        return _COLOURS[number % 8]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    cube = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
    return "#" + "".join(f"{55 + 40 * each if each else 0:02x}" for each in cube)


def _style(codes: str, colour: str, bold: bool) -> tuple[str, bool]:
    """Return the colour of letters and their weight after an escape sequence with these codes."""
    numbers = [int(each or 0) for each in re.split("[;:]", codes)] if codes else [0]
    while numbers:
        match numbers.pop(0):
            case 0:
                colour, bold = "#d4d4d4", False
            case 1:
                bold = True
            case 22:
                bold = False
            case 39:
                colour = "#d4d4d4"
            case 38 if numbers[:1] == [2] and len(numbers) >= 4:
                colour = "#{:02x}{:02x}{:02x}".format(*numbers[-3:] if len(numbers) == 4 else numbers[1:4])
                del numbers[:4]
            case 38 if numbers[:1] == [5]:
                colour = _indexed(numbers[1])
                del numbers[:2]
            case 48 if numbers[:1] == [2]:
                del numbers[:4]
            case 48 if numbers[:1] == [5]:
                del numbers[:2]
            case number if 30 <= number <= 37:
                colour = _COLOURS[number - 30]
            case number if 90 <= number <= 97:
                colour = _COLOURS[number - 90]
            case _:
                pass
    return colour, bold
