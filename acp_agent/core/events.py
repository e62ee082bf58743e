"""The events of a turn, in order. `protocol/updates` makes session updates of them.

Every tool call gives one ToolStarted, any number of ToolProgress, and one ToolFinished, all with the same id.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeAlias

from acp_agent.core.data import frozen
from acp_agent.core.messages import PromptPart
from acp_agent.core.session_options import Choices, Freedom, SessionOptions
from acp_agent.core.types import Containment, Diff, JsonObject, Location, ToolKind, ToolResult


class PlanStatus(StrEnum):
    """The state of a step of the plan."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanPriority(StrEnum):
    """The priority of a step of the plan."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@frozen
class PlanEntry:
    """One step of the model's plan, in a few words (ACP "Agent Plan")."""

    content: str
    status: PlanStatus = PlanStatus.PENDING
    priority: PlanPriority = PlanPriority.MEDIUM


MAIN = "main"
"""The id of the session's own agent where sub-agents have the ids of their runs, such as "general-1"."""


@frozen
class BoardTask:
    """A task of the board that the agents of a session share.

    id       a short name, or a number
    after    the ids of the tasks that must be done before
    owner    the agent that works on it or did it: `MAIN` or the id of a run, such as "general-1"; empty for none
    result   the report of its owner
    note     why an owner gave it back; empty if none did
    """

    id: str
    title: str
    text: str = ""
    priority: PlanPriority = PlanPriority.MEDIUM
    after: tuple[str, ...] = ()
    status: PlanStatus = PlanStatus.PENDING
    owner: str = ""
    result: str = ""
    note: str = ""


@frozen
class UserMessage:
    """A prompt of the user. Editors draw it themselves, so it is sent only when the conversation is shown again.

    scheduled   whether it is a scheduled prompt of the session. It is never sent, because a card shows its text
    """

    parts: tuple[PromptPart, ...]
    message_id: str
    scheduled: bool = False


@frozen
class TextDelta:
    """A piece of the assistant's answer. Pieces of one message share `message_id` (a UUID)."""

    text: str
    message_id: str


@frozen
class ThoughtDelta:
    """A piece of the assistant's reasoning."""

    text: str
    message_id: str


@frozen
class ToolStarted:
    """A tool call is about to pass the gates and run.

    containment   whether its commands run in the sandbox; None if it runs none, or if the session has no sandbox
    parent        the id of the call that started the sub-agent which makes this call; empty for none
    """

    call_id: str
    name: str
    title: str
    kind: ToolKind
    raw_input: JsonObject
    locations: tuple[Location, ...] = ()
    diffs: tuple[Diff, ...] = ()
    containment: Containment | None = None
    parent: str = ""


@frozen
class ToolProgress:
    """An update of a running call: an editor's terminal to embed, or new output (a delta).

    before   the text before the call's first output, which another call showed. A secret may begin in it
    """

    call_id: str
    terminal_id: str | None = None
    output: str = ""
    before: str = ""


@frozen
class ToolFinished:
    """A tool call ended.

    elapsed   seconds, the time of the permission question included
    use_id    the model's own id of the call. A restored session finds the result of an unfinished round by it
    """

    call_id: str
    name: str
    result: ToolResult
    elapsed: float
    use_id: str = ""


class Severity(StrEnum):
    """The severity of a notice (ACP `notice`)."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Notice:
    """A message to the user that is not part of the conversation."""

    severity: Severity
    text: str


@frozen
class UsageChanged:
    """The usage after a model call.

    used   tokens that fill the model's window
    size   tokens of that window
    cost   US dollars of all calls of the session so far; None where no price is known
    """

    used: int
    size: int
    cost: float | None = None


@frozen
class PlanChanged:
    """The whole plan, whenever it changes.

    entries   what the user sees
    tasks     the board's tasks, if the entries show a board
    """

    entries: tuple[PlanEntry, ...]
    tasks: tuple[BoardTask, ...] = ()


class CompactionStatus(StrEnum):
    """The state of a compaction (ACP `compaction_update`)."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@frozen
class CompactionChanged:
    """The compaction with this id (a UUID) changed its state. `summary` and `error` may be empty."""

    id: str
    status: CompactionStatus
    summary: str = ""
    error: str = ""


TranscriptEvent: TypeAlias = (
    UserMessage | TextDelta | ThoughtDelta | ToolStarted | ToolFinished | PlanChanged | UsageChanged
)
"""The events that are stored, and shown again when a session is loaded."""

Event: TypeAlias = TranscriptEvent | ToolProgress | Notice | CompactionChanged


@frozen
class ModeChanged:
    """The session is in another mode."""

    mode: Freedom


@frozen
class OptionsChanged:
    """The options or the user's choices have changed. The event always has all of them."""

    options: SessionOptions
    choices: Choices


@frozen
class SessionInfoChanged:
    """The session's entry in lists of sessions.

    title        empty for none
    updated_at   milliseconds since 1970
    model        `PROVIDER:MODEL` of the next prompt; empty for none
    """

    title: str
    updated_at: int
    model: str


@frozen
class OfferedCommand:
    """A slash command. `hint` describes its argument; a command without a hint takes none."""

    name: str
    description: str
    hint: str = ""


@frozen
class CommandsChanged:
    """The slash commands that are available now. The event always has all of them."""

    commands: tuple[OfferedCommand, ...]


SessionEvent: TypeAlias = Event | ModeChanged | OptionsChanged | SessionInfoChanged | CommandsChanged
"""Every event that an editor gets from a session. Only an Event belongs to a turn."""

EventSink: TypeAlias = Callable[[Event], Awaitable[None]]
"""Queues an event for the client, in order. It never raises for a client that is gone."""
