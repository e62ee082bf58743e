"""What is kept of a session, and who keeps it (requirements A5-A11, 2.15; security.md 2.9)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from acp_agent.core.conduct import Conduct
from acp_agent.core.events import TextDelta, ThoughtDelta, Told, ToolFinished
from acp_agent.core.messages import Message, Usage
from acp_agent.core.plan import PlanEntry


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One row of the list. Times are in milliseconds since 1970.

    cwd         absolute, as the client wrote it
    additional  more folders, as the client wrote them
    title       empty while there is none
    prompts     how many the user has sent
    model       `PROVIDER:MODEL` that answered last; empty before the first answer
    """

    id: str
    cwd: str
    additional: tuple[str, ...] = ()
    title: str = ""
    created_at: int = 0
    updated_at: int = 0
    prompts: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a session took so far, and what its gates have counted.

    used, size      how full the model's window was after the last call, in tokens
    cost            US dollars of the calls whose price is known; None before the first of them
    complete        whether that is all of them
    calls, batches  of tools, for the quota (L7)
    under_way       whether a turn was under way: one whose process died stays so
    """

    used: int = 0
    size: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    complete: bool = True
    calls: int = 0
    batches: int = 0
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class HistoryState:
    """The conversation as the model has it.

    knowledge   how many parts of the first message are summaries
    tokens      how much of the window it fills, measured where a model has counted
    lost        how many messages there were besides that could not be read
    """

    messages: tuple[Message, ...] = ()
    knowledge: int = 0
    tokens: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction adds to a session. None and nothing leave what is there.

    told      in order, behind what was told before
    history   the whole conversation of now: the store writes what is new in it
    prompted  whether this begins a turn: counts a prompt
    touch     whether the session was used just now, and moves to the head of the list
    instead   whole messages in the place of the pieces of theirs that were told before
    """

    told: Sequence[Told] = ()
    history: HistoryState | None = None
    conduct: Conduct | None = None
    tally: Tally | None = None
    title: str | None = None
    model: str | None = None
    prompted: bool = False
    touch: bool = False
    cwd: str | None = None
    additional: tuple[str, ...] | None = None
    instead: tuple[TextDelta | ThoughtDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """A session as it was kept, but for what was told: that may be long, and is read piece by piece.

    plan    what the user saw of it last
    typed   what he wrote in his prompts himself, oldest first, as far as it is not long ago
    cut     where a turn was under way: the answer and the thought it was telling, as far as it came
    ended   there: the calls of the model in it that had ended, oldest first, as far as they are not long ago
    """

    record: SessionRecord
    conduct: Conduct
    tally: Tally
    history: HistoryState
    plan: tuple[PlanEntry, ...] = ()
    typed: tuple[str, ...] = ()
    cut: tuple[TextDelta | ThoughtDelta, ...] = ()
    ended: tuple[ToolFinished, ...] = ()


@dataclass(frozen=True, slots=True)
class ToldAt:
    """Something that was told. `at` is in milliseconds since 1970, `seq` grows from one to the next."""

    seq: int
    at: int
    event: Told


class Keeper(Protocol):
    """What is kept of one session. Belongs to the one process that has the session open."""

    async def write(self, change: Change, *, durable: bool = True, patience: float | None = None) -> None:
        """Keep a change, whole or not at all. On return it survives our death; where `durable`, a power cut too.

        patience   seconds to wait for other processes; None for as long as the database waits
        Raises StoreUnavailable, also when the session was deleted.
        """
        ...

    async def saved(self) -> Saved | None:
        """All but what was told; None when the session is not there. Raises StoreUnavailable."""
        ...

    def told(self, after: int = 0) -> AsyncGenerator[ToldAt]:
        """What was told with a `seq` above `after`, oldest first. Raises StoreUnavailable."""
        ...

    async def forget(self) -> None:
        """Remove all that was said, with what was kept of it: the session stays, without a title.

        Raises StoreUnavailable.
        """
        ...
