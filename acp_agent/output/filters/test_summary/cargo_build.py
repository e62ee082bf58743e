"""What cargo prints before and after the tests: progress, the compiler's warnings and errors."""

import re
from collections.abc import Sequence

from acp_agent.output.filters.test_summary.pieces import Parsed

_PROGRESS = re.compile(
    r" {0,11}(?:Compiling|Downloading|Downloaded|Updating|Fetching|Fresh|Packaging|Verifying|Archiving|Locking|Adding"
    r"|Removing|Checking|Documenting|Running|Loaded|Blocking|Unpacking|Finished|Doc-tests|Dirty|Executable|Building) "
    r"|\(\d+ noise lines? removed\)$"
)
FIRST_LETTERS = tuple(" (ABCDEFLPRUV")
_WARNING = re.compile(r"warning(?:\[\w+\])?: ")
_GENERATED = re.compile(r"warning: `[^`]+` \([^)]*\) generated \d+ warnings?\b")
_ARROW = re.compile(r"\s*--> ")
_ERROR = re.compile(r"error(?:\[E\d+\])?: ")


def is_progress(line: str) -> bool:
    """Whether cargo only tells what it is about to do, or the rule for builds how much of that it took out before."""
    return line.startswith(FIRST_LETTERS) and _PROGRESS.match(line) is not None


def diagnostic(lines: Sequence[str], start: int, parsed: Parsed) -> int:
    """Take up the compiler message that begins at `start`; the line behind it, or `start` when there is none.

    Errors are kept whole; a warning is its first line and its place.
    """
    line = lines[start]
    if not line.startswith(("error", "warning", "Caused by:")):
        return start
    if _ERROR.match(line) or line == "Caused by:":
        end = start + 1 if line == "Caused by:" else _block_end(lines, start)
        for kept in (*lines[start:end], *([""] if end > start + 1 else [])):
            parsed.keep(kept)
        return end if line != "Caused by:" else _indented(lines, end, parsed)
    if _GENERATED.match(line):
        return start + 1
    if _WARNING.match(line) and start + 1 < len(lines) and _ARROW.match(lines[start + 1]):
        parsed.keep(f"{line} {lines[start + 1].strip()}")
        return _block_end(lines, start)
    return start


def _block_end(lines: Sequence[str], start: int) -> int:
    """Messages end with a blank line; cargo's own, which may have none, before its next step."""
    return next((i for i in range(start, len(lines)) if not lines[i].strip() or is_progress(lines[i])), len(lines))


def _indented(lines: Sequence[str], start: int, parsed: Parsed) -> int:
    end = start
    while end < len(lines) and lines[end].startswith("  "):
        parsed.keep(lines[end])
        end += 1
    return end
