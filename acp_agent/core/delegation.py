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

    description   the purpose of the agent, as one line for the model
    only_reads    whether the agent is known to change nothing
    background    whether the tool `agent` always starts its runs in the background, as with `spawn`
    source        the place of its definition: a path, or "built in"
    identity      what an "always" answer about its program covers; empty for our own agents, which have no program
    risk          what its program may do by itself, as text for the question to the user; empty for our own agents
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
    """The present state of a run.

    id            the name of the agent and a number, such as "explore-1"
    report        the last text of the agent, or why it failed; empty while it runs
    seconds       the time that it has run
    calls         the number of its tool calls so far
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
    """The result of an evaluation.

    run        the generator's last run
    approved   whether the evaluator approved its work
    feedback   the evaluator's last answer, or why there is none; empty if it approved
    rounds     the number of rounds
    """

    run: AgentRun
    approved: bool
    feedback: str
    rounds: int


class RunSlots:
    """A counter of the runs in the process, in all sessions together and by agent."""

    def __init__(self) -> None:
        self.taken = 0
        self._of = dict[str, int]()

    def taken_by(self, agent: str) -> int:
        """Return how many runs of an agent are going on in the process."""
        return self._of.get(agent, 0)

    def take(self, agent: str) -> None:
        """Count a run of an agent that begins."""
        self.taken += 1
        self._of[agent] = self.taken_by(agent) + 1

    def give_back(self, agent: str) -> None:
        """Remove an agent's run, which has ended, from the count."""
        self.taken -= 1
        self._of[agent] -= 1


@frozen
class ParentCall:
    """The tool call in whose card the editor shows a run.

    progress   sends an update of the call to the user
    """

    id: str
    progress: Callable[[ToolProgress], Awaitable[None]]


class BoardChange(NamedTuple):
    """The change that a call made to the board.

    changed   the tasks that the call changed, as they are now
    ready     other tasks that can be claimed because of the change
    """

    changed: tuple[BoardTask, ...]
    ready: tuple[BoardTask, ...] = ()


class TaskBoard(Protocol):
    """The tasks that the agents of a session share.

    `who` is `MAIN` or the id of a run. A sub-agent may change only its own tasks and those without an owner. A method
    that raises ToolError has changed nothing.
    """

    def tasks(self) -> Sequence[BoardTask]:
        """Return all tasks by priority, the highest first. Tasks of one priority are in the order of their creation."""
        ...

    def waits_for(self, task: BoardTask) -> Sequence[BoardTask]:
        """Return the tasks that must be done before this one can be claimed."""
        ...

    async def create(self, drafts: Sequence[BoardTask]) -> BoardChange:
        """Add all of these tasks. One without an id gets a number."""
        ...

    async def claim(self, task_id: str, who: str) -> BoardChange:
        """Make `who` the owner of a task. An empty id means the first ready task, if there is one."""
        ...

    async def complete(self, task_id: str, who: str, result: str) -> BoardChange:
        """Mark a task as done. Its owner must be `who` or nobody."""
        ...

    async def release(self, task_id: str, who: str, why: str) -> BoardChange:
        """Remove the owner of a task, so that others can claim it. `why` is stored as the task's note."""
        ...

    async def cancel(self, task_id: str, who: str) -> BoardChange:
        """Remove a task from the board. Tasks that waited for it no longer do."""
        ...


class Mail(NamedTuple):
    """A message. `sender` is `MAIN` or the id of a run."""

    sender: str
    text: str


class Mailbox(Protocol):
    """The messages between the agents of a session."""

    def names(self, who: str) -> Sequence[str]:
        """Return the names of the agents to which `who` can send messages."""
        ...

    def send(self, who: str, to: str, text: str) -> None:
        """Send a message. Raises ToolError if there is no such agent, or if it has too many unread messages."""
        ...

    async def read(self, who: str, seconds: float) -> Sequence[Mail]:
        """Return the unread messages of `who`. If there are none, wait for one, at most `seconds`.

        The wait also ends when another agent ends.
        """
        ...


class SubAgents(Protocol):
    """The sub-agents of one session. The methods that take a name or an id raise ToolError for an unknown one."""

    @property
    def board(self) -> TaskBoard:
        """The board of the session's tasks. Its code is loaded at the first access."""
        ...

    @property
    def mail(self) -> Mailbox:
        """The messages between the session's agents. The code is loaded at the first access."""
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
        """Let one agent do a task and another judge it, until it is approved. Quality gates do not check these runs.

        Raises ToolError if no further run may begin now.
        """
        ...

    async def hand_over(self, agent: str) -> str:
        """Use an agent's definition for the session from the next model call on. `BACK` restores the session's own.

        Return a line about the change. Raises AgentError.
        """
        ...

    async def spawn(self, agent: str, task: str) -> AgentRun:
        """Begin a run in the background, with a card of its own. The model gets the report when the run ends.

        Raises ToolError if no further run may begin now.
        """
        ...

    def runs(self) -> Sequence[AgentRun]:
        """Return the current runs and those that ended recently, oldest first."""
        ...

    async def cancel(self, which: str) -> Sequence[AgentRun]:
        """End the run with this id, the latest current run (`last`) or all (`all`). Return those that ended."""
        ...

    async def steer(self, which: str, words: str) -> AgentRun:
        """Continue the conversation of a spawned run with these words in a new run. End the old run if necessary."""
        ...
