"""The audit: a file that only grows and holds one line for each tool call.

A line is a JSON object in ASCII that contains the hash of the record before it and its own:

    {"seq":12,"ts":"2025-11-21T13:31:02.123Z","prev":"<hash of 11>", ... ,"hash":"<SHA-256 of all bytes before this>"}

`seq` counts from 1 through all files of a rotated audit. The `prev` of the first record is 64 zeros. A small head file
holds the hash of the last record. It is also the lock of all writers.

So `verify` finds every line that was changed, removed, inserted or moved, and lines that are missing at the end. It
cannot find changes by someone who may write both files: they can rewrite the whole audit, or remove lines at the end
and adjust the head. To detect that, copy the head file to another machine from time to time.

A record is handed to the kernel before the result of the call is handed on, so it survives the death of this process.
It is not synced to the disk: a power cut may lose the last seconds, and `verify` reports that.

A line is first written to the head file, behind the head. If a process is killed in the middle of a line, the next
writer completes the line from there. An unfinished line that cannot be completed, because the disk was full, stays. The
next record goes on a line of its own, after a record that gives the length of the unfinished line. Nothing is ever
removed.

A call that changes something must not go unrecorded because the disk is full when the call ends. Space for its record
is reserved before the call starts.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from io import BytesIO
from typing import BinaryIO, TypeAlias, cast

from acp_agent.core.data import frozen
from acp_agent.core.types import Json, JsonObject
from acp_agent.store.audit_record import ContinuesRecord, LostRecord, Record, TornRecord, members
from acp_agent.store.private_file import free_name, lock, private_file

MAX_LINE = 64 * 1024
"""The most bytes of a line, its line end included."""

LEFT_OUT = "[left out: the record would be too long]"
_SHORT = 128  # characters of each string in a record that would be too long: twenty such strings always fit
_SEAL = len(',"hash":""}') + 64


@frozen
class ChainLink:
    """A position in the chain: the number of a record and its hash."""

    seq: int
    hash: str


BEGINNING = ChainLink(0, "0" * 64)


class BrokenLine(ValueError):
    """A line that is not a complete, unchanged record. The message says what is wrong with it."""


@frozen
class SealedRecord:
    """A record that was read: its position, the hash of the record before it, and its members."""

    link: ChainLink
    prev: str
    record: JsonObject


def seal(record: Mapping[str, Json], after: ChainLink, ts: str) -> tuple[bytes, ChainLink]:
    """Return the line for a record after `after`, with its line end, and its position.

    A record that is too long is cut.
    """
    head: JsonObject = {"seq": after.seq + 1, "ts": ts, "prev": after.hash}
    body = _json({**head, **record})
    if len(body) > MAX_LINE - _SEAL - 1:
        body = _shorter({**head, **record})
    digest = hashlib.sha256(body).hexdigest()
    return body + f',"hash":"{digest}"}}\n'.encode(), ChainLink(after.seq + 1, digest)


def unseal(line: bytes) -> SealedRecord:
    """Return the record on a line without its line end. Raises BrokenLine. The position in the chain is not checked."""
    if len(line) >= MAX_LINE:
        raise BrokenLine(f"longer than {MAX_LINE} bytes")
    try:
        record: object = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError):
        raise BrokenLine("not a record") from None
    if not isinstance(record, dict):
        raise BrokenLine("not a record")
    members = cast("JsonObject", record)
    seq, prev, digest = members.get("seq"), members.get("prev"), members.get("hash")
    if not isinstance(seq, int) or not isinstance(prev, str) or not isinstance(digest, str):
        raise BrokenLine("not a record of ours: seq, prev or hash is missing")
    body = line[:-_SEAL]
    if line[-_SEAL:] != f',"hash":"{digest}"}}'.encode() or hashlib.sha256(body).hexdigest() != digest:
        raise BrokenLine("was changed: its hash does not fit")
    return SealedRecord(ChainLink(seq, digest), prev, members)


def _shorter(record: JsonObject) -> bytes:
    """Return the JSON of a record that is too long: with short strings and, if that is not enough, without its call."""
    short = {key: _shortened(value) for key, value in record.items()}
    body = _json(short)
    return body if len(body) <= MAX_LINE - _SEAL - 1 else _json({**short, "call": {LEFT_OUT: None}})


def _json(record: JsonObject) -> bytes:
    """Return JSON without its last bracket, in ASCII, so that no line end or invisible character is in the file."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False)[:-1].encode("ascii")


def _shortened(value: Json) -> Json:
    match value:
        case str():
            return value if len(value) <= _SHORT else f"{value[:_SHORT]} [cut]"
        case list():
            return [_shortened(item) for item in value]
        case dict():
            return {key[:_SHORT]: _shortened(item) for key, item in value.items()}
        case _:
            return value


_FORM = re.compile(rb"(\d{20}) (\d{20}) ([0-9a-f]{64})\n")
_LENGTH = 107
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe in the place of a file must not block


