"""The strategies `git_diff` and `git_status`.

A filtered diff has whole hunks up to a limit, as git printed them. A filtered status has branch, sections and files,
without hints.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain, pairwise

from acp_agent.core.types import Confidence
from acp_agent.output.filters.strategy import Applied, CommandRun
from acp_agent.text import lazy_regex

_FILE = ("diff --git ", "diff --cc ", "diff --combined ")
_BEGINS = (*_FILE, "@@")
_FIRST = frozenset(each[:2] for each in _BEGINS)
_PLAIN_HUNK = lazy_regex(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HUNK = lazy_regex(r"(?P<ats>@@+) (?P<ranges>(?:[-+]\d+(?:,\d+)? )+)@@+")
_CONFLICT = lazy_regex(r"[ +]+(?:<{7}|>{7})(?: |$)")
_RANGE = lazy_regex(r"[-+]\d+(?:,(\d+))?")
_HEADER = (
    *("index ", "--- ", "+++ ", "old mode ", "new mode ", "new file mode ", "deleted file mode ", "mode ", "rename "),
    *("copy ", "similarity index ", "dissimilarity index ", "Binary files ", "GIT binary patch"),
)
_BINARY_DATA = lazy_regex(r"(?:literal|delta) \d+$|[A-Za-z][0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]+$|$")


@dataclass(slots=True)
class FileDiff:
    """One file of a diff.

    path      the new name, as git writes it in the header
    header    the lines from `diff --...` up to the first hunk
    hunks     the lines of each hunk, `@@ ... @@` first
    trailer   lines after the last hunk that belong to no file
    """

    path: str
    header: list[str]
    hunks: list[list[str]] = field(default_factory=list[list[str]])
    trailer: list[str] = field(default_factory=list[str])
    added: int = 0
    removed: int = 0

    @property
    def size(self) -> int:
        """The number of lines of the hunks."""
        return sum(map(len, self.hunks))

    def counts(self, *, conflicts: bool) -> str:
        """Return `path | +a -b`, and the number of conflict markers if there may be any."""
        if not conflicts:
            return f"{self.path} | +{self.added} -{self.removed}"
        marked = (line for hunk in self.hunks for line in hunk if "<<<<<<<" in line or ">>>>>>>" in line)
        markers = sum(_CONFLICT.match(line) is not None for line in marked)
        said = f", {markers} conflict marker{'' if markers == 1 else 's'}" if markers else ""
        return f"{self.path} | +{self.added} -{self.removed}{said}"


def files_of(lines: Sequence[str]) -> tuple[list[str], list[FileDiff]]:
    """Return the lines before the first file, such as a --stat table, and the files."""
    found = [at for at, line in enumerate(lines) if line[:2] in _FIRST and line.startswith(_BEGINS)]
    headers = [(at, hunk) for at in found if (hunk := _HUNK.match(lines[at])) or lines[at][0] == "d"]
    prelude, files = list(lines), list[FileDiff]()
    for (at, hunk), (end, _) in pairwise((*headers, (len(lines), None))):
        if hunk is None:
            prelude = prelude if files else prelude[:at]
            after = _header_end(lines, at + 1, end)
            files.append(FileDiff(_path(lines[at]), list(lines[at:after])))
        elif files:
            after = _hunk_end(lines, at, end, hunk, files[-1])
            files[-1].hunks.append(list(lines[at:after]))
        else:
            continue
        files[-1].trailer += lines[after:end]
    return prelude, files


def _header_end(lines: Sequence[str], at: int, end: int) -> int:
    binary = False
    while at < end and (lines[at].startswith(_HEADER) or (binary and _BINARY_DATA.match(lines[at]))):
        binary |= lines[at] == "GIT binary patch"
        at += 1
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


def _hunk_end(lines: Sequence[str], at: int, end: int, hunk: re.Match[str], file: FileDiff) -> int:
    """Count the added and removed lines of the hunk at `at`, and return the index behind its last line.

    The header says how long the hunk is. If the lines do not fit the header, the hunk ends at `end`.
    """
    if _counted(lines, at, end, file):
        return end
    ats, ranges = hunk.group("ats", "ranges")
    parents = len(ats) - 1  # a merge has more than one
    sizes = [int(count or 1) for count in _RANGE.findall(ranges)]  # one for each old file, then one for the new file
    marks = [line[:parents] for line in lines[at + 1 : end]]
    counts = {mark: marks.count(mark) for mark in set(marks)}
    if _sizes_of(counts, parents) != sizes:  # text after the hunk, or not a plain diff
        marks = marks[: _length(marks, sizes)]
        counts = {mark: marks.count(mark) for mark in set(marks)}
    file.added += sum(count for mark, count in counts.items() if "+" in mark)
    file.removed += sum(count for mark, count in counts.items() if "-" in mark)
    return at + 1 + len(marks)


def _counted(lines: Sequence[str], at: int, end: int, file: FileDiff) -> bool:
    """Count the lines of a hunk that has one old file and ends at `end`, as most do. Return False for other hunks."""
    if (header := _PLAIN_HUNK.match(lines[at])) is None:
        return False
    old, new = (int(size or 1) for size in header.groups())
    marks = "".join([line[:1] for line in lines[at + 1 : end]])  # an empty line has no mark: it is in both files
    size, added, removed = end - at - 1, marks.count("+"), marks.count("-")
    same = marks.count(" ") + size - len(marks)
    if (removed + same, added + same, added + removed + same + marks.count("\\")) != (old, new, size):
        return False
    file.added += added
    file.removed += removed
    return True


def _sizes_of(counts: Mapping[str, int], parents: int) -> list[int] | None:
    """Return how many lines each file has in a hunk, from the marks of the lines. None if a mark is invalid."""
    sizes = [0] * (parents + 1)
    for mark, count in counts.items():
        if (files := _files_with(mark, parents)) is None:
            return None
        for file in files:
            sizes[file] += count
    return sizes


@lru_cache(256)
def _files_with(mark: str, parents: int) -> tuple[int, ...] | None:
    """Return the indexes of the files that have a line with these marks, the new file last. None for other marks."""
    if mark[:1] == "\\":  # "\\ No newline at end of file"
        return ()
    if mark.strip(" +-"):
        return None
    removed = "-" in mark
    old = [file for file, each in enumerate(mark.ljust(parents)) if each == "-" or (each == " " and not removed)]
    return tuple(old if removed else (*old, parents))


def _length(marks: Sequence[str], sizes: Sequence[int]) -> int | None:
    """Return the number of lines of a hunk whose header gives these sizes. None if the lines do not fit the header."""
    left = list(sizes)
    for number, mark in enumerate(marks):
        if max(left) <= 0 and mark[:1] != "\\":
            return number
        if (files := _files_with(mark, len(sizes) - 1)) is None:
            return None
        for file in files:
            left[file] -= 1
    return None if any(left) else len(marks)


_GENERATED = lazy_regex(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|Cargo\.lock|poetry\.lock"
    r"|uv\.lock|pdm\.lock|Pipfile\.lock|composer\.lock|Gemfile\.lock|go\.sum|flake\.lock|mix\.lock|pubspec\.lock|deno\.lock"
    r"|Package\.resolved|packages\.lock\.json)$|\.min\.(?:js|css|mjs)$|\.(?:js|css)\.map$|\.pb\.go$|_pb2(?:_grpc)?\.pyi?$"
)


class GitDiff:
    """The strategy `git_diff`: whole hunks while there is room, then a note `[left out: path | +a -b]` for each file.

    max_diff_lines   lines of all hunks together

    Of lock files and other generated files only the header and the counts are kept. Conflict markers in hidden parts
    are counted. All other lines are git's own. The confidence is Partial if a hunk was left out, and Fallback if the
    text has no patch, such as with --stat or after an error.
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
        conflicts = "<<<<<<<" in text or ">>>>>>>" in text
        shorter = "\n".join((*prelude, *self._shown(files, conflicts=conflicts)))
        return Applied(shorter, Confidence.PARTIAL) if len(shorter) < len(text) else Applied(text, Confidence.FULL)

    def _shown(self, files: Sequence[FileDiff], *, conflicts: bool) -> list[str]:
        """Return the lines of the files in their order. `conflicts` is True if there may be conflict markers."""
        lines: list[str] = []
        rest: list[str] = []
        room = self._limit
        full = False
        for file in files:
            if file.hunks and _GENERATED.search(file.path):
                lines += [*file.header, f"[left out: {file.counts(conflicts=conflicts)}, generated]"]
            elif full:
                rest.append(f"[left out: {file.counts(conflicts=conflicts)}]")
            else:
                shown = _hunks_within(file, room)
                size = sum(map(len, shown))
                room, full = room - size, size < file.size
                lines += [*file.header, *chain.from_iterable(shown)]
                if full:
                    hunks = f"{len(file.hunks) - len(shown)} of {len(file.hunks)} hunks of " if shown else ""
                    lines.append(f"[left out: {hunks}{file.counts(conflicts=conflicts)}]")
            lines += [] if rest else file.trailer
            rest += file.trailer if rest and any(file.trailer) else []
        if full:  # a note for each file without a shown hunk, and the totals of all files
            added, removed = sum(file.added for file in files), sum(file.removed for file in files)
            lines += [*rest, f"[{len(files)} files changed, +{added} -{removed}]", ""]
        return lines


