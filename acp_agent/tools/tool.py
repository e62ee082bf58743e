"""The base of every tool, and the lines of a file as a model sees them.

A tool has a name, typed parameters, the subjects it touches, and what it does. A line ends only with LF or CRLF.
`str.splitlines` also splits at form feeds, U+2028 and more, and would number lines unlike every editor.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar, Generic

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Diff,
    JsonObject,
    Location,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
)
from acp_agent.text import title
from acp_agent.tools.params import P, parse, schema

_COUNTED = 100_000  # missing characters that are worth a number


def split_lines(text: str) -> list[str]:
    """Return the lines without their ends. A text that ends with a line end has no empty last line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def cut(line: str, limit: int) -> str:
    """Return the line, or its first `limit` characters and how many are missing."""
    missing = len(line) - limit
    if missing <= 0:
        return line
    # Of a very long line only the beginning may have been read.
    return f"{line[:limit]}… [{missing if missing <= _COUNTED else f'over {_COUNTED}'} more characters]"


def numbered(lines: Iterable[str], first: int, limit: int) -> str:
    """Return lines with their numbers. `first` counts from 1. Long lines are cut."""
    return "\n".join(f"{number:>4}\t{cut(line, limit)}" for number, line in enumerate(lines, first))


def first_changed_line(old: str, new: str) -> int:
    """Return the first line of the new text that differs, from 1. It is the last line if only the end is missing."""
    before, after = old.split("\n"), new.split("\n")
    for number, (left, right) in enumerate(zip(before, after, strict=False), 1):
        if left != right:
            return number
    return min(len(before) + 1, len(after)) if old != new else 1


def relative(path: str, base: str) -> str:
    """Return the absolute `path` relative to the folder `base` if it is below it, else unchanged."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path.removeprefix(prefix) if path != base else "."


class Tool(ABC, Generic[P]):
    """A tool that the model can call. It has no state: one object serves every session and call.

    name        the name for the model and the audit log
    kind        how an editor draws it
    mutates     whether it changes anything; True if in doubt
    cacheable   whether the same call gives the same answer until something changes
    external    whether its result comes from outside: the web, an MCP server
    params      the model of its parameters
    """

    name: ClassVar[str]
    mutates: ClassVar[bool]
    cacheable: ClassVar[bool] = False
    external: ClassVar[bool] = False
    kind: ToolKind
    params: type[P]

    def spec(self) -> ToolSpec:
        """Return the tool's definition for the model, made once: prompt caches need the same bytes every turn."""
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        description = " ".join((self.params.__doc__ or "").split())
        return ToolSpec(
            self.name,
            description,
            schema(self.params),
            self.kind,
            self.mutates,
            cacheable=self.cacheable,
            external=self.external,
        )

    def parse(self, arguments: JsonObject) -> P:
        """Return the typed parameters. Raises ToolError (invalid_parameters or type_mismatch)."""
        return parse(self.params, self.name, arguments)

    def title(self, params: P) -> str:
        """Return one line for the user: the command, path or URL of the call, else the tool's name."""
        for field in ("command", "path", "url"):
            value = getattr(params, field, None) if field in params.model_fields_set else None
            if isinstance(value, str):
                return title(value)
        return self.name

    @abstractmethod
    def subjects(self, params: P) -> tuple[Subject, ...]:
        """Return everything that the call touches. What is missing here is not guarded."""

    def locations(self, params: P, files: FileSystem) -> tuple[Location, ...]:
        """Return places worth opening when the call starts. Raises what `files.resolve` raises."""
        del params, files
        return ()

    async def preview(self, params: P, files: FileSystem) -> tuple[Diff, ...]:
        """Return the change as it would be made now. Raises ToolError, Refused or BackendUnavailable."""
        del params, files
        return ()

    async def summary(self, params: P, files: FileSystem) -> str:
        """Return what the call does, with a verb, for the user who is asked. Empty if title and diffs say it.

        Raises as `preview` does, so that the user is not asked about a call that is known to fail.
        """
        del params, files
        return ""

    @abstractmethod
    async def run(self, params: P, context: ToolContext) -> ToolResult:
        """Do it. Raises ToolError, Refused or BackendUnavailable."""

    def failed(self, error: ToolError | Refused) -> ToolResult:
        """Return the result of a run that fails with this error."""
        return ToolResult.failed(error.failure)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation for the gates. Raises ToolError for arguments that do not fit.

        If the preview fails, nothing is shown: the run fails with the same error and reports it.
        """
        params = self.parse(arguments)
        diffs, locations, summary, predicted_failure = tuple[Diff, ...](), tuple[Location, ...](), "", None
        try:
            diffs = await self.preview(params, files)
            locations = changed(diffs) or self.locations(params, files)
            summary = await self.summary(params, files)
        except (ToolError, Refused) as error:
            predicted_failure = self.failed(error)
        except BackendUnavailable:
            pass  # the run may find another
        return Invocation(
            call=replace(call, name=self.name),
            spec=self.spec(),
            title=self.title(params),
            run=partial(self.run, params),
            subjects=self.subjects(params),
            diffs=diffs,
            locations=locations,
            predicted_failure=predicted_failure,
            summary=summary,
        )


def changed(diffs: tuple[Diff, ...]) -> tuple[Location, ...]:
    """Return where each changed file changes first."""
    return tuple(Location(diff.path, first_changed_line(diff.old_text or "", diff.new_text)) for diff in diffs)
