"""A unified diff taken apart: files, their headers and hunks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_FILE = ("diff --git ", "diff --cc ", "diff --combined ")
_HUNK = re.compile(r"(?P<ats>@@+) (?P<ranges>(?:[-+]\d+(?:,\d+)? )+)@@+")
_BEGINS = (*_FILE, "@@")
_CONFLICT = re.compile(r"[ +]+(?:<{7}|>{7})(?: |$)")
_RANGE = re.compile(r"[-+]\d+(?:,(\d+))?")
_HEADER = (
    *("index ", "--- ", "+++ ", "old mode ", "new mode ", "new file mode ", "deleted file mode ", "mode ", "rename "),
    *("copy ", "similarity index ", "dissimilarity index ", "Binary files ", "GIT binary patch"),
)
_BINARY_DATA = re.compile(r"(?:literal|delta) \d+$|[A-Za-z][0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]+$|$")


@dataclass(frozen=True, slots=True)
class Hunk:
    """`@@ … @@` and its lines."""

    lines: list[str]


@dataclass(slots=True)
class FileDiff:
    """One file of a diff.

    path      as git writes it in the header; the new name
    header    from `diff --…` to before the first hunk
    trailer   lines behind it that belong to no file
    """

    path: str
    header: list[str]
    hunks: list[Hunk] = field(default_factory=list[Hunk])
    trailer: list[str] = field(default_factory=list[str])
    added: int = 0
    removed: int = 0

    @property
    def size(self) -> int:
        """Lines of the hunks."""
        return sum(len(hunk.lines) for hunk in self.hunks)

    @property
    def counts(self) -> str:
        """`path | +a -b`, and how many conflict markers are in the file if there are any."""
        markers = sum(_CONFLICT.match(line) is not None for hunk in self.hunks for line in hunk.lines)
        said = f", {markers} conflict marker{'' if markers == 1 else 's'}" if markers else ""
        return f"{self.path} | +{self.added} -{self.removed}{said}"


def files_of(lines: Sequence[str]) -> tuple[list[str], list[FileDiff]]:
    """What stands before the first file (a --stat table, other words), and the files."""
    at = next((i for i, line in enumerate(lines) if line.startswith(_FILE)), len(lines))
    prelude, files = list(lines[:at]), list[FileDiff]()
    while at < len(lines):
        at = _file(lines, at, files)
    return prelude, files


def _file(lines: Sequence[str], at: int, files: list[FileDiff]) -> int:
    """One file and the lines behind it; where the next begins."""
    found = FileDiff(_path(lines[at]), [lines[at]])
    files.append(found)
    at += 1
    binary = False
    while at < len(lines) and (lines[at].startswith(_HEADER) or (binary and _BINARY_DATA.match(lines[at]))):
        binary |= lines[at] == "GIT binary patch"
        found.header.append(lines[at])
        at += 1
    while at < len(lines) and not lines[at].startswith(_FILE):
        hunk = _HUNK.match(lines[at]) if lines[at].startswith("@@") else None
        if hunk is None:
            found.trailer.append(lines[at])
            at += 1
            continue
        end = _hunk_end(lines, at, hunk, found)
        found.hunks.append(Hunk(list(lines[at:end])))
        at = end
    return at


def _path(line: str) -> str:
    r"""The new name in `diff --git a/x b/x`, `diff --cc x` and `diff --git "a/\303\274" "b/\303\274"`."""
    kind, _, names = line.removeprefix("diff --").partition(" ")
    if kind != "git":
        return names
    if names.endswith('"'):
        return names[names.rfind(' "') + 2 : -1].removeprefix("b/")
    half = names[len(names) // 2 + 1 :]
    if names == f"a/{half.removeprefix('b/')} {half}" or names == f"{half} {half}":
        return half.removeprefix("b/")
    return names.rpartition(" b/")[2] or names


def _hunk_end(lines: Sequence[str], at: int, hunk: re.Match[str], found: FileDiff) -> int:
    """As many lines as the header tells; up to the next header where they are no plain diff (--word-diff)."""
    parents = len(hunk["ats"]) - 1
    sizes = [int(count or 1) for count in _RANGE.findall(hunk["ranges"])]
    following = _next_header(lines, at + 1)
    if parents > 1:
        end = _combined_end(lines, at + 1, sizes, parents)
        end = following if end is None else end
        marks = [line[:parents] for line in lines[at + 1 : end] if not line.startswith("\\")]
        found.added += sum("+" in mark for mark in marks)
        found.removed += sum("-" in mark for mark in marks)
        return end
    marks = [line[:1] for line in lines[at + 1 : following]]
    end = following
    if _sizes_of(marks) != sizes:  # other words behind the hunk, or no plain diff
        end = _plain_end(marks, at + 1, sizes) or following
        marks = marks[: end - at - 1]
    found.added += marks.count("+")
    found.removed += marks.count("-")
    return end


def _sizes_of(marks: Sequence[str]) -> list[int] | None:
    """Lines of the old and of the new file, if every line is of a diff."""
    added, removed, same = marks.count("+"), marks.count("-"), marks.count(" ") + marks.count("")
    return [removed + same, added + same] if added + removed + same + marks.count("\\") == len(marks) else None


def _plain_end(marks: Sequence[str], at: int, sizes: list[int]) -> int | None:
    """The line behind a hunk of one old file, or None when its lines are not those its header tells of."""
    old, new = sizes
    for end, mark in enumerate(marks, at):
        if mark == "\\":
            continue
        if old <= 0 >= new:
            return end
        if mark not in {"", " ", "+", "-"}:
            return None
        old -= mark != "+"
        new -= mark != "-"
    return at + len(marks) if old == 0 == new else None


def _combined_end(lines: Sequence[str], at: int, sizes: list[int], parents: int) -> int | None:
    """The same for a merge's hunk: sizes of the old files first, of the new one last."""
    left, end = list(sizes), at
    while any(left) or (end < len(lines) and lines[end].startswith("\\")):
        if end == len(lines):
            return None
        line = lines[end]
        marks = line[:parents]
        end += 1
        if line.startswith("\\"):
            continue
        if marks.strip(" +-"):
            return None
        for i, mark in enumerate(marks.ljust(parents)):
            left[i] -= mark == "-" or (mark == " " and "-" not in marks)
        left[-1] -= "-" not in marks
        if min(left) < 0:
            return None
    return end


def _next_header(lines: Sequence[str], start: int) -> int:
    for i in range(start, len(lines)):
        line = lines[i]
        if line.startswith(_BEGINS) and (not line.startswith("@@") or _HUNK.match(line)):
            return i
    return len(lines)
