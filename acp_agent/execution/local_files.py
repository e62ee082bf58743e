"""LocalFileSystem: the session's files on this machine, below its roots and nowhere else (T4)."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anyio import to_thread
from anyio.from_thread import check_cancelled

from acp_agent.core.backends import (
    Copied,
    Deleted,
    Entry,
    EntryKind,
    FoundPaths,
    GrepMatches,
    GrepQuery,
    Lines,
)
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.execution import tree_change, tree_copy, tree_delete
from acp_agent.execution.atomic_write import replace_file
from acp_agent.execution.file_lines import read_lines
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.text_files import BOM, decode_text, encode_text, read_bounded

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a file on disk, and how many it has in all."""

    data: bytes
    size: int


class LocalFileSystem:
    """The FileSystem on this machine.

    read_limit    bytes of the largest file that is read
    write_limit   bytes of the largest text that is written (A23.2)
    ripgrep       the program that searches where it exists: a name on PATH or a path; None = never

    Blocking work runs in threads. A thread is always waited for: what it opened is closed and what it wrote is
    whole when a method returns or is cancelled.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        read_limit: int = 32 * 1024 * 1024,
        write_limit: int = 10 * 1024 * 1024,
        ripgrep: str | None = "rg",
    ) -> None:
        self._roots = roots
        self._read_limit = read_limit
        self._write_limit = write_limit
        self._ripgrep = ripgrep

    def resolve(self, path: str, access: Access) -> str:
        return self._roots.resolve(path, access)

    async def read_text(self, path: str) -> str:
        return await _in_thread(lambda: self._read(path))

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        return await _in_thread(lambda: read_lines(self._place(path), offset, limit, check_cancelled))

    async def read_bytes(self, path: str, limit: int) -> bytes:
        return await _in_thread(lambda: self._read_bytes(path, limit))

    async def head(self, path: str, length: int) -> Head | None:
        """How a regular file on disk begins; None when there is nothing at the path.

        Not of the port: for a backend before this one, which must know what it would ask its editor for.
        """
        return await _in_thread(lambda: self._head(path, length))

    async def kind(self, path: str) -> EntryKind | None:
        return await _in_thread(lambda: self._kind(path))

    async def write_text(self, path: str, text: str) -> None:
        await _in_thread(lambda: self._write(path, text))

    async def make_directory(self, path: str) -> bool:
        return await _in_thread(lambda: tree_change.make_directory(self._roots, path))

    async def delete(self, path: str, *, recursive: bool) -> Deleted:
        return await _in_thread(lambda: tree_delete.delete(self._roots, path, recursive=recursive))

    async def move(self, source: str, destination: str) -> None:
        await _in_thread(lambda: tree_change.move(self._roots, source, destination))

    async def copy(self, source: str, destination: str) -> Copied:
        return await _in_thread(lambda: tree_copy.copy(self._roots, source, destination))

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        return await _in_thread(lambda: self._list(path))

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        from acp_agent.execution import find  # noqa: PLC0415 - its engines cost more to load than a session

        return await _in_thread(lambda: find.find_paths(self._roots, path, pattern, limit))

    async def grep(self, query: GrepQuery) -> GrepMatches:
        from acp_agent.execution import search  # noqa: PLC0415 - its engines cost more to load than a session

        return await search.grep(self._roots, query, self._ripgrep, self._read_limit)

    def _place(self, path: str) -> Place:
        return self._roots.place(path, Access.READ)

    def _read(self, path: str) -> str:
        place = self._place(path)
        return decode_text(_bytes_of(place, self._read_limit), place.given)

    def _read_bytes(self, path: str, limit: int) -> bytes:
        return _bytes_of(self._place(path), limit)

    def _head(self, path: str, length: int) -> Head | None:
        place = self._place(path)
        if place.status() is None:
            return None
        fd = place.open_regular()
        try:
            with told_as(place.given):
                return Head(os.pread(fd, length, 0), os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def _kind(self, path: str) -> EntryKind | None:
        status = self._roots.place(path, Access.LIST).status()
        return None if status is None else kind_of(status.st_mode)

    def _write(self, path: str, text: str) -> None:
        place = self._roots.place(path, Access.WRITE)
        data = encode_text(text, place.given, self._write_limit)
        if place.relative == "." or place.given.endswith("/"):
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{place.given}: names a directory, not a file")
        with told_as(place.given):
            made = _make_parents(place)
            try:
                self._replace(place, data)
            except BaseException:
                place.root.remove_directories(made)
                raise

    def _replace(self, place: Place, data: bytes) -> None:
        """Write where the parents exist. The old file must be text that we may write to."""
        old = self._old(place)
        bom = BOM if old is not None and old[0].startswith(BOM) and not data.startswith(BOM) else b""
        directory = place.root.open_directory(place.parent)
        try:
            replace_file(directory, place.name, bom + data, old[1] if old is not None else None)
        finally:
            os.close(directory)

    def _old(self, place: Place) -> tuple[bytes, os.stat_result] | None:
        try:
            # Opened for writing too, so that a read-only file stays what its owner made it.
            fd = place.root.open_regular(place.relative, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            data = read_bounded(fd, self._read_limit, place.given)
            decode_text(data, place.given)
            return data, os.fstat(fd)
        finally:
            os.close(fd)

    def _list(self, path: str) -> tuple[Entry, ...]:
        place = self._roots.place(path, Access.LIST)
        with told_as(place.given):
            fd = place.root.open_directory(place.relative)
            try:
                with os.scandir(fd) as entries:
                    found = [_entry(entry) for entry in entries if self._may_show(place, entry)]
            finally:
                os.close(fd)
        return tuple(sorted((entry for entry in found if entry is not None), key=lambda entry: entry.name))

    def _may_show(self, place: Place, entry: "os.DirEntry[str]") -> bool:
        """A directory that may be listed, anything else that may be read (T4.21)."""
        access = Access.LIST if entry.is_dir(follow_symlinks=False) else Access.READ
        return self._roots.allows(os.path.join(place.path, entry.name), access)


def _bytes_of(place: Place, limit: int) -> bytes:
    fd = place.open_regular()
    try:
        with told_as(place.given):
            return read_bounded(fd, limit, place.given)
    finally:
        os.close(fd)


def _make_parents(place: Place) -> list[str]:
    try:
        os.close(place.root.open_directory(place.parent))
    except FileNotFoundError:
        return place.root.make_directories(place.parent)
    return []


def _entry(entry: "os.DirEntry[str]") -> Entry | None:
    """What lstat says; None when the entry vanished meanwhile. Bytes that are no UTF-8 show as U+FFFD."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    name = os.fsencode(entry.name).decode("utf-8", "replace")
    return Entry(name, kind_of(status.st_mode), status.st_size)


def kind_of(mode: int) -> EntryKind:
    """The kind of an entry, by its lstat mode."""
    match stat.S_IFMT(mode):
        case stat.S_IFDIR:
            return EntryKind.DIRECTORY
        case stat.S_IFREG:
            return EntryKind.FILE
        case stat.S_IFLNK:
            return EntryKind.SYMLINK
        case _:
            return EntryKind.OTHER


async def _in_thread(work: Callable[[], T]) -> T:
    return await to_thread.run_sync(work)
