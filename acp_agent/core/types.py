"""The parts of a tool call: the names of tools, the request, its subjects, the verdict of a gate, and the result."""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.session_options import Mode


class Phase(StrEnum):
    """The point of a turn at which a call is made. The maker of the call sets it.

    PLANNER      before the first model call of a turn
    EXECUTOR     requested by the model
    VERIFIER     a check of what was done
    AUTONOMOUS   the agent's own housekeeping: it skips the question to the user, but no gate
    """

    PLANNER = "planner"
    EXECUTOR = "executor"
    VERIFIER = "verifier"
    AUTONOMOUS = "autonomous"


Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]


class ToolKind(StrEnum):
    """The kind of a tool, by which an editor draws its calls (ACP `ToolKind`)."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    SWITCH_MODE = "switch_mode"
    OTHER = "other"


class Containment(StrEnum):
    """Whether the commands of a call run in the sandbox of the session."""

    CONTAINED = "contained"
    OUTSIDE = "outside the sandbox"


class Access(StrEnum):
    """The kind of a call's access to a path.

    READ     shows the content of a file
    LIST     shows names below a directory, and whether anything exists at the path
    WRITE    makes or changes the entry
    MOVE     gives the entry itself another name: a link at the end is not followed
    DELETE   removes the entry itself with all below it: a link at the end is not followed
    """

    READ = "read"
    LIST = "list"
    WRITE = "write"
    MOVE = "move"
    DELETE = "delete"

    @property
    def changes(self) -> bool:
        """Whether the access changes anything."""
        return self not in (Access.READ, Access.LIST)

    @property
    def of_the_entry(self) -> bool:
        """Whether a link at the end of the path is not followed, because the access is to the link itself."""
        return self in (Access.MOVE, Access.DELETE)


@frozen
class PathSubject:
    """A path as the model wrote it. A relative one starts at the session's folder."""

    path: str
    access: Access


@frozen
class CommandSubject:
    """A whole shell command line.

    typed        whether it is input for a shell that is already running, whose folder and definitions are unknown
    stays        whether it goes on after the call. It may then open other files than those that the gates saw
    unsandboxed  whether it asks to run outside the session's sandbox
    """

    command: str
    typed: bool = False
    stays: bool = False
    unsandboxed: bool = False


@frozen
class UrlSubject:
    """A URL that a call wants to reach."""

    url: str


@frozen
class McpSubject:
    """A tool on an MCP server."""

    server: str
    tool: str


@frozen
class AgentSubject:
    """The program of another agent. It asks us for some actions and does others by itself.

    identity   what an "always" answer about it covers
    """

    agent: str
    identity: str


Subject: TypeAlias = PathSubject | CommandSubject | UrlSubject | McpSubject | AgentSubject


@frozen
class ToolSpec:
    """The description of a tool for the model, and for the execution of its calls.

    parameters  a JSON Schema object
    mutates     whether a call changes anything
    cacheable   whether the same call gives the same result until something changes
    external    whether its results come from outside: the web, an MCP server
    polls       whether its calls ask for the state of running work, so that equal results do not count as repetition
    asks        whether its calls are questions to the user
    commands    whether its calls are only command lines. A call may then change nothing although `mutates` is set
    queue       the name of a queue in which the calls of one answer keep their order; empty for none
    server      the MCP server of the tool; empty for the built-in ones
    delegates   whether another agent does the work. Each call of that agent is judged, so several may run at once
    alone       whether no other call of the same answer may run at the same time
    users_only  whether only the user calls it, by a slash command. The model does not see it
    acts_as     the names of tools that do the same. If one of them is forbidden, calls of this tool are as well
    acts_later  whether a call has effects later, when the user may be absent. The user is asked about it at every level
    """

    name: str
    description: str
    parameters: JsonObject
    kind: ToolKind
    mutates: bool
    cacheable: bool = False
    external: bool = False
    polls: bool = False
    queue: str = ""
    asks: bool = False
    server: str = ""
    commands: bool = False
    delegates: bool = False
    alone: bool = False
    users_only: bool = False
    acts_as: tuple[str, ...] = ()
    acts_later: bool = False


@frozen
class Touches:
    """The things that a call reads and changes. They decide which calls of one answer run together.

    reads     the real paths that the call shows; "/" for all
    changes   the real paths that the call changes
    server    the MCP server of a call that may change something, there or in files; empty for other calls
    queues    names of queues, such as that of questions to the user. Calls that share one keep their order
    alone     whether the call may change anything, so that no other call runs at the same time
    """

    reads: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    server: str = ""
    queues: frozenset[str] = frozenset()
    alone: bool = False

    def keeps_order_with(self, other: "Touches") -> bool:
        """Return whether two calls must not run together."""
        if self.alone or other.alone or not self.queues.isdisjoint(other.queues):
            return True
        if self.server or other.server:
            return self.server == other.server or self.has_paths or other.has_paths
        return _overlap(self.changes, other.reads | other.changes) or _overlap(other.changes, self.reads)

    @property
    def has_paths(self) -> bool:
        """Whether the call shows or changes files."""
        return bool(self.reads or self.changes)


