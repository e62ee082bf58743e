"""Find and read the files in which a project left notes for agents: AGENTS.md and the like, and `.claude/rules/*.md`.

They are opened like any other file of the session: below its roots, never through a link that was swapped in, and only
if `deny_read` allows it. FIFOs and devices are refused, and only the beginning of a file is read. A thread reads it,
and a prompt waits for the thread at most a second.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

import anyio
from anyio import to_thread

from acp_agent.config.files import RULES_FOLDER, PathStamps
from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.workspace.beneath import errors_about, holding
from acp_agent.workspace.roots import Place, Roots
from acp_agent.workspace.text_files import BOM, UTF_16_BOMS, is_binary

HEAD = 64 * 1024
"""The bytes of a file that are read. Fewer are shown, so that no secret is cut in half before it is redacted."""
SECONDS = 1.0
"""Seconds that a prompt waits for all files."""
_DEEPEST = 16  # folders that are searched
_MOST_RULES = 50  # files of one folder


@frozen
class NoteFile:
    """The beginning of one file: whole lines, unless the first one is too long.

    source   its path relative to the session's folder; absolute for the user's own notes
    users    whether it is the user's own file
    more     whether the file goes on
    """

    source: str
    text: str
    users: bool = False
    more: bool = False


@frozen
class FoundNotes:
    """The files that were found, and why others were left out.

    The user's file comes first, then those of the project from the outermost folder down.
    """

    files: tuple[NoteFile, ...] = ()
    troubles: tuple[str, ...] = ()


Look: TypeAlias = Callable[[], FoundNotes]


class NoteReader:
    """A reader of notes with one look at a time. A new look begins only after the last one has ended."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._looking = False

    async def read(self, look: Look) -> FoundNotes | None:
        """Run `look` in a thread and return its result, or None if that takes too long."""
        if self._looking:
            return None
        with anyio.move_on_after(self._seconds):
            return await to_thread.run_sync(self.look, look, abandon_on_cancel=True)
        return None

    def look(self, look: Look) -> FoundNotes | None:
        """Run `look` and return its result, or None if another look has not ended. It blocks."""
        if self._looking:
            return None
        self._looking = True
        try:
            return look()
        finally:
            self._looking = False


def project_files(roots: Roots, names: Sequence[str], stamps: PathStamps) -> FoundNotes:
    """Return the notes of each folder from the repository's top to the session's: rules, and the first of `names`.

    It blocks. Without a repository only the session's folder is searched. Folders outside the roots are not searched.
    `stamps` gets every path that was looked at.
    """
    files, troubles = list[NoteFile](), list[str]()
    allowed = frozenset(os.path.basename(name).lower() for name in names)

    def read(path: str) -> NoteFile | None:
        """Return a file, or None if it is empty, missing or left out."""
        try:
            file = _project_file(roots, path, os.path.relpath(path, roots.cwd), allowed)
        except (Refused, ToolError) as error:
            stamps.doubt()
            troubles.append(f"left out of the prompt: {error}")
            return None
        return file if file is not None and file.text.strip() else None

    for folder in _folders(roots, stamps):
        for name in names:
            path = os.path.join(folder, name)
            if not stamps.exists(path):  # the usual case, found out with one look at the disk instead of ten
                continue
            if file := read(path):
                files.append(file)
                break
        for name in _rules_in(roots, folder, stamps):
            path = os.path.join(folder, RULES_FOLDER, name)
            stamps.exists(path)
            files += filter(None, (read(path),))
    return FoundNotes(tuple(files), tuple(troubles))


def _rules_in(roots: Roots, folder: str, stamps: PathStamps) -> Sequence[str]:
    """Return the names of the rules of a folder."""
    path = os.path.join(folder, RULES_FOLDER)
    stamps.exists(os.path.dirname(path))  # a later change of it to or from a link must be noticed
    if not has(roots, path, stamps):
        return ()
    with suppress(Refused, ToolError, OSError), holding(roots.place(path, Access.LIST).open_directory()) as fd:
        return _rule_names(os.listdir(fd))
    stamps.doubt()
    return ()


def rules_of(folder: str) -> Sequence[str]:
    """Return the names of the rules of a session's folder, for its client. No link out of the folder is followed."""
    path = os.path.join(os.path.realpath(folder), RULES_FOLDER)
    with suppress(OSError, ValueError):
        if os.path.realpath(path) == path:
            return _rule_names(os.listdir(path))
    return ()


def _rule_names(names: Iterable[str]) -> Sequence[str]:
    return sorted(name for name in names if name.endswith(".md") and not name.startswith("."))[:_MOST_RULES]


def _folders(roots: Roots, stamps: PathStamps) -> Sequence[str]:
    """Return the folders from the repository's top to the session's, outermost first."""
    above = list[str]()
    for folder in _upwards(roots):
        above.insert(0, folder)
        if has(roots, os.path.join(folder, ".git"), stamps):
            return above
    return [roots.cwd]


def _upwards(roots: Roots) -> Iterator[str]:
    folder = roots.cwd
    for _ in range(_DEEPEST):
        yield folder
        folder = os.path.dirname(folder)
        if not _may_list(roots, folder):
            return


def has(roots: Roots, path: str, stamps: PathStamps) -> bool:
    """Return whether anything exists at a path that the session may list. `stamps` gets the path."""
    return stamps.exists(path) and _may_list(roots, path)  # most do not exist: one look at the disk instead of eight


def _may_list(roots: Roots, path: str) -> bool:
    with suppress(Refused, ToolError):
        return roots.place(path, Access.LIST).status() is not None
    return False


def _project_file(roots: Roots, path: str, source: str, allowed: frozenset[str]) -> NoteFile | None:
    """Return the file, or None if there is none. Raises Refused or ToolError."""
    folder = roots.place(os.path.dirname(path), Access.LIST)
    entry = Place(folder.root, os.path.normpath(os.path.join(folder.relative, os.path.basename(path))), source)
    if entry.status() is None:
        return None
    place = roots.place(path, Access.READ)
    name = place.name.lower()
    if name not in allowed and not name.endswith(".md"):  # a link must not send `.env` to the model
        raise Refused(f"{source}: a link to {place.name}, which is no file of notes")
    with holding(place.open_regular()) as fd, errors_about(source):
        return beginning(fd, source)


def beginning(fd: int, source: str, *, users: bool = False) -> NoteFile:
    """Return the beginning of an open file. Raises Refused if it is no text, and OSError."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{source}: is not a regular file")
    data = os.pread(fd, HEAD, 0).removeprefix(BOM)
    if data.startswith(UTF_16_BOMS):
        data = data.decode("utf-16", "replace").encode()
    if is_binary(data):
        raise Refused(f"{source}: is not text")
    more = status.st_size > HEAD
    if more:
        data = data.rpartition(b"\n")[0] or data
    return NoteFile(source, data.decode("utf-8", "replace"), users, more)


def users_file(path: str, stamps: PathStamps) -> FoundNotes:
    """Return the notes in a file of the user, if it exists. It blocks, but not on a FIFO or a device.

    `stamps` gets the path.
    """
    stamps.exists(path)
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with errors_about(path), holding(os.open(path, flags)) as fd:
            file = beginning(fd, path, users=True)
    except (Refused, ToolError) as error:
        missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
        if not missing:
            stamps.doubt()
        return FoundNotes() if missing else FoundNotes(troubles=(f"left out of the prompt: {error}",))
    return FoundNotes((file,))
