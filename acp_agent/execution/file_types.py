"""Which files belong to a language or format, for grep's `file_type` (T4.15); the table is file_types.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import cast

from acp_agent.core.errors import ToolError, ToolErrorCategory

_MOST_QUOTED = 40


@dataclass(frozen=True, slots=True)
class FileType:
    """One type: its other names, what its files' names end with behind a dot, and whole names."""

    aliases: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a file of this name is of the type, whatever its case."""
        lowered = name.lower()
        rest = lowered
        while "." in rest:  # "a.gradle.kts" ends with "gradle.kts" as well as with "kts"
            rest = rest.partition(".")[2]
            if rest in self.extensions:
                return True
        return lowered in self.names


def file_type(name: str) -> FileType:
    """The type of that name or alias. Raises ToolError (invalid_parameters) that names those it may have meant."""
    types = known_types()
    wanted = name.strip().lower().removeprefix("*").removeprefix(".")
    for known, each in types.items():
        if wanted == known or wanted in each.aliases:
            return each
    every = [*types, *(alias for each in types.values() for alias in each.aliases)]
    near = get_close_matches(wanted[:_MOST_QUOTED], every, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(types)}"
    raise ToolError(
        ToolErrorCategory.INVALID_PARAMETERS,
        f"file_type {name[:_MOST_QUOTED]!r} is not known; {hint}",
        'Use one of these, or a glob such as "*.txt".',
    )


def known_types() -> Mapping[str, FileType]:
    """Every type by its name, from the table; names and extensions in lower case."""
    text = (files("acp_agent.execution") / "file_types.toml").read_text("utf-8")
    table = cast("dict[str, dict[str, list[str]]]", tomllib.loads(text))
    return {name: FileType(**{key: frozenset(values) for key, values in each.items()}) for name, each in table.items()}
