"""The strategies `git_diff` and `git_status`.

A diff keeps the headers of all files and hunks up to a limit. A status keeps branch, sections and files, without hints.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, CommandRun

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
    """The line `@@ ... @@` and the lines of the hunk."""

    lines: list[str]


@dataclass(slots=True)
class FileDiff:
    """One file of a diff.

    path      the new name, as git writes it in the header
    header    the lines from `diff --...` up to the first hunk
    trailer   lines after the file that belong to no file
    """

    path: str
    header: list[str]
    hunks: list[Hunk] = field(default_factory=list[Hunk])
    trailer: list[str] = field(default_factory=list[str])
    added: int = 0
    removed: int = 0

    @property
    def size(self) -> int:
        """The number of lines of the hunks."""
        return sum(len(hunk.lines) for hunk in self.hunks)

    @property
    def counts(self) -> str:
        """`path | +a -b`, and the number of conflict markers if there are any."""
        markers = sum(_CONFLICT.match(line) is not None for hunk in self.hunks for line in hunk.lines)
        said = f", {markers} conflict marker{'' if markers == 1 else 's'}" if markers else ""
        return f"{self.path} | +{self.added} -{self.removed}{said}"


def files_of(lines: Sequence[str]) -> tuple[list[str], list[FileDiff]]:
    """Return the lines before the first file, such as a --stat table, and the files."""
    at = next((i for i, line in enumerate(lines) if line.startswith(_FILE)), len(lines))
    prelude, files = list(lines[:at]), list[FileDiff]()
    while at < len(lines):
        at = _file(lines, at, files)
    return prelude, files


def _file(lines: Sequence[str], at: int, files: list[FileDiff]) -> int:
    """Take one file and the lines after it. Return where the next one begins."""
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
    r"""Return the new name in `diff --git a/x b/x`, `diff --cc x` or `diff --git "a/\303\274" "b/\303\274"`."""
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
    """Return the end of a hunk: after the lines that its header counts, or at the next header for --word-diff."""
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
    if _sizes_of(marks) != sizes:  # text after the hunk, or not a plain diff
        end = _plain_end(marks, at + 1, sizes) or following
        marks = marks[: end - at - 1]
    found.added += marks.count("+")
    found.removed += marks.count("-")
    return end


def _sizes_of(marks: Sequence[str]) -> list[int] | None:
    """Return the number of lines of the old and of the new file. None if a line is not part of a diff."""
    added, removed, same = marks.count("+"), marks.count("-"), marks.count(" ") + marks.count("")
    return [removed + same, added + same] if added + removed + same + marks.count("\\") == len(marks) else None


def _plain_end(marks: Sequence[str], at: int, sizes: list[int]) -> int | None:
    """Return the line after a plain hunk. None if its lines do not fit its header."""
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
    """Return the line after the hunk of a merge. `sizes` has the old files first, the new one last."""
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


_GENERATED = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|Cargo\.lock|poetry\.lock"
    r"|uv\.lock|pdm\.lock|Pipfile\.lock|composer\.lock|Gemfile\.lock|go\.sum|flake\.lock|mix\.lock|pubspec\.lock|deno\.lock"
    r"|Package\.resolved|packages\.lock\.json)$|\.min\.(?:js|css|mjs)$|\.(?:js|css)\.map$|\.pb\.go$|_pb2(?:_grpc)?\.pyi?$"
)
_FEWEST_LINES = 10  # of the limit: a hunk is not cut to fewer lines than this


class GitDiff:
    """Keeps whole hunks while there is room, then writes one line `path | +a -b` for each file.

    max_diff_lines   lines of all hunks together

    Of lock files and other generated files only the header and the counts are kept. Conflict markers in hidden parts
    are counted. The confidence is Partial if a hunk was left out, and Fallback if the text has no patch, such as with
    --stat or after an error.
    """

    def __init__(self, max_diff_lines: int = 500) -> None:
        self._limit = max_diff_lines

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`."""
        del run
        if "diff --" not in text:
            return Applied(text, Confidence.FALLBACK)
        prelude, files = files_of(text.split("\n"))
        if not files:
            return Applied(text, Confidence.FALLBACK)
        shorter = "\n".join((*prelude, *self._shown(files)))
        return Applied(shorter, Confidence.PARTIAL) if len(shorter) < len(text) else Applied(text, Confidence.FULL)

    def _shown(self, files: Sequence[FileDiff]) -> list[str]:
        """Return the lines of the files in their order."""
        lines: list[str] = []
        rest: list[str] = []
        room = self._limit
        full = False
        for file in files:
            if _is_generated(file):
                lines += [*_names(file), f"({file.counts}: generated, not shown)"]
            elif full:
                rest.append(file.counts)
            else:
                shown = _hunks_within(file, room)
                room -= len(shown)
                full = len(shown) < file.size
                lines += [*file.header, *shown]
                if full:
                    lines.append(f"... ({file.size - len(shown)} more lines of {file.counts})")
            lines += [] if rest else file.trailer
            rest += file.trailer if rest and any(file.trailer) else []
        return [*lines, *_remaining(rest, files, full=full)]


