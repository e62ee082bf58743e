"""The programs that have a grammar."""

import tomllib
from pathlib import Path

import acp_agent.gates

INDEX = Path(acp_agent.gates.__file__).parent / "grammars" / "index.toml"


def known_programs() -> tuple[str, ...]:
    """Return the names of all programs that have a grammar."""
    return tuple(name for names in tomllib.loads(INDEX.read_text()).values() for name in names.split())
