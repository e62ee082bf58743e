"""Every Protocol of the agent: who may be swapped for whom. Docstrings name the errors raised."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from acp_agent.core.events import ToolProgress
from acp_agent.core.messages import Message, ModelEvent
from acp_agent.core.types import (
    Access,
    Ask,
    Diff,
    JsonObject,
    Location,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
)

# ---------------------------------------------------------------------------------------- files


class EntryKind(StrEnum):
    """What a directory entry is, by lstat."""

    DIRECTORY = "dir"
    FILE = "file"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. `size` is in bytes."""

    name: str
    kind: EntryKind
    size: int


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """Paths that matched, absolute and sorted; `more` when the limit cut the list."""

    paths: tuple[str, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """A search for a regular expression in files below a path."""

    pattern: str
    path: str
    case_sensitive: bool = True
    limit: int = 100


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """One matching line: absolute path, 1-based line, the text without its newline."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class GrepMatches:
    """What a search found, in path and line order; `more` when the limit cut it."""

    matches: tuple[GrepMatch, ...]
    more: bool


class FileSystem(Protocol):
    """Files of the session's roots, as the user sees them: unsaved editor buffers included where offered.

    Every method takes a path as the model wrote it (relative = the session's cwd) and resolves it itself,
    so that no caller can forget to. Raises, all methods:
        Refused             the path is outside the roots or protected
        ToolError           not found, not a file, not text, not permitted, disk full, ...
        BackendUnavailable  this backend cannot do it (another may)
    """

    def resolve(self, path: str, access: Access) -> str:
        """The absolute path, links resolved, that `path` means. Does not need to exist."""
        ...

    async def read_text(self, path: str) -> str:
        """The whole text of a regular file: UTF-8 without its BOM, line endings as they are."""
        ...

    async def write_text(self, path: str, text: str) -> None:
        """Replace or create a file, parents too, all or nothing. Mode and BOM of an old file are kept."""
        ...

    async def list_directory(self, path: str) -> tuple[Entry, ...]:
        """Entries by lstat, sorted by name."""
        ...

    async def find(self, path: str, pattern: str, limit: int) -> FoundPaths:
        """Paths below `path` that match a glob (`**` any depth), ignored files left out."""
        ...

    async def grep(self, query: GrepQuery) -> GrepMatches:
        """Lines that match, in linear time whatever the pattern."""
        ...


# ------------------------------------------------------------------------------------- terminals


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A shell command line to run. `timeout` in seconds; None takes the backend's own default."""

    command: str
    cwd: str
    timeout: float | None = None
    output_limit: int = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended.

    output      both streams as they came, for the model; head and tail when over the request's limit
    exit_code   None when unknown; 128 + n when killed by signal n; 124 on timeout
    signal      name such as "SIGKILL", or None
    """

    output: str
    stdout: str
    stderr: str
    exit_code: int | None
    signal: str | None = None
    truncated: bool = False
    timed_out: bool = False
    timeout: float | None = None


OnOutput = Callable[[str], Awaitable[None]]


class RunningCommand(Protocol):
    """A command under way. `release` must be called once, after the last update that shows it."""

    @property
    def terminal_id(self) -> str | None:
        """The editor's terminal to embed, or None when the command runs locally."""
        ...

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        """Wait for the end, handing over new output as it comes (at most ten times a second).

        On timeout the process tree is killed and the outcome says so. On cancellation the tree is killed
        before the cancellation goes on. Raises BackendUnavailable when the editor's terminal breaks.
        """
        ...

    async def release(self) -> None:
        """Give the terminal back; kills what still runs. Never raises."""
        ...


class Terminal(Protocol):
    """Where commands run."""

    async def start(self, request: CommandRequest) -> RunningCommand:
        """Start a command. Raises Refused, ToolError (cwd gone, no shell) or BackendUnavailable."""
        ...


# ------------------------------------------------------------------------------------------ tools


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool may use. Made anew for each call; nothing in it outlives the call.

    previewed   the change the user was shown; a tool that finds the old text different now must not write
                (A23.5)
    progress    tells the user's side how it goes
    defer       registers a clean-up that runs after the call's final update was sent (A19.11)
    """

    call_id: str
    cwd: str
    previewed: tuple[Diff, ...]
    files: FileSystem
    terminal: Terminal
    progress: Callable[[ToolProgress], Awaitable[None]]
    defer: Callable[[Callable[[], Awaitable[None]]], None]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call understood: arguments parsed, subjects known, change previewed. What the chain passes on.

    diffs   the change as it would be made now, for the user to judge
    run     the tool bound to its parsed arguments; only the innermost executor calls it. Raises ToolError,
            Refused or BackendUnavailable
    asks    the questions gates have collected so far
    flaw    what the run is known to come to, when its preview failed: nobody should be asked to allow that
    """

    call: ToolCall
    spec: ToolSpec
    title: str
    run: Callable[[ToolContext], Awaitable[ToolResult]]
    subjects: tuple[Subject, ...] = ()
    diffs: tuple[Diff, ...] = ()
    locations: tuple[Location, ...] = ()
    asks: tuple[Ask, ...] = ()
    flaw: ToolResult | None = None

    def asking(self, ask: Ask) -> "Invocation":
        """The same call with one more question attached."""
        return replace(self, asks=(*self.asks, ask))


class ToolExecutor(Protocol):
    """One link of the chain between a call and its result. Never raises but for cancellation."""

    async def execute(self, invocation: Invocation) -> ToolResult:
        """Run the call, asking the user where a gate wants it."""
        ...

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        """Run a call the user has already confirmed: skips only the asking, no gate (T1.6)."""
        ...

    def requires_confirmation(self, invocation: Invocation) -> bool:
        """Whether `execute` would ask the user now."""
        ...

    def is_retryable(self, invocation: Invocation) -> bool:
        """Whether a failed call may be repeated by the system (T1.7)."""
        ...


class Toolset(Protocol):
    """The tools of a session, as the loop sees them."""

    def specs(self) -> Sequence[ToolSpec]:
        """What the model may call now: tools a mode or rule denies outright are left out."""
        ...

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one call through the whole chain and tell the user's side. Raises only on cancellation."""
        ...


# -------------------------------------------------------------------------------------- approval


class Decision(StrEnum):
    """What the user said. CANCELLED also stands for a turn that ended before the answer."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"
    CANCELLED = "cancelled"

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self in (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS)


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to the user about one call.

    title       what would happen, control and bidi characters made visible
    reasons     why it is asked, one line each
    always      what "always" would cover, in words ("git status …"); empty = the two always options
                still show but bind to this exact call only
    """

    call_id: str
    title: str
    kind: ToolKind
    raw_input: JsonObject
    reasons: tuple[str, ...] = ()
    always: str = ""
    diffs: tuple[Diff, ...] = ()
    locations: tuple[str, ...] = ()


class Approver(Protocol):
    """Someone who can be asked."""

    async def ask(self, question: Question) -> Decision:
        """The user's answer. Anything unknown, late or malformed is REJECT_ONCE, never a grant."""
        ...


# ---------------------------------------------------------------------------------------- models


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a model. `system` and `tools` stay the same between calls, for prompt caching."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None


class Provider(Protocol):
    """A model behind a wire format."""

    @property
    def name(self) -> str:
        """The configured name, such as "anthropic"."""
        ...

    @property
    def model(self) -> str:
        """The model's own id."""
        ...

    @property
    def context_window(self) -> int:
        """Tokens that fit, input and output together."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Text and thought as they come, then exactly one ModelDone. Raises ProviderError.

        Closing the iterator or cancelling the task closes the connection.
        """
        ...
