"""write and edit: replace a whole file, or one exact string in it. A text is written only as the user was shown it."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio.to_thread

from acp_agent.core.backends import EntryKind, FileSystem
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.secrets import placeholders
from acp_agent.core.types import Access, Diff, JsonObject, PathSubject, Subject, ToolCall, ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import visible
from acp_agent.tools.edit_match import Adapted, ExplainedFailure, NoMatch, adapted, check_readings, replace_exactly
from acp_agent.tools.tool import Name, Params, Text, Tool, changed, cut, fail
from acp_agent.workspace.seen_files import SeenFiles, diff_lines
from acp_agent.workspace.text_files import changed_error, noted


async def previous_text(files: FileSystem, path: str) -> str | None:
    """Return the text of the file, or None if it does not exist.

    Raises what `read_text` raises for a file that exists but cannot be read, since it must not be replaced. Raises
    Refused if the path may not be looked at, and ToolError if it is below a file.
    """
    if await files.kind(path) is not None:
        return await files.read_text(path)
    if await _is_below_a_file(files, path):
        raise ToolError.permanent(f"{visible(path)}: a part of the path is a file, not a directory")
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


def change(files: FileSystem, path: str, old: str | None, new: str, max_bytes: int) -> Diff:
    """Return the change of one file, with an absolute path.

    Raises ToolError (invalid_parameters) for a text over `max_bytes`, and for one with more redaction placeholders than
    the old text: a placeholder would replace a secret.
    """
    size = len(new.encode())
    if size > max_bytes:
        raise ToolError.invalid(f"{visible(path)} would be {size} bytes: at most {max_bytes} can be written")
    added = placeholders(new) - placeholders(old or "")
    if added:
        msg = (
            f"the new text of {visible(path)} contains {', '.join(sorted(added))}, which the old text does not contain"
        )
        advice = (
            "You saw redacted text: the placeholder stands for a value that you were not shown. To keep that value, "
            "edit only the text around it. For a new value, ask the user."
        )
        raise ToolError.invalid(msg, advice)
    return Diff(files.resolve(path, Access.WRITE), old, new)


_MAX_SHOWN_CHARS = 200
_MOST_REFUSED = 64
_MAX_DIFF_LINES = 60
_TELLING = 12  # characters: a shorter new_string is found by accident


class StaleFile(ExplainedFailure):
    """The file changed since the session last read or wrote it. `resolved` is its absolute path, if it is known."""

    def __init__(self, path: str, diff: Sequence[str], resolved: str = "") -> None:
        self.resolved = resolved
        advice = "Nothing was written. Repeat the call if it still fits this; "
        advice += "read the file for the rest of the diff." if len(diff) > _MAX_DIFF_LINES else "else adapt it."
        if not diff:
            advice = "Nothing was written. Read the file, then repeat the call if it still fits."
        super().__init__(
            f"{visible(path)} was changed since you last read or wrote it",
            advice,
            "\n".join(cut(line.removesuffix("\r"), _MAX_SHOWN_CHARS) for line in diff[:_MAX_DIFF_LINES]),
        )


async def _refuse(refusal: ToolResult, context: ToolContext) -> ToolResult:
    """Return the result of a refused call. This is its run where the user is not asked."""
    del context
    return refusal


P = TypeVar("P", bound=Params)


class FileWriter(Tool[P]):
    """The base of the tools that write a file.

    A call for a file that has changed since the session saw it is refused once, with the changes. It is refused before
    the user is asked. The file then counts as seen, so that the repeated call works.
    """

    kind = ToolKind.EDIT
    mutates = True

    def __init__(self, *, max_bytes: int, seen: SeenFiles) -> None:
        self._max_bytes = max_bytes
        self._seen = seen
        self._refused = OrderedDict[str, Invocation]()  # by the id of the call, which is understood again when it runs

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation. A call that was refused when it was announced is refused when it runs."""
        known = self._refused.pop(call.id, None)
        if known is not None:
            return known
        invocation = await self._judged(await super().understand(call, arguments, files))
        run = invocation.run
        refusal = invocation.predicted_failure
        stale = [each for each in run.args if isinstance(each, StaleFile)] if isinstance(run, partial) else []
        if refusal and stale:
            self._seen.refuse(call.batch, stale[0].resolved)
            invocation = replace(invocation, run=partial(_refuse, refusal))  # with the changes, which no error holds
            self._refused[call.id] = invocation
            while len(self._refused) > _MOST_REFUSED:
                self._refused.popitem(last=False)
        return invocation

    async def _judged(self, invocation: Invocation) -> Invocation:
        """Return the invocation, or one that fails."""
        return invocation

    def is_final(self, error: ToolError | Refused) -> bool:
        return isinstance(error, StaleFile)

    async def _unchanged(self, path: str, text: str, files: FileSystem) -> None:
        """Raise StaleFile if the file changed since the session saw it. The text then counts as seen."""
        resolved = files.resolve(path, Access.WRITE)
        diff = await anyio.to_thread.run_sync(self._seen.difference, resolved, text)
        if diff is not None:
            await self._note(resolved, text)
            raise StaleFile(path, diff, resolved)

    async def _commit(self, made: Diff, path: str, context: ToolContext) -> tuple[Diff, str]:
        """Write the change and note the text. Return the change, and how the editor altered the text, for the model.

        Raises ToolError (permanent_failure) if the change is not the one that the user was shown, or if the file
        changed in between.
        """
        if context.previewed and made not in context.previewed:
            raise changed_error(visible(path))
        now = await context.files.write_text(path, made.new_text, expected=made.old_text)
        await self._note(made.path, now, context.agent.id if context.agent else "")
        if now == made.new_text:
            return made, ""
        lines = await anyio.to_thread.run_sync(diff_lines, made.new_text, now)
        shown = "\n".join(cut(line, _MAX_SHOWN_CHARS) for line in lines[:_MAX_DIFF_LINES])
        return replace(made, new_text=now), f". The editor changed it as it saved it:\n{shown}"

    async def _note(self, resolved: str, text: str, who: str | None = None) -> None:
        await noted(partial(self._seen.note, resolved, text, who), len(text))

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

    def subjects(self, params: EditParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.READ), PathSubject(params.path, Access.WRITE))

    async def preview(self, params: EditParams, files: FileSystem) -> tuple[Diff, ...]:
        made, _ = await self._change(params, files, await self._text(params, files))
        return (made,)

    async def run(self, params: EditParams, context: ToolContext) -> ToolResult:
        shown = context.previewed  # writing compares it with the file
        try:
            old = shown[0].old_text if shown else None
            old = await self._text(params, context.files) if old is None else old
            made, edited = await self._change(params, context.files, old)
        except ExplainedFailure as failure:
            return self.failed(failure)
        made, saved = await self._commit(made, params.path, context)
        locations = changed((made,))
        where = f"{params.path} at line {locations[0].line}"
        text = f"Edited {where}" if edited.places == 1 else f"Edited {where}: {edited.places} replacements"
        text += (f" ({edited.how})" if edited.how else "") + saved
        return ToolResult(text, diffs=(made,), locations=locations)

    async def _text(self, params: EditParams, files: FileSystem) -> str:
        text = await files.read_text(params.path)
        await self._unchanged(params.path, text, files)
        return text

    async def _change(self, params: EditParams, files: FileSystem, old: str) -> tuple[Diff, Adapted]:
        """Return the change, the number of places it touches, and how it was adapted to the file."""
        edited = await anyio.to_thread.run_sync(_edited, old, params)  # a near miss in a large file takes time
        return change(files, params.path, old, edited.text, self._max_bytes), edited