@frozen
class ChainHead:
    """The last complete record, and the size of the audit file in bytes when it was written."""

    link: ChainLink
    size: int


class UnreadableHead(ValueError):
    """There is a head file whose content is not a head."""


def head_file(path: str) -> str:
    """Return the path of an audit file's head."""
    return f"{path}.head"


@frozen
class AuditSnapshot:
    """An audit file at one moment: open, with its size in bytes and its head, if it had one."""

    file: BinaryIO
    size: int
    head: ChainHead | None


def snapshot(path: str) -> AuditSnapshot:
    """Return the audit file for a reader, who needs no write permission and must close `file`.

    The file is empty if there is only a head. Raises UnreadableHead, and OSError if there is neither or one is
    unreadable.
    """
    try:
        fd = os.open(head_file(path), _READ | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _opened(path, None)
    try:
        lock(fd, fcntl.LOCK_SH)  # now no record is being written and no file is being renamed
        head = read_head(fd)
        try:
            return _opened(path, head)
        except FileNotFoundError:
            return AuditSnapshot(BytesIO(), 0, head)
    finally:
        os.close(fd)


def _opened(path: str, head: ChainHead | None) -> AuditSnapshot:
    file = os.fdopen(os.open(path, _READ), "rb")
    return AuditSnapshot(file, os.fstat(file.fileno()).st_size, head)


def read_head(fd: int) -> ChainHead | None:
    """Return the head, or None while the file is new. Raises UnreadableHead."""
    data = os.pread(fd, _LENGTH, 0)
    found = _FORM.fullmatch(data)
    if data and not found:
        raise UnreadableHead("the head file does not hold what was written to it")
    return ChainHead(ChainLink(int(found[1]), found[3].decode()), int(found[2])) if found else None


def write_head(fd: int, head: ChainHead) -> None:
    """Write the head over the old one with one call. Raises OSError."""
    text = f"{head.link.seq:020d} {head.size:020d} {head.link.hash}\n".encode()
    if os.pwrite(fd, text, 0) < len(text):
        raise OSError("the head file could not be written")


def read_draft(fd: int, torn: bytes, after: ChainLink) -> tuple[bytes, ChainLink] | None:
    """Return the rest of the line that begins with `torn` and its position, or None if it is not known."""
    line, end, _ = os.pread(fd, MAX_LINE, _LENGTH).partition(b"\n")
    if not end or not line.startswith(torn):
        return None
    try:
        sealed = unseal(line)
    except BrokenLine:
        return None
    follows = sealed.prev == after.hash and sealed.link.seq == after.seq + 1
    return (line[len(torn) :] + end, sealed.link) if follows else None


_Fallocate: TypeAlias = Callable[[int, int, int, int], int]

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: do not change the length of the file
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENODEV})


def reserve_space(fd: int, size: int) -> None:
    """Reserve the next `size` bytes on the disk after the end of an open file.

    If the file system cannot reserve space, check that there is as much free space now. Raises OSError if there is not.
    """
    end = os.fstat(fd).st_size
    call = _fallocate()
    code = errno.ENOSYS
    while call is not None:
        if call(fd, _KEEP_SIZE, end, size) == 0:
            return
        code = ctypes.get_errno()
        if code != errno.EINTR:
            break
    if code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code))
    room = os.fstatvfs(fd)
    if room.f_blocks > 0 and room.f_bavail * room.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@cache
