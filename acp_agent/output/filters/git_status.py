"""The `git_status` strategy: branch, sections and their files, without the hints (section 4 row 45)."""

import re
from collections.abc import Sequence

from acp_agent.core.types import Confidence
from acp_agent.output.filters.run import CommandRun
from acp_agent.output.filters.strategy import Applied

_LONGEST_SECTION = 30
_HEAD = 20

_STATE = (
    "On branch ",
    "HEAD detached ",
    "Not currently on any branch.",
    "interactive rebase in progress; ",
    "rebase in progress; ",
)
_SHORT = re.compile(r"(?:## |# branch\.|[ MADRCUT?!]{2} \S|[12u] [.MADRCUT]{2} |[?!] )")
_SECTIONS = frozenset(
    ("Changes to be committed:", "Changes not staged for commit:", "Untracked files:", "Ignored files:")
)
_ENTRY = "\t"
_TAIL_HINT = re.compile(r"((?:no changes added|nothing added|nothing) to commit\b.*?) \((?:use|create)\b.*\)$")


class GitStatus:
    """Drops hints, and of a section with more than 30 files all but the first 20 and their number.

    Conflicts stay, all of them, and so does every line that is not git's. Short and porcelain formats pass as they are.
    Full when only hints went, Partial when files did, Fallback when it is not the output of git status.
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
        if line.startswith("diff --git "):  # of `status -v`: git_diff's matter, not ours
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
    """The first files of a long section and how many there are."""
    if len(files) <= _LONGEST_SECTION:
        return files, False
    return [*files[:_HEAD], f"\t... and {len(files) - _HEAD} more ({len(files)} in this section)"], True
