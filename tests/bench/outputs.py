"""The raw outputs of tests/fixtures/outputs, and what the pipeline makes of them: sanitize -> redact -> filter."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.output.filters.engine import FilterEngine
from acp_agent.output.filters.strategy import CommandRun
from acp_agent.output.pipeline import shortened
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.sanitize import sanitize

FOLDER = Path(__file__).parents[1] / "fixtures" / "outputs"


@dataclass(frozen=True, slots=True)
class Output:
    """One raw output, and what its reader wants of it; see the head of manifest.toml.

    least   saving in percent of the characters, at least
    opt_in  the rule that has to be switched on for it; "" when the rules that are on by default will do
    """

    name: str
    command: str
    exit: int
    made: str
    must_survive: tuple[str, ...]
    tool: str = ""
    opt_in: str = ""
    least: int = 0
    must_go: tuple[str, ...] = ()
    once_at_most: tuple[str, ...] = ()

    @property
    def raw(self) -> str:
        """What the command printed, with its escapes and carriage returns."""
        return (FOLDER / f"{self.name}.txt").read_bytes().decode(errors="replace")

    @property
    def run(self) -> CommandRun:
        """What the filters are told of the command."""
        return CommandRun(self.command, printing_commands(ShellText(self.command)), self.exit)


@dataclass(frozen=True, slots=True)
class Shown:
    """An output on its way: `clean` is what the filters were given, `text` what they gave back, by which rules."""

    output: Output
    clean: str
    text: str
    rules: tuple[str, ...]

    @property
    def saving(self) -> float:
        """Percent of the characters of `clean` that are not in `text`."""
        return 100 * (1 - len(self.text) / len(self.clean))

    @property
    def lost(self) -> list[str]:
        """What had to survive and did not."""
        return [wanted for wanted in self.output.must_survive if wanted not in self.text]

    @property
    def noise(self) -> tuple[int, list[str]]:
        """How many lines had to go, and those that did not."""
        lines, left = self.clean.splitlines(), self.text.splitlines()
        due, still = 0, list[str]()
        for pattern in map(re.compile, self.output.must_go):
            due += sum(bool(pattern.search(line)) for line in lines)
            still += [line for line in left if pattern.search(line)]
        for pattern in map(re.compile, self.output.once_at_most):
            due += max(0, sum(bool(pattern.search(line)) for line in lines) - 1)
            still += [line for line in left if pattern.search(line)][1:]
        return due, still


def outputs() -> list[Output]:
    """Every output of the manifest, in its order."""
    tables = tomllib.loads((FOLDER / "manifest.toml").read_text(encoding="utf-8"))["output"]
    return [
        Output(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})
        for table in tables
    ]


@cache
def _redactor() -> Redactor:
    return Redactor()


def shown(output: Output, engine: FilterEngine) -> Shown:
    """The output as the filters leave it. `engine` has the rules the output asks for."""
    clean = _redactor().redact(sanitize(output.raw, terminal=True)).text
    filtered = shortened(clean, output.run, engine)
    return Shown(output, clean, clean, ()) if filtered is None else Shown(output, clean, filtered.text, filtered.rules)
