"""What the tests of the filters share: a log that can be read, and engines over rules of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from acp_agent.output.filters.engine import FilterEngine, RuleSource


@pytest.fixture
def logged() -> Iterator[list[dict[str, object]]]:
    """What is logged, as it comes."""
    entries: list[dict[str, object]] = []

    def keep(_logger: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        entries.append({"level": level, **event})
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    yield entries
    structlog.reset_defaults()


@pytest.fixture
def engine_of(tmp_path: Path) -> Callable[[str], FilterEngine]:
    """Makes an engine over the rules in a TOML text."""

    def make(rules: str) -> FilterEngine:
        file = tmp_path / "filters.toml"
        file.write_text(rules)
        engine = FilterEngine(RuleSource(str(file)))
        assert engine.warnings == ()
        return engine

    return make
