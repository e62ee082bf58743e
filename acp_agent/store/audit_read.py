"""Reading the audit: its last records, new ones as they are written, and whether it is complete."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

from acp_agent.core.data import frozen
from acp_agent.core.types import JsonObject
from acp_agent.store.audit import (
    BEGINNING,
    MAX_LINE,
    AuditSnapshot,
    BrokenLine,
    ChainLink,
    SealedRecord,
    UnreadableHead,
    snapshot,
    unseal,
)

_BLOCK = 64 * 1024
_CONTINUES = b'"kind":"continues"'


def tail(path: str, count: int, wait: Callable[[], None] | None = None) -> Iterator[bytes]:
    """Yield the last `count` lines of a file without their line ends.

    With `wait`, continue with every new line, for ever; `wait` is called while there is no new line. A file that
    replaces this one is read from its beginning. Raises OSError.
    """
    began = False
    while True:
        with open(path, "rb") as file:
            if not began:
                file.seek(_start_of_last(file, count))
            began, replaced, rest = True, False, b""
            while not replaced:
                # Checked before reading, so that all that was written before the replacement is read.
                replaced = wait is None or _replaced(file, path)
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
    """Return the last `count` records of a session and its sub-agents, oldest first, also from earlier files.

    Only the needed end of each file is read. Return () if there is no file. Raises OSError.
    """
    of_session = f"{caller_id}/"
    found = _backwards(path, caller_id)
    newest_first = (each for each in found if f"{each.get('caller_id')}/".startswith(of_session))
    return tuple(islice(newest_first, count))[::-1]


def _backwards(path: str, caller_id: str) -> Iterator[JsonObject]:
    """Yield the records that may belong to a session, the last first, from a file and from the files it continues."""
    mark = f'"caller_id":{json.dumps(caller_id)[:-1]}'.encode()  # the id of a sub-agent begins with its session's
    seen: set[str] = set()
    while path not in seen and os.path.isfile(path):
        seen.add(path)
        older = ""
        with open(path, "rb") as file:
            for line in _lines_backwards(file):
                # Most records belong to other sessions. To skip them without parsing takes a fifth of the time.
                if mark not in line and _CONTINUES not in line:
                    continue
                with suppress(BrokenLine):
                    record = unseal(line).record
                    if record.get("kind") == "continues":
                        older = _older(path, record)
                    yield record
        path = older


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without their line ends, the last first. Lines too long for a record are left out."""
    at, rest, too_long = file.seek(0, os.SEEK_END), b"", False
    while at > 0:
        start = max(0, at - _BLOCK)
        file.seek(start)
        block, at = file.read(at - start), start
        rest, *lines = (block + rest).split(b"\n")
        if lines and too_long:  # this last line is the beginning of the one that is too long
            del lines[-1]
            too_long = False
        yield from reversed(lines)
        if len(rest) >= MAX_LINE:
            rest, too_long = b"", True
    if not too_long:
        yield rest


def _older(path: str, record: JsonObject) -> str:
    """Return the path of the file that a file continues."""
    return os.path.join(os.path.dirname(path), os.path.basename(str(record.get("file"))))


def records(path: str) -> Iterator[SealedRecord]:
    """Yield every complete record of a file in order, then those of the files it continues.

    Raises OSError without a file.
    """
    seen: set[str] = set()
    while path not in seen:
        seen.add(path)
        older = ""
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE):
                try:
                    sealed = unseal(line.removesuffix(b"\n"))
                except BrokenLine:
                    continue
                if sealed.record.get("kind") == "continues":
                    older = _older(path, sealed.record)
                yield sealed
        if os.path.isfile(older):
            path = older


def _start_of_last(file: BinaryIO, count: int) -> int:
    """Return the offset at which the last `count` lines begin."""
    at = file.seek(0, os.SEEK_END)
    file.seek(max(0, at - 1))
    wanted = count + (file.read(1) == b"\n")  # line ends, with that of the last line if it has one
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
    """Return whether another file has this file's name now."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False  # removed; the next record makes a new one


_MOST_NOTES = 100


@frozen
class AuditFinding:
    """A remark about a line. `line` counts from 1 and is 0 for the file as a whole."""

    line: int
    text: str


@dataclass(slots=True)
class AuditReport:
    """The result of checking one file.

    records     the number of unchanged records
    first       what the first record follows: the end of an older file, else BEGINNING
    last        the last good record
    older       the name of the file that this one continues, in the same folder, or ""
    notes       remarks that are not faults, at most a hundred
    fault       the first fault, or None. Lines after it were not checked
    """

    file: str
    records: int = 0
    first: ChainLink = BEGINNING
    last: ChainLink = BEGINNING
    older: str = ""
    notes: list[AuditFinding] = field(default_factory=list[AuditFinding])
    fault: AuditFinding | None = None


def verify(path: str) -> Iterator[AuditReport]:
    """Yield a report for the audit file and for each older file that it continues, until one is missing or has a fault.

    The files are checked as they were at one moment, so agents may write meanwhile. Memory is constant for any size.
    Raises OSError if the first file cannot be read.
    """
    try:
        now = snapshot(path)
    except UnreadableHead as error:
        yield AuditReport(path, fault=AuditFinding(0, str(error)))
        return
    report = _File(path, now).judged()
    if now.head is None:
        report.notes.append(
            AuditFinding(0, "without its head file, nobody can say whether lines are missing at the end")
        )
    seen = {path}
    yield report
    while report.older and report.fault is None:
        path = os.path.join(os.path.dirname(path), report.older)
        if path in seen or os.path.basename(path) != report.older:
            yield AuditReport(
                path, fault=AuditFinding(0, "the newer file names it as the older one, but it cannot be that")
            )
            return
        seen.add(path)
        try:
            report = _File(path, snapshot(path), end=report.first).judged()
        except FileNotFoundError:
            yield AuditReport(
                path, notes=[AuditFinding(0, f"the file is missing, and with it records 1 to {report.first.seq}")]
            )
            return
        yield report


class _Fault(Exception):
    """A fault that ends the check of a file."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.finding = AuditFinding(line, text)


