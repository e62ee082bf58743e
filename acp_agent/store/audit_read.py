"""Reading the audit, for people: its last lines, its next ones, one record."""

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO

from acp_agent.core.types import JsonObject
from acp_agent.store.audit_line import MAX_LINE, Broken, Sealed, unseal

_BLOCK = 64 * 1024
_CONTINUES = b'"kind":"continues"'


def tail(path: str, count: int, wait: Callable[[], None] | None = None) -> Iterator[bytes]:
    """The last `count` lines of a file, without their ends; with `wait`, then every further one, for ever.

    `wait` is called when there is none yet. A file that takes the place of this one is read from its beginning.
    Raises OSError.
    """
    began = False
    while True:
        with open(path, "rb") as file:
            if not began:
                file.seek(_start_of_last(file, count))
            began, replaced, rest = True, False, b""
            while not replaced:
                replaced = wait is None or _replaced(file, path)  # asked first: what was written until then is read
                while piece := file.readline(MAX_LINE):
                    rest += piece
                    if len(rest) >= MAX_LINE or piece.endswith(b"\n"):
                        yield rest.removesuffix(b"\n")
                        rest = b""
                if wait is not None and not replaced:
                    wait()
            if rest:
                yield rest
        if wait is None:
            return


def last_of(path: str, caller_id: str, count: int) -> tuple[JsonObject, ...]:
    """The last `count` records of one session, oldest first, also of files this one continues; () without a file.

    Of a file only as much is read as it takes, from its end. Raises OSError.
    """
    newest_first = (each for each in _backwards(path, caller_id) if each.get("caller_id") == caller_id)
    return tuple(islice(newest_first, count))[::-1]


def _backwards(path: str, caller_id: str) -> Iterator[JsonObject]:
    """The records of a file and of those it continues that can be of a session, the last first."""
    mark = f'"caller_id":{json.dumps(caller_id)}'.encode()
    seen: set[str] = set()
    while path not in seen and os.path.isfile(path):
        seen.add(path)
        older = ""
        with open(path, "rb") as file:
            for line in _lines_backwards(file):
                if mark not in line and _CONTINUES not in line:  # most are others': a fifth of the time
                    continue
                record = _whole(line)
                if record.get("kind") == "continues":
                    older = _older(path, record)
                yield record
        path = older


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file without their ends, the last first; none that is too long for a record."""
    at, rest, too_long = file.seek(0, os.SEEK_END), b"", False
    while at > 0:
        start = max(0, at - _BLOCK)
        file.seek(start)
        block, at = file.read(at - start), start
        rest, *lines = (block + rest).split(b"\n")
        if lines and too_long:  # the last is what it ends with
            del lines[-1]
            too_long = False
        yield from reversed(lines)
        if len(rest) >= MAX_LINE:
            rest, too_long = b"", True
    if not too_long:
        yield rest


def _whole(line: bytes) -> JsonObject:
    """A record; nothing in place of one that is damaged."""
    try:
        return unseal(line.removesuffix(b"\n")).record
    except Broken:
        return {}


def _older(path: str, record: JsonObject) -> str:
    """The file that a file continues, by its record of that."""
    return os.path.join(os.path.dirname(path), os.path.basename(str(record.get("file"))))


def records(path: str) -> Iterator[Sealed]:
    """Every whole record of a file, in order, then of the files it continues. Raises OSError when there is no file."""
    seen: set[str] = set()
    while path not in seen:
        seen.add(path)
        older = ""
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE):
                try:
                    sealed = unseal(line.removesuffix(b"\n"))
                except Broken:
                    continue
                if sealed.record.get("kind") == "continues":
                    older = _older(path, sealed.record)
                yield sealed
        if os.path.isfile(older):
            path = older


def _start_of_last(file: BinaryIO, count: int) -> int:
    """Where the last `count` lines begin."""
    at = file.seek(0, os.SEEK_END)
    file.seek(max(0, at - 1))
    wanted = count + (file.read(1) == b"\n")  # line ends: the last line's own where it has one
    while at > 0:
        start = max(0, at - _BLOCK)
        file.seek(start)
        block = file.read(at - start)
        place = len(block)
        while (place := block.rfind(b"\n", 0, place)) >= 0:
            wanted -= 1
            if wanted == 0:
                return start + place + 1
        at = start
    return 0


def _replaced(file: BinaryIO, path: str) -> bool:
    """Whether another file has this one's name now."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False  # removed; the next record makes a new one
