"""Outputs of real tools, in tests/fixtures/strategies.

Made by running cargo 1.95, pytest 9.2, python 3.11 -m unittest and git; those named `handwritten_…` were written by
hand from the documented formats (go, nextest, jest, vitest, mocha are not installed here).
"""

from pathlib import Path

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, CommandRun, Strategy
from acp_agent.output.sanitize import sanitize

_DIRECTORY = Path(__file__).parents[3] / "fixtures" / "strategies"


def sample(name: str) -> str:
    """A tool's output as a filter gets it."""
    return sanitize((_DIRECTORY / f"{name}.txt").read_text(encoding="utf-8"))


def lines_of(name: str) -> list[str]:
    """The lines of a table, one case a line."""
    return (_DIRECTORY / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def applied(strategy: Strategy, name: str, command: str, exit_code: int | None = None) -> Applied:
    """What a strategy makes of a sample."""
    return strategy.apply(sample(name), CommandRun(command, (command,), exit_code))


def unchanged(result: Applied, name: str, confidence: Confidence) -> bool:
    """Whether a strategy left a sample as it was, and said so."""
    return result == Applied(sample(name), confidence)
