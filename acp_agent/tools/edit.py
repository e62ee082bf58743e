"""write and edit: replace a whole file, or one exact string in it. A text is written only as the user was shown it.

A model writes LF. If the string that edit is to replace has no CR, CRLF line ends of the file are read as LF, and the
replacement gets the line ends found there. A string with a CR is taken literally, and so is its replacement; this edits
line ends.

If the string is not in the file, the error shows the most similar lines. The search is linear in the file: a window of
as many lines as wanted counts the words it shares with them, so lines with wrong indentation are found, too.
"""

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import anyio.to_thread
from pydantic import Field

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.secrets import placeholders
from acp_agent.core.types import Access, Diff, PathSubject, Subject, ToolKind, ToolResult
from acp_agent.text import visible
from acp_agent.tools.tool import Name, Params, Text, Tool, changed, cut, numbered, split_lines
from acp_agent.workspace.seen_files import SeenFiles


async def previous_text(files: FileSystem, path: str) -> str | None:
    """Return the text of the file, or None if it does not exist.

    Raises what `read_text` raises for a file that exists but cannot be read, since it must not be replaced. Raises
    Refused if the path may not be looked at, and ToolError if it is below a file.
    """
    if await files.kind(path) is not None:
        return await files.read_text(path)
    if await _is_below_a_file(files, path):
        msg = f"{visible(path)}: a part of the path is a file, not a directory"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, msg)
    return None


async def _is_below_a_file(files: FileSystem, path: str) -> bool:
    """Return whether the nearest existing path above this one is not a directory."""
    folder = os.path.dirname(files.resolve(path, Access.WRITE))
    try:
        while (kind := await files.kind(folder)) is None:
            folder = os.path.dirname(folder)
    except Refused:  # writing reports it
        return False
    return kind is not EntryKind.DIRECTORY


def shown_text(context: ToolContext) -> str | None:
    """Return the old text of the change that the user was shown, or None. `commit` compares the file with it."""
    return context.previewed[0].old_text if context.previewed else None


def change(files: FileSystem, path: str, old: str | None, new: str, max_bytes: int) -> Diff:
    """Return the change of one file, with an absolute path.

    Raises ToolError (invalid_parameters) for a text over `max_bytes`, and for one with more redaction placeholders than
    the old text: a placeholder would replace a secret.
    """
    size = len(new.encode())
    if size > max_bytes:
        msg = f"{visible(path)} would be {size} bytes: at most {max_bytes} can be written"
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg)
    added = placeholders(new) - placeholders(old or "")
    if added:
        msg = (
            f"the new text of {visible(path)} contains {', '.join(sorted(added))}, which the old text does not contain"
        )
        advice = (
            "You saw redacted text: the placeholder stands for a value that you were not shown. To keep that value, "
            "edit only the text around it. For a new value, ask the user."
        )
        raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, msg, advice)
    return Diff(files.resolve(path, Access.WRITE), old, new)


async def commit(made: Diff, path: str, context: ToolContext) -> None:
    """Write the change if it is the one the user was shown and the file is unchanged since.

    Raises ToolError (permanent_failure) if the path or the file changed in between.
    """
    if context.previewed and made not in context.previewed:
        raise ToolError(
            ToolErrorCategory.PERMANENT_FAILURE,
            f"{visible(path)}: file changed between diff preview and write; aborting",
            "Read the file again, then repeat the change.",
        )
    await context.files.write_text(path, made.new_text, expected=made.old_text)


_MAX_TEXT = 1_000_000  # characters: in a longer text the search costs more than it helps
_MAX_SHOWN_LINES = 12
_MAX_SHOWN_CHARS = 200
_MAX_DIFF_LINES = 60
_LIKE_ENOUGH = 0.5
_WORD = re.compile(r"\w+|[^\w\s]")
_NUMBERED = re.compile(r" *\d+\t")


class _Window(NamedTuple):
    """Some lines of the file: their similarity to the wanted lines, 0 to 1, and the index of the first."""

    likeness: float
    first: int


class ExplainedFailure(ToolError):
    """A failure with lines of the file or of a diff to read below it. `block` has them, or is empty."""

    def __init__(self, what: str, advice: str, block: str = "") -> None:
        super().__init__(ToolErrorCategory.PERMANENT_FAILURE, what, advice)
        self.block = block


class StaleFile(ExplainedFailure):
    """The file changed since the session last read or wrote it."""

    def __init__(self, path: str, diff: Sequence[str]) -> None:
        advice = "Nothing was written. Repeat the call if it still fits this; "
        advice += "read the file for the rest of the diff." if len(diff) > _MAX_DIFF_LINES else "else adapt it."
        if not diff:
            advice = "Nothing was written. Read the file, then repeat the call if it still fits."
        super().__init__(
            f"{visible(path)} was changed by others since you last read or wrote it",
            advice,
            "\n".join(cut(line, _MAX_SHOWN_CHARS) for line in diff[:_MAX_DIFF_LINES]),
        )


