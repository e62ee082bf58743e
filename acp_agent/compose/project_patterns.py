"""Patterns of a project's file that are none: they are left out, and the user is told.

What a user's own file forbids must be understood, or nothing runs. A project's file comes with the repository: whoever
wrote it could take every tool away with one odd pattern. It only adds to what the user forbids, so the user's own
patterns and the project's other ones hold without it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from acp_agent.config import Loaded
from acp_agent.config.section import Section
from acp_agent.core.errors import ConfigError
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.read_policy import ReadPolicy

_Words: TypeAlias = tuple[str, ...]

_BUILD: Mapping[str, Callable[[Sequence[str], Sequence[str]], object]] = {
    "tools.file.deny_read": lambda patterns, folders: ReadPolicy(patterns, folders=folders),
    "tools.protection.protected_paths": lambda patterns, _: ProtectedPaths(patterns),
}
"""What judges by the patterns of a setting to which a project may add, seen from some folders.

Raises ConfigError for what is no pattern.
"""


def without_faulty_patterns(loaded: Loaded, folders: Sequence[str]) -> tuple[Loaded, tuple[ConfigError, ...]]:
    """Return the configuration without the project's patterns that cannot be used, and what is wrong with those.

    A pattern of the user's own that is none stays: whoever uses it raises ConfigError.
    """
    faults: list[ConfigError] = []
    for key in (key for key in _BUILD if key in loaded.untightened):
        _, section, field = key.split(".")
        tools = loaded.settings.tools
        settings = cast("Section", getattr(tools, section))
        patterns = cast("_Words", getattr(settings, field))
        users = cast("_Words", loaded.untightened[key])
        kept = _usable(key, patterns, users, folders, faults)
        if kept != patterns:
            tools = tools.model_copy(update={section: settings.model_copy(update={field: kept})})
            loaded = replace(loaded, settings=loaded.settings.model_copy(update={"tools": tools}))
    origins = loaded.origins
    told = (ConfigError(origins[each.key], each.key, each.value, f"{each.expected} (ignored)") for each in faults)
    return replace(loaded, untightened={}), tuple(told)


def _usable(key: str, patterns: _Words, users: _Words, folders: Sequence[str], faults: list[ConfigError]) -> _Words:
    """All patterns if they can be used; else the user's and each other one that can; else the user's alone."""
    build = _BUILD[key]
    try:
        build(patterns, folders)
    except ConfigError as error:
        too_much = error
    else:
        return patterns
    try:
        build(users, folders)
    except ConfigError:
        return patterns

    def good() -> Iterator[str]:
        for pattern in patterns:
            try:
                build((pattern,), folders)
            except ConfigError as error:
                faults.append(error)
            else:
                yield pattern

    kept = tuple(good())
    try:
        build(kept, folders)
    except ConfigError:
        faults.append(too_much)
        return users
    return kept
