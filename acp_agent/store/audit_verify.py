"""Is the audit whole? Reads a file of any size in constant memory, and knows the first line that is wrong.

Everything is judged as it was at one moment: agents may go on writing meanwhile.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from acp_agent.core.types import JsonObject
from acp_agent.store.audit_head import NoHead, Snapshot, snapshot
from acp_agent.store.audit_line import BEGINNING, MAX_LINE, Broken, Link, Sealed, unseal

_MOST_NOTES = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a line; `line` counts from 1, and is 0 for the file itself."""

    line: int
    text: str


@dataclass(slots=True)
class Report:
    """What became of one file.

    records     records that stand as they were written
    first       what the first record follows: the end of an older file, else BEGINNING
    last        the last good record
    older       the name of the file this one continues, in the same folder; else empty
    notes       what is worth knowing and no fault, a hundred at most
    fault       the first thing that is wrong, or None; nothing behind it was judged
    """

    file: str
    records: int = 0
    first: Link = BEGINNING
    last: Link = BEGINNING
    older: str = ""
    notes: list[Finding] = field(default_factory=list[Finding])
    fault: Finding | None = None


def verify(path: str) -> Iterator[Report]:
    """A report for the audit file and for each older one it continues, as long as they are there and nothing is wrong.

    Raises OSError when the first cannot be read.
    """
    try:
        now = snapshot(path)
    except NoHead as error:
        yield Report(path, fault=Finding(0, str(error)))
        return
    report = _File(path, now).judged()
    if now.head is None:
        report.notes.append(Finding(0, "without its head file, nobody can say whether lines are missing at the end"))
    seen = {path}
    yield report
    while report.older and report.fault is None:
        path = os.path.join(os.path.dirname(path), report.older)
        if path in seen or os.path.basename(path) != report.older:
            yield Report(path, fault=Finding(0, "is no older file"))
            return
        seen.add(path)
        try:
            report = _File(path, snapshot(path), end=report.first).judged()
        except FileNotFoundError:
            yield Report(path, notes=[Finding(0, f"is not there any more: records 1 to {report.first.seq} are in it")])
            return
        yield report


class _Fault(Exception):
    """The judgement ends here."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.finding = Finding(line, text)


class _Stray:
    """Lines that are no records, one after the other: their bytes but for the last line end, as a mark counts them."""

    def __init__(self, line: int, text: str) -> None:
        self.finding = Finding(line, text)
        self.length = 0
        self.ended = False
        self._sha256 = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        text = (b"\n" if self.ended else b"") + piece.removesuffix(b"\n")
        self._sha256.update(text)
        self.length += len(text)
        self.ended = piece.endswith(b"\n")

    def unfinished(self) -> Finding:
        return Finding(self.finding.line, f"{self.length} bytes of a record that was not finished")

    def told_by(self, mark: JsonObject) -> bool:
        return mark.get("bytes") == self.length and mark.get("sha256") == self._sha256.hexdigest()


class _File:
    """The judgement of one file, record by record.

    now   the file; its head says what has to be in it at least. Is closed when it is judged
    end   the record it has to end with
    """

    def __init__(self, path: str, now: Snapshot, end: Link | None = None) -> None:
        self._report = Report(path)
        self._file = now.file
        self._size = now.size
        self._head = now.head
        self._end = end
        self._line = 0
        self._stray: _Stray | None = None

    def judged(self) -> Report:
        """Raises OSError."""
        try:
            for piece in self._pieces():
                self._take(piece)
            self._judge_end()
        except _Fault as fault:
            self._report.fault = fault.finding
        return self._report

    def _pieces(self) -> Iterator[bytes]:
        """The lines; one that is too long in several pieces."""
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
        except Broken as broken:
            self._stray = self._stray or _Stray(self._line, str(broken))
            self._stray.add(piece)
            return
        self._settle(sealed.record)
        self._follow(sealed)

    def _settle(self, record: JsonObject) -> None:
        """What stands in front of a record: nothing but an unfinished line that the record tells of."""
        stray, self._stray = self._stray, None
        torn = record.get("kind") == "torn"
        if stray is not None and not (torn and stray.told_by(record)):
            raise _Fault(stray.finding.line, stray.finding.text)
        if stray is not None:
            self._note(stray.unfinished())
        elif torn:
            raise _Fault(self._line, "tells of an unfinished record in front of it, which is not there")
        if record.get("kind") == "lost":
            self._note(Finding(self._line, f"{record.get('count')} records could not be written before this one"))

    def _follow(self, sealed: Sealed) -> None:
        """Whether a record stands in its place."""
        report, last, seq = self._report, self._report.last, sealed.link.seq
        if report.records == 0 and sealed.record.get("kind") == "continues":
            report.older = str(sealed.record.get("file"))
            report.first = last = Link(seq - 1, sealed.prev)
        if seq > last.seq + 1:
            raise _Fault(self._line, f"is record {seq}: {_range(last.seq + 1, seq - 1)} missing in front of it")
        if seq <= last.seq:
            raise _Fault(self._line, f"is record {seq}, where record {last.seq + 1} belongs")
        if sealed.prev != last.hash:
            raise _Fault(self._line, f"is record {seq}, but what it follows is not what stands in front of it")
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
            self._note(Finding(self._line, f"the head file names record {head.link.seq} as the last"))
        if stray is not None:
            self._note(stray.unfinished())

    def _note(self, finding: Finding) -> None:
        if len(self._report.notes) < _MOST_NOTES:
            self._report.notes.append(finding)


def _range(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"
