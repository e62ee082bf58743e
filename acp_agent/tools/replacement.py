"""Replacing one exact string in a text, or refusing. Pure functions of strings (requirements T4.14).

A model writes LF. Where the string it wants has no CR at all, the file's CRLF line ends read as LF, and the
replacement takes the line ends found there. A string with a CR in it is taken literally, and so is its
replacement: that is how line ends themselves are edited.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.tools.nearest import no_match

_MAX_COUNTED = 100
_MAX_LISTED = 10
_LONE_LF = re.compile(r"(?<!\r)\n")


class _Span(NamedTuple):
    """Where a match stands in the text itself: first offset, and the one behind the last."""

    start: int
    end: int


class _Folded:
    """A text to search, with CRLF read as LF if wanted, and the way back to the offsets of the text itself."""

    def __init__(self, text: str, *, fold: bool) -> None:
        self._pairs: list[int] = []
        self._folded = text
        if fold:
            self._folded = text.replace("\r\n", "\n")
            self._pairs = [match.start() - i for i, match in enumerate(re.finditer("\r\n", text))]

    def spans(self, wanted: str, *, overlapping: bool) -> Iterator[_Span]:
        """Every place `wanted` stands, in order."""
        step = 1 if overlapping else len(wanted)
        at = self._folded.find(wanted)
        while at != -1:
            yield _Span(self._offset(at), self._offset(at + len(wanted)))
            at = self._folded.find(wanted, at + step)

    def _offset(self, folded: int) -> int:
        return folded + bisect_left(self._pairs, folded)


def replace_exactly(text: str, old: str, new: str, *, every: bool = False) -> tuple[str, int]:
    """The text with `old` replaced by `new`, and how many times.

    `old` must stand there exactly once, overlaps counted, unless `every` is true. Raises ToolError:
    invalid_parameters when `old` is empty or nothing would change, permanent_failure when `old` is not there
    (NoMatch) or there more than once (saying how often, and on which lines).
    """
    if not old or old == new:
        what = "old_string is empty" if not old else "old_string and new_string are the same"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"{what}: nothing to replace")
    adapt = "\r\n" in text and "\r" not in old
    found = _Folded(text, fold=adapt)
    spans = found.spans(old, overlapping=False) if every else _only(found, text, old)
    changed, count = _replaced(text, spans, new, adapt=adapt)
    if count == 0:
        raise no_match(text, old)
    if changed == text:
        msg = "new_string differs from old_string only in line ends, and the file keeps its own: nothing to replace"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
    return changed, count


def _only(found: _Folded, text: str, old: str) -> list[_Span]:
    """The one match, or none. Raises ToolError when there are more."""
    spans: list[_Span] = []
    for span in found.spans(old, overlapping=True):
        spans.append(span)
        if len(spans) == _MAX_COUNTED:
            break
    if len(spans) <= 1:
        return spans
    lines = list(dict.fromkeys(str(text.count("\n", 0, span.start) + 1) for span in spans))
    listed = ", ".join(lines[:_MAX_LISTED] + ["…"] * (len(lines) > _MAX_LISTED))
    where = f"{'lines' if len(lines) > 1 else 'line'} {listed}"
    count = f"at least {_MAX_COUNTED}" if len(spans) == _MAX_COUNTED else f"{len(spans)}"
    raise ToolError(
        ToolErrorCategory.PERMANENT_FAILURE,
        f"old_string occurs {count} times ({where}); it must occur exactly once",
        "Add lines around it to old_string until it is unique, or set replace_all.",
    )


def _replaced(text: str, spans: Iterable[_Span], new: str, *, adapt: bool) -> tuple[str, int]:
    """The text with every span replaced, and their number. `adapt` gives `new` the line ends found there."""
    crlf = _LONE_LF.sub("\r\n", new) if adapt else new
    pieces: list[str] = []
    done, until, adapted = 0, -1, new
    for span in spans:
        if span.start > until:  # past the line end that decided so far: the next one does, or the text's last
            following = text.find("\n", span.start)
            until = len(text) if following == -1 else following
            deciding = text.rfind("\n") if following == -1 else following
            adapted = crlf if text[deciding - 1 : deciding] == "\r" else new
        pieces += (text[done : span.start], adapted)
        done = span.end
    return "".join((*pieces, text[done:])), len(pieces) // 2
