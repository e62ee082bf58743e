"""What a turn tells the user's side, in order. The protocol layer turns these into updates.

Every tool call gives one ToolStarted, any number of ToolProgress, and one ToolFinished, all with the
same id (A19.1).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from acp_agent.core.messages import PromptPart
from acp_agent.core.types import Diff, JsonObject, Location, ToolKind, ToolResult


class PlanStatus(StrEnum):
    """How far a step is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanPriority(StrEnum):
    """How much a step matters."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One step, in a few words."""

    content: str
    status: PlanStatus = PlanStatus.PENDING
    priority: PlanPriority = PlanPriority.MEDIUM


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user sent. An editor draws it by itself; it is told only when the conversation is shown again."""

    parts: tuple[PromptPart, ...]
    message_id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the assistant's answer. Pieces of one message share `message_id` (a UUID)."""

    text: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of the assistant's reasoning."""

    text: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call is about to pass the gates and run."""

    call_id: str
    name: str
    title: str
    kind: ToolKind
    raw_input: JsonObject
    locations: tuple[Location, ...] = ()
    diffs: tuple[Diff, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Something happened while a call runs: an editor terminal to embed, or new output (a delta)."""

    call_id: str
    terminal_id: str | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call ended, one way or the other. `elapsed` is in seconds, waiting for permission included.

    `use_id` is the model's own id of it, by which its result is found when the rest of the round is lost.
    """

    call_id: str
    name: str
    result: ToolResult
    elapsed: float
    use_id: str = ""


class Severity(StrEnum):
    """How loud a notice is (ACP `notice`)."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know that is not part of the conversation."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class UsageChanged:
    """Context occupancy after a model call, in tokens; `size` is the model's window.

    cost   US dollars of all calls of the session so far; None where no price is known
    """

    used: int
    size: int
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """The whole plan, each time (A18.5)."""

    entries: tuple[PlanEntry, ...]


class CompactionStatus(StrEnum):
    """How a compaction stands (ACP `compaction_update`)."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CompactionChanged:
    """The conversation is being summed up, or was. `id` is a UUID; `summary` and `error` may be empty."""

    id: str
    status: CompactionStatus
    summary: str = ""
    error: str = ""


TranscriptEvent: TypeAlias = (
    UserMessage | TextDelta | ThoughtDelta | ToolStarted | ToolFinished | PlanChanged | UsageChanged
)
"""What belongs to the conversation: kept in the store, and shown again when a session is loaded (A6.3)."""

Event: TypeAlias = TranscriptEvent | ToolProgress | Notice | CompactionChanged

EventSink: TypeAlias = Callable[[Event], Awaitable[None]]
"""Returns once the event is queued for the client, in order. Never raises for a client that is gone."""
