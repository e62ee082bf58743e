"""What is stored of a session, and the port through which a session stores it.

A session is stored as one row (`SessionRecord`), the messages that the model reads (`HistoryState`), counters
(`UsageTotals`) and a transcript: the events that the user saw (`StoredEvent`). A running session writes `Change`s. A
process that resumes a session reads a `SessionSnapshot`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from acp_agent.core.data import frozen
from acp_agent.core.events import BoardTask, PlanEntry, TextDelta, ThoughtDelta, ToolFinished, TranscriptEvent
from acp_agent.core.messages import Message, Usage
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.types import JsonObject

OVERFLOW_PREFIX = "overflow:"
"""The beginning of a reference to a stored output."""


@frozen
class SessionRecord:
    """A session as the list of sessions shows it. Times are in milliseconds since 1970.

    cwd         the absolute path of the session's folder, as the client wrote it
    additional  the additional folders, as the client wrote them
    title       empty until the session has one
    prompts     how many prompts the user has sent
    model       the `PROVIDER:MODEL` that answered last; empty before the first answer
    """

    id: str
    cwd: str
    additional: tuple[str, ...] = ()
    title: str = ""
    created_at: int = 0
    updated_at: int = 0
    prompts: int = 0
    model: str = ""


@frozen
class UsageTotals:
    """The totals of a session: tokens, costs, and the counts of its gates.

    used, size      tokens in the model's window after the last call, and the size of that window
    cost            US dollars of the calls whose price is known; None before the first such call
    complete        True if the price of every call is known
    calls, batches  tool calls and batches of tool calls, for the quota
    under_way       True while a turn runs. It stays True if the process dies during the turn
    read_from       the sources of untrusted text in the conversation, which lower the trust in it
    """

    used: int = 0
    size: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    complete: bool = True
    calls: int = 0
    batches: int = 0
    under_way: bool = False
    read_from: tuple[str, ...] = ()


@frozen
class HistoryState:
    """The conversation as the model reads it.

    knowledge   how many parts of the first message are summaries
    tokens      how many tokens of the window the conversation fills, measured if a model has counted them
    lost        how many stored messages could not be read
    """

    messages: tuple[Message, ...] = ()
    knowledge: int = 0
    tokens: int = 0
    lost: int = 0


@frozen
class SeenFile:
    """A file as the model knows it, since it read or wrote it.

    digest  of the whole text
    stamp   what changes whenever the file is written: its inode, size and times. Empty if its times prove nothing
    text    the text without secrets; None if it is long or was dropped
    """

    digest: str
    stamp: str
    text: str | None = None


@frozen
class Change:
    """The changes of a session in one transaction. None and empty values leave the stored ones as they are.

    events        appended to the transcript, in this order
    history       the whole current conversation; the store writes only its new messages
    prompted      the number of turns that the change begins; the session then has as many more prompts
    touch         True if the session was used just now; it then moves to the head of the list
    replacements  complete messages that replace their own pieces in the transcript
    seen          all files that the session has seen, by absolute path; the store writes only what differs
    """

    events: Sequence[TranscriptEvent] = ()
    history: HistoryState | None = None
    options: SessionOptions | None = None
    usage: UsageTotals | None = None
    title: str | None = None
    model: str | None = None
    prompted: int = 0
    touch: bool = False
    cwd: str | None = None
    additional: tuple[str, ...] | None = None
    replacements: tuple[TextDelta | ThoughtDelta, ...] = ()
    seen: Mapping[str, SeenFile] | None = None


@frozen
class SessionSnapshot:
    """A stored session without its transcript, which may be long and is read page by page.

    plan                 the plan that the user saw last
    tasks                the board of tasks as it was then
    user_words           what the user wrote in their latest prompts, oldest first
    unfinished_messages  the answer and the thought of a turn that was cut off, as far as they were stored
    finished_calls       the model's tool calls that ended in a turn that was cut off, oldest first
    seen                 the files that the session has seen, by absolute path
    has_schedule         whether it has scheduled prompts
    """

    record: SessionRecord
    options: SessionOptions
    usage: UsageTotals
    history: HistoryState
    plan: tuple[PlanEntry, ...] = ()
    user_words: tuple[str, ...] = ()
    unfinished_messages: tuple[TextDelta | ThoughtDelta, ...] = ()
    finished_calls: tuple[ToolFinished, ...] = ()
    seen: Mapping[str, SeenFile] = field(default_factory=dict[str, SeenFile])
    tasks: tuple[BoardTask, ...] = ()
    has_schedule: bool = False


@frozen
class ScheduledPrompt:
    """A prompt that the session runs by itself, once or again and again. Times are in milliseconds since 1970.

    number        counts from 1 in its session
    words         when it fires, as the user or the model said it
    due           when it fires next; None while it is being carried out for the last time
    skips_missed  whether a missed time is only reported to the user. Otherwise the prompt fires once, as soon as it can
    by_model      whether the model made it and the user agreed
    firing        the id of the turn that carries it out; empty for none
    """

    number: int
    words: str
    text: str
    due: int | None
    skips_missed: bool = False
    by_model: bool = False
    created_at: int = 0
    firing: str = ""


@frozen
class DuePrompt:
    """A scheduled prompt that is being carried out.

    id      the id of its turn, of the message in the transcript and of the card
    text    the text for the model
    prompt  the prompt alone, for the card
    why     the reason why it is carried out now, for the user
    card    the machine-readable content of the card
    """

    id: str
    text: str
    prompt: str
    why: str
    card: JsonObject


@frozen
class StoredEvent:
    """An event of the transcript. `at` is in milliseconds since 1970; `seq` increases from one event to the next."""

    seq: int
    at: int
    event: TranscriptEvent


class SessionRepository(Protocol):
    """The store of one session. It belongs to the one process that has the session open."""

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        """Store a change, whole or not at all.

        On return the change survives the death of this process; if `durable`, it soon survives a power cut too.

        patience   seconds to wait for other processes; None waits as long as the database is configured to

        Raises:
            StoreUnavailable: The change cannot be stored, or the session was deleted.

        """
        ...

    async def snapshot(self) -> SessionSnapshot | None:
        """Return the session without its transcript, or None if it is not stored. Raises StoreUnavailable."""
        ...

    def events(self, after: int = 0) -> AsyncGenerator[StoredEvent]:
        """Yield the events of the transcript whose `seq` is above `after`, oldest first. Raises StoreUnavailable."""
        ...

    async def clear(self) -> None:
        """Delete the transcript, the conversation and what belongs to them. The session stays, without a title.

        Raises StoreUnavailable.
        """
        ...
