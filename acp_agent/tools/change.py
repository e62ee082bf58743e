"""Shared by the tools that change a file: read the old text, refuse bad text, write the change the user was shown."""

import os

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.redaction import placeholders
from acp_agent.core.types import Access, Diff
from acp_agent.text import visible


async def previous_text(files: FileSystem, path: str) -> str | None:
    """Return the text of the file, or None if it does not exist.

    Raises what `read_text` raises for a file that exists but cannot be read, since it must not be replaced. Raises
    Refused if the path may not be looked at, and ToolError if it is below a file.
    """
    if await files.kind(path) is not None:
        return await files.read_text(path)
    if await _is_below_a_file(files, path):
        msg = f"{visible(path)}: a part of the path is a file, not a directory"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg)
    return None


async def _is_below_a_file(files: FileSystem, path: str) -> bool:
    """Return whether the nearest existing path above this one is not a directory."""
    folder = os.path.dirname(files.resolve(path, Access.WRITE))
    try:
        while (kind := await files.kind(folder)) is None:
            folder = os.path.dirname(folder)
    except Refused:  # writing reports it
        return False
    return kind is not EntryKind.DIRECTORY


def shown_text(context: ToolContext) -> str | None:
    """Return the old text of the change that the user was shown, or None. `commit` compares the file with it."""
    return context.previewed[0].old_text if context.previewed else None


def change(files: FileSystem, path: str, old: str | None, new: str, max_bytes: int) -> Diff:
    """Return the change of one file, with an absolute path.

    Raises ToolError (invalid_parameters) for a text over `max_bytes`, and for one with more redaction placeholders than
    the old text: a placeholder would replace a secret.
    """
    size = len(new.encode())
    if size > max_bytes:
        msg = f"{visible(path)} would be {size} bytes: at most {max_bytes} can be written"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
    added = placeholders(new) - placeholders(old or "")
    if added:
        msg = (
            f"the new text of {visible(path)} contains {', '.join(sorted(added))}, which the old text does not contain"
        )
        advice = (
            "You saw redacted text: the placeholder stands for a value that you were not shown. To keep that value, "
            "edit only the text around it. For a new value, ask the user."
        )
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg, advice)
    return Diff(files.resolve(path, Access.WRITE), old, new)


async def commit(made: Diff, path: str, context: ToolContext) -> None:
    """Write the change if it is the one the user was shown and the file is unchanged since.

    Raises ToolError (permanent_failure) if the path or the file changed in between.
    """
    if context.previewed and made not in context.previewed:
        raise ToolError(
            ToolErrorCategory.PERMANENT_FAILURE,
            f"{visible(path)}: file changed between diff preview and write; aborting",
            "Read the file again, then repeat the change.",
        )
    await context.files.write_text(path, made.new_text, expected=made.old_text)
