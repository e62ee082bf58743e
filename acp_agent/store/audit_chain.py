"""The chain of the audit: a sealed line for each record, and the head file that names the last one.

A line is a JSON object in ASCII that contains the hash of the record before it and its own:

    {"seq":12,"ts":"2025-11-21T13:31:02.123Z","prev":"<hash of 11>", ... ,"hash":"<SHA-256 of all bytes before this>"}

`seq` counts from 1 through all files of a rotated audit. The `prev` of the first record is 64 zeros.

The chain alone cannot show that its last lines were removed; the head file can. It is also the lock of all writers.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO, cast

from acp_agent.core.types import Json, JsonObject
from acp_agent.store.private_file import lock, private_file

MAX_LINE = 64 * 1024
"""The most bytes of a line, its line end included."""

LEFT_OUT = "[left out: the record would be too long]"
_SHORT = 128  # characters of each string in a record that would be too long: twenty such strings always fit
_SEAL = len(',"hash":""}') + 64


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A position in the chain: the number of a record and its hash."""

    seq: int
    hash: str


BEGINNING = ChainLink(0, "0" * 64)


class BrokenLine(ValueError):
    """A line that is not a complete, unchanged record. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
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
    body = _fitting({**head, **record})
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


def _fitting(record: JsonObject) -> bytes:
    """Return a record as JSON without its last bracket.

    It is cut until it fits: first all strings, then the whole call.
    """
    limit = MAX_LINE - _SEAL - 1
    body = _json(record)
    if len(body) > limit:
        short = cast("JsonObject", _shortened(record))
        body = _json(short)
        if len(body) > limit:
            body = _json({**short, "call": {LEFT_OUT: None}})
    return body


def _json(record: JsonObject) -> bytes:
    """Return JSON escaped to ASCII, so that no line end, control or invisible character is in the file."""
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
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file must not hold us


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last complete record, and the size of the audit file in bytes when it was written."""

    link: ChainLink
    size: int


class UnreadableHead(ValueError):
    """There is a head file whose content is not a head."""


def head_file(path: str) -> str:
    """Return the path of an audit file's head."""
    return f"{path}.head"


@contextmanager
def locked_head(path: str) -> Generator[int]:
    """Open and lock the head of the audit file `path`. Raises OSError."""
    with private_file(head_file(path)) as fd:
        lock(fd)
        yield fd


@dataclass(frozen=True, slots=True)
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
        lock(fd, fcntl.LOCK_SH)  # no record is half written now, and no file on its way to another name
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
    data = os.pread(fd, _LENGTH + 1, 0)
    found = _FORM.fullmatch(data)
    if data and not found:
        raise UnreadableHead("the head file does not hold what was written to it")
    return ChainHead(ChainLink(int(found[1]), found[3].decode()), int(found[2])) if found else None


def write_head(fd: int, head: ChainHead) -> None:
    """Write the head over the old one with one call. Raises OSError."""
    text = f"{head.link.seq:020d} {head.size:020d} {head.link.hash}\n".encode()
    if os.pwrite(fd, text, 0) < len(text):
        raise OSError("the head file could not be written")