class NoMatch(ExplainedFailure):
    """The wanted string is not in the text. The block has the most similar lines with their numbers, or is empty."""

    def __init__(self, where: str, advice: str, nearest: str = "") -> None:
        super().__init__(f"old_string was not found{where}", advice, nearest)


def no_match(text: str, wanted: str) -> NoMatch:
    """Return the error for a string that is missing, with the most helpful advice.

    A redaction placeholder that occurs less often in the text was copied from redacted text and cannot match anything.
    """
    hidden = placeholders(wanted) - placeholders(text)
    if hidden:
        stands = f"{', '.join(sorted(hidden))} stands for a value you were not shown; the file has the real one."
        return NoMatch("", f"You saw redacted text: {stands} Leave it out of old_string and edit around it.")
    lines = wanted.strip("\r\n").split("\n")
    if all(_NUMBERED.match(line) for line in lines):
        return NoMatch("", "Leave out the line numbers and tabs that read puts before each line.")
    unlike = NoMatch("", "Read the file again and copy the text exactly.")
    if len(text) > _MAX_TEXT or not any(line.strip() for line in lines):
        return unlike
    there = split_lines(text)
    best = _best(there, lines)
    if best.likeness < _LIKE_ENOUGH:
        return unlike
    found = there[best.first : best.first + len(lines)]
    how = "differs only in blanks" if _squeezed(found) == _squeezed(lines) else "is the nearest"
    block = numbered(found[:_MAX_SHOWN_LINES], best.first + 1, _MAX_SHOWN_CHARS)
    return NoMatch(f"; the text at line {best.first + 1} {how}", "Copy it exactly, blanks included.", block)


def _best(there: Sequence[str], wanted: Sequence[str]) -> _Window:
    """Return the window most similar to the wanted lines, the first of several."""
    words = Counter(word for line in wanted for word in _WORD.findall(line))
    size = len(wanted)
    sides = [_WORD.findall(line) for line in there]
    seen: Counter[str] = Counter()
    shared = inside = 0
    best = _Window(0.0, 0)
    for last, entering in enumerate(sides):
        leaving = sides[last - size] if last >= size else ()
        for word in leaving:
            seen[word] -= 1
            shared -= seen[word] < words[word]
        for word in entering:
            shared += seen[word] < words[word]
            seen[word] += 1
        inside += len(entering) - len(leaving)
        likeness = 2 * shared / (words.total() + inside) if inside else 0.0
        if likeness > best.likeness:
            best = _Window(likeness, max(0, last - size + 1))
    return best


def _squeezed(lines: Iterable[str]) -> str:
    return "".join("".join(lines).split())


_MAX_COUNTED = 100
_MAX_LISTED = 10
_LONE_LF = re.compile(r"(?<!\r)\n")


class _Span(NamedTuple):
    """The place of a match in the original text: first offset, and the one after the last."""

    start: int
    end: int


class _Folded:
    """A text to search, with CRLF read as LF if wanted, and a mapping to the offsets of the original text."""

    def __init__(self, text: str, *, fold: bool) -> None:
        self._pairs: list[int] = []
        self._folded = text
        if fold:
            self._folded = text.replace("\r\n", "\n")
            self._pairs = [match.start() - i for i, match in enumerate(re.finditer("\r\n", text))]

    def spans(self, wanted: str, *, overlapping: bool) -> Iterator[_Span]:
        """Yield every place of `wanted`, in order."""
        step = 1 if overlapping else len(wanted)
        at = self._folded.find(wanted)
        while at != -1:
            yield _Span(self._offset(at), self._offset(at + len(wanted)))
            at = self._folded.find(wanted, at + step)

    def _offset(self, folded: int) -> int:
        return folded + bisect_left(self._pairs, folded)


