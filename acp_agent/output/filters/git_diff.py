"""The `git_diff` strategy: headers of all files, hunks up to a limit (section 4 row 45)."""

import re
from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.diff_files import FileDiff, files_of
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied

_GENERATED = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|Cargo\.lock|poetry\.lock"
    r"|uv\.lock|pdm\.lock|Pipfile\.lock|composer\.lock|Gemfile\.lock|go\.sum|flake\.lock|mix\.lock|pubspec\.lock|deno\.lock"
    r"|Package\.resolved|packages\.lock\.json)$|\.min\.(?:js|css|mjs)$|\.(?:js|css)\.map$|\.pb\.go$|_pb2(?:_grpc)?\.pyi?$"
)
_FEWEST_LINES = 10  # of the limit: less of a hunk than this is not worth cutting it


class GitDiff:
    """Keeps whole hunks while there is room for them; then one line `path | +a -b` a file.

    max_diff_lines   lines of hunks in all

    Lock files and other generated ones are their header and counts, whatever the size; conflict markers in what is not
    shown are counted. Partial when any hunk went, Fallback when there is no patch in the text (--stat, --name-only, an
    error).
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
        """Files in their order."""
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
    """The header but for the blob ids."""
    return [line for line in file.header if not line.startswith("index ")]


def _hunks_within(file: FileDiff, room: int) -> list[str]:
    """Whole hunks, as many as there is room for; the one that does not fit is cut, never left without its header."""
    shown: list[str] = []
    for hunk in file.hunks:
        left = room - len(shown)
        if len(hunk.lines) > left:
            return shown + (hunk.lines[:left] if left >= _FEWEST_LINES else [])
        shown += hunk.lines
    return shown


def _remaining(rest: Sequence[str], files: Sequence[FileDiff], *, full: bool) -> list[str]:
    """The files without a shown hunk, and the totals of all."""
    if not full:
        return []
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    heading = ["Files not shown:"] if rest else []
    return [*heading, *rest, f"{len(files)} files changed, +{added} -{removed}", ""]