class _Stray:
    """Consecutive lines that are not records. Their last line end is not counted, as in the record that marks them."""

    def __init__(self, line: int, text: str) -> None:
        self.finding = AuditFinding(line, text)
        self.length = 0
        self.ended = False
        self._sha256 = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        text = (b"\n" if self.ended else b"") + piece.removesuffix(b"\n")
        self._sha256.update(text)
        self.length += len(text)
        self.ended = piece.endswith(b"\n")

    def unfinished(self) -> AuditFinding:
        return AuditFinding(self.finding.line, f"{self.length} bytes of a record that was not finished")

    def told_by(self, mark: JsonObject) -> bool:
        return mark.get("bytes") == self.length and mark.get("sha256") == self._sha256.hexdigest()


class _File:
    """The check of one file, record by record.

    now   the file, which is closed at the end. Its head names what the file must at least contain
    end   the record with which the file must end
    """

    def __init__(self, path: str, now: AuditSnapshot, end: ChainLink | None = None) -> None:
        self._report = AuditReport(path)
        self._file = now.file
        self._size = now.size
        self._head = now.head
        self._end = end
        self._line = 0
        self._stray: _Stray | None = None

    def judged(self) -> AuditReport:
        """Check the file and return the report. Raises OSError."""
        try:
            for piece in self._pieces():
                self._take(piece)
            self._judge_end()
        except _Fault as fault:
            self._report.fault = fault.finding
        return self._report

    def _pieces(self) -> Iterator[bytes]:
        """Yield the lines. A line that is too long comes in several pieces."""
        left, whole = self._size, True
        with self._file as file:
            while left and (piece := file.readline(min(left, MAX_LINE))):
                left -= len(piece)
                self._line += whole
                whole = piece.endswith(b"\n")
                yield piece

    def _take(self, piece: bytes) -> None:
        try:
            sealed = unseal(piece.removesuffix(b"\n"))
        except BrokenLine as broken:
            self._stray = self._stray or _Stray(self._line, str(broken))
            self._stray.add(piece)
            return
        self._settle(sealed.record)
        self._follow(sealed)

    def _settle(self, record: JsonObject) -> None:
        """Check what is between two records: nothing, or an unfinished line that the second record describes."""
        stray, self._stray = self._stray, None
        torn = record.get("kind") == "torn"
        if stray is not None and not (torn and stray.told_by(record)):
            raise _Fault(stray.finding.line, stray.finding.text)
        if stray is not None:
            self._note(stray.unfinished())
        elif torn:
            raise _Fault(self._line, "describes an unfinished record in front of it, which is not there")
        if record.get("kind") == "lost":
            self._note(AuditFinding(self._line, f"{record.get('count')} records could not be written before this one"))

    def _follow(self, sealed: SealedRecord) -> None:
        """Check that a record follows the one before it in the chain."""
        report, last, seq = self._report, self._report.last, sealed.link.seq
        if report.records == 0 and sealed.record.get("kind") == "continues":
            report.older = str(sealed.record.get("file"))
            report.first = last = ChainLink(seq - 1, sealed.prev)
        if seq > last.seq + 1:
            raise _Fault(self._line, f"is record {seq}: {_range(last.seq + 1, seq - 1)} missing in front of it")
        if seq <= last.seq:
            raise _Fault(self._line, f"is record {seq}, where record {last.seq + 1} belongs")
        if sealed.prev != last.hash:
            raise _Fault(self._line, f"is record {seq}, but it does not follow the record in front of it")
        if self._head is not None and seq == self._head.link.seq and sealed.link != self._head.link:
            raise _Fault(self._line, f"is another record {seq} than the head file names")
        report.last = sealed.link
        report.records += 1

    def _judge_end(self) -> None:
        report, stray, head = self._report, self._stray, self._head
        if stray is not None and stray.ended:
            raise _Fault(stray.finding.line, stray.finding.text)
        if head is not None and report.last.seq < head.link.seq:
            missing = _range(report.last.seq + 1, head.link.seq)
            raise _Fault(self._line + 1, f"the file ends too early: {missing} missing")
        if head is not None and self._size < head.size:
            raise _Fault(self._line, f"the file is {head.size - self._size} bytes shorter than it was")
        if self._end is not None and report.last != self._end:
            raise _Fault(
                self._line + 1, f"the file does not end with the record {self._end.seq} that the next one names"
            )
        if head is not None and report.last.seq > head.link.seq:
            self._note(AuditFinding(self._line, f"the head file names record {head.link.seq} as the last"))
        if stray is not None:
            self._note(stray.unfinished())

    def _note(self, finding: AuditFinding) -> None:
        if len(self._report.notes) < _MOST_NOTES:
            self._report.notes.append(finding)


def _range(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"
