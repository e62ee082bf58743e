"""Globs that a model wrote as absolute paths although they must be relative to a folder."""

import os

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Access
from acp_agent.tools.params import quote


def pattern_below(pattern: str, path: str, context: ToolContext, *, key: str) -> str:
    """Return the glob relative to `path`. An absolute glob must lie below it.

    `key` is the name of the parameter. Raises ToolError that says what to give instead.
    """
    if not pattern.startswith("/"):
        if ".." not in pattern.split("/"):
            return pattern
        raise _elsewhere(key, pattern, 'Give the folder as path, and a pattern below it without "..".')
    written = os.path.normpath(os.path.join(context.cwd, path))
    for folder in (written, context.files.resolve(path, Access.LIST)):
        rest = pattern.removeprefix(folder.rstrip("/") + "/")
        if rest != pattern and rest.strip("/") and ".." not in rest.split("/"):
            return rest.lstrip("/") if "/" in rest.rstrip("/") else f"./{rest}"
    folder, _, name = pattern.rstrip("/").rpartition("/")
    while any(mark in folder for mark in "*?[{"):
        folder, _, above = folder.rpartition("/")
        name = f"{above}/{name}"
    raise _elsewhere(key, pattern, f"Give path = {quote(folder or '/')} and {key} = {quote(name)}.")


def _elsewhere(key: str, pattern: str, suggestion: str) -> ToolError:
    message = f'{key} = {quote(pattern)} (expected a pattern below path, without "..")'
    return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message, suggestion)