def _is_generated(file: FileDiff) -> bool:
    return file.size > 0 and _GENERATED.search(file.path) is not None


def _names(file: FileDiff) -> list[str]:
    """Return the header without the blob ids."""
    return [line for line in file.header if not line.startswith("index ")]


def _hunks_within(file: FileDiff, room: int) -> list[str]:
    """Return the hunks that fit into `room`. The next hunk is cut, but keeps its header."""
    shown: list[str] = []
    for hunk in file.hunks:
        left = room - len(shown)
        if len(hunk.lines) > left:
            return shown + (hunk.lines[:left] if left >= _FEWEST_LINES else [])
        shown += hunk.lines
    return shown


def _remaining(rest: Sequence[str], files: Sequence[FileDiff], *, full: bool) -> list[str]:
    """Return one line for each file without a shown hunk, and the totals of all files."""
    if not full:
        return []
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    heading = ["Files not shown:"] if rest else []
    return [*heading, *rest, f"{len(files)} files changed, +{added} -{removed}", ""]


_LONGEST_SECTION = 30
_HEAD = 20

_STATE = (
    "On branch ", "HEAD detached ", "Not currently on any branch.", "interactive rebase in progress; ",
    "rebase in progress; ",
)  # fmt: skip
_SHORT = re.compile(r"(?:## |# branch\.|[ MADRCUT?!]{2} \S|[12u] [.MADRCUT]{2} |[?!] )")
_SECTIONS = frozenset(
    ("Changes to be committed:", "Changes not staged for commit:", "Untracked files:", "Ignored files:")
)
_ENTRY = "\t"
_TAIL_HINT = re.compile(r"((?:no changes added|nothing added|nothing) to commit\b.*?) \((?:use|create)\b.*\)$")


class GitStatus:
    """Removes hints. Of a section with more than 30 files it keeps the first 20 and the number of the others.

    All conflicts stay, and so does every line that is not git's. Short and porcelain formats are not changed. The
    confidence is Full if only hints were removed, Partial if files were, and Fallback if the text is not the output of
    git status.
    """

    def apply(self, text: str, run: CommandRun) -> Applied:
        """See `Strategy.apply`."""
        del run
        lines = text.split("\n")
        if not any(line.startswith(_STATE) for line in lines):
            short = next((line for line in lines if line), "")
            return Applied(text, Confidence.FULL if _SHORT.match(short) else Confidence.FALLBACK)
        kept, cut = _without_hints(lines)
        return Applied("\n".join(kept), Confidence.PARTIAL if cut else Confidence.FULL)


def _without_hints(lines: Sequence[str]) -> tuple[list[str], bool]:
    kept: list[str] = []
    files: list[str] = []
    cut = in_section = known = False
    for line in lines:
        if in_section and line.startswith(_ENTRY):
            files.append(line)
            continue
        if files:
            shown, shortened = _head(files)
            kept += shown
            files, cut = [], cut or shortened
        if line.startswith("diff --git "):  # of `status -v`: the diff is not this strategy's business
            return kept + list(lines[lines.index(line) :]), cut
        known = known or line.startswith(_STATE)
        hint = line.startswith("  (") and line.endswith(")")
        in_section = line in _SECTIONS or (in_section and hint)
        if known and hint:
            continue
        ending = _TAIL_HINT.match(line) if line.startswith("no") else None
        kept.append(ending[1] if ending else line)
    shown, shortened = _head(files)
    return kept + shown, cut or shortened


def _head(files: list[str]) -> tuple[list[str], bool]:
    """Return the first files of a long section and the number of the others, and whether any was left out."""
    if len(files) <= _LONGEST_SECTION:
        return files, False
    return [*files[:_HEAD], f"\t... and {len(files) - _HEAD} more ({len(files)} in this section)"], True
