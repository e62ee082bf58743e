"""The built-in tools, and the registry that finds a tool for a call."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Invocation
from acp_agent.core.secrets import Redact
from acp_agent.core.types import ALIASES, JsonObject, ToolCall, ToolKind, ToolSpec
from acp_agent.tools.agent import AgentAction, AgentTool, EvaluateTool, HandoffTool
from acp_agent.tools.bash import Bash, Process, TypesCommands, no_shell
from acp_agent.tools.conversation import CompressContext, UpdatePlan
from acp_agent.tools.diagnostics import Diagnostics
from acp_agent.tools.edit import Edit, Write
from acp_agent.tools.memory import MemorySave, MemorySearch
from acp_agent.tools.outline import Outline
from acp_agent.tools.path_tools import CopyPath, CreateDirectory, DeletePath, ListDirectory, MovePath
from acp_agent.tools.read import Read
from acp_agent.tools.read_overflow import ReadOverflow
from acp_agent.tools.search import FindPath, Grep
from acp_agent.tools.tool import Tool, no_object, object_in, quote
from acp_agent.tools.web import Fetch, WebScrape
from acp_agent.workspace.seen_files import SeenFiles

if TYPE_CHECKING:  # few users have custom tools
    from acp_agent.tools.custom import CustomCommand


class ToolLimits(NamedTuple):
    """The limits of the built-in tools.

    command_seconds             the longest timeout of a command, in seconds
    read_lines, line_chars      lines of one read, and characters of one line
    read_chars                  characters of one read, which ends with a whole line
    match_chars, grep_matches   characters of a matching line, and matches of one grep
    found_paths                 results of find_path if the model names no number
    write_bytes                 size of a file after write or edit
    overflow_chars              characters of one page of read_overflow, which must not be too long itself
    diagnostics                 problems that diagnostics shows if the model names no number
    checker_seconds             seconds for each of its checkers
    guards_secrets              whether a search leaves out files that may contain secrets unless the call names them
    redact                      removes secrets; None if `grep` is to show only the beginnings of long lines
    """

    command_seconds: float = 600
    read_lines: int = 2000
    line_chars: int = 2000
    read_chars: int = 40_000
    match_chars: int = 500
    grep_matches: int = 100
    found_paths: int = 200
    write_bytes: int = 10 * 1024 * 1024
    overflow_chars: int = 20_000
    diagnostics: int = 50
    checker_seconds: float = 120
    guards_secrets: bool = True
    redact: Redact | None = None


_DEFAULTS = ToolLimits()


def default_tools(
    limits: ToolLimits = _DEFAULTS,
    seen: SeenFiles | None = None,
    *,
    rich_kinds: bool = True,
    memory: bool = True,
    compression: bool = False,
    questions: bool = False,
    types_commands: TypesCommands = no_shell,
    reached: Sequence[str] | None = None,
) -> tuple[Tool[Any], ...]:
    """Return the built-in tools in the order in which the model sees them.

    `seen` is the session's record of the files it knows. With `rich_kinds` every tool has its own kind, else many have
    the kind "other". `questions` says whether the editor can show a form, `types_commands` whether a background process
    runs what is written to it, `reached` which hosts commands reach in their sandbox; None if they have none.
    """
    return (
        Bash(limits.command_seconds, reached=reached),
        Process(types_commands),
        *_file_tools(limits, SeenFiles() if seen is None else seen, rich_kinds=rich_kinds),
        Fetch(),
        WebScrape(),
        Diagnostics(max_diagnostics=limits.diagnostics, seconds=limits.checker_seconds),
        ReadOverflow(max_chars=limits.overflow_chars),
        UpdatePlan(),
        *_optional(memory=memory, compression=compression, questions=questions),
    )


def _file_tools(limits: ToolLimits, seen: SeenFiles, *, rich_kinds: bool) -> tuple[Tool[Any], ...]:
    def kind(rich: ToolKind) -> ToolKind:
        return rich if rich_kinds else ToolKind.OTHER

    guards_secrets = limits.guards_secrets
    return (
        Read(max_lines=limits.read_lines, max_line_chars=limits.line_chars, seen=seen, max_chars=limits.read_chars),
        Write(max_bytes=limits.write_bytes, seen=seen),
        Edit(max_bytes=limits.write_bytes, seen=seen),
        ListDirectory(kind=kind(ToolKind.SEARCH)),
        FindPath(max_results=limits.found_paths, kind=kind(ToolKind.SEARCH), guards_secrets=guards_secrets),
        Grep(
            max_matches=limits.grep_matches,
            max_line_chars=limits.match_chars,
            redact=limits.redact,
            guards_secrets=guards_secrets,
        ),
        Outline(),
        CreateDirectory(seen, kind=kind(ToolKind.EDIT)),
        DeletePath(seen, kind=kind(ToolKind.DELETE)),
        MovePath(seen, kind=kind(ToolKind.MOVE)),
        CopyPath(seen, kind=kind(ToolKind.EDIT)),
    )


def _optional(*, memory: bool, compression: bool, questions: bool) -> Iterator[Tool[Any]]:
    if questions:
        from acp_agent.tools.ask_user import AskUser  # noqa: PLC0415 - few editors show forms

        yield AskUser()
    if memory:
        yield MemorySearch()
        yield MemorySave()
    if compression:
        yield CompressContext()


RegisteredTool: TypeAlias = "Tool[Any] | CustomCommand"
"""One of our own tools, or one of the user's."""


