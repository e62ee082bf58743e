"""The ports between the parts of the agent, and what passes through them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

from acp_agent.core.backends import BackgroundProcesses, FileSystem, Terminal
from acp_agent.core.data import frozen
from acp_agent.core.delegation import SubAgents
from acp_agent.core.editor import LanguageServers
from acp_agent.core.events import PlanEntry, ToolProgress
from acp_agent.core.messages import Message, ModelEvent
from acp_agent.core.services import Compressor, Memories, Overflow, PastConversations, Web
from acp_agent.core.types import (
    CallingAgent,
    Diff,
    JsonObject,
    Location,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
    ToolSpec,
    Touches,
)


class ElicitationAction(StrEnum):
    """The user's answer to a form or a link: accept, decline, or close it. No answer counts as closing it."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@frozen
class Form:
    """A form for the user to fill in (ACP "Elicitation"). It must not ask for secrets.

    schema    a flat JSON Schema object: properties of type string, number, integer, boolean, or an array of choices
    source    the MCP server that asks; empty for the agent itself
    call_id   the tool call it belongs to; empty for none
    """

    message: str
    schema: JsonObject
    source: str = ""
    call_id: str = ""


@frozen
class Visit:
    """A page that the user should open in their browser. `id` names the request until it is complete."""

    message: str
    url: str
    id: str
    source: str = ""
    call_id: str = ""


@frozen
class ElicitationAnswer:
    """The user's answer. `content` fits the form's schema if the action is ACCEPT; otherwise it is empty."""

    action: ElicitationAction
    content: JsonObject


class Elicitor(Protocol):
    """A way to ask the user for more than a yes or no."""

    @property
    def forms(self) -> bool:
        """Whether forms can be shown."""
        ...

    @property
    def visits(self) -> bool:
        """Whether pages can be opened."""
        ...

    async def fill_in(self, form: Form) -> ElicitationAnswer:
        """Return what the user filled in, checked against the schema. It raises only on cancellation."""
        ...

    async def visit(self, visit: Visit) -> ElicitationAnswer:
        """Ask the user to open the page, and return their answer. It raises only on cancellation."""
        ...

    def visited(self, visit_id: str) -> None:
        """Tell the editor that the page has served its purpose (`elicitation/complete`)."""
        ...


# ------------------------------------------------------------------------------------------ tools


@frozen
class Backends:
    """The files, terminals and services of a session.

    terminal    runs the model's commands: the editor's terminal, if it offers one
    programs    runs programs whose output only a tool reads: on this machine, not shown to the user
    overflow    outputs that were too long to show; None if they are not kept
    memories    notes that outlive the session; None if they are not kept
    past        the earlier conversations in the session's folder
    compressor  shortens this conversation; None if that is switched off
    show_plan   shows the user the whole plan of the model
    elicitor    asks the user for more than a yes or no; None if no user can be asked
    languages   the editor's language servers; None if it does not share them
    processes   the background commands; None if there can be none
    agents      the sub-agents that can be given work; None if there can be none
    """

    files: FileSystem
    terminal: Terminal
    programs: Terminal
    web: Web
    overflow: Overflow | None = None
    memories: Memories | None = None
    past: PastConversations | None = None
    compressor: Compressor | None = None
    show_plan: Callable[[tuple[PlanEntry, ...]], Awaitable[None]] | None = None
    elicitor: Elicitor | None = None
    languages: LanguageServers | None = None
    processes: BackgroundProcesses | None = None
    agents: SubAgents | None = None


@frozen
class ToolContext:
    """The services for one running tool call. They end with the call.

    by_user     whether the user typed the call
    verifies    whether the call is a check of the agent, which waits for the result
    read_only   whether the call is proven to change nothing
    previewed   the change that the user saw; a tool that finds another old text now must not write
    progress    sends news of the running call to the user
    defer       registers a clean-up that runs after the call's final update was sent
    agent       the sub-agent that makes the call; None for the session's own agent and the user
    """

    call_id: str
    cwd: str
    previewed: tuple[Diff, ...]
    backends: Backends
    progress: Callable[[ToolProgress], Awaitable[None]]
    defer: Callable[[Callable[[], Awaitable[None]]], None]
    by_user: bool = False
    verifies: bool = False
    read_only: bool = False
    agent: CallingAgent | None = None

    @property
    def files(self) -> FileSystem:
        return self.backends.files