def replace_exactly(text: str, old: str, new: str, *, every: bool = False) -> tuple[str, int]:
    """Return the text with `old` replaced by `new`, and the number of replacements.

    `old` must occur exactly once, counting overlaps, unless `every` is True.

    Raises:
        ToolError: invalid_parameters if `old` is empty or nothing would change; permanent_failure if `old` is missing
            (NoMatch) or occurs more than once, with the number and the lines.

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
    """Return the only match, or no match. Raises ToolError if there are more."""
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
    """Return the text with every span replaced, and their number. `adapt` gives `new` the line ends found there."""
    crlf = _LONE_LF.sub("\r\n", new) if adapt else new
    pieces: list[str] = []
    done, until, adapted = 0, -1, new
    for span in spans:
        if span.start > until:  # after the line end that decided so far: the next one decides, or the last of the text
            following = text.find("\n", span.start)
            until = len(text) if following == -1 else following
            deciding = text.rfind("\n") if following == -1 else following
            adapted = crlf if text[deciding - 1 : deciding] == "\r" else new
        pieces += (text[done : span.start], adapted)
        done = span.end
    return "".join((*pieces, text[done:])), len(pieces) // 2


P = TypeVar("P", bound=Params)


class FileWriter(Tool[P]):
    """The base of the tools that write a file. A file that others changed is refused once, with what they changed.

    The call is refused before the user is asked. The file then counts as seen, so that the repeated call works.
    """

    kind = ToolKind.EDIT
    mutates = True

    def __init__(self, *, max_bytes: int, seen: SeenFiles) -> None:
        self._max_bytes = max_bytes
        self._seen = seen

    def is_final(self, error: ToolError | Refused) -> bool:
        return isinstance(error, StaleFile)

    async def _unchanged(self, path: str, text: str, files: FileSystem) -> None:
        """Raise StaleFile if others changed the file since the session saw it. The text then counts as seen."""
        resolved = files.resolve(path, Access.WRITE)
        diff = await anyio.to_thread.run_sync(self._seen.difference, resolved, text)
        if diff is not None:
            await self._note(resolved, text)
            raise StaleFile(path, diff)

    async def _note(self, resolved: str, text: str) -> None:
        await anyio.to_thread.run_sync(self._seen.note, resolved, text)

    def failed(self, error: ToolError | Refused) -> ToolResult:
        """Return the error, with the lines that explain it below."""
        failed = super().failed(error)
        if not isinstance(error, ExplainedFailure) or not error.block:
            return failed
        return replace(failed, text=f"{failed.text}\n{error.block}", display=f"{failed.shown}\n{error.block}")


class EditParams(Params):
    """Replace old_string with new_string in a file. old_string must occur exactly once.

    Copy it from read without the line numbers, with enough lines around it to be unique.
    """

    path: Name
    old_string: Name
    new_string: Text
    replace_all: bool = Field(default=False, description="Replace every occurrence")


class Edit(FileWriter[EditParams]):
    """The tool that replaces exactly what the model named, or refuses. Every other byte stays."""

    name = "edit"
    params = EditParams

    def subjects(self, params: EditParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ), PathSubject(params.path, Access.WRITE))

    async def preview(self, params: EditParams, files: FileSystem) -> tuple[Diff, ...]:
        made, _ = await self._change(params, files, await self._text(params, files))
        return (made,)

    async def run(self, params: EditParams, context: ToolContext) -> ToolResult:
        old = shown_text(context)
        try:
            if old is None:
                old = await self._text(params, context.files)
            made, count = await self._change(params, context.files, old)
        except ExplainedFailure as failure:
            return self.failed(failure)
        await commit(made, params.path, context)
        await self._note(made.path, made.new_text)
        locations = changed((made,))
        where = f"{params.path} at line {locations[0].line}"
        text = f"Edited {where}" if count == 1 else f"Edited {where}: {count} replacements"
        return ToolResult(text, diffs=(made,), locations=locations)

    async def _text(self, params: EditParams, files: FileSystem) -> str:
        text = await files.read_text(params.path)
        await self._unchanged(params.path, text, files)
        return text

    async def _change(self, params: EditParams, files: FileSystem, old: str) -> tuple[Diff, int]:
        """Return the change and the number of places it touches."""
        replacing = partial(replace_exactly, old, params.old_string, params.new_string, every=params.replace_all)
        new, count = await anyio.to_thread.run_sync(replacing)  # a near miss in a large file takes time
        return change(files, params.path, old, new, self._max_bytes), count


class WriteParams(Params):
    """Create a file or replace all of it, creating folders as needed. To change a part, use edit."""

    path: Name
    content: Text


class Write(FileWriter[WriteParams]):
    """The tool that writes whole files. A file that uses CRLF keeps it."""

    name = "write"
    params = WriteParams

    def subjects(self, params: WriteParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.WRITE),)

    async def preview(self, params: WriteParams, files: FileSystem) -> tuple[Diff, ...]:
        return (self._change(params, files, await self._previous(params, files)),)

    async def run(self, params: WriteParams, context: ToolContext) -> ToolResult:
        old = shown_text(context)
        if old is None:
            try:
                old = await self._previous(params, context.files)
            except StaleFile as stale:
                return self.failed(stale)
        made = self._change(params, context.files, old)
        await commit(made, params.path, context)
        await self._note(made.path, made.new_text)
        text = f"Wrote {len(made.new_text.encode())} bytes to {params.path}"
        return ToolResult(text, diffs=(made,), locations=changed((made,)))

    async def _previous(self, params: WriteParams, files: FileSystem) -> str | None:
        text = await previous_text(files, params.path)
        if text is not None and text != params.content:
            await self._unchanged(params.path, text, files)
        return text

    def _change(self, params: WriteParams, files: FileSystem, old: str | None) -> Diff:
        new = params.content
        uses_crlf = old is not None and 0 < old.count("\n") == old.count("\r\n")
        if uses_crlf and "\r" not in new:
            new = new.replace("\n", "\r\n")
        return change(files, params.path, old, new, self._max_bytes)
