"""A recording of a terminal as an SVG that plays by itself, also where no script runs, as in a README on GitHub.

A line is drawn once for each content it has had, and SMIL shows it while it has that content. What has scrolled out
of the window is above it. Without animation, or where the user wants less motion, the end of the recording is shown.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.fakes.drawn_terminal import Cell, DrawnTerminal

_WIDTH, _HEIGHT = 8.4, 18  # of a character, in pixels
_MARGIN, _TOP = 16, 38  # around the text; above it stands the title
_TOGETHER = 0.05  # seconds: what comes within them is shown at once
_HOLD = 5.0  # seconds for which the end is shown
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
_CSS = """
rect{fill:#161b22;stroke:#57606a}
text{fill:#e6edf3;font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.b{font-weight:700}.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#56d364}.y{fill:#e3b341}.c{fill:#79c0ff}
@media(prefers-reduced-motion){.o{visibility:hidden!important}.e{visibility:visible!important}.s{transform:translateY(END)}}
"""


class Event(NamedTuple):
    """What a program wrote. `time` is in seconds since the beginning."""

    time: float
    text: str


class Version(NamedTuple):
    """The content of a line from `start` to `end`, in seconds. `end` is None if it stays until the end."""

    row: int
    cells: Sequence[Cell]
    start: float
    end: float | None


def read_cast(path: Path) -> tuple[int, int, list[Event]]:
    """Return columns, rows and events of an asciicast (version 2)."""
    head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return head["width"], head["height"], [Event(time, text) for time, kind, text in lines if kind == "o"]


def drawing(events: Iterable[Event], columns: int, rows: int, title: str) -> str:
    """Return the SVG of a terminal of `columns` and `rows`."""
    terminal = DrawnTerminal(columns)
    versions: list[Version] = []
    present: dict[int, tuple[float, tuple[Cell, ...]]] = {}
    scrolled = [(0.0, 0)]
    now = 0.0
    for now, text in _together(events):
        terminal.feed(text)
        for row, line in enumerate(terminal.cells):
            start, before = present.get(row, (0.0, ()))
            if tuple(line) != before:
                versions.append(Version(row, before, start, now))
                present[row] = now, tuple(line)
        if (offset := max(0, len(terminal.cells) - rows)) != scrolled[-1][1]:
            scrolled.append((now, offset))
    versions += [Version(row, cells, start, None) for row, (start, cells) in present.items()]
    return _document([each for each in versions if each.cells], scrolled, now + _HOLD, columns, rows, title)


def _together(events: Iterable[Event]) -> Iterable[Event]:
    """Join events that a person would see at once."""
    for _, several in groupby(events, lambda event: int(event.time / _TOGETHER)):
        first, *others = several
        yield Event(round(first.time, 2), "".join([first.text, *(each.text for each in others)]))


def _document(
    versions: list[Version], scrolled: list[tuple[float, int]], duration: float, columns: int, rows: int, title: str
) -> str:
    width, height = round(columns * _WIDTH) + 2 * _MARGIN, rows * _HEIGHT + _TOP + _MARGIN
    times = ";".join(f"{time / duration:.4f}" for time, _ in scrolled)
    places = ";".join(f"0 {-offset * _HEIGHT}" for _, offset in scrolled)
    end = places.rpartition(";")[2]
    css = _CSS.replace("END", f"{end.removeprefix('0 ')}px")
    box = f'width="{width}" height="{height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} viewBox="0 0 {width} {height}" role="img" aria-labelledby="t">'
    )
    head += f'<title id="t">{escape(title)}</title><style>{css}</style>'
    # Its beginning is the clock of all other animations.
    clock = f'<animate id="l" attributeName="rx" values="8;8" begin="0s;l.end" dur="{duration:.2f}s"/>'
    frame = f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8">{clock}</rect>'
    lights = "".join(f'<circle cx="{18 + 18 * at}" cy="18" r="5.5" fill="{each}"/>' for at, each in enumerate(_LIGHTS))
    window = f'<svg x="{_MARGIN}" y="{_TOP}" width="{width - 2 * _MARGIN}" height="{rows * _HEIGHT}">'
    scroll = f'<animateTransform attributeName="transform" type="translate" values="{places}" keyTimes="{times}" '
    scroll += f'calcMode="discrete" begin="l.begin" dur="{duration:.2f}s"/>'
    lines = [_version(each) for each in versions]
    text = [
        head,
        frame,
        lights,
        window,
        f'<g class="s" transform="translate({end})">',
        scroll,
        *lines,
        "</g></svg></svg>",
    ]
    return "\n".join(text) + "\n"


_LIGHTS = ("#ff7b72", "#e3b341", "#56d364")


def _version(version: Version) -> str:
    """Return a line as it was for a while. The one of the end is visible but before its start."""
    texts = "".join(_run(cells, column, version.row) for column, cells in _runs(version.cells))
    if version.end is None:
        hidden = f'<set attributeName="visibility" to="hidden" begin="l.begin" dur="{version.start:.2f}s"/>'
        return f'<g class="e">{hidden if version.start else ""}{texts}</g>'
    begin, lasts = f"l.begin+{version.start:.2f}s", f"{version.end - version.start:.2f}s"
    shown = f'<set attributeName="visibility" to="visible" begin="{begin}" dur="{lasts}"/>'
    return f'<g class="o" visibility="hidden">{shown}{texts}</g>'


def _runs(cells: Sequence[Cell]) -> Iterable[tuple[int, list[Cell]]]:
    """Return the pieces of a line with their columns. Each has one style and characters of one font."""
    column = 0
    for _, several in groupby(cells, lambda cell: (cell.style, cell.character.isascii())):
        run = list(several)
        yield column, run
        column += len(run)


def _run(cells: list[Cell], column: int, row: int) -> str:
    text = "".join(cell.character for cell in cells)
    blank = len(text) - len(text.lstrip())
    shown = text.strip()
    if not shown:
        return ""
    style = _CLASSES.get(cells[0].style)
    length = f' textLength="{len(shown) * _WIDTH:.5g}"' if len(shown) > 1 else ""
    kind = f' class="{style}"' if style else ""
    where = f'x="{(column + blank) * _WIDTH:.5g}" y="{row * _HEIGHT + 14}"'
    return f"<text {where}{length}{kind}>{escape(re.sub(' ', chr(160), shown))}</text>"
