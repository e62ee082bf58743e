"""LocalFileSystem: the session's files on this machine, below its roots and nowhere else."""

import os
import stat
from bisect import bisect_left
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from anyio import to_thread
from anyio.from_thread import check_cancelled

from acp_agent.core.backends import (
    Copied,
    Deleted,
    Entry,
    EntryKind,
    FileHead,
    FoundPaths,
    GrepMatches,
    GrepQuery,
    Lines,
)
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.new_file import is_temporary
from acp_agent.core.types import Access
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace import entries, tree_changes
from acp_agent.workspace.beneath import errors_about, holding, kind_of
from acp_agent.workspace.entries import OldFile, open_destination, replace_file
from acp_agent.workspace.roots import Place, Roots
from acp_agent.workspace.text_files import (
    BOM,
    MOST_COMPARED,
    MOST_WHOLE,
    UTF_16_BOMS,
    TextDigest,
    changed_error,
    cut_line,
    decode_text,
    encode_like,
    encode_text,
    encoding_of,
    is_binary,
    no_utf_8_error,
    read_bounded,
    stretch,
)

LONGEST_LINE = 1024 * 1024
"""The most bytes of a line that are returned."""
MOST_KEPT = 16 * 1024 * 1024
"""The bytes of lines after which no further line is returned, however many were asked for."""
_CHUNK = 256 * 1024  # stays in a processor's cache while it is read, searched and counted
_SIZE_UNKNOWN = 32 * 1024 * 1024  # the most bytes read of a file that claims to be empty, as those of /proc do
_AT_ONCE = 64 * 1024
"""The most bytes that are read without a thread."""


def read_lines(
    place: Place,
    offset: int,
    limit: int,
    check: Callable[[], None],
    *,
    chunk: int = _CHUNK,
    most_counted: int = MOST_COMPARED,
) -> Lines:
    """Return some lines of a file, as TextFiles.read_lines does, at most LONGEST_LINE and MOST_KEPT bytes.

    A file of at most MOST_COMPARED bytes that is not UTF-8 is read in its own encoding (`encoding_of`). Of a larger
    one, only the requested lines must be UTF-8. Any other file with a NUL is binary. Only a part of a file over
    `most_counted` bytes is read for its last lines, and only a NUL in this part counts. `check` is called between
    chunks of `chunk` bytes and ends the reading by raising.
    """
    with holding(place.open_regular()) as fd, errors_about(place.given):
        size = os.fstat(fd).st_size
        reading = _Reading(fd, size, place.given, check, chunk)
        last = reading.last_lines(-offset, limit) if offset < 0 and size > most_counted else None
        try:
            return last or reading.lines(offset, limit)
        except _NotUtf8:
            data = read_bounded(fd, MOST_COMPARED, place.given)
        return stretch(decode_text(data, place.given), offset, limit, encoding_of(data))


class _NotUtf8(Exception):
    """The file is small enough to be read in another encoding."""