@frozen
class Invocation:
    """A call whose arguments are parsed, whose subjects are known and whose change is previewed.

    diffs   the change as it would be made now, for the user to judge
    run     the tool bound to its parsed arguments; only the innermost executor calls it. Raises ToolError,
            Refused or BackendUnavailable
    predicted_failure   the result that the run would have, if the preview failed or showed no change. The user is not
                        asked about such a call
    summary  what the call does, for the question to the user; it begins with a verb. Empty if title and diffs say it
    note     tells the model how its arguments were interpreted; empty if that makes no difference
    """

    call: ToolCall
    spec: ToolSpec
    title: str
    run: Callable[[ToolContext], Awaitable[ToolResult]]
    subjects: tuple[Subject, ...] = ()
    diffs: tuple[Diff, ...] = ()
    locations: tuple[Location, ...] = ()
    predicted_failure: ToolResult | None = None
    summary: str = ""
    note: str = ""


Background: TypeAlias = Callable[[Callable[[], Awaitable[None]]], object]
"""Starts a task and does not wait for it."""


async def never_run(_: ToolContext) -> ToolResult:
    """Raise AssertionError. It is the `run` of an invocation that is only judged."""
    raise AssertionError("a call was to be judged, not run")


class Toolset(Protocol):
    """The tools of a session, as the loop of a turn sees them."""

    def specs(self) -> Sequence[ToolSpec]:
        """Return the tools that the model may call now, without those that a mode or a rule denies outright."""
        ...

    async def announce(self, call: ToolCall) -> Touches:
        """Send the start of a call that will run later, and return what it touches."""
        ...

    async def run(self, call: ToolCall, *, announced: bool = False) -> ToolResult:
        """Judge and run one call, and send its events. It raises only on cancellation.

        The end of an announced call is sent in any case.
        """
        ...

    async def refuse(self, call: ToolCall, result: ToolResult, *, announced: bool = False) -> None:
        """Send the events of a call that does not run, and record it with the result it gets instead."""
        ...


# -------------------------------------------------------------------------------------- approval


class Decision(StrEnum):
    """The user's decision. CANCELLED: the question was withdrawn. UNANSWERED: the response chose no known option."""

    ALLOW_ONCE = "allow_once"
    ALLOW_SESSION = "allow_session"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"
    CANCELLED = "cancelled"
    UNANSWERED = "unanswered"

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self in (Decision.ALLOW_ONCE, Decision.ALLOW_SESSION, Decision.ALLOW_ALWAYS)


@frozen
class Question:
    """A question to the user about one call.

    title       what would happen, with control and bidi characters made visible; the middle of a long one is left out
    reasons     why the user is asked, one line each
    always      what "always" would cover, in words ("git status …")
    option      what "always" would cover, as a part of the option's name; empty if the question is not about a call
    denial      what "reject always" would cover, as a part of the option's name
    once        whether the options "always" are left out, so that the answer holds only for this call
    command     the command that would run, with hidden characters visible and with its line ends; empty for none
    text        the parts of the call that neither title nor diffs show, with hidden characters visible; empty for none
    """

    call_id: str
    title: str
    kind: ToolKind
    raw_input: JsonObject
    reasons: tuple[str, ...] = ()
    always: str = ""
    diffs: tuple[Diff, ...] = ()
    locations: tuple[str, ...] = ()
    command: str = ""
    text: str = ""
    option: str = ""
    denial: str = ""
    once: bool = False


class Approver(Protocol):
    """A way to ask the user to allow a call."""

    async def ask(self, question: Question) -> Decision:
        """Return the user's decision. An unknown or malformed answer is UNANSWERED, never a grant.

        Raises:
            ToolError: confirmation_required if there was no answer in time.

        """
        ...


# ---------------------------------------------------------------------------------------- models


@frozen
class ModelRequest:
    """One call to a model. `system` and `tools` stay the same between calls, so that prompt caching works."""

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
        """The tokens that fit, input and output together."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield text and thought as they come, then exactly one ModelDone. Raises ProviderError.

        Closing the iterator or cancelling the task closes the connection.
        """
        ...


class Embedder(Protocol):
    """A model that makes vectors of texts by their meaning."""

    @property
    def model(self) -> str:
        """The model as `PROVIDER:MODEL`. Vectors of different models cannot be compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Return a unit vector for each text, in order, all of the same dimension. Raises ProviderError."""
        ...