class Registry:
    """The tools of an agent by name. It is immutable; other tools need another registry."""

    def __init__(self, tools: Sequence[RegisteredTool]) -> None:
        self._tools: Mapping[str, RegisteredTool] = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise ValueError(f"two tools share a name: {', '.join(tool.name for tool in tools)}")
        self._specs = [tool.spec for tool in tools if tool.name != AgentAction.name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools."""
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may call, without aliases and without `agent_action`."""
        return tuple([spec() for spec in self._specs])

    def is_starting(self, name: str) -> bool:
        """Return False: the tools of an agent are always there."""
        del name
        return False

    async def wait_for(self, name: str) -> None:
        """Return at once."""
        del name

    async def understand(self, call: ToolCall, files: FileSystem) -> Invocation:
        """Return the invocation: arguments parsed, subjects known, change previewed.

        It carries the tool's own name even if the model used an alias. Raises ToolError (tool_not_found,
        invalid_parameters or type_mismatch).
        """
        tool = self._tools.get(call.name) or self._meant(call.name)
        sent = object_in(call.raw_arguments) if call.arguments is None else call.arguments
        if sent is None:
            raise no_object(tool.name, call.raw_arguments)
        arguments = tool.fitted(sent)
        invocation = await tool.understand(replace(call, arguments=arguments), arguments, files)
        return replace(invocation, note=" ".join(_notes(sent, arguments)))

    def _meant(self, name: str) -> RegisteredTool:
        """Return the tool with that name or alias in another case. Raises ToolError with the nearest name."""
        aliases = {alias: tool for alias, tool in ALIASES.items() if tool in self._tools}
        known = {**aliases, **dict(zip(self._tools, self._tools, strict=True))}
        lowered = name.lower()
        if lowered in known:
            return self._tools[known[lowered]]
        near = get_close_matches(lowered[:100], known, n=1)
        first = f"Use {known[near[0]]}, or another of your tools" if near else "Use one of your tools"
        advice = f"{first}: {', '.join(spec.name for spec in self.specs() if not spec.users_only)}."
        raise ToolError(ToolErrorCategory.TOOL_NOT_FOUND, f"there is no tool {quote(name)}", advice)


def _notes(sent: JsonObject, arguments: JsonObject) -> Iterator[str]:
    """Yield notes for the model on numbers that were changed before the call."""
    for name, value in arguments.items():
        given = sent.get(name)
        if name == "timeout" and f"{value}000" == f"{given}":
            yield f"[timeout read as milliseconds: {value} s]"
        elif type(given) is int and type(value) is int and value < given:
            yield f"[{name} limited to {value}]"


def reserved_names() -> frozenset[str]:
    """Return the names of our own tools that any session may have, and their aliases."""
    return frozenset((*(tool.name for tool in (*every_tool(), AgentAction())), *ALIASES))


def every_tool() -> tuple[Tool[Any], ...]:
    """Return the built-in tools with all that only some sessions have, for their names and schemas."""
    from acp_agent.tools.board import Messages, Tasks  # noqa: PLC0415 - few sessions have a board
    from acp_agent.tools.scheduler import SchedulerTool  # noqa: PLC0415 - few users switch it on
    from acp_agent.tools.skills import NoSkills, skill_tools  # noqa: PLC0415 - few sessions have skills

    return (
        *default_tools(compression=True, questions=True),
        AgentTool(),
        EvaluateTool(),
        HandoffTool(),
        *skill_tools(NoSkills(), searchable=True),
        Tasks(),
        Messages(),
        SchedulerTool(),
    )


def catalogue() -> JsonObject:
    """Return all built-in tools: `{"tools": [{name, description, kind, mutates, parameters}, ...]}`."""
    return {
        "tools": [
            {
                "name": spec.name,
                "description": spec.description,
                "kind": spec.kind.value,
                "mutates": spec.mutates,
                "parameters": spec.parameters,
            }
            for spec in (tool.spec() for tool in every_tool())
        ]
    }