def _edited(text: str, params: EditParams) -> Adapted:
    """Return the text after the edit. Raises ToolError."""
    old, new = params.old_string, params.new_string
    if not params.replace_all:
        check_readings(text, old)
    try:
        return Adapted(*replace_exactly(text, old, new, every=params.replace_all), "")
    except NoMatch:
        found = None if params.replace_all else adapted(text, old, new)
        if found is not None:
            return found
        if len(new) >= _TELLING and text.count(new) == 1:
            line = text.count("\n", 0, text.index(new)) + 1
            raise NoMatch(
                f"; new_string is at line {line} already", "Read the file: the edit may have been made."
            ) from None
        raise


class WriteParams(Params):
    """Create a file or replace all of it, creating folders as needed. To change a part, use edit."""

    path: Name
    content: Text


class Write(FileWriter[WriteParams]):
    """The tool that writes whole files. A file that uses CRLF keeps it."""

    name = "write"

    def subjects(self, params: WriteParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.WRITE),)

    async def preview(self, params: WriteParams, files: FileSystem) -> tuple[Diff, ...]:
        return (self._change(params, files, await self._previous(params, files)),)

    async def _judged(self, invocation: Invocation) -> Invocation:
        """Refuse to replace a file once that another agent has changed since this one knew it: its changes would go.

        The same holds if an earlier call of the same message was refused, since the model has not read why.
        An edit needs no such care, since it replaces only text that it names.
        """
        who = invocation.call.agent.id if invocation.call.agent else ""
        for diff in invocation.diffs:
            if diff.old_text in (None, diff.new_text):
                continue
            unread = self._seen.was_refused(invocation.call.batch, diff.path)
            if unread or await noted(partial(self._seen.overtook, who, diff.path, diff.old_text), len(diff.old_text)):
                stale = StaleFile(diff.path, ())
                return replace(invocation, run=partial(fail, stale), diffs=(), predicted_failure=self.failed(stale))
        return invocation

    async def run(self, params: WriteParams, context: ToolContext) -> ToolResult:
        try:
            shown = context.previewed  # writing compares it with the file
            old = shown[0].old_text if shown else await self._previous(params, context.files)
        except StaleFile as stale:
            return self.failed(stale)
        made = self._change(params, context.files, old)
        made, saved = await self._commit(made, params.path, context)
        text = f"Wrote {len(made.new_text.encode())} bytes to {params.path}{saved}"
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
