"""The files that a session has seen, and which of them have changed since.

A model edits by what it read. If somebody else changes a file in between, `edit` and `write` refuse once and show the
difference (`tools/edit.py`), and the next prompt can name the files that changed (`SeenFiles.changed`).
"""

import difflib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.sessions import SeenFile
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.local_files import current_stamp, has_stamp, text_on_disk
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.text_files import MOST_WHOLE, text_digest

_MOST_TEXTS = 64
_MOST_FILES = 2000
_MOST_QUICKLY = 100
_MOST_COMPARED = 3000  # lines: more take a comparison longer than a reader would wait
_CONTEXT = 2


class SeenFiles:
    """The files that one session has seen, by absolute path. Its methods are for worker threads.

    roots    returns what may be read now; None if nothing may be
    redact   removes secrets from a text. Only texts without secrets are kept
    files    what a stored session has seen
    now      returns nanoseconds since 1970

    The oldest notes are dropped above 2,000 files, and the oldest texts above 64.
    """

    def __init__(
        self,
        roots: Callable[[], Roots | None] = lambda: None,
        redact: Redact = verbatim,
        files: Mapping[str, SeenFile] = MappingProxyType({}),
        now: Callable[[], int] = now_ns,
    ) -> None:
        self._roots = roots
        self._redact = redact
        self._now = now
        self._files = OrderedDict(files)
        self._texts = OrderedDict[str, None]((path, None) for path, file in files.items() if file.text is not None)
        self._unnamed = set[str]()  # files whose path holds a secret
        # By agent and path, the digest of the file that the agent knows; by message and path, the refused calls.
        self._known = OrderedDict[tuple[str, str], str]()
        self._refusals = OrderedDict[tuple[str, str], None]()
        self._version = self._kept_version = 0
        self._kept = files

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def note(self, path: str, text: str, who: str | None = None) -> None:
        """Note that the model knows this text of the file: it read or wrote it. See `note_digest`."""
        self.note_digest(path, text_digest(text), text if len(text) <= MOST_WHOLE else None, who)

    def note_digest(self, path: str, digest: str, text: str | None = None, who: str | None = None) -> None:
        """Note a file by the digest of its text.

        text   given if it is short enough to be kept
        who    the sub-agent that knows the text; empty for the session's own agent, and None if all learn of it
        """
        text = None if text is None else self._redact(text)
        if self._redact(path) != path:
            self._unnamed.add(path)
        if who is None:
            self._forget_known(path)
        else:
            self._known[who, path] = digest
            self._known.move_to_end((who, path))
        while len(self._known) > _MOST_FILES:
            self._known.popitem(last=False)
        self._files[path] = SeenFile(digest, self._stamp(path), text)
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
        self._version += 1  # last, so that the next `kept` sees the changes above

    def kept(self) -> Mapping[str, SeenFile]:
        """Return the notes as they are stored: the same object until one changes. Any thread may call it."""
        version = self._version
        if version != self._kept_version:
            files = dict(self._files)
            self._kept = {path: files[path] for path in files if path not in self._unnamed} if self._unnamed else files
            self._kept_version = version
        return self._kept

    def forget(self, path: str) -> None:
        """Forget a file and everything below it: the session itself deleted it or put another one there."""
        self._forget_known(path)
        for each in self._below(path):
            del self._files[each]
            self._texts.pop(each, None)
        self._version += 1

    def move(self, old: str, new: str) -> None:
        """Note that the session itself moved a file or a folder."""
        self.forget(new)
        self._forget_known(old)
        for each in self._below(old):
            target = f"{new}{each.removeprefix(old)}"
            self._files[target] = replace(self._files.pop(each), stamp="")
            if each in self._texts:
                del self._texts[each]
                self._texts[target] = None
            if self._redact(target) != target:
                self._unnamed.add(target)
        self._version += 1

    def _below(self, path: str) -> list[str]:
        return [each for each in list(self._files) if each == path or each.startswith(f"{path}/")]

    def clear(self) -> None:
        """Forget every file, because the conversation that saw them is gone."""
        self._files.clear()
        self._texts.clear()
        self._known.clear()
        self._version += 1

    def overtook(self, who: str, path: str, text: str) -> bool:
        """Return whether another agent has changed a file to `text` since `who` knew it. Then `who` knows it, too."""
        known = self._known.get((who, path))
        if known is None or known == (digest := text_digest(text)):
            return False
        self._known[who, path] = digest
        return True

    def refuse(self, batch: str, path: str) -> None:
        """Note that a call of this message of the model was refused, because the file changed."""
        self._refusals[batch, path] = None
        while len(self._refusals) > _MOST_TEXTS:
            self._refusals.popitem(last=False)

    def was_refused(self, batch: str, path: str) -> bool:
        """Return whether the model wrote this message before it could read what has changed in the file."""
        return bool(batch) and (batch, path) in self._refusals

    def _forget_known(self, path: str) -> None:
        for key in [key for key in list(self._known) if key[1] == path or key[1].startswith(f"{path}/")]:
            self._known.pop(key, None)

    def has(self, path: str, text: str) -> bool:
        """Return whether exactly this text of the file was noted last."""
        seen = self._files.get(path)
        return seen is not None and seen.digest == text_digest(text)

    def difference(self, path: str, text: str) -> list[str] | None:
        """Return how `text` differs from what was noted, as lines of a diff. None if it does not, or nothing was noted.

        The list is empty if the noted text was too long to be kept.
        """
        seen = self._files.get(path)
        if seen is None or seen.digest == text_digest(text):
            return None
        return [] if seen.text is None else diff_lines(self._redact(seen.text), self._redact(text))

    def changed(self) -> tuple[str, ...]:
        """Return the paths whose content on disk is not what was noted any more, sorted. It looks at every file.

        A file whose times and size have not changed costs one `stat`. The others are read if the rules still allow it.
        Unsaved changes in an editor do not count here.
        """
        roots = self._roots()
        if roots is None:
            return ()
        return tuple(sorted(path for path, seen in self._unlike() if self._has_changed(roots, path, seen)))

    def is_unchanged(self, devices: Collection[int]) -> bool:
        """Return whether all files have the times and sizes that were noted: `changed` is empty then.

        It takes a `stat` for each file. It returns False at once if a file is on another device, which might hang, and
        for more than a hundred files: a thread should look at so many.
        """
        if self._roots() is None:
            return True
        if len(self._files) > _MOST_QUICKLY:
            return False
        near = frozenset(map(str, devices))
        are_near = all(seen.stamp.partition(":")[0] in near for seen in list(self._files.values()))
        return are_near and not self._unlike()

    def _unlike(self) -> list[tuple[str, SeenFile]]:
        """Return the notes whose files have other times or another size now, or were too new for a stamp."""
        return [(path, seen) for path, seen in list(self._files.items()) if not has_stamp(path, seen.stamp)]

    def _has_changed(self, roots: Roots, path: str, seen: SeenFile) -> bool:
        try:
            found = text_on_disk(roots, path, self._now)
        except Refused:  # it may not be read any more
            return False
        except ToolError:  # it is no text any more
            return True
        if found is None or text_digest(found[0]) != seen.digest:
            return True
        if self._files.get(path) is seen:
            self._files[path] = replace(seen, stamp=found[1] or "")
            self._version += 1
        return False

    def _stamp(self, path: str) -> str:
        """Return a stamp that changes whenever the file is written; empty if it is no file, or was written just now."""
        roots = self._roots()
        return "" if roots is None else current_stamp(roots, path, self._now) or ""


def diff_lines(old: str, new: str) -> list[str]:
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
