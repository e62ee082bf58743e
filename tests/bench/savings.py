"""`python -m tests.bench.savings`: what the output pipeline saves, into docs/savings.md and docs/savings.svg.

Measured on the outputs of tests/fixtures/outputs. "raw" is what the model would read without filters: escapes and
overwritten progress are gone from it already, so no credit is taken for those. "shown" is what it reads with filters,
with the line that says where the whole output is kept. Outputs that no rule is for count as well.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from acp_agent.core.types import ToolKind, ToolResult, ToolSpec
from acp_agent.output.filters.engine import FilterEngine, RuleSource
from acp_agent.output.pipeline import Pipeline, ResultSource, Sizes
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.text import measure
from tests.bench.outputs import Output, outputs
from tests.bench.savings_chart import Bar, chart

DOCS = Path(__file__).parents[2] / "docs"
WHOLE = "all outputs"
_BASH = ToolSpec("bash", "Run a command.", {}, ToolKind.EXECUTE, mutates=True)
_ID = "00000000-0000-4000-8000-000000000001"
_SUBCOMMANDS = frozenset(("brew", "cargo", "docker", "git", "go", "kubectl", "npm", "pip", "terraform"))
_HEAD = "| command | rules | outputs | raw lines | shown lines | raw chars | shown chars | saving | median |\n"
_HEAD += "|---|---|--:|--:|--:|--:|--:|--:|--:|\n"


@dataclass(frozen=True, slots=True)
class Measured:
    """One output: lines and characters without and with filters, and the rules that were applied."""

    output: Output
    rules: tuple[str, ...]
    raw_lines: int
    shown_lines: int
    raw_chars: int
    shown_chars: int

    @property
    def saving(self) -> float:
        """Percent of the characters that are saved."""
        return 100 * (1 - self.shown_chars / self.raw_chars)


@dataclass(frozen=True, slots=True)
class Row:
    """All outputs of one command, summed; `median` is that of their savings, in percent."""

    command: str
    rules: str
    outputs: int
    raw_lines: int
    shown_lines: int
    raw_chars: int
    shown_chars: int
    median: float

    @property
    def saving(self) -> float:
        """Percent of the characters that are saved."""
        return 100 * (1 - self.shown_chars / self.raw_chars)


def measured() -> list[Row]:
    """All outputs as one row, then a row a command, most saved first. With the rules that are on by default.

    Outputs that were recorded for the opt-in rules are not among them.
    """
    return _by_command([each for each in measurements(FilterEngine()) if not each.output.opt_in])


def measured_opt_in() -> list[Row]:
    """The same for the outputs the opt-in rules are for, those rules switched on."""
    with every_rule() as engine:
        return _by_command([each for each in measurements(engine) if each.output.opt_in])


@contextmanager
def every_rule() -> Iterator[FilterEngine]:
    """An engine with the opt-in rules switched on, in a file as a user would write it."""
    rules = files("acp_agent.output.filters").joinpath("builtin.toml").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        path = Path(folder, "filters.toml")
        path.write_text(rules.replace("\nenabled = false\n", "\n"), encoding="utf-8")
        yield FilterEngine(RuleSource(str(path), required=True))


def measurements(engine: FilterEngine) -> list[Measured]:
    """Every output as a pipeline with this engine gives it to the model."""
    # No limit but the filters': what is clipped as too long is not their merit.
    pipeline = Pipeline(Sizes(threshold=10_000_000), Redactor(), engine)
    return [_measured(output, pipeline) for output in outputs()]


def _measured(output: Output, pipeline: Pipeline) -> Measured:
    fitted = pipeline.apply(ToolResult(output.raw), ResultSource(_BASH, _ID, output.run))
    stats = fitted.result.stats
    assert stats is not None
    notice = len(fitted.finish(f"overflow:{_ID}").text) - len(fitted.finish().text) if fitted.whole else 0
    raw, text = fitted.whole or fitted.result.text, fitted.result.text
    return Measured(output, stats.rules, _lines(raw), _lines(text) + (notice > 0), len(raw), len(text) + notice)


def _lines(text: str) -> int:
    return measure(text, "").raw_lines


def _by_command(everything: Sequence[Measured]) -> list[Row]:
    groups: dict[str, list[Measured]] = {}
    for each in everything:
        groups.setdefault(_command(each), []).append(each)
    rows = [_row(command, group) for command, group in groups.items()]
    rows.sort(key=lambda row: (-row.saving, -row.raw_chars, row.command))
    return [replace(_row(WHOLE, everything), rules=""), *rows]


def _row(command: str, group: Sequence[Measured]) -> Row:
    return Row(
        command,
        ", ".join(dict.fromkeys(rule for each in group for rule in each.rules)) or "none",
        len(group),
        sum(each.raw_lines for each in group),
        sum(each.shown_lines for each in group),
        sum(each.raw_chars for each in group),
        sum(each.shown_chars for each in group),
        statistics.median(each.saving for each in group),
    )


def _command(each: Measured) -> str:
    """What a reader would call the command: its program, with the subcommand where the program has such."""
    words = each.output.run.printing[-1].split()
    if words[:1] == ["npx"]:
        words = words[1:]
    if words[1:3] == ["-m", "pytest"]:
        words = words[2:]
    name = " ".join(words[:2]) if words[0] in _SUBCOMMANDS else words[0]
    match name:
        case "cat" | "tail":
            return "cat, tail -f (logs)" if each.rules else "cat (sources)"
        case "cargo build" | "cargo check":
            return "cargo build, check"
        case "npm install" | "npm ci":
            return "npm install, ci"
        case "kubectl get" | "kubectl describe":
            return "kubectl get, describe"
        case "terraform plan" | "terraform apply":
            return "terraform plan, apply"
        case "ls" | "find":
            return "ls, find"
        case _:
            return name


def table(rows: Sequence[Row]) -> str:
    """A markdown table of rows."""
    return _HEAD + "".join(map(_line, rows))


def _line(row: Row) -> str:
    cells = (
        f"**{row.command}**" if row.command == WHOLE else f"`{row.command}`",
        row.rules,
        str(row.outputs),
        *(f"{number:,}" for number in (row.raw_lines, row.shown_lines, row.raw_chars, row.shown_chars)),
        f"{row.saving:.1f} %",
        f"{row.median:.1f} %",
    )
    return f"| {' | '.join(cells)} |\n"


def page() -> str:
    """docs/savings.md."""
    everything = outputs()
    made = sum(output.made == "run" for output in everything)
    return f"""# What the filters save