@dataclass(slots=True)
class _Reading:
    """One reading of an open file of `size` bytes."""

    fd: int
    size: int
    given: str
    check: Callable[[], None]
    chunk: int
    whole: bytearray = field(default_factory=bytearray)

    def lines(self, offset: int, limit: int) -> Lines:
        starts, ends, total, digest = self._count()
        first = min(offset, total) if offset >= 0 else max(total + offset, 0)
        wanted = max(min(limit, total - first), 0)
        lines = self._decoded(self._position(first, starts, ends), wanted) if wanted else ()
        whole = self.whole.decode(errors="replace") if self.size <= MOST_WHOLE else None
        return Lines(lines, first, total, digest if self.size <= MOST_COMPARED else "", whole)

    def last_lines(self, number: int, limit: int) -> Lines | None:
        """Return the first `limit` of the last `number` lines; None if the file does not have more lines than that.

        The file is read from its end. Raises ToolError for a file that is not a text.
        """
        beginning = os.pread(self.fd, self.chunk, 0)
        if is_binary(beginning):
            raise self._unreadable(beginning)
        missing, position = number, self.size
        while position > 0:
            self.check()
            start = max(position - self.chunk, 0)
            chunk = os.pread(self.fd, position - start, start)
            if is_binary(chunk):
                raise self._unreadable(chunk)
            body = chunk.removesuffix(b"\n") if position == self.size else chunk
            ends = body.count(b"\n")
            if ends >= missing:
                line_start = start + len(body) - len(body.split(b"\n", ends - missing + 1)[-1])
                return Lines(self._decoded(line_start, min(limit, number)), -number, None)
            missing, position = missing - ends, start
        return None

    def _decoded(self, position: int, wanted: int) -> tuple[str, ...]:
        """Return at most `wanted` lines from a byte on. Raises ToolError if they are not UTF-8."""
        try:
            return tuple(line.decode() for line in self._keep(position, wanted)) if wanted else ()
        except UnicodeDecodeError:
            raise self._unreadable(b"") from None

    def _unreadable(self, chunk: bytes) -> ToolError:
        """Return the error for a file with this chunk in it. The file's first bytes may show its encoding."""
        return no_utf_8_error(self.given, os.pread(self.fd, len(BOM), 0) + chunk, self.size)

    def _count(self) -> tuple[list[int], list[int], int, str]:
        """Return the start of each chunk, the number of line ends before it, the number of lines, and the digest."""
        starts, ends, seen, last, digest = list[int](), list[int](), 0, b"\n", TextDigest()
        decoder = getincrementaldecoder("utf-8")()
        position = len(BOM) if os.pread(self.fd, len(BOM), 0) == BOM else 0
        for chunk in self._chunks(position):
            small = self.size <= MOST_COMPARED
            if is_binary(chunk):
                marked = small and os.pread(self.fd, 2, 0) in UTF_16_BOMS
                raise _NotUtf8 if marked else self._unreadable(chunk)
            if small:
                self._check_utf_8(decoder, chunk)
            starts.append(position)
            ends.append(seen)
            position += len(chunk)
            seen += chunk.count(b"\n")
            last = chunk
            if position <= MOST_COMPARED:
                digest.update(chunk)
            if self.size <= MOST_WHOLE:
                self.whole += chunk
        if self.size <= MOST_COMPARED:
            self._check_utf_8(decoder, b"", last=True)
        return starts, ends, seen + (not last.endswith(b"\n")), digest.hexdigest()

    def _check_utf_8(self, decoder: IncrementalDecoder, chunk: bytes, *, last: bool = False) -> None:
        try:
            decoder.decode(chunk, last)
        except UnicodeDecodeError:
            raise _NotUtf8 from None

    def _position(self, line: int, starts: list[int], ends: list[int]) -> int:
        """Return the byte at which an existing line starts."""
        if line == 0:
            return starts[0]
        number = bisect_left(ends, line) - 1  # the last chunk with fewer line ends before it
        chunk = os.pread(self.fd, self.chunk, starts[number])
        return starts[number] + len(chunk) - len(chunk.split(b"\n", line - ends[number])[-1])

    def _keep(self, position: int, wanted: int) -> list[bytes]:
        """Return at most `wanted` lines from a byte on."""
        kept, size, line = list[bytes](), 0, b""
        for chunk in self._chunks(position):
            *ended, rest = chunk.split(b"\n", wanted - len(kept))
            for piece in ended:
                kept.append(cut_line(line + piece, LONGEST_LINE))
                size, line = size + len(kept[-1]), b""
                if len(kept) == wanted or size >= MOST_KEPT:
                    return kept
            if len(line) <= LONGEST_LINE:
                line += rest
        return [*kept, cut_line(line, LONGEST_LINE)] if line else kept

    def _chunks(self, position: int) -> Iterator[bytes]:
        end = self.size or _SIZE_UNKNOWN
        while position < end and (chunk := os.pread(self.fd, min(self.chunk, end - position), position)):
            self.check()
            yield chunk
            position += len(chunk)


