"""What a tool call is made of, from the model's request to what comes back."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from acp_agent.core.errors import ToolErrorCategory, ToolFailure


class Phase(StrEnum):
    """At which point of the work a call is made; said by whoever makes it, never guessed (S7).

    PLANNER      before the first inference of a turn
    EXECUTOR     what the model asks for
    VERIFIER     a look at what was done
    AUTONOMOUS   the agent's own housekeeping: bypasses the question to the user, no gate
    """

    PLANNER = "planner"
    EXECUTOR = "executor"
    VERIFIER = "verifier"
    AUTONOMOUS = "autonomous"


Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]


class ToolKind(StrEnum):
    """How an editor draws a call (ACP `ToolKind`; requirements A19.4)."""

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


class Access(StrEnum):
    """What a call does to a path.

    READ     shows what is in a file
    LIST     shows names below a directory, and whether there is anything at the path
    WRITE    makes or changes what is there
    MOVE     takes the entry itself away to another name: a link at the end is not followed
    DELETE   takes the entry itself away, with all below it: a link at the end is not followed
    """

    READ = "read"
    LIST = "list"
    WRITE = "write"
    MOVE = "move"
    DELETE = "delete"

    @property
    def changes(self) -> bool:
        """Whether anything is different afterwards."""
        return self not in (Access.READ, Access.LIST)

    @property
    def of_the_entry(self) -> bool:
        """Whether a link at the end of the path is itself what is meant."""
        return self in (Access.MOVE, Access.DELETE)


@dataclass(frozen=True, slots=True)
class PathSubject:
    """A path as the model wrote it, relative ones meaning the session's cwd."""

    path: str
    access: Access


@dataclass(frozen=True, slots=True)
class CommandSubject:
    """A shell command line, whole."""

    command: str


@dataclass(frozen=True, slots=True)
class UrlSubject:
    """A URL a call wants to reach."""

    url: str


@dataclass(frozen=True, slots=True)
class McpSubject:
    """A tool on an MCP server."""

    server: str
    tool: str


Subject: TypeAlias = PathSubject | CommandSubject | UrlSubject | McpSubject


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told about a tool, and what the chain must know of it.

    parameters  a JSON Schema object
    mutates     whether a call changes anything
    cacheable   whether the same call gives the same result until something changes (O6)
    external    whether what it says comes from outside: the web, an MCP server (L12)
    server      the MCP server it is a tool of; empty for the built-in ones. Never read from the name
    """

    name: str
    description: str
    parameters: JsonObject
    kind: ToolKind
    mutates: bool
    cacheable: bool = False
    external: bool = False
    server: str = ""


class CallOrigin(StrEnum):
    """Who wants a call made."""

    MODEL = "model"
    USER = "user"  # a slash command such as /run


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request to run a tool.

    `id` is ours: a UUID made before anything runs, the only id the editor sees (A19.5). `use_id` is the one of the
    model's ToolUsePart, empty where the model did not ask. `arguments` is None when the model sent something that is
    not a JSON object; `raw_arguments` then holds what it sent. Calls the model made in one message share `batch`.
    """

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""
    origin: CallOrigin = CallOrigin.MODEL
    batch: str = ""
    phase: Phase = Phase.EXECUTOR
    use_id: str = ""


@dataclass(frozen=True, slots=True)
class Location:
    """A place an editor can open: absolute path, 1-based line."""

    path: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """A change to one file, whole texts. `old_text` is None for a new file."""

    path: str
    old_text: str | None
    new_text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture: base64 data and its MIME type."""

    data: str
    mime_type: str


class Confidence(StrEnum):
    """How sure an output filter is to have kept all that matters, best first (O1.9)."""

    FULL = "full"
    PARTIAL = "partial"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class OutputStats:
    """What the output pipeline did to a text (requirements O1.14).

    rules        the names of the filter rules that matched, in the order they were applied
    confidence   the worst of theirs; None when none matched
    """

    raw_lines: int
    shown_lines: int
    raw_chars: int
    shown_chars: int
    rules: tuple[str, ...] = ()
    confidence: Confidence | None = None


class ApprovedBy(StrEnum):
    """Who let a call run (L9): nothing asked, the user now, the user's stored answer, or a rule."""

    AUTO = "auto"
    USER = "user"
    ALWAYS = "always"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Ruling:
    """How a call came to run or not: for the audit alone, never for the model or the user (S5.7).

    gate          the gate that ended the call; empty when none did
    rule          what decided, in its author's words: a pattern, a blocked command; empty when nothing of the kind
    approved_by   None when the call did not run
    """

    gate: str = ""
    rule: str = ""
    approved_by: ApprovedBy | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """Our own words around a text that comes from elsewhere: they are never filtered and never cut.

    head       before it, for the model
    headline   before it, for the user
    ending     after it, for both
    """

    head: str = ""
    headline: str = ""
    ending: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: three readers, three fields.

    text        the model reads it
    display     the user reads it; None means the same as `text`
    envelope    machines read it: the audit, and ACP rawOutput beside `output` (for bash: stdout, stderr, exit_code,
                signal, truncated)
    frame       what belongs around text and display; the output pipeline puts it there
    images      pictures beside the text, for the model and the user
    ruling      what the gates said of the call, for the audit
    cached      whether it was kept from an earlier, equal call (O6.6)
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

    @property
    def shown(self) -> str:
        """The text for the user."""
        return self.text if self.display is None else self.display

    @classmethod
    def failed(cls, failure: ToolFailure, *, display: str | None = None) -> "ToolResult":
        """A failed call: the model reads the `[tool_error]` block, the user the plain message."""
        return cls(text=failure.block(), display=display or failure.message, failure=failure)

    @classmethod
    def refused(
        cls,
        reason: str,
        category: ToolErrorCategory = ToolErrorCategory.POLICY_BLOCKED,
        ruling: "Ruling | None" = None,
    ) -> "ToolResult":
        """A call a gate stopped."""
        return replace(cls.failed(ToolFailure(category, reason)), ruling=ruling)


@dataclass(frozen=True, slots=True)
class Allow:
    """A gate has no objection."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A gate wants the user's word; `reason` is shown in the question.

    firm      whether only the user themselves can answer: full-auto does not, so the call is refused there
    by_name   whether a rule without a wildcard that allows this very call answers it: such a rule names the subject
    """

    reason: str
    firm: bool = False
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Deny:
    """A gate forbids the call.

    reason   for the model and the user alike: no policy internals
    rule     what decided, for the audit
    """

    reason: str
    category: ToolErrorCategory = ToolErrorCategory.POLICY_BLOCKED
    rule: str = ""


Verdict: TypeAlias = Allow | Ask | Deny