Made by `make bench` (`python -m tests.bench.savings`) from the {len(everything)} outputs in
[tests/fixtures/outputs](../tests/fixtures/outputs/manifest.toml): {made} printed by really running the tools, the
others written by hand from the formats' documentation (docker, kubectl, go, brew, journalctl). A test holds each to the
lines that must survive and the lines that must go.

*raw* is what the model would read without filters: terminal escapes and overwritten progress are already removed, so
they do not count as saved. *shown* is what the model reads instead, with the line that says where the whole output is
stored. *saving* compares the sums of *raw* and *shown* over all outputs of a row. *median* is the median of the savings
of its single outputs. Short outputs, and outputs for which there is no rule, stay as they are and are counted too.

![Characters printed and characters shown to the model, by command](savings.svg)

## The 24 rules that are on by default

{table(measured())}
## The five opt-in rules, switched on

{table(measured_opt_in())}"""


def drawing() -> str:
    """docs/savings.svg: the rows of `measured`."""
    rows = measured()
    whole, *bars = (Bar(row.command, row.raw_chars, row.shown_chars) for row in rows)
    return chart(whole, bars, rows[0].outputs)


def main() -> None:
    (DOCS / "savings.md").write_text(page(), encoding="utf-8")
    (DOCS / "savings.svg").write_text(drawing(), encoding="utf-8")
    print(table(measured()), end="")


if __name__ == "__main__":
    main()