class LocalFileSystem:
    """The FileSystem on this machine.

    read_limit    the size in bytes of the largest file that is read
    write_limit   the size in bytes of the largest text that is written
    ripgrep       the program that searches: a name beside this Python or on PATH, or a path

    Blocking work runs in threads, except looks at one entry and at the head of a file, which take less time than a
    thread. A method always waits for its thread, even if it is cancelled: afterwards all that the thread opened is
    closed, and all that it wrote is complete.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        read_limit: int = 32 * 1024 * 1024,
        write_limit: int = 10 * 1024 * 1024,
        ripgrep: str = "rg",
    ) -> None:
        self._roots = roots
        self._read_limit = read_limit
        self._write_limit = write_limit
        self._ripgrep = ripgrep

    def resolve(self, path: str, access: Access) -> str:
        return self._roots.resolve_readable(path, access)

    async def read_text(self, path: str) -> str:
        return await to_thread.run_sync(self._read, path)

    async def read_lines(self, path: str, offset: int, limit: int) -> Lines:
        def read() -> Lines:
            return read_lines(self._roots.place(path, Access.READ), offset, limit, check_cancelled)

        return await to_thread.run_sync(read)

    async def read_bytes(self, path: str, limit: int) -> bytes:
        return await to_thread.run_sync(lambda: _bytes_of(self._roots.place(path, Access.READ), limit))

    async def head(self, path: str, length: int) -> FileHead | None:
        """Return the beginning of a regular file on disk, or None if nothing is at the path.

        This method is not in the FileSystem port. The backend that reads files through the editor calls it first.
        """
        place = self._roots.place(path, Access.READ)
        status = place.status()
        if status is None:
            return None
        if min(status.st_size, length) <= _AT_ONCE:
            return _head_of(place, length)
        return await to_thread.run_sync(_head_of, place, length)

    async def kind(self, path: str) -> EntryKind | None:
        return self._kind(path)

    async def write_text(self, path: str, text: str, *, expected: str | None) -> str:
        await to_thread.run_sync(self._write, path, text, expected)
        return text

    async def make_directory(self, path: str) -> bool:
        return await to_thread.run_sync(tree_changes.make_directory, self._roots, path)

    async def delete(self, path: str, *, recursive: bool) -> Deleted:
        return await to_thread.run_sync(lambda: entries.delete(self._roots, path, recursive=recursive))

    async def move(self, source: str, destination: str) -> None:
        await to_thread.run_sync(tree_changes.move, self._roots, source, destination)

    async def copy(self, source: str, destination: str) -> Copied:
        return await to_thread.run_sync(tree_changes.copy, self._roots, source, destination)

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        return await to_thread.run_sync(self._list, path)

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        return await to_thread.run_sync(self._find, path, pattern, limit)

    async def grep(self, query: GrepQuery) -> GrepMatches:
        from acp_agent.workspace import search  # noqa: PLC0415 - its engines cost more to load than a session

        return await search.grep(self._roots, query, self._ripgrep, self._read_limit)

    def _read(self, path: str) -> str:
        place = self._roots.place(path, Access.READ)
        return decode_text(_bytes_of(place, self._read_limit), place.given)

    def _kind(self, path: str) -> EntryKind | None:
        status = self._roots.place(path, Access.LIST).status()
        return None if status is None else kind_of(status.st_mode)

    def _write(self, path: str, text: str, expected: str | None) -> None:
        place = self._roots.place(path, Access.WRITE)
        data = encode_text(text, place.given, self._write_limit)
        if place.relative == "." or place.given.endswith("/"):
            raise ToolError.permanent(f"{place.given}: names a directory, not a file")
        with open_destination(place) as directory, self._old(place) as old:
            now = None if old is None else decode_text(old.data, place.given)
            if old is not None:
                data = encode_like(text, old.data, data, place.given)
            if now != expected or not replace_file(directory, place.name, data, old):
                raise changed_error(place.given)

    @contextmanager
    def _old(self, place: Place) -> Generator[OldFile | None]:
        """Yield the existing file. It is opened for writing too, so that a read-only file is not replaced."""
        try:
            fd = place.root.open_regular(place.relative, os.O_RDWR)
        except FileNotFoundError:
            yield None
            return
        with holding(fd):
            status = os.fstat(fd)
            yield OldFile(fd, status, read_bounded(fd, self._read_limit, place.given))

    def _find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        from acp_agent.workspace import tree_walk  # noqa: PLC0415 - its engines cost more to load than a session

        with self._needing_a_directory(path):
            return tree_walk.find_paths(self._roots, path, pattern, limit)

    def _list(self, path: str) -> tuple[Entry, ...]:
        place = self._roots.place(path, Access.LIST)
        with (
            self._needing_a_directory(path),
            holding(place.open_directory()) as fd,
            errors_about(place.given),
            os.scandir(fd) as entries,
        ):
            found = [_entry(entry) for entry in entries if self._may_show(place, entry)]
        return tuple(sorted((entry for entry in found if entry is not None), key=lambda entry: entry.name))

    @contextmanager
    def _needing_a_directory(self, path: str) -> Generator[None]:
        """Tell a path that is a file from one that leads through a file. The kernel has one error for both."""
        try:
            yield
        except ToolError as error:
            if isinstance(error.__cause__, NotADirectoryError) and self._kind(path) is not None:
                raise ToolError.permanent(f"{path}: is a file, not a directory") from error
            raise

    def _may_show(self, place: Place, entry: "os.DirEntry[str]") -> bool:
        """Return whether an entry may be shown: a directory that may be listed, or a whole file that may be read."""
        if is_temporary(entry.name):
            return False
        access = Access.LIST if entry.is_dir(follow_symlinks=False) else Access.READ
        return self._roots.allows(os.path.join(place.path, entry.name), access)


def text_on_disk(roots: Roots, path: str, now: Callable[[], int]) -> tuple[str, str | None] | None:
    """Return the text of a file and the stamp that it had before; None if nothing is there. Call it in a worker thread.

    Raises what reading raises. See `file_stamp` for the stamp.
    """
    place = roots.place(path, Access.READ)
    with errors_about(place.given):
        try:
            fd = place.root.open_regular(place.relative)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with holding(fd):
            stamp = _of(os.fstat(fd), now())
            return decode_text(read_bounded(fd, MOST_COMPARED, place.given), place.given), stamp


def _head_of(place: Place, length: int) -> FileHead:
    with holding(place.open_regular()) as fd, errors_about(place.given):
        return FileHead(os.pread(fd, length, 0), os.fstat(fd).st_size)


def _bytes_of(place: Place, limit: int) -> bytes:
    with holding(place.open_regular()) as fd, errors_about(place.given):
        return read_bounded(fd, limit, place.given)


def _entry(entry: "os.DirEntry[str]") -> Entry | None:
    """Return the entry of a scan, or None if it vanished meanwhile. Bytes that are not UTF-8 become U+FFFD."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    name = os.fsencode(entry.name).decode("utf-8", "replace")
    return Entry(name, kind_of(status.st_mode))


