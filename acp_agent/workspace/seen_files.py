"""The files that a session has read or written through its tools, and what was in them.

A model edits by what it read. If somebody else changes a file in between, `edit` and `write` refuse once and show the
difference (`tools/edit.py`), and the next prompt can name the files that changed (`changed`).
"""

import difflib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.local_files import current_stamp, text_on_disk
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.text_files import MOST_WHOLE, text_digest

_MOST_TEXTS = 64
_MOST_FILES = 2000
_MOST_COMPARED = 3000  # lines: more take a comparison longer than a reader would wait
_CONTEXT = 2


@dataclass(frozen=True, slots=True)
class _Seen:
    """One file as it was noted. `stamp` is empty if the file's times prove nothing, `text` is None if it is long."""

    digest: str
    stamp: str
    text: str | None = None


_UNKNOWN = "unknown"
"""The digest of a text that no file can have."""


class SeenFiles:
    """The files that one session has seen, by absolute path. Its methods are for worker threads.

    roots   returns what may be read now; None if nothing may, or without a disk
    now     returns nanoseconds since 1970

    The oldest notes are dropped above 2,000 files, and the oldest texts above 64.
    """

    def __init__(self, roots: Callable[[], Roots | None] = lambda: None, now: Callable[[], int] = now_ns) -> None:
        self._roots = roots
        self._now = now
        self._files = OrderedDict[str, _Seen]()
        self._texts = OrderedDict[str, None]()

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def note(self, path: str, text: str) -> None:
        """Note that the model knows this text of the file: it read or wrote it."""
        self.note_digest(path, text_digest(text), text if len(text) <= MOST_WHOLE else None)

    def note_digest(self, path: str, digest: str, text: str | None = None) -> None:
        """Note a file by the digest of its text. `text` is given if it is short enough to be kept."""
        self._files[path] = _Seen(digest, self._stamp(path), text)
        self._files.move_to_end(path)
        self._texts.pop(path, None)
        if text is not None:
            self._texts[path] = None
        while len(self._texts) > _MOST_TEXTS:
            oldest, _ = self._texts.popitem(last=False)
            self._files[oldest] = replace(self._files[oldest], text=None)
        while len(self._files) > _MOST_FILES:
            oldest, _ = self._files.popitem(last=False)
            self._texts.pop(oldest, None)

    def resume(self, paths: Iterable[str], last_used: int) -> None:
        """Note files that a stored session has seen. One that was written after its last use counts as changed.

        paths       the files as calls have named them. What is noted already stays as it is
        last_used   when the session was used last, in milliseconds since 1970
        """
        roots = self._roots()
        if roots is None:
            return
        for path in paths:
            with suppress(Refused, ToolError):
                place = roots.place(path, Access.READ)
                status = place.status()
                if place.path not in self._files:
                    same = status is not None and status.st_mtime_ns <= last_used * 1_000_000
                    text = text_on_disk(roots, place.path) if same else None
                    self.note_digest(place.path, _UNKNOWN if text is None else text_digest(text))

    def forget(self, path: str) -> None:
        """Forget a file and everything below it: the session itself deleted or moved it."""
        for each in [each for each in self._files if each == path or each.startswith(f"{path}/")]:
            del self._files[each]
            self._texts.pop(each, None)

    def clear(self) -> None:
        """Forget every file, because the conversation that saw them is gone."""
        self._files.clear()
        self._texts.clear()

    def difference(self, path: str, text: str) -> list[str] | None:
        """Return how `text` differs from what was noted, as lines of a diff. None if it does not, or nothing was noted.

        The list is empty if the noted text was too long to be kept.
        """
        seen = self._files.get(path)
        if seen is None or seen.digest == text_digest(text):
            return None
        return [] if seen.text is None else _diff(seen.text, text)

    def changed(self) -> tuple[str, ...]:
        """Return the paths whose content on disk is not what was noted any more, sorted. It looks at every file.

        A file whose times and size are as they were costs one `stat`. Unsaved changes in an editor do not count here.
        """
        return tuple(sorted(path for path, seen in list(self._files.items()) if self._has_changed(path, seen)))

    def _has_changed(self, path: str, seen: _Seen) -> bool:
        roots, stamp = self._roots(), self._stamp(path)
        if roots is None or (stamp and stamp == seen.stamp):
            return False
        try:
            text = text_on_disk(roots, path)
        except Refused:  # it may not be read any more
            return False
        except ToolError:  # it is no text any more
            return True
        if text is None or text_digest(text) != seen.digest:
            return True
        if self._files.get(path) is seen:
            self._files[path] = replace(seen, stamp=stamp)
        return False

    def _stamp(self, path: str) -> str:
        """Return what changes whenever the file is written; empty if it is no file or was written a moment ago."""
        roots = self._roots()
        return "" if roots is None else current_stamp(roots, path, self._now) or ""


def _diff(old: str, new: str) -> list[str]:
    """Return the lines of a unified diff. What both texts begin and end with is not compared, only shown as context."""
    before, after = old.split("\n"), new.split("\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, kept = max(start - _CONTEXT, 0), max(end - _CONTEXT, 0)
    before, after = before[first : len(before) - kept], after[first : len(after) - kept]
    if max(len(before), len(after)) > _MOST_COMPARED:
        return []
    lines = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]
    return [_moved(line, first) for line in lines]


def _moved(line: str, by: int) -> str:
    """Return a line of a diff. A hunk's head gets the line numbers of the whole texts."""
    if not line.startswith("@@ "):
        return line
    ranges = [part.partition(",") for part in line.split()[1:3]]
    shown = [f"{number[0]}{int(number[1:]) + by}{comma}{count}" for number, comma, count in ranges]
    return f"@@ {' '.join(shown)} @@"
