"""Hooks: commands of the user that run when something happens in a session.

    [[pre_tool_use]]
    matcher = "bash"
    command = "./check-command.sh"
    timeout = 10

    [[file_changed]]
    glob = "src/**/*.py"
    command = "make lint"

They are in `hooks.toml`. The `hooks` of Claude Code's `.claude/settings.json` are read as well. docs/hooks.md says what
a hook is given, and what it may answer.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TypeVar, cast

from acp_agent.core.data import frozen
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Json, JsonObject
from acp_agent.core.untrusted import json_value, toml_table
from acp_agent.extend.front_matter import DefinitionProblem, Fields, Value, text_of
from acp_agent.extend.sources import SourceFile
from acp_agent.regex import LinearRegex
from acp_agent.workspace.glob import FileGlob

T = TypeVar("T")

_MOST = 50
"""Hooks of one file."""
_LONGEST_COMMAND = 4096


class HookEvent(StrEnum):
    """An event that a hook is about. The value is the key in `hooks.toml`."""

    PRE_TOOL_USE = "pre_tool_use"
    POST_TOOL_USE = "post_tool_use"
    PERMISSION_DENIED = "permission_denied"
    TURN_COMPLETE = "turn_complete"
    FILE_CHANGED = "file_changed"
    CWD_CHANGED = "cwd_changed"
    SESSION_START = "session_start"
    SESSION_END = "session_end"

    @property
    def claude_name(self) -> str:
        """Claude Code's name of the event, which a hook is given."""
        return "Stop" if self is HookEvent.TURN_COMPLETE else "".join(map(str.capitalize, self.split("_")))


_OF_CALLS = (HookEvent.PRE_TOOL_USE, HookEvent.POST_TOOL_USE, HookEvent.PERMISSION_DENIED)
_BY_THEIR_NAME = {event.claude_name: event for event in HookEvent}

THEIR_TOOLS = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "grep": "Grep",
    "find_path": "Glob",
    "list_directory": "LS",
    "fetch": "WebFetch",
    "agent": "Task",
}
"""The names of tools in Claude Code."""


@frozen
class Hook:
    """One hook.

    matcher    matches the whole name of a tool; None for all tools
    glob       the files it is about; None for all files
    command    a line of the shell; empty if `mcp` is set
    mcp        the name of an MCP server's tool, as the model has it, which is called with `arguments`
    timeout    in seconds
    claude     whether it is given Claude Code's names of tools
    file       the path of its file as it is shown
    """

    event: HookEvent
    file: str
    command: str = ""
    mcp: str = ""
    arguments: JsonObject = field(default_factory=dict[str, Json])
    matcher: LinearRegex | None = None
    glob: FileGlob | None = None
    timeout: int = 60
    claude: bool = False

    @property
    def action(self) -> str:
        """What it does, for the question about a project's files."""
        arguments = json.dumps(self.arguments, ensure_ascii=False, default=str)
        return f"runs {self.command}" if self.command else f"calls {self.mcp} with {arguments}"

    def is_about(self, *names: str) -> bool:
        """Return whether it is about a tool, which may have several names."""
        return self.matcher is None or any(map(self.matcher.matches, names))


# ----------------------------------------------------------------------------------------- reading


@frozen
class HookFile:
    """The hooks of one file, and its problems."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[DefinitionProblem, ...] = ()


def hooks_in(file: SourceFile) -> HookFile:
    """Return the hooks of a file of hooks."""
    claude = file.path.endswith(".json")
    try:
        text = file.data.decode("utf-8-sig")
        table = json_value(text) if claude else cast("Json", toml_table(text))
    except ValueError as error:  # UnicodeDecodeError is one
        problem = DefinitionProblem(file.shown, "", f"expected {'JSON' if claude else 'TOML'}: {error}")
        return HookFile(problems=(problem,))
    events = table.get("hooks", {}) if isinstance(table, dict) and claude else table
    if not isinstance(events, dict):
        reason = f"expected a table of events, got {text_of(cast('Value', events))}"
        return HookFile(problems=(DefinitionProblem(file.shown, "hooks", reason),))
    return _Reader(file.shown, HookEvent, claude=claude).read(events)


def hooks_of_agent(events: JsonObject, file: str) -> HookFile:
    """Return the hooks in the definition of a sub-agent, in our form or Claude Code's. They are about its calls."""
    return _Reader(file, _OF_CALLS, "hooks.", claude=any(name in _BY_THEIR_NAME for name in events)).read(events)