_SETTLED = 2_000_000_000
"""Nanoseconds: the resolution of the coarsest file times (FAT)."""


async def file_stamp(roots: Roots, path: str, now: Callable[[], int] = now_ns) -> str | None:
    """Return the stamp of the file at `path`, which changes whenever the file is written or replaced.

    None if it is not a regular file, may not be read, or changed less than 2 s ago. A second change in the same tick of
    the file system's clock would not show. `now` returns nanoseconds since 1970. It never raises.
    """
    return await to_thread.run_sync(current_stamp, roots, path, now)


def current_stamp(roots: Roots, path: str, now: Callable[[], int]) -> str | None:
    """Do what `file_stamp` does, in a worker thread."""
    try:
        status = roots.place(path, Access.READ).status()
    except (Refused, ToolError):
        return None
    return None if status is None else _of(status, now())


def has_stamp(path: str, stamp: str) -> bool:
    """Return whether the file at an absolute path, even one that no tool may read, still has a stamp. One `stat`."""
    try:
        return _written(os.stat(path)) == stamp
    except (OSError, ValueError):
        return False


def _of(status: os.stat_result, now: int) -> str | None:
    """Return the stamp. It has the change time, because the modification time can be set back (`cp -p`, `touch -r`)."""
    settled = now - max(status.st_mtime_ns, status.st_ctime_ns) >= _SETTLED
    if not (stat.S_ISREG(status.st_mode) and settled):
        return None
    return _written(status)


def _written(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
