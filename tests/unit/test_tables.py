"""The tables of the package, which are read by another parser than the configuration of users."""

import tomllib
from pathlib import Path

import acp_agent
from acp_agent.text import packaged_table

ROOT = Path(acp_agent.__file__).parent
TABLES = [path for path in ROOT.rglob("*.toml") if path.parent != ROOT / "llm" / "scripts"]


def test_each_table_says_what_the_parser_of_the_standard_library_reads() -> None:
    assert len(TABLES) > 10
    for path in TABLES:
        package = ".".join(("acp_agent", *path.relative_to(ROOT).parent.parts))
        assert packaged_table(package, path.stem) == tomllib.loads(path.read_text("utf-8")), path
