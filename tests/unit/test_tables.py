"""The tables of the package, which are read by another parser than the configuration of users."""

import subprocess
import sys
import tomllib
from pathlib import Path

import acp_agent
from acp_agent.text import packaged_table

ROOT = Path(acp_agent.__file__).parent
TABLES = [path for path in ROOT.rglob("*.toml") if path.parent != ROOT / "llm" / "scripts"]


def test_each_table_says_what_the_parser_of_the_standard_library_reads() -> None:
    assert len(TABLES) > 10
    for path in TABLES:
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        assert packaged_table("acp_agent", name) == tomllib.loads(path.read_text("utf-8")), path


def test_reading_one_does_not_load_modules_for_archives() -> None:
    code = (
        "import sys, acp_agent.session.factory\n"
        "from acp_agent.text import packaged_table\n"
        "packaged_table('acp_agent.gates.shell', 'programs')\n"
        "print({'importlib.resources', 'zipfile'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
