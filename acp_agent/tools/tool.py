"""What every tool is: a name, typed parameters, the subjects it touches, and what it does."""

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
from acp_agent.tools.params import P, parse, schema
from acp_agent.tools.visible import title

_COUNTED = 100_000  # missing characters that are worth a number


def split_lines(text: str) -> list[str]:
    """The lines without their ends. A text that ends with a line end has no empty last line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def cut(line: str, limit: int) -> str:
    """The line, or its first `limit` characters and how many are missing."""
    missing = len(line) - limit
    if missing <= 0:
        return line
    # Of a very long line only the beginning may have been read.
    return f"{line[:limit]}… [{missing if missing <= _COUNTED else f'over {_COUNTED}'} more characters]"


def numbered(lines: Iterable[str], first: int, limit: int) -> str:
    """Lines with their numbers, as T4.11 wants them; `first` is 1-based, long lines are cut."""
    return "\n".join(f"{number:>4}\t{cut(line, limit)}" for number, line in enumerate(lines, first))


def first_changed_line(old: str, new: str) -> int:
    """The 1-based line of the new text where it starts to differ; its last line when only the end is gone."""
    before, after = old.split("\n"), new.split("\n")
    for number, (left, right) in enumerate(zip(before, after, strict=False), 1):
        if left != right:
            return number
    return min(len(before) + 1, len(after)) if old != new else 1


def relative(path: str, base: str) -> str:
    """The absolute `path` seen from the absolute folder `base` when it is below it, else as it is."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    return path.removeprefix(prefix) if path != base else "."


class Tool(ABC, Generic[P]):
    """A tool the model can call. Stateless: one object serves every session and every call.

    name        the model's word for it, and the audit's
    kind        how an editor draws it
    mutates     whether it changes anything; true where in doubt
    cacheable   whether the same call gives the same answer until something changes (O6)
    external    whether what it says comes from outside: the web, an MCP server (L12)
    params      the model of its parameters
    """

    name: ClassVar[str]
    mutates: ClassVar[bool]
    cacheable: ClassVar[bool] = False
    external: ClassVar[bool] = False
    kind: ToolKind
    params: type[P]

    def spec(self) -> ToolSpec:
        """What the model is told. Made once: prompt caching wants the same bytes every turn."""
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
        """The typed parameters. Raises ToolError (invalid_parameters or type_mismatch)."""
        return parse(self.params, self.name, arguments)

    def title(self, params: P) -> str:
        """One line for the user: the command, path or URL the model gave, else the tool's name (A19.12)."""
        for field in ("command", "path", "url"):
            value = getattr(params, field, None) if field in params.model_fields_set else None
            if isinstance(value, str):
                return title(value)
        return self.name

    @abstractmethod
    def subjects(self, params: P) -> tuple[Subject, ...]:
        """Everything the call touches. What is not named here is not guarded."""

    def locations(self, params: P, files: FileSystem) -> tuple[Location, ...]:
        """Places worth opening when the call starts. Raises what `files.resolve` raises."""
        del params, files
        return ()

    async def preview(self, params: P, files: FileSystem) -> tuple[Diff, ...]:
        """The change as it would be made now. Raises ToolError, Refused or BackendUnavailable."""
        del params, files
        return ()

    async def deed(self, params: P, files: FileSystem) -> str:
        """What the call does, with a verb, for the person who is asked; empty where title and diffs say it.

        Raises as `preview` does: what is known to fail is nobody's question.
        """
        del params, files
        return ""

    @abstractmethod
    async def run(self, params: P, context: ToolContext) -> ToolResult:
        """Do it. Raises ToolError, Refused or BackendUnavailable."""

    def failed(self, error: ToolError | Refused) -> ToolResult:
        """What a run that meets this error gives."""
        return ToolResult.failed(error.failure)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """A call of this tool, ready for the gates. Raises ToolError for arguments that do not fit.

        A preview that fails shows nothing: the run would meet the same error, and reports it.
        """
        params = self.parse(arguments)
        diffs, locations, deed, flaw = tuple[Diff, ...](), tuple[Location, ...](), "", None
        try:
            diffs = await self.preview(params, files)
            locations = changed(diffs) or self.locations(params, files)
            deed = await self.deed(params, files)
        except (ToolError, Refused) as error:
            flaw = self.failed(error)
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
            flaw=flaw,
            deed=deed,
        )


def changed(diffs: tuple[Diff, ...]) -> tuple[Location, ...]:
    """Where each changed file changes first (A19.8, requirements 2.2)."""
    return tuple(Location(diff.path, first_changed_line(diff.old_text or "", diff.new_text)) for diff in diffs)
