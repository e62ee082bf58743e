"""How full the model's window was after each call, and what the session had cost by then: two charts, inline SVG.

Shapes are drawn in a box that is stretched to the page's width; words stand beside them at percentages of it, so that
they are as large on a telephone as on a screen.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from acp_agent.cli.session_words import dollars, tokens
from acp_agent.core.events import UsageChanged

_POINTS = 1000
"""Points of a line. A session of more calls is thinned: every second of them, every fourth, and so on."""
_WIDTH, _HEIGHT = 1000, 120  # of the box, the width in units of its own, the height in pixels
_ABOVE, _BELOW = 18, 24  # pixels for words
_ROOM = 1.08  # what the scale reaches to, seen from the highest value
_NEAR = 5  # a window that is further above all values, this many times, would leave nothing of them


class UsageChart:
    """Collects what was told of usage, and draws it. Holds at most 1,000 readings, and the last."""

    def __init__(self) -> None:
        self._calls = 0
        self._every = 1
        self._readings: list[tuple[int, UsageChanged]] = []
        self._last: tuple[int, UsageChanged] | None = None

    def add(self, usage: UsageChanged) -> None:
        """After one more model call."""
        self._calls += 1
        if usage.cost is not None and not 0 <= usage.cost < math.inf:
            usage = replace(usage, cost=None)
        self._last = (self._calls, usage)
        if (self._calls - 1) % self._every:
            return
        self._readings.append(self._last)
        if len(self._readings) == _POINTS:
            self._readings, self._every = self._readings[::2], 2 * self._every

    def html(self) -> str:
        """Both charts; nothing where no model was called."""
        if self._last is None:
            return ""
        readings = self._readings if self._readings[-1] is self._last else [*self._readings, self._last]
        charts = [_context(readings)]
        costs = [(call, usage.cost) for call, usage in readings if usage.cost is not None]
        if costs:
            charts.append(_Chart("cost", "Cost", f"{dollars(costs[-1][1])} in all", costs, dollars).html())
        return f'<section class="usage" aria-label="Usage">{"".join(charts)}</section>'


def _context(readings: list[tuple[int, UsageChanged]]) -> str:
    used = [(call, float(usage.used)) for call, usage in readings]
    last = readings[-1][1]
    share = f" of {tokens(last.size)}, {last.used / last.size:.0%}" if last.size > 0 else ""
    value = f"{tokens(last.used)} tokens{share}"
    return _Chart("context", "Context", value, used, tokens, float(last.size)).html()


class _Chart:
    """A line over the calls. `points` are a call's number, growing, and a value of 0 or more."""

    def __init__(
        self,
        kind: str,
        name: str,
        value: str,
        points: list[tuple[int, float]],
        label: Callable[[float], str],
        window: float = 0,
    ) -> None:
        self.kind = kind
        self.name = name
        self.value = value
        self.points = points
        self.label = label
        self.window = window
        peak = max(value for _, value in points) or 1.0
        self._top = _ROOM * max(peak, window if window <= _NEAR * peak else 0)

    def html(self) -> str:
        line = " ".join(f"{self._x(call):g},{self._y(value):.1f}" for call, value in self.points)
        if len(self.points) == 1:  # one call is a level
            line = f"{line} {_WIDTH},{self._y(self.points[0][1]):.1f}"
        end = self._y(self.points[-1][1]) + _ABOVE
        return (
            f'<figure class="chart {self.kind}"><figcaption><b>{self.name}</b> {self.value}</figcaption>'
            f'<svg width="100%" height="{_ABOVE + _HEIGHT + _BELOW}" role="img" '
            f'aria-label="{self.name} over {self.points[-1][0]} model calls: {self.value}">'
            f"{''.join(self._scale())}"
            f'<svg y="{_ABOVE}" width="100%" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'preserveAspectRatio="none"><polygon class="area" points="0,{_HEIGHT} {line} {_WIDTH},{_HEIGHT}"/>'
            f'<polyline class="line" vector-effect="non-scaling-stroke" points="{line}"/></svg>'
            f'<circle class="end" cx="100%" cy="{end:.1f}" r="3.5"/>{self._calls()}</svg></figure>'
        )

    def _x(self, call: int) -> float:
        first, last = self.points[0][0], self.points[-1][0]
        return round(_WIDTH * (call - first) / max(last - first, 1), 1)

    def _y(self, value: float) -> float:
        return _HEIGHT * (1 - value / self._top)

    def _scale(self) -> Iterator[str]:
        """A line and its value at each round number, and one for the window."""
        window = self.window if 0 < self.window <= self._top else 0
        step = _round_step(self._top / 4)
        for n in range(int(self._top / step) + 1):
            y = self._y(n * step) + _ABOVE
            yield f'<line class="grid" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            if n and not (window and abs(self._y(window) + _ABOVE - y) < 16):
                yield f'<text class="tick" y="{y - 4:.1f}">{self.label(n * step)}</text>'
        if window:
            y = self._y(window) + _ABOVE
            yield f'<line class="window" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="tick window" y="{y - 4:.1f}">window {self.label(window)}</text>'

    def _calls(self) -> str:
        """The axis below: calls of the model."""
        y, first, last = _ABOVE + _HEIGHT + 17, self.points[0][0], self.points[-1][0]
        if first == last:
            return f'<text class="tick" y="{y}">model call {first}</text>'
        return (
            f'<text class="tick" y="{y}">{first}</text><text class="tick middle" x="50%" y="{y}">model calls</text>'
            f'<text class="tick right" x="100%" y="{y}">{last}</text>'
        )


def _round_step(size: float) -> float:
    """1, 2 or 5 times a power of ten, not below `size`."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size * 0.999)
