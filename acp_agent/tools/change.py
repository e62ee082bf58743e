"""Shared by the tools that change files and folders: what a change would do, checked before the user is asked.

A text is written only as the user was shown it. For a move, copy or deletion only cheap checks are made. The file
system checks everything again when it acts, also the entries below a folder.
"""

import os
import posixpath
import shlex

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import placeholders
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


_MOST_COUNTED = 1000


def named(path: str) -> str:
    """Return a path for use in a sentence. It is quoted if it could be taken for words of the sentence."""
    return shlex.quote(visible(path))


def destination_path(source: str, destination: str) -> str:
    """Return the path that a source gets: inside of a destination that ends with "/", else the destination itself."""
    name = posixpath.basename(posixpath.normpath(source))
    return f"{destination}{name}" if destination.endswith("/") and name not in ("", ".", "..") else destination


async def entry_kind(files: FileSystem, path: str, access: Access) -> EntryKind | None:
    """Return what an entry to move or delete is, without following links. None if it may not be looked at.

    Raises ToolError if there is nothing, and Refused for the session's folder and the folders above it.
    """
    real = files.resolve(path, access)
    if f"{files.resolve('.', Access.LIST)}/".startswith(f"{real}/"):
        raise Refused(f"{path}: is a directory of this session, or has one below it", "Name the entries in it instead.")
    try:
        target = files.resolve(path, Access.LIST)
        kind = await files.kind(path)
    except (ToolError, Refused):  # a link that leads outside or nowhere, or something hidden
        return None
    if target != real:
        return EntryKind.SYMLINK
    return _there(path, kind)


async def source_kind(files: FileSystem, path: str) -> EntryKind:
    """Return what is to be copied, following links. Raises ToolError or Refused if it cannot be copied."""
    kind = _there(path, await files.kind(path))
    if kind is EntryKind.FILE:
        files.resolve(path, Access.READ)
    elif kind is not EntryKind.DIRECTORY:
        raise _permanent(f"{path}: is neither a file nor a directory")
    return kind


async def refuse_taken(
    files: FileSystem, source: str, kind: EntryKind | None, destination: str, access: Access
) -> None:
    """Raise ToolError if a source of this kind is known not to fit at the path `destination`."""
    old, new = files.resolve(source, access), files.resolve(destination, Access.WRITE)
    if kind is EntryKind.DIRECTORY and new.startswith(f"{old}/"):
        msg = f"{source} -> {destination}: a directory cannot hold itself"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
    try:
        there, above = await files.kind(destination), await files.kind(posixpath.dirname(new))
    except Refused:  # it may not be looked at: the move or copy reports it
        return
    if there is EntryKind.DIRECTORY:
        whole = posixpath.join(destination, posixpath.basename(old))
        raise _permanent(f"{destination}: is a directory that exists already", f"Give the whole new path: {whole}")
    if there is not None:
        advice = "Choose another destination, or delete what is there first."
        raise _permanent(f"{destination}: exists already; nothing was replaced", advice)
    if above not in (None, EntryKind.DIRECTORY):
        raise _permanent(f"{destination}: a part of the path is a file, not a directory")


async def contents(files: FileSystem, path: str) -> str:
    """Return in words how many entries are below a folder. It counts to a thousand."""
    count, certain, folders = 0, True, [path]
    while folders and count <= _MOST_COUNTED:
        folder = folders.pop()
        try:
            entries = await files.list_directory(folder)
        except (ToolError, Refused):
            certain = False
            continue
        count += len(entries)
        folders += [posixpath.join(folder, each.name) for each in entries if each.kind is EntryKind.DIRECTORY]
    if count > _MOST_COUNTED:
        return f"more than {_MOST_COUNTED:,} entries"
    return f"{'' if certain else 'at least '}{count:,} {'entry' if count == 1 else 'entries'}"


def _there(path: str, kind: EntryKind | None) -> EntryKind:
    if kind is None:
        raise _permanent(f"{path}: no such file or directory")
    return kind


def _permanent(message: str, suggestion: str = "") -> ToolError:
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, suggestion)