class _Reader:
    """A reader of hooks. It leaves out every hook with a mistake.

    file     the path as it is shown
    known    the events that there may be
    under    the prefix of the keys in messages
    claude   whether the form is that of Claude Code
    """

    def __init__(self, file: str, known: Iterable[HookEvent], under: str = "", *, claude: bool) -> None:
        self._file = file
        self._known = {event.claude_name if claude else str(event): event for event in known}
        self._under = under
        self._claude = claude
        self.hooks, self.problems = list[Hook](), list[DefinitionProblem]()

    def read(self, events: JsonObject) -> HookFile:
        """Return the hooks by their events."""
        self._events(events)
        if len(self.hooks) > _MOST:
            self._wrong("", f"expected at most {_MOST} hooks: the others are not used")
        return HookFile(tuple(self.hooks[:_MOST]), tuple(self.problems))

    def _wrong(self, key: str, reason: str, *, minor: bool = False) -> None:
        self.problems.append(DefinitionProblem(self._file, f"{self._under}{key}", reason, minor=minor))

    def _events(self, events: JsonObject) -> None:
        for name, entries in events.items():
            event = self._known.get(name)
            if event is None and self._claude:
                self._wrong(name, "hooks for this event do not run here", minor=True)
            elif event is None:
                self._wrong(name, f"unknown event (known events: {', '.join(self._known)})")
            else:
                form = "a list" if self._claude else f"a list of tables, [[{name}]]"
                for where, entry in self._tables(entries, name, form):
                    self._entry(event, entry, where)

    def _tables(self, entries: Json, key: str, form: str) -> Iterator[tuple[str, JsonObject]]:
        """Yield the tables of a list, each with its key. An entry that is not a table is a problem."""
        if not isinstance(entries, list):
            self._wrong(key, f"expected {form}, got {text_of(cast('Value', entries))}")
            return
        for number, entry in enumerate(entries, start=1):
            if isinstance(entry, dict):
                yield f"{key} {number}", entry
            else:
                self._wrong(f"{key} {number}", f"expected a table, got {text_of(cast('Value', entry))}")

    def _entry(self, event: HookEvent, entry: JsonObject, where: str) -> None:
        if not self._claude:
            self._hook(event, entry, where)
            return
        matcher: JsonObject = {"matcher": entry.get("matcher", "")} if event in _OF_CALLS else {}
        for inside, each in self._tables(entry.get("hooks", []), f"{where}.hooks", "a list"):
            if (kind := each.get("type", "command")) == "command":
                self._hook(event, {key: each[key] for key in ("command", "timeout") if key in each} | matcher, inside)
            else:
                told = f"a hook of type {text_of(cast('Value', kind))}, which does not run here"
                self._wrong(inside, told, minor=True)

    def _hook(self, event: HookEvent, entry: JsonObject, where: str) -> None:
        fields = Fields(self._file, cast("Mapping[str, Value]", entry))
        command, mcp = fields.text("command", most=_LONGEST_COMMAND), fields.text("mcp", most=64)
        arguments = cast("JsonObject", dict(fields.table("arguments")))
        try:
            json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError):
            fields.refuse("arguments", "texts, finite numbers, true, false, lists and tables")
        timeout = fields.number("timeout", 60, 1, 600)
        if not fields.problems and (bool(command) is bool(mcp) or "\0" in command):
            fields.refuse("command", "a line of the shell, or the name of an MCP server's tool as mcp")
        matcher = _pattern(fields, "matcher", LinearRegex, ("", "*")) if event in _OF_CALLS else None
        glob = _pattern(fields, "glob", FileGlob) if event is HookEvent.FILE_CHANGED else None
        fields.note_unknown()
        for each in fields.problems:
            self._wrong(f"{where}.{each.key}", each.reason)
        if not fields.problems:
            self.hooks.append(Hook(event, self._file, command, mcp, arguments, matcher, glob, timeout, self._claude))


def _pattern(fields: Fields, key: str, form: Callable[[str], T], everything: Sequence[str] = ("",)) -> T | None:
    """Return the pattern of a key; None if it is wrong, or means everything."""
    text = fields.text(key)
    try:
        return None if text in everything else form(text)
    except (ValueError, ToolError, Refused) as error:
        fields.refuse(key, f"a pattern ({error})")
        return None


class HookLibrary:
    """The hooks of one session: those of its files, and those in the definitions of agents."""

    def __init__(self) -> None:
        self._files: tuple[SourceFile, ...] = ()
        self._read: tuple[HookFile, ...] = ()
        self._of_agents: Mapping[str, Sequence[Hook]] = {}

    def read(self, files: tuple[SourceFile, ...], of_agents: Mapping[str, Sequence[Hook]]) -> None:
        """Take the hooks of these files, and those of agents by name. Unchanged files cost nothing."""
        self._of_agents = of_agents
        if files is not self._files:
            self._files = files
            self._read = tuple(map(hooks_in, files))

    def of(self, event: HookEvent, agent: str = "") -> Sequence[Hook]:
        """Return the hooks about an event, in the order of the files. Those of the agent come last."""
        found = (*(hook for each in self._read for hook in each.hooks), *self._of_agents.get(agent, ()))
        return [hook for hook in found if hook.event is event]

    @property
    def all(self) -> Sequence[Hook]:
        """All hooks."""
        return [hook for hooks in (*(each.hooks for each in self._read), *self._of_agents.values()) for hook in hooks]

    @property
    def problems(self) -> Sequence[DefinitionProblem]:
        """The problems of the files."""
        return [problem for each in self._read for problem in each.problems]

    def status(self) -> Sequence[str]:
        """Return a line for /status."""
        count = Counter(str(hook.event) for hook in self.all)
        return (f"Hooks: {', '.join(f'{number} {event}' for event, number in count.items())}",) if count else ()


def effect(file: SourceFile) -> str:
    """Return what a file of hooks would run, for the question about a project's files."""
    return runs(hooks_in(file).hooks)


def runs(hooks: Sequence[Hook]) -> str:
    """Return what hooks run and when, for the user."""
    return "; ".join(f"on {hook.event} {hook.action}" for hook in hooks)