def _overlap(paths: frozenset[str], others: frozenset[str]) -> bool:
    """Return whether a path of one set is a path of the other, or lies above or below it."""
    return any(
        f"{one}/".startswith(f"{other.rstrip('/')}/") or f"{other}/".startswith(f"{one.rstrip('/')}/")
        for one in paths
        for other in others
    )


class CallOrigin(StrEnum):
    """The origin of a call."""

    MODEL = "model"
    USER = "user"  # a slash command such as /run


@frozen
class CallingAgent:
    """The sub-agent that makes a call.

    id     the id of its run, such as "explore-1"
    name   the name of its definition, for the user
    card   the id of the call whose card shows its calls
    mode   the mode of the sub-agent. Its calls are judged by this or the session's mode, whichever is stricter
    """

    id: str
    name: str
    card: str
    mode: Mode = Mode.CODE


@frozen
class ToolCall:
    """A request to run a tool.

    id              our UUID, made before anything runs; the only id that the editor sees
    arguments       None if the model sent something that is no JSON object
    raw_arguments   what the model sent
    batch           shared by the calls of one message of the model
    use_id          the id of the model's ToolUsePart; empty if the session's own model did not make the call
    agent           the sub-agent that makes the call; None for the session's own agent and the user
    """

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""
    origin: CallOrigin = CallOrigin.MODEL
    batch: str = ""
    phase: Phase = Phase.EXECUTOR
    use_id: str = ""
    agent: CallingAgent | None = None

    @property
    def parent(self) -> str:
        """The id of the call whose card shows this one; empty for none."""
        return "" if self.agent is None else self.agent.card


@frozen
class Location:
    """A place that an editor can open: absolute path, 1-based line."""

    path: str
    line: int | None = None


@frozen
class Diff:
    """A change to one file, whole texts. `old_text` is None for a new file."""

    path: str
    old_text: str | None
    new_text: str


@frozen
class ImagePart:
    """A picture: base64 data and its MIME type."""

    data: str
    mime_type: str


class Confidence(StrEnum):
    """The certainty of an output filter that it has kept everything that matters, best first."""

    FULL = "full"
    PARTIAL = "partial"
    FALLBACK = "fallback"


@frozen
class OutputStats:
    """The changes of a text by the output pipeline.

    rules   the names of the filter rules that matched, in the order in which they were applied
    """

    raw_lines: int
    shown_lines: int
    raw_chars: int
    shown_chars: int
    rules: tuple[str, ...] = ()


class ApprovedBy(StrEnum):
    """The reason why a call was allowed: no gate asked, the user said yes, or a stored answer or a rule allowed it."""

    AUTO = "auto"
    USER = "user"
    ALWAYS = "always"
    POLICY = "policy"


@frozen
class Ruling:
    """The reason why a call ran or not. Only the audit shows it, never the model or the user.

    gate          the gate that ended the call; empty if none did
    rule          the deciding rule as its author wrote it, such as a pattern or a blocked command; empty for none
    approved_by   None if the call did not run
    """

    gate: str = ""
    rule: str = ""
    approved_by: ApprovedBy | None = None


@frozen
class Frame:
    """Our own words around a text that comes from elsewhere. They are neither filtered nor cut.

    head       stands before the text for the model
    headline   stands before the text for the user
    ending     stands after the text for both
    """

    head: str = ""
    headline: str = ""
    ending: str = ""