def _fallocate() -> _Fallocate | None:
    """Return Linux's call, with 64-bit offsets; None where there is no such call."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return cast("_Fallocate | None", call)


_ROOM = 4 * MAX_LINE
"""Bytes reserved for the record of a call and for those of calls that run at the same time."""

_HEAD_ROOM = 4096
_WINDOW = 4 * MAX_LINE
"""Bytes at the end of a file in which its last complete record is searched."""


@frozen
class _End:
    """The end of a file, where the next record goes.

    link   the record that the next one follows
    lead   what must be written in front of it: a line end if the last line has none
    torn   the bytes of an unfinished line
    """

    link: ChainLink
    lead: bytes = b""
    torn: bytes = b""


class AuditLog:
    """The audit file of this process. Writing takes less than 0.1 ms and happens in the caller's thread.

    Any number of threads and processes write one file and one chain. It is opened for each record, so that a renamed or
    removed file is noticed.

    warn        called with one line when records cannot be written; again only after they could be written
    max_bytes   a file above this size is renamed at this process's first write, and never later
    """

    def __init__(
        self,
        path: str,
        warn: Callable[[str], None],
        *,
        max_bytes: int = 64 * 1024 * 1024,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.path = path
        self._head = head_file(path)
        self._warn = warn
        self._max_bytes = max_bytes
        self._now = now or partial(datetime.now, UTC)
        self._written = False
        self._lost: LostRecord | None = None
        self._turn = threading.Lock()

    def append(self, record: Record) -> bool:
        """Write a record. Return False if that was not possible; `warn` was called, and the next record will say so."""
        with self._turn:
            first, error = self._lost is None, self._write(record)
            if error:
                count = 1 if self._lost is None else self._lost.count + 1
                self._lost = LostRecord(count=count, error=self._lost.error if self._lost else error)
        if error and first:
            self._warn(f"{self.path}: tool calls are no longer recorded: {error}")
        return not error

    def trouble(self) -> str:
        """Return why the record of a call that starts now could not be written, or "" if it could.

        Space for the record is reserved. After a failure, a record of the lost records is written.
        """
        with self._turn:
            if self._lost and (error := self._write()):
                return error
        try:
            self._make_folder()
            with private_file(self.path) as fd, private_file(self._head) as head_fd:
                reserve_space(fd, _ROOM)
                reserve_space(head_fd, _HEAD_ROOM)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _write(self, *records: Record) -> str:
        """Append records, after one of the lost records. Return why that was not possible, or ""."""
        try:
            self._make_folder()
            with private_file(self._head) as head_fd:
                lock(head_fd)
                self._append(head_fd, [self._lost, *records] if self._lost else records)
        except OSError as error:
            return error.strerror or str(error)
        self._lost, self._written = None, True
        return ""

    def _make_folder(self) -> None:
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    def _append(self, head_fd: int, records: Sequence[Record]) -> None:
        """Append records, mark unfinished lines, and move the head, which is locked. Raises OSError."""
        try:
            head = read_head(head_fd)
        except UnreadableHead:
            head = None  # a new one replaces it
        if not self._written:
            head = self._rotated(head_fd, head)
        with private_file(self.path, os.O_APPEND) as fd:
            size = os.fstat(fd).st_size
            end = _end(fd, size, head)
            if head is None:  # so that a full disk is noticed before the record is written
                write_head(head_fd, ChainHead(end.link, size))
            if end.torn and (draft := read_draft(head_fd, end.torn, end.link)):
                rest, link = draft
                _write_whole(fd, rest)
                size += len(rest)
                write_head(head_fd, ChainHead(link, size))
                end = _End(link)
            elif end.torn:
                torn = TornRecord(bytes=len(end.torn), sha256=hashlib.sha256(end.torn).hexdigest())
                records = [torn, *records]
            link, lead, size = end.link, end.lead, size + len(end.lead)
            for record in records:
                line, link = seal(members(record), link, self._ts())
                with suppress(OSError):  # a copy of the line behind the head is seldom needed
                    os.pwrite(head_fd, line, _LENGTH)
                try:
                    _write_whole(fd, lead + line)
                except OSError:
                    os.ftruncate(head_fd, _LENGTH)  # the record counts as lost, so no writer may complete its line
                    raise
                lead, size = b"", size + len(line)
                write_head(head_fd, ChainHead(link, size))

    def _ts(self) -> str:
        return self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _rotated(self, head_fd: int, head: ChainHead | None) -> ChainHead | None:
        """Rename a large file and start a new one whose first record names the old file. Return the head.

        There is always a file at the path. A file that cannot be renamed is continued.
        """
        with suppress(OSError):
            if os.lstat(self.path).st_size <= self._max_bytes:
                return head
            with private_file(self.path) as fd:
                end = _end(fd, os.fstat(fd).st_size, head)
            stem, extension = os.path.splitext(self.path)
            name, new = free_name(f"{stem}-{self._now():%Y%m%dT%H%M%SZ}", extension), f"{self.path}.new"
            with suppress(FileNotFoundError):
                os.unlink(new)
            with private_file(new, os.O_EXCL) as fd:
                line, link = seal(members(ContinuesRecord(file=os.path.basename(name))), end.link, self._ts())
                _write_whole(fd, line)
            os.link(self.path, name, follow_symlinks=False)
            os.replace(new, self.path)
            head = ChainHead(link, len(line))
            write_head(head_fd, head)
        return head


def _end(fd: int, size: int, head: ChainHead | None) -> _End:
    """Return where a file continues. The file is read only if the head does not match it, for example after a kill.

    If the file ends before the record that the head names, the next record follows the head's. So `verify` sees that
    records are missing.
    """
    if head is not None and head.size == size:
        return _End(head.link)
    window = os.pread(fd, _WINDOW, max(0, size - _WINDOW))
    lines = window.split(b"\n")
    link, at = BEGINNING, -1
    for number in reversed(range(len(lines))):
        with suppress(BrokenLine):
            link, at = unseal(lines[number]).link, number
            break
    if head is not None and head.link.seq >= link.seq:
        link = head.link
    whole = at == len(lines) - 1  # the last record is complete, perhaps without its line end
    seen = at >= 0 or size <= _WINDOW
    torn = b"" if whole or not lines[-1] or not seen else b"\n".join(lines[at + 1 :])
    return _End(link, b"\n" if lines[-1] else b"", torn)


def _write_whole(fd: int, data: bytes) -> None:
    """Write data with one call. Raises OSError if it was not written completely."""
    written = os.write(fd, data)
    if written < len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes of a record could be written")
