"""Checks of a move, copy or deletion before the user is asked about it.

Only cheap checks are made. The file system checks everything again when it acts, also the entries below a folder.
"""

import posixpath
import shlex

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.text import visible

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
