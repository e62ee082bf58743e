"""list_directory, create_directory, copy_path, move_path and delete_path: the tools of whole files and folders.

Before the user is asked only cheap checks are made. The file system checks everything again when it acts, also the
entries below a folder.
"""

import posixpath
import shlex
from dataclasses import replace

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import Access, JsonObject, Location, PathSubject, Subject, ToolCall, ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import counted, title, visible
from acp_agent.tools.tool import Name, P, Params, Tool
from acp_agent.workspace.entries import into_itself, no_whole_path, taken
from acp_agent.workspace.seen_files import SeenFiles

_ORDER = (EntryKind.DIRECTORY, EntryKind.FILE, EntryKind.SYMLINK, EntryKind.OTHER)
_WORDS = {EntryKind.DIRECTORY: "directory", EntryKind.SYMLINK: "link", EntryKind.OTHER: "special file"}
_MOST_COUNTED = 1000
_NOT_UTF_8 = "[\ufffd stands for bytes that are not UTF-8: only commands open such an entry, and searches leave it out]"


class ListDirectoryParams(Params):
    """List a folder: one entry a line, with its kind."""

    path: Name = "."


class ListDirectory(Tool[ListDirectoryParams]):
    """The tool that lists a folder without following links: a link is shown as a link, wherever it leads.

    max_entries   the most entries that are shown. A longer list is cut, with the number of the entries left out
    """

    name = "list_directory"
    verb = "list"
    mutates = False
    cacheable = True

    def __init__(self, *, max_entries: int = 1000, kind: ToolKind = ToolKind.SEARCH) -> None:
        self._max_entries = max_entries
        self.kind = kind

    def title(self, params: ListDirectoryParams) -> str:
        return f"{self.verb} {title(params.path).rstrip('/')}/"

    def subjects(self, params: ListDirectoryParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def run(self, params: ListDirectoryParams, context: ToolContext) -> ToolResult:
        entries = await context.files.list_directory(params.path)
        if not entries:
            return ToolResult(f"Empty directory: {visible(params.path)}")
        ordered = sorted(entries, key=lambda entry: (_ORDER.index(entry.kind), entry.name))
        lines = [f"[{entry.kind}] {visible(entry.name)}" for entry in ordered[: self._max_entries]]
        if len(ordered) > len(lines):
            lines.append(f"[{len(ordered) - len(lines)} more: the first {len(lines)} are shown]")
        if any("\ufffd" in line for line in lines):
            lines.append(_NOT_UTF_8)
        return ToolResult("\n".join(lines))


class _PathTool(Tool[P]):
    """A tool that changes whole files and folders.

    seen   the session's record of the files it knows
    """

    mutates = True

    def __init__(self, seen: SeenFiles, *, kind: ToolKind = ToolKind.OTHER) -> None:
        self._seen = seen
        self.kind = kind


class CreateDirectoryParams(Params):
    """Create a folder, and the folders above it that are missing."""

    path: Name


class CreateDirectory(_PathTool[CreateDirectoryParams]):
    """The tool that creates folders. A folder that already exists is not an error."""

    name = "create_directory"
    verb = "create folder"

    def subjects(self, params: CreateDirectoryParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.WRITE),)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation. The user is not asked about a folder that already exists, because nothing changes."""
        invocation = await super().understand(call, arguments, files)
        path = self.parse(arguments).path
        if invocation.predicted_failure is None and await self._kind(files, path) is EntryKind.DIRECTORY:
            return replace(invocation, predicted_failure=self._result(path, made=False))
        return invocation

    async def summary(self, params: CreateDirectoryParams, files: FileSystem) -> str:
        files.resolve(params.path, Access.WRITE)
        if await self._kind(files, params.path) not in (None, EntryKind.DIRECTORY):
            raise ToolError.permanent(f"{params.path}: exists and is not a directory")
        return f"creates the folder {_named(params.path)}"

    async def run(self, params: CreateDirectoryParams, context: ToolContext) -> ToolResult:
        return self._result(params.path, made=await context.files.make_directory(params.path))

    async def _kind(self, files: FileSystem, path: str) -> EntryKind | None:
        """Return what is at the path. None if there is nothing, or if it may not be looked at."""
        try:
            return await files.kind(path)
        except (ToolError, Refused):
            return None

    def _result(self, path: str, *, made: bool) -> ToolResult:
        return ToolResult(f"{'Created directory' if made else 'Directory already exists'}: {visible(path)}")


class _TwoPaths(Params):
    source: Name
    destination: Name = Field(description='New path; if it ends with "/", the folder to put it in')

    @property
    def target(self) -> str:
        """The path that the source gets: inside of a destination that ends with "/", else the destination itself."""
        name = posixpath.basename(posixpath.normpath(self.source))
        into = self.destination.endswith("/") and name not in ("", ".", "..")
        return f"{self.destination}{name}" if into else self.destination

    @property
    def title(self) -> str:
        """Both paths, each cut by itself, so that a long source cannot hide the destination."""
        return f"{title(self.source)} -> {title(self.target)}"


class CopyPathParams(_TwoPaths):
    """Copy a file or a whole folder, creating folders as needed. Nothing is ever replaced; links are left out."""


class CopyPath(_PathTool[CopyPathParams]):
    """The tool that copies a file or a folder."""

    name = "copy_path"

    def title(self, params: CopyPathParams) -> str:
        return f"copy {params.title}"

    def subjects(self, params: CopyPathParams) -> tuple[Subject, ...]:
        # LIST is enough here: for each file that is copied, the file system checks whether it may be read.
        return (PathSubject(params.source, Access.LIST), PathSubject(params.target, Access.WRITE))

    async def summary(self, params: CopyPathParams, files: FileSystem) -> str:
        kind = await files.kind(params.source)
        if kind is EntryKind.FILE:
            files.resolve(params.source, Access.READ)
        elif kind is None:
            raise _missing(params.source)
        elif kind is not EntryKind.DIRECTORY:
            raise ToolError.permanent(f"{params.source}: is neither a file nor a directory")
        await _refuse_taken(files, params, kind, Access.LIST)
        return f"copies {_named(params.source)} to {_named(params.target)}"

    async def run(self, params: CopyPathParams, context: ToolContext) -> ToolResult:
        target = context.files.resolve(params.target, Access.WRITE)
        copied = await context.files.copy(params.source, params.target)
        self._seen.forget(target)  # notes on an earlier file at this path
        text = f"Copied {visible(params.source)} to {visible(params.target)}"
        if copied.kind is not EntryKind.DIRECTORY:
            return ToolResult(text, locations=(Location(target),))
        count = counted(copied.files, "file")
        if copied.left_out:
            entries = counted(copied.left_out, "entry", "entries")
            count = f"{count}; {entries} left out: links, special or unreadable files"
        return ToolResult(f"{text} ({count})")


class MovePathParams(_TwoPaths):
    """Move or rename a file or folder, creating folders as needed. Nothing is ever replaced."""


class MovePath(_PathTool[MovePathParams]):
    """The tool that moves a file or a folder. A link itself is moved."""

    name = "move_path"

    def title(self, params: MovePathParams) -> str:
        return f"move {params.title}"

    def subjects(self, params: MovePathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.source, Access.MOVE), PathSubject(params.target, Access.WRITE))

    async def summary(self, params: MovePathParams, files: FileSystem) -> str:
        kind = await _entry_kind(files, params.source, Access.MOVE)
        await _refuse_taken(files, params, kind, Access.MOVE)
        return f"moves {_named(params.source)} to {_named(params.target)}"

    async def run(self, params: MovePathParams, context: ToolContext) -> ToolResult:
        files = context.files
        old, new = files.resolve(params.source, Access.MOVE), files.resolve(params.target, Access.WRITE)
        await files.move(params.source, params.target)
        self._seen.move(old, new)
        return ToolResult(f"Moved {visible(params.source)} to {visible(params.target)}")


class DeletePathParams(Params):
    """Delete a file, a link (not what it leads to) or an empty folder."""

    path: Name
    recursive: bool = Field(default=False, description="Delete a folder with everything in it")


class DeletePath(_PathTool[DeletePathParams]):
    """The tool that deletes a file, a link or a folder."""

    name = "delete_path"
    verb = "delete"

    def subjects(self, params: DeletePathParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.DELETE),)

    async def summary(self, params: DeletePathParams, files: FileSystem) -> str:
        path = _named(params.path)
        kind = await _entry_kind(files, params.path, Access.DELETE)
        if kind is EntryKind.SYMLINK:
            return f"deletes the link {path}, not what it leads to"
        if kind is EntryKind.DIRECTORY and params.recursive:
            return f"deletes {path} and everything in it ({await _contents(files, params.path)})"
        if kind is EntryKind.DIRECTORY:
            await self._refuse_filled(files, params.path)
            return f"deletes the empty folder {path}"
        return f"deletes {path}{' and everything in it' if kind is None and params.recursive else ''}"

    async def run(self, params: DeletePathParams, context: ToolContext) -> ToolResult:
        path = context.files.resolve(params.path, Access.DELETE)
        deleted = await context.files.delete(params.path, recursive=params.recursive)
        self._seen.forget(path)
        text = f"Deleted {_WORDS.get(deleted.kind, 'file')}: {visible(params.path)}"
        if deleted.kind is EntryKind.DIRECTORY:
            text = f"{text} ({counted(deleted.below, 'entry', 'entries')})"
        return ToolResult(text)

    async def _refuse_filled(self, files: FileSystem, path: str) -> None:
        try:
            entries = await files.list_directory(path)
        except (ToolError, Refused):  # an empty folder may be deleted even if it may not be listed
            return
        if entries:
            advice = "Set recursive=true to delete it with everything in it."
            raise ToolError.permanent(f"{path}: the directory is not empty", advice)


# ---------------------------------------------------------------------------- what a call would do


def _named(path: str) -> str:
    """Return a path for use in a sentence. It is quoted if it could be taken for words of the sentence."""
    return shlex.quote(visible(path))


async def _entry_kind(files: FileSystem, path: str, access: Access) -> EntryKind | None:
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
    if kind is None:
        raise _missing(path)
    return kind


async def _refuse_taken(files: FileSystem, params: _TwoPaths, kind: EntryKind | None, access: Access) -> None:
    """Raise ToolError if a source of this kind is known not to fit at its target."""
    target = params.target
    old, new = files.resolve(params.source, access), files.resolve(target, Access.WRITE)
    if kind is EntryKind.DIRECTORY and new.startswith(f"{old}/"):
        raise into_itself(params.source, target)
    try:
        there, above = await files.kind(target), await files.kind(posixpath.dirname(new))
    except Refused:  # it may not be looked at: the move or copy reports it
        return
    if there is EntryKind.DIRECTORY:
        raise no_whole_path(target, posixpath.basename(old))
    if there is not None:
        raise taken(target)
    if above not in (None, EntryKind.DIRECTORY):
        raise ToolError.permanent(f"{target}: a part of the path is a file, not a directory")


async def _contents(files: FileSystem, path: str) -> str:
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
    return f"{'' if certain else 'at least '}{counted(count, 'entry', 'entries')}"


def _missing(path: str) -> ToolError:
    return ToolError.permanent(f"{path}: no such file or directory")
