"""The files in which a project left notes for agents: found below the roots, and read in part.

They are opened like any other file of the session: below its roots, never through a link swapped in, where `deny_read`
lets them be read. Whatever a file is - a FIFO, a gigabyte, a device behind a link - one read of its beginning is all it
gets, in a thread nobody waits for longer than a second.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from anyio import to_thread

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.workspace.paths import told_as
from acp_agent.workspace.roots import Place, Roots
from acp_agent.workspace.text_files import BOM, is_binary

HEAD = 64 * 1024
"""Bytes of a file that are read: more than is shown, so that no secret is cut in half before it is redacted."""
SECONDS = 1.0
"""How long a prompt waits for all of the files."""
_DEEPEST = 16  # folders that are looked into


@dataclass(frozen=True, slots=True)
class NoteFile:
    """The beginning of one file: whole lines, unless the first does not end.

    source   its path, seen from the session's folder; the user's own: absolute
    users    whether it is the user's own
    more     whether the file goes on
    """

    source: str
    text: str
    users: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The user's file first, then the project's from the outermost folder down; and why others were left out."""

    files: tuple[NoteFile, ...] = ()
    troubles: tuple[str, ...] = ()


Look: TypeAlias = Callable[[], Found]


class NoteReader:
    """Looks for notes, one look at a time. Another look begins only when the one before has ended."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._looking = False

    async def read(self, look: Look) -> Found | None:
        """What `look` finds in a thread; None when that takes too long."""
        if self._looking:
            return None
        with anyio.move_on_after(self._seconds):
            return await to_thread.run_sync(self._run, look, abandon_on_cancel=True)
        return None

    def _run(self, look: Look) -> Found:
        self._looking = True
        try:
            return look()
        finally:
            self._looking = False


def project_files(roots: Roots, names: Sequence[str]) -> Found:
    """Of each folder from the repository's down to the session's the first file by one of `names`. Blocks.

    Without a repository the session's folder alone is looked into, and never a folder outside the roots.
    """
    files, troubles = list[NoteFile](), list[str]()
    allowed = frozenset(os.path.basename(name).lower() for name in names)
    for folder in _folders(roots):
        for name in names:
            path = os.path.join(folder, name)
            source = os.path.relpath(path, roots.cwd)
            try:
                file = _project_file(roots, path, source, allowed)
            except (Refused, ToolError) as error:
                troubles.append(f"left out of the prompt: {error}")
                continue
            if file is not None and file.text.strip():
                files.append(file)
                break
    return Found(tuple(files), tuple(troubles))


def _folders(roots: Roots) -> Sequence[str]:
    """The session's folder and those above it, as far as the repository's; outermost first."""
    above = list[str]()
    for folder in _upwards(roots):
        above.insert(0, folder)
        if _has(roots, os.path.join(folder, ".git")):
            return above
    return [roots.cwd]


def _upwards(roots: Roots) -> Iterator[str]:
    folder = roots.cwd
    for _ in range(_DEEPEST):
        yield folder
        folder = os.path.dirname(folder)
        if not _has(roots, folder):
            return


def _has(roots: Roots, path: str) -> bool:
    """Whether there is something at a path that the session may know of."""
    with suppress(Refused, ToolError):
        return roots.place(path, Access.LIST).status() is not None
    return False


def _project_file(roots: Roots, path: str, source: str, allowed: frozenset[str]) -> NoteFile | None:
    """The file; None for nothing. Raises Refused, ToolError."""
    folder = roots.place(os.path.dirname(path), Access.LIST)
    entry = Place(folder.root, os.path.normpath(os.path.join(folder.relative, os.path.basename(path))), source)
    if entry.status() is None:
        return None
    place = roots.place(path, Access.READ)
    if not _is_note(place, allowed):
        raise Refused(f"{source}: a link to {place.name}, which is no file of notes")
    fd = place.open_regular()
    try:
        with told_as(source):
            return beginning(fd, source)
    finally:
        os.close(fd)


def _is_note(place: Place, allowed: frozenset[str]) -> bool:
    """A link in a repository may lead to the notes' real place, but must not send `.env` to the model unasked."""
    name = place.name.lower()
    return name in allowed or name.endswith(".md")


def beginning(fd: int, source: str, *, users: bool = False) -> NoteFile:
    """What an open file begins with. Raises Refused for what is no text, OSError."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{source}: is not a regular file")
    data = os.pread(fd, HEAD, 0).removeprefix(BOM)
    if is_binary(data):
        raise Refused(f"{source}: is not text")
    more = status.st_size > HEAD
    if more:
        data = data.rpartition(b"\n")[0] or data
    return NoteFile(source, data.decode("utf-8", "replace"), users, more)


def users_file(path: str) -> Found:
    """The notes in a file of the user's; nothing where there is none. Blocks, but not on a FIFO or a device."""
    try:
        with told_as(path):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                file = beginning(fd, path, users=True)
            finally:
                os.close(fd)
    except (Refused, ToolError) as error:
        missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
        return Found() if missing else Found(troubles=(f"left out of the prompt: {error}",))
    return Found((file,))