@frozen
class ToolResult:
    """The result of a call.

    text        what the model reads
    display     what the user reads; None means the same as `text`
    envelope    what machines read: the audit, and ACP rawOutput beside `output` (for bash: stdout, stderr, exit_code,
                signal, truncated)
    frame       our words around text and display; the output pipeline puts them there
    images      pictures beside the text, for the model and the user
    ruling      what the gates decided about the call, for the audit
    cached      whether it is the result of an earlier, equal call
    read_only   whether the call changed nothing, so that a different result next time is news
    crashed     whether a bug of the agent ended the call
    escaped     whether the text is that of an earlier result, in which invisible characters are escaped already
    before      the text before the first line of `text`, which was shown earlier. A secret may begin in it
    place       where its command ran, `editor` or `local`, for the audit; empty if it ran none
    wall        the rule of the sandbox that stopped its command, in words; empty if none did
    """

    text: str
    display: str | None = None
    envelope: JsonObject | None = None
    frame: Frame | None = None
    diffs: tuple[Diff, ...] = ()
    locations: tuple[Location, ...] = ()
    images: tuple[ImagePart, ...] = ()
    failure: ToolFailure | None = None
    ruling: Ruling | None = None
    stats: OutputStats | None = None
    cached: bool = False
    read_only: bool = False
    crashed: bool = False
    escaped: bool = False
    before: str = ""
    place: str = ""
    wall: str = ""

    @property
    def shown(self) -> str:
        """The text for the user."""
        return self.text if self.display is None else self.display

    @classmethod
    def failed(cls, failure: ToolFailure, *, display: str | None = None) -> "ToolResult":
        """Return the result of a failed call. The model reads what to do as well, the user only what happened."""
        return cls(text=failure.block(), display=display or failure.message, failure=failure)

    @classmethod
    def crash(cls, error: Exception) -> "ToolResult":
        """Return the result of a call that a bug of the agent ended."""
        failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"internal error: {error!r}")
        return replace(cls.failed(failure), crashed=True)

    def ruled(self, by: ApprovedBy) -> "ToolResult":
        """Return the result with a note on who approved the call."""
        return replace(self, ruling=replace(self.ruling or Ruling(), approved_by=by))

    @classmethod
    def refused(
        cls,
        reason: str,
        category: ToolErrorCategory = ToolErrorCategory.POLICY_BLOCKED,
        ruling: "Ruling | None" = None,
        advice: str = "",
    ) -> "ToolResult":
        """Return the result of a call that a gate refused."""
        return replace(cls.failed(ToolFailure(category, reason, advice)), ruling=ruling)


@frozen
class Allow:
    """The verdict of a gate that has no objection to a call."""


@frozen
class Ask:
    """The verdict of a gate that wants the user to decide. `reason` is shown in the question.

    firm      whether only the user can answer. The level full-auto refuses the call instead of answering yes
    by_name   whether a rule without wildcards that allows this call counts as a yes, since it names the subject
    of_tool   whether the question is about the tool or its server, and not about this call
    by_rule   whether any rule or stored approval that allows the call counts as a yes
    folders   the folders outside the roots that the call reads, if the question is only about them. An answer may hold
              for later calls
    each_time whether the user is asked each time at every level, and no rule or stored answer counts as a yes
    """

    reason: str
    firm: bool = False
    by_name: bool = False
    of_tool: bool = False
    by_rule: bool = False
    folders: tuple[str, ...] = ()
    each_time: bool = False


@frozen
class Deny:
    """The verdict of a gate that forbids a call.

    reason   for the model and the user, without internals of the policy
    rule     the reason of the decision, for the audit
    advice   what is permitted instead, for the model; empty for the usual advice of the category
    """

    reason: str
    category: ToolErrorCategory = ToolErrorCategory.POLICY_BLOCKED
    rule: str = ""
    advice: str = field(default="", compare=False)


Verdict: TypeAlias = Allow | Ask | Deny


_NAMES = {
    "bash": "shell sh exec execute execute_command exec_command run run_command run_shell_command run_terminal_cmd "
    "shell_command terminal",
    "process": "bash_output kill_shell kill_bash bashoutput killshell killbash write_stdin",
    "read": "read_file view cat",
    "write": "write_file create_file",
    "edit": "edit_file str_replace replace multiedit multi_edit apply_patch apply_diff replace_in_file search_replace",
    "list_directory": "ls list list_dir list_files",
    "find_path": "glob find find_files file_search",
    "grep": "search search_files grep_search rg ripgrep",
    "create_directory": "mkdir create_dir make_directory",
    "delete_path": "rm delete delete_file remove_file",
    "move_path": "mv move move_file rename rename_file",
    "copy_path": "cp copy copy_file",
    "memory_save": "remember save_memory",
    "memory_search": "recall search_memory",
    "fetch": "webfetch web_fetch fetch_url",
    "web_scrape": "scrape",
    "diagnostics": "get_diagnostics lint",
    "update_plan": "todowrite todo_write write_todos",
    "agent": "task subagent delegate dispatch_agent spawn_agent",
}
ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: tool for tool, names in _NAMES.items() for alias in names.split()}
)
"""Each alias, in lower case, and the id of the tool that it means."""


def tool_id(name: str) -> str:
    """Return the id of the tool that a name means, regardless of case. An unknown name is returned unchanged."""
    lowered = name.lower()
    return ALIASES.get(lowered, lowered if lowered in _NAMES else name)
