"""A bar chart as SVG text: how much of what each command printed the model is shown. For light and dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 860
_LEFT, _TRACK = 196, 380  # where bars begin, and how long a whole one is
_NUMBERS = _LEFT + _TRACK + 14
_TOP, _STEP, _THICK = 128, 22, 12
_STYLE = """
  .page { fill: #ffffff; stroke: #d1d9e0 }
  text { font: 12px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .name { text-anchor: end }
  .title { font-size: 18px; font-weight: 600 }
  .quiet { fill: #59636e }
  .count { font-variant-numeric: tabular-nums }
  .saved { text-anchor: end; font-weight: 600 }
  .whole { font-weight: 600 }
  .raw { fill: #d8e1ea }
  .shown { fill: #0969da }
  .rule { stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .quiet { fill: #9198a1 }
    .raw { fill: #2a313c }
    .shown { fill: #4493f8 }
    .rule { stroke: #3d444d }
  }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """Characters a command printed, and characters of it that are shown."""

    name: str
    raw: int
    shown: int

    @property
    def saving(self) -> float:
        """Percent of the characters that are saved."""
        return 100 * (1 - self.shown / self.raw)


def chart(whole: Bar, bars: Sequence[Bar], outputs: int) -> str:
    """The chart: `whole` above a line, the bars below it. Each bar is as long as its command's output, in percent."""
    height = _TOP + _STEP * len(bars) + 16
    title = f"{whole.saving:.0f} % fewer characters for the model to read"
    subtitle = f"{outputs} outputs of developers’ tools, with the filter rules that are on by default"
    described = "; ".join(f"{bar.name}: {bar.raw:,} printed, {bar.shown:,} shown" for bar in (whole, *bars))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" \
viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title desc">
<title id="title">{title}</title>
<desc id="desc">Characters by command. {escape(described)}.</desc>
<style>{_STYLE}</style>
<rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>
<text class="title" x="24" y="36">{title}</text>
<text class="quiet" x="24" y="58">{subtitle}</text>
<rect class="raw" x="{_WIDTH - 268}" y="27" width="12" height="12" rx="2"/>
<text class="quiet" x="{_WIDTH - 250}" y="37">printed</text>
<rect class="shown" x="{_WIDTH - 186}" y="27" width="12" height="12" rx="2"/>
<text class="quiet" x="{_WIDTH - 168}" y="37">shown to the model</text>
{_bar(whole, 90, "name whole")}
<path class="rule" d="M24 {_TOP - 17.5}H{_WIDTH - 24}"/>
{chr(10).join(_bar(bar, _TOP + _STEP * at, "name") for at, bar in enumerate(bars))}
</svg>
"""


def _bar(bar: Bar, y: int, name: str) -> str:
    """One line of the chart, `y` its middle."""
    shown = _TRACK * min(1.0, bar.shown / bar.raw)
    saved = f"−{bar.saving:.1f} %" if bar.shown < bar.raw else "as it is"
    return (
        f'<text class="{name}" x="{_LEFT - 12}" y="{y + 4}">{escape(bar.name)}</text>'
        f'<rect class="raw" x="{_LEFT}" y="{y - _THICK // 2}" width="{_TRACK}" height="{_THICK}" rx="3"/>'
        f'<rect class="shown" x="{_LEFT}" y="{y - _THICK // 2}" width="{max(shown, 2):.1f}" height="{_THICK}" rx="2"/>'
        f'<text class="quiet count" x="{_NUMBERS}" y="{y + 4}">{bar.raw:,} → {bar.shown:,}</text>'
        f'<text class="saved count" x="{_WIDTH - 24}" y="{y + 4}">{saved}</text>'
    )