def _hunks_within(file: FileDiff, room: int) -> list[list[str]]:
    """Return the first hunks that fit into `room` lines."""
    sizes = accumulate(map(len, file.hunks))
    return [hunk for hunk, size in zip(file.hunks, sizes, strict=True) if size <= room]


_LONGEST_SECTION = 30
_HEAD = 20

_STATE = (
    "On branch ", "HEAD detached ", "Not currently on any branch.", "interactive rebase in progress; ",
    "rebase in progress; ",
)  # fmt: skip
_SHORT = lazy_regex(r"(?:## |# branch\.|[ MADRCUT?!]{2} \S|[12u] [.MADRCUT]{2} |[?!] )")
_SECTIONS = frozenset(
    ("Changes to be committed:", "Changes not staged for commit:", "Untracked files:", "Ignored files:")
)
_ENTRY = "\t"
_TAIL_HINT = lazy_regex(r"((?:no changes added|nothing added|nothing) to commit\b.*?) \((?:use|create)\b.*\)$")


class GitStatus:
    """The strategy `git_status`: no hints, and of a section with more than 30 files the first 20 and a count.

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
        if line.startswith("diff --git "):  # the diff of `status -v` is not shortened
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
    return [*files[:_HEAD], f"\t[{len(files) - _HEAD} more of {len(files)} files in this section]"], True
