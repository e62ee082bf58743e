"""What is known of a change to the tree before anybody is asked about it (requirements A20, T4.19, T4.20).

Only what is cheap to know. The file system judges everything once more, and what is below a folder, when it acts.
"""

import posixpath
import shlex

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.tools.visible import visible

_MOST_COUNTED = 1000


def named(path: str) -> str:
    """A path inside a sentence: quoted where it could be taken for more words of it."""
    return shlex.quote(visible(path))


def landing(source: str, destination: str) -> str:
    """Where a source goes: into a destination that ends in "/", under its own name; else to just that path."""
    name = posixpath.basename(posixpath.normpath(source))
    return f"{destination}{name}" if destination.endswith("/") and name not in ("", ".", "..") else destination


async def entry_kind(files: FileSystem, path: str, access: Access) -> EntryKind | None:
    """What an entry that is to be moved or deleted is, a link being a link; None where nobody may know.

    Raises ToolError when there is nothing, and Refused for the session's folder and what it lies in.
    """
    real = files.resolve(path, access)
    if f"{files.resolve('.', Access.LIST)}/".startswith(f"{real}/"):
        raise Refused(f"{path}: is a directory of this session, or has one below it", "Name what is in it instead.")
    try:
        target = files.resolve(path, Access.LIST)
        kind = await files.kind(path)
    except (ToolError, Refused):  # a link that leads out or nowhere, or something hidden
        return None
    if target != real:
        return EntryKind.SYMLINK
    return _there(path, kind)


async def source_kind(files: FileSystem, path: str) -> EntryKind:
    """What is to be copied is, links followed. Raises ToolError or Refused when it cannot be copied."""
    kind = _there(path, await files.kind(path))
    if kind is EntryKind.FILE:
        files.resolve(path, Access.READ)
    elif kind is not EntryKind.DIRECTORY:
        raise _permanent(f"{path}: is neither a file nor a directory")
    return kind


async def refuse_taken(
    files: FileSystem, source: str, kind: EntryKind | None, destination: str, access: Access
) -> None:
    """Raise ToolError when a source of this kind, touched by `access`, is known not to get the path `destination`."""
    old, new = files.resolve(source, access), files.resolve(destination, Access.WRITE)
    if kind is EntryKind.DIRECTORY and new.startswith(f"{old}/"):
        msg = f"{source} -> {destination}: a directory cannot hold itself"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
    try:
        there, above = await files.kind(destination), await files.kind(posixpath.dirname(new))
    except Refused:  # nobody may know what is there; the move or copy will tell
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
    """How many entries there are below a folder, in words; it counts no further than a thousand."""
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
