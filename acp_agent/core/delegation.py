"""The port to sub-agents: agents that do a task in a conversation of their own and give back a report.

A sub-agent never has more rights than its session: its calls pass the session's own tools and gates.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from acp_agent.core.data import frozen
from acp_agent.core.events import BoardTask, ToolProgress

BACK = "back"
"""The word that hands a session back to its own agent."""


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@frozen
class OfferedAgent:
    """A sub-agent that can be given work.

    description   one line for the model: what it is for
    only_reads    whether it is known to change nothing
    background    whether `run` goes on beside the conversation, as `spawn` does
    source        where its definition is: a path, or "built in"
    identity      what an "always" answer to its program covers; empty for an agent of ours, which has no program
    risk          what its program may do by itself, for the user who is asked; empty for an agent of ours
    """

    name: str
    description: str
    only_reads: bool = False
    background: bool = False
    source: str = "built in"
    identity: str = ""
    risk: str = ""


BUILT_IN = (
    OfferedAgent("explore", "finds out where things are and how code works; only reads", only_reads=True),
    OfferedAgent("general", "does a task of several steps"),
    OfferedAgent("review", "finds mistakes in changes or files; only reads", only_reads=True),
)
"""The agents that every session has. Their definitions are loaded with the first run."""

RESERVED = {**{each.name: "built in" for each in BUILT_IN}, BACK: "the word that ends a handoff"}
"""The names that no other agent may have, with the reasons."""


@frozen
class AgentRun:
    """A run as it is now.

    id            the name of the agent and a number, such as "explore-1"
    report        the text that the agent ended with, or why it failed; empty while it runs
    seconds       how long it has run
    calls         its tool calls so far
    conversation  the reference of its stored conversation, `overflow:<uuid>`; empty for none
    """

    id: str
    agent: str
    task: str
    state: RunState
    report: str = ""
    seconds: float = 0.0
    calls: int = 0
    conversation: str = ""


@frozen
class EvaluationTask:
    """A task that one agent does and another judges, in rounds, until the work is approved.

    generator, evaluator   the names of these agents
    rounds                 the most rounds, from 1 to 5
    """

    task: str
    criteria: str
    generator: str = "general"
    evaluator: str = "review"
    rounds: int = 3


@frozen
class Evaluation:
    """The end of an evaluation.

    run        the generator's last run
    approved   whether the evaluator approved it
    feedback   what the evaluator said last, or why it said nothing; empty if it approved
    rounds     the rounds that it took
    """

    run: AgentRun
    approved: bool
    feedback: str
    rounds: int


class RunSlots:
    """The places for runs in the process. All its sessions share them."""

    def __init__(self) -> None:
        self.taken = 0
        self._of = dict[str, int]()

    def taken_by(self, agent: str) -> int:
        """Return the runs of one agent that go on in the process."""
        return self._of.get(agent, 0)

    def take(self, agent: str) -> None:
        """Take a place for an agent."""
        self.taken += 1
        self._of[agent] = self.taken_by(agent) + 1

    def give_back(self, agent: str) -> None:
        """Give the place of an agent back."""
        self.taken -= 1
        self._of[agent] -= 1


@frozen
class ParentCall:
    """The tool call on whose card a run is shown.

    progress   sends news of the call to the user
    """

    id: str
    progress: Callable[[ToolProgress], Awaitable[None]]


class BoardChange(NamedTuple):
    """The change that a call made to the board.

    changed   the tasks that it changed, as they are now
    ready     other tasks that can be claimed now, because of it
    """

    changed: tuple[BoardTask, ...]
    ready: tuple[BoardTask, ...] = ()


class TaskBoard(Protocol):
    """The tasks that the agents of a session share. The methods that change it raise ToolError and change nothing.

    `who` is `MAIN` or the id of a run. A sub-agent changes only tasks that nobody has, or that it has itself.
    """

    def tasks(self) -> Sequence[BoardTask]:
        """Return all tasks, those of a higher priority first, and of one priority in the order of their creation."""
        ...

    def waits_for(self, task: BoardTask) -> Sequence[BoardTask]:
        """Return the tasks that must be done before this one can be claimed."""
        ...

    async def create(self, drafts: Sequence[BoardTask]) -> BoardChange:
        """Add all of these tasks. One without an id gets a number."""
        ...

    async def claim(self, task_id: str, who: str) -> BoardChange:
        """Take a task, or for an empty id the first one that is ready; without one there is no change."""
        ...

    async def complete(self, task_id: str, who: str, result: str) -> BoardChange:
        """Mark a task as done that `who` has, or nobody."""
        ...

    async def release(self, task_id: str, who: str, why: str) -> BoardChange:
        """Give a task back."""
        ...

    async def cancel(self, task_id: str, who: str) -> BoardChange:
        """Take a task from the board. Nothing waits for it any more."""
        ...


class Mail(NamedTuple):
    """A message. `sender` is `MAIN` or the id of a run."""

    sender: str
    text: str


class Mailbox(Protocol):
    """The messages between the agents of a session."""

    def names(self, who: str) -> Sequence[str]:
        """Return the others that can be written to."""
        ...

    def send(self, who: str, to: str, text: str) -> None:
        """Send a message. Raises ToolError if there is no such agent, or if it has too many unread messages."""
        ...

    async def read(self, who: str, seconds: float) -> Sequence[Mail]:
        """Return the unread messages. Without any, wait at most so many seconds, until one comes or another ends."""
        ...


class SubAgents(Protocol):
    """The sub-agents of one session. The methods that take a name or an id raise ToolError for an unknown one."""

    @property
    def board(self) -> TaskBoard:
        """The tasks of the session. It is loaded when it is asked for."""
        ...

    @property
    def mail(self) -> Mailbox:
        """The messages between the session's agents, likewise."""
        ...

    def offered(self) -> Sequence[OfferedAgent]:
        """Return the agents that can be given work now. This is cheap."""
        ...

    async def run(self, agent: str, task: str, parent: ParentCall) -> AgentRun:
        """Give an agent a task, and return the run when it has ended. Cancelling ends the run.

        Raises ToolError if no further run may begin now.
        """
        ...

    async def evaluate(self, task: EvaluationTask, parent: ParentCall) -> Evaluation:
        """Have a task done and judged until it is approved. Its runs fire no quality gates.

        Raises ToolError if no further run may begin now.
        """
        ...

    async def hand_over(self, agent: str) -> str:
        """Go on with the session under an agent's definition, or for `BACK` under its own, from the next model call on.

        Return a line about it. Raises AgentError.
        """
        ...

    async def spawn(self, agent: str, task: str) -> AgentRun:
        """Begin a run beside the turn, on a card of its own. Its report is given to the model when it is there.

        Raises ToolError if no further run may begin now.
        """
        ...

    def runs(self) -> Sequence[AgentRun]:
        """Return the runs that go on, and those that ended not long ago, oldest first."""
        ...

    async def cancel(self, which: str) -> Sequence[AgentRun]:
        """End the run with this id, the last one that goes on (`last`) or all (`all`), and return those that ended."""
        ...

    async def steer(self, which: str, words: str) -> AgentRun:
        """End a spawned run if it still goes on, and begin it anew with its conversation and these words."""
        ...
