"""Every Protocol of the agent: who may be swapped for whom. Docstrings name the errors raised."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from acp_agent.core.backends import FileSystem, Terminal
from acp_agent.core.events import PlanEntry, ToolProgress
from acp_agent.core.messages import Message, ModelEvent
from acp_agent.core.services import Compressor, LanguageServers, Memories, Overflow, Web
from acp_agent.core.types import (
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


class ElicitationAction(StrEnum):
    """What the user did: filled it in, said no, or closed it. No answer at all counts as the last."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Form:
    """Fields to be filled in; never a secret (ACP).

    schema    a flat JSON Schema object: properties of type string, number, integer, boolean, or an array of choices
    source    the MCP server that wants to know; empty for the agent itself
    call_id   the tool call it belongs to; empty for none
    """

    message: str
    schema: JsonObject
    source: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """A page the user should open in his browser. `id` names the request until it is complete."""

    message: str
    url: str
    id: str
    source: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """`content` fits the form's schema where the action is ACCEPT, else it is empty."""

    action: ElicitationAction
    content: JsonObject


class Elicitor(Protocol):
    """Someone who can be asked."""

    @property
    def forms(self) -> bool:
        """Whether forms can be shown."""
        ...

    @property
    def visits(self) -> bool:
        """Whether pages can be opened."""
        ...

    async def fill_in(self, form: Form) -> ElicitationAnswer:
        """What the user filled in, checked against the schema. Never raises but for cancellation."""
        ...

    async def visit(self, visit: Visit) -> ElicitationAnswer:
        """Whether the user agreed to open the page. Never raises but for cancellation."""
        ...

    def visited(self, visit_id: str) -> None:
        """What the page was for is done: the editor may close its hint (`elicitation/complete`)."""
        ...


# ------------------------------------------------------------------------------------------ tools


@dataclass(frozen=True, slots=True)
class Backends:
    """A session's ways to the world.

    terminal    where the user's commands run: the editor's, when it offers one
    programs    where a tool runs a program for its own reading: this machine, out of the user's sight
    overflow    what was too long to show; None where nothing is kept
    memories    notes that outlive the session; None where nothing is kept
    compressor  shortens this conversation; None where that is switched off
    show_plan   shows the user what the model means to do, the whole plan each time
    elicitor    asks the user for more than a yes or no; None where nobody is there to be asked
    languages   what the editor's language servers know; None where it does not share them (A27)
    """

    files: FileSystem
    terminal: Terminal
    programs: Terminal
    web: Web
    overflow: Overflow | None = None
    memories: Memories | None = None
    compressor: Compressor | None = None
    show_plan: Callable[[tuple[PlanEntry, ...]], Awaitable[None]] | None = None
    elicitor: Elicitor | None = None
    languages: LanguageServers | None = None


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
    backends: Backends
    progress: Callable[[ToolProgress], Awaitable[None]]
    defer: Callable[[Callable[[], Awaitable[None]]], None]

    @property
    def files(self) -> FileSystem:
        """The session's files."""
        return self.backends.files


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call understood: arguments parsed, subjects known, change previewed. What the chain passes on.

    diffs   the change as it would be made now, for the user to judge
    run     the tool bound to its parsed arguments; only the innermost executor calls it. Raises ToolError,
            Refused or BackendUnavailable
    asks    the questions gates have collected so far
    flaw    what the run is known to come to, when its preview failed or it would change nothing: nobody should be asked
            to allow that
    deed    what the call does, with a verb, for the person who is asked; empty where title and diffs say it
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
    deed: str = ""

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

    async def refuse(self, call: ToolCall, result: ToolResult) -> None:
        """Tell and record a call that does not run, with the result it gets instead (A19.6)."""
        ...


# -------------------------------------------------------------------------------------- approval


class Decision(StrEnum):
    """What the user said. CANCELLED: the question was withdrawn. UNANSWERED: what came back was no answer."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"
    CANCELLED = "cancelled"
    UNANSWERED = "unanswered"

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self in (Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS)


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to the user about one call.

    title       what would happen, control and bidi characters made visible; a long one with its middle left out
    reasons     why it is asked, one line each
    always      what "always" would cover, in words ("git status …")
    text        all of what is asked about, made visible, with its line ends; empty where title and diffs show all
    """

    call_id: str
    title: str
    kind: ToolKind
    raw_input: JsonObject
    reasons: tuple[str, ...] = ()
    always: str = ""
    diffs: tuple[Diff, ...] = ()
    locations: tuple[str, ...] = ()
    text: str = ""


class Approver(Protocol):
    """Someone who can be asked."""

    async def ask(self, question: Question) -> Decision:
        """The user's answer. Anything unknown or malformed is UNANSWERED, never a grant.

        Raises ToolError (confirmation_required) when there was none in the time there is.
        """
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


class Embedder(Protocol):
    """Something that places texts by their meaning."""

    @property
    def model(self) -> str:
        """Whose vectors these are, as `PROVIDER:MODEL`: vectors of two models say nothing about each other."""
        ...

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """A unit vector for each text, in order, all of one length. Raises ProviderError."""
        ...
