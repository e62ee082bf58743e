"""LocalFileSystem: the session's files on this machine, below its roots and nowhere else (T4)."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
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
from acp_agent.core.new_file import is_temporary
from acp_agent.core.types import Access
from acp_agent.execution import tree_change, tree_copy, tree_delete
from acp_agent.execution.atomic_write import OldFile, replace_file
from acp_agent.execution.entry_kind import kind_of
from acp_agent.execution.file_lines import read_lines
from acp_agent.execution.landing import landing
from acp_agent.execution.path_errors import not_a_directory, told_as
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.text_files import BOM, changed_error, decode_text, encode_text, read_bounded
from acp_agent.execution.tree_descent import holding

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

    async def write_text(self, path: str, text: str, *, expected: str | None) -> None:
        await _in_thread(lambda: self._write(path, text, expected))

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
        return await _in_thread(lambda: self._find(path, pattern, limit))

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

    def _write(self, path: str, text: str, expected: str | None) -> None:
        place = self._roots.place(path, Access.WRITE)
        data = encode_text(text, place.given, self._write_limit)
        if place.relative == "." or place.given.endswith("/"):
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{place.given}: names a directory, not a file")
        with landing(place) as directory, self._old(place) as old:
            now = None if old is None else decode_text(old.data, place.given)
            if old is not None and old.data.startswith(BOM) and not data.startswith(BOM):
                data = BOM + data
            if now != expected or not replace_file(directory, place.name, data, old):
                raise changed_error(place.given)

    @contextmanager
    def _old(self, place: Place) -> Generator[OldFile | None]:
        """The file there is. Opened for writing too, so that a read-only one stays what its owner made it."""
        try:
            fd = place.root.open_regular(place.relative, os.O_RDWR)
        except FileNotFoundError:
            fd = None
        if fd is None:
            yield None
            return
        with holding(fd):
            status = os.fstat(fd)
            yield OldFile(fd, status, read_bounded(fd, self._read_limit, place.given))

    def _find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        from acp_agent.execution import find  # noqa: PLC0415 - its engines cost more to load than a session

        with self._needing_a_directory(path):
            return find.find_paths(self._roots, path, pattern, limit)

    def _list(self, path: str) -> tuple[Entry, ...]:
        place = self._roots.place(path, Access.LIST)
        with (
            self._needing_a_directory(path),
            holding(place.open_directory()) as fd,
            told_as(place.given),
            os.scandir(fd) as entries,
        ):
            found = [_entry(entry) for entry in entries if self._may_show(place, entry)]
        return tuple(sorted((entry for entry in found if entry is not None), key=lambda entry: entry.name))

    @contextmanager
    def _needing_a_directory(self, path: str) -> Generator[None]:
        """Tell a path that is a file from one that leads through a file: to the kernel they are one error."""
        try:
            yield
        except ToolError as error:
            if isinstance(error.__cause__, NotADirectoryError) and self._kind(path) is not None:
                raise not_a_directory(path) from error
            raise

    def _may_show(self, place: Place, entry: "os.DirEntry[str]") -> bool:
        """A directory that may be listed, anything else that may be read (T4.21); nothing half written."""
        if is_temporary(entry.name):
            return False
        access = Access.LIST if entry.is_dir(follow_symlinks=False) else Access.READ
        return self._roots.allows(os.path.join(place.path, entry.name), access)


def _bytes_of(place: Place, limit: int) -> bytes:
    fd = place.open_regular()
    try:
        with told_as(place.given):
            return read_bounded(fd, limit, place.given)
    finally:
        os.close(fd)


def _entry(entry: "os.DirEntry[str]") -> Entry | None:
    """What lstat says; None when the entry vanished meanwhile. Bytes that are no UTF-8 show as U+FFFD."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    name = os.fsencode(entry.name).decode("utf-8", "replace")
    return Entry(name, kind_of(status.st_mode), status.st_size)


async def _in_thread(work: Callable[[], T]) -> T:
    return await to_thread.run_sync(work)
