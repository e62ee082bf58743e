"""The runs of sub-agents of one session: a limited number at once, each with a card, none longer than its turn.

A run belongs to the turn in which it began. `run` waits for it within its tool call. `spawn` begins one beside the turn
on a card of its own; its report is given to the model before the next model call. If the model ends its answer while
spawned runs go on, the turn waits for them, so that no card is open when the prompt is answered. A turn that ends
otherwise (it was cancelled, or reached a limit) ends them, and the model is told with the next prompt.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

from acp_agent.agent.prompt import fenced
from acp_agent.core.data import frozen
from acp_agent.core.delegation import AgentRun, OfferedAgent, ParentCall, RunSlots, RunState
from acp_agent.core.errors import AgentError, StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.events import MAIN, EventSink, ToolFinished, ToolStarted
from acp_agent.core.ports import Background
from acp_agent.core.types import CallingAgent, ToolKind
from acp_agent.log import Log
from acp_agent.subagents.definitions import Definition
from acp_agent.subagents.worker import Progress, Worker, WorkOutcome
from acp_agent.text import defanged, title
from acp_agent.tools.agent import as_result, summary

if TYPE_CHECKING:  # few sessions have a board
    from acp_agent.subagents.board import SharedWork

_log = Log(__name__)
_CLEAN_UP = 5.0
"""Seconds in which a cancelled run may end."""
_TOGETHER = 0.5
"""Seconds that the first report waits for others, so that the model gets them together."""
_MOST_KEPT = 50
"""Runs that are remembered after their end."""


@frozen
class RunLimits:
    """The most runs in the process and in the session, and the minutes after which ended runs are forgotten."""

    in_process: int = 8
    in_session: int = 5
    archive_minutes: float = 60


@frozen
class RunDependencies:
    """The dependencies of a session's runs.

    definitions  returns the definitions by name in lower case
    worker       returns a new worker for a definition
    emit         shows events
    background   starts a task
    keep         stores a conversation and returns its reference. Raises StoreUnavailable
    readable     returns a report without secrets, and not too long
    limits       returns the limits in force
    slots        the places for runs of the process
    shared       returns the board and the mail of the session; None if it has none
    highest_id   returns the highest N of the ids `<prefix>N` that a restored conversation names
    """

    definitions: Callable[[], Mapping[str, Definition]]
    worker: Callable[[Definition], Worker]
    emit: EventSink
    background: Background
    keep: Callable[[str], Awaitable[str]]
    readable: Callable[[str], Awaitable[str]]
    limits: Callable[[], RunLimits]
    slots: RunSlots
    shared: "Callable[[], SharedWork | None]" = lambda: None
    highest_id: Callable[[str], int] = lambda _: 0


@dataclass(slots=True, eq=False)
class _Run:
    """A run.

    beside  whether it was spawned
    told    whether the model knows how it ended
    over    is set when it has ended, and its card if it was spawned
    """

    id: str
    definition: Definition
    task: str
    worker: Worker
    card: str
    beside: bool
    told: bool = False
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    state: RunState = RunState.RUNNING
    report: str = ""
    conversation: str = ""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    @property
    def caller(self) -> CallingAgent:
        return CallingAgent(self.id, self.definition.name, self.card, self.definition.mode)

    def end(self, state: RunState, report: str) -> None:
        self.state, self.report, self.ended = state, report, time.monotonic()

    def shown(self) -> AgentRun:
        return AgentRun(
            self.id,
            self.definition.name,
            self.task,
            self.state,
            self.report,
            self.seconds,
            self.worker.calls,
            self.conversation,
        )


class SubAgentRuns:
    """The runs of one session."""

    def __init__(self, needs: RunDependencies) -> None:
        self._needs = needs
        self._runs: dict[str, _Run] = {}
        self._numbers: dict[str, int] = {}  # the last one by the beginning of the id
        self._ended = anyio.Event()  # set when a spawned run ends, and when the session's own agent has a message

    def offered(self) -> Sequence[OfferedAgent]:
        """Return the agents that can be given work now."""
        return [definition.offered for definition in self._needs.definitions().values()]

    def runs(self) -> Sequence[AgentRun]:
        """Return the runs that go on, and those that ended not long ago, oldest first."""
        self._archive()
        return [run.shown() for run in self._runs.values()]

    # --------------------------------------------------------------------------------------- running

    async def run(
        self,
        agent: str,
        task: str,
        parent: ParentCall,
        worker: Callable[[Definition], Worker] | None = None,
        *,
        judges: bool = False,
    ) -> AgentRun:
        """Give an agent a task, and return the run when it has ended. Raises ToolError if there is no place.

        worker   returns the worker; None for the usual one
        judges   whether it needs no place of the session and the process, because the agent that it judges waits for it
        """
        definition = self._find(agent)
        run = self._begin(definition, task, (worker or self._needs.worker)(definition), parent.id, judges=judges)
        try:
            await self._work(run, parent.progress)
            run.told = True
        finally:
            self._over(run)
        return run.shown()

    async def spawn(self, agent: str, task: str) -> AgentRun:
        """Begin a run beside the turn, on a card of its own. Raises ToolError if there is no place."""
        definition = self._find(agent)
        return self._beside(definition, task, self._needs.worker(definition))

    def _beside(self, definition: Definition, task: str, worker: Worker, run_id: str = "") -> AgentRun:
        run = self._begin(definition, task, worker, str(uuid4()), run_id, beside=True)
        self._needs.background(partial(self._on_its_card, run))
        return run.shown()

    async def _on_its_card(self, run: _Run) -> None:
        """Carry out a spawned run, from the start of its card to its end."""
        heading, shown = title(f"{run.id}: {run.task}"), {"agent": run.definition.name, "task": run.task}
        card = ToolStarted(run.card, "agent", heading, ToolKind.THINK, {**shown})
        try:
            await self._work(run, self._needs.emit, card)
        except Exception:  # noqa: BLE001 - a fault of the agent's own costs the run, not the process
            _log.error("sub-agent crashed", exc_info=True, run=run.id)
        finally:
            try:
                await self._end_card(run)
            finally:
                self._over(run)
                self.wake()

    async def _end_card(self, run: _Run) -> None:
        """Show the end of a spawned run. The output pipeline makes the report of any other run readable."""
        said, run.report = run.report, ""
        report = "[the report cannot be shown, which is a fault of the agent]"
        try:
            with anyio.fail_after(_CLEAN_UP, shield=True):
                report = await self._needs.readable(said)
        except Exception:  # noqa: BLE001 - the card needs an end, whatever became of the report
            _log.error("report of a sub-agent lost", exc_info=True, run=run.id)
        run.report = report
        with anyio.move_on_after(_CLEAN_UP, shield=True):
            await self._needs.emit(ToolFinished(run.card, "agent", as_result(run.shown()), run.seconds))

    def _over(self, run: _Run) -> None:
        """Note that a run and its card have ended. This wakes the agents that wait for its messages."""
        run.over.set()
        if (shared := self._needs.shared()) is not None:
            shared.mail.close(run.id)

    def _begin(
        self,
        definition: Definition,
        task: str,
        worker: Worker,
        card: str,
        run_id: str = "",
        *,
        beside: bool = False,
        judges: bool = False,
    ) -> _Run:
        """Return a new run, which has a place. Raises ToolError if there is none."""
        self._archive()
        self._check_room(definition, judges=judges)
        if not run_id:
            prefix = f"{definition.name}-"
            last = self._numbers.get(prefix)
            self._numbers[prefix] = number = (self._needs.highest_id(prefix) if last is None else last) + 1
            run_id = f"{prefix}{number}"
        self._runs.pop(run_id, None)
        run = self._runs[run_id] = _Run(run_id, definition, task, worker, card, beside)
        self._needs.slots.take(definition.name)
        if (shared := self._needs.shared()) is not None:
            shared.began(run_id, definition)
        return run

    def _check_room(self, definition: Definition, *, judges: bool) -> None:
        limits, running = self._needs.limits(), [run.id for run in self._runs.values() if not run.ended]
        taken, name = self._needs.slots.taken, definition.name
        here = sum(1 for run in self._runs.values() if not run.ended and run.definition.name == name)
        for its, most, where in (
            (self._needs.slots.taken_by(name), definition.max_running, ""),
            (here, definition.max_per_session, " of this session"),
        ):
            if most and its >= most:
                raise ToolError(
                    ToolErrorCategory.POLICY_BLOCKED,
                    f"Agent at capacity ({its}/{most}{where}): {name} cannot take another task now",
                    "Wait for one of its reports and call again, give the task to another agent, or do it yourself.",
                )
        if judges or (len(running) < limits.in_session and taken < limits.in_process):
            return
        full = len(running) >= limits.in_session
        count = f"{len(running)}/{limits.in_session} of this session" if full else f"{taken}/{limits.in_process} in all"
        raise ToolError(
            ToolErrorCategory.POLICY_BLOCKED,
            f"sub-agents at capacity ({count}): {', '.join(running) or 'other sessions have them'}",
            "Wait for a report and call again, give fewer tasks at once, or do it yourself.",
        )

    async def _work(self, run: _Run, progress: Progress, card: ToolStarted | None = None) -> None:
        """Carry out a run to its end. If it is cancelled alone, and not with its turn, it ends without an exception.

        card   is shown first; None if the run has no card of its own
        """
        outcome: WorkOutcome | None = None
        trouble = "it crashed, which is a fault of the agent"
        try:
            if card is not None:
                await self._needs.emit(card)
            with run.scope:
                outcome = await run.worker.work(run.task, run.caller, progress)
            trouble = "cancelled"
        except AgentError as error:
            trouble = str(error)
        except anyio.get_cancelled_exc_class():
            trouble = "cancelled"
            raise
        finally:
            self._needs.slots.give_back(run.definition.name)
            run.end(*_ending(outcome, trouble))
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                if (shared := self._needs.shared()) is not None and (held := await shared.ended(run.id, run.state)):
                    run.report = f"{run.report}\n\n[gave back: {', '.join(held)}]".strip()
                await self._keep(run)

    async def _keep(self, run: _Run) -> None:
        said = run.worker.conversation()
        if said:
            try:
                run.conversation = await self._needs.keep(f"# {run.id}: {run.task}\n\n{said}\n")
            except StoreUnavailable as error:
                _log.warning("conversation of a sub-agent not stored", run=run.id, error=str(error))

    # ------------------------------------------------------------------------------------ steering

    async def cancel(self, which: str) -> Sequence[AgentRun]:
        """End runs, and return those that ended. Raises ToolError for an unknown id."""
        running = [run for run in self._runs.values() if not run.ended]
        if which == "last":
            running = running[-1:]
        elif which != "all":
            running = [run for run in (self._known(which),) if not run.ended]
        for run in running:
            run.told = True
            run.scope.cancel()
        for run in running:
            with anyio.move_on_after(_CLEAN_UP):
                await run.over.wait()
        return [run.shown() for run in running]

    async def steer(self, which: str, words: str) -> AgentRun:
        """End a run if it is active, and restart it with its conversation and these words.

        Raises ToolError if its definition has changed, because the run would go on under the former one. Also raises it
        if the run does not end in time, or if another call has restarted it, because one worker would work twice.
        """
        run = self._known(which)
        if self._needs.definitions().get(run.definition.name.lower()) != run.definition:
            told = f"{run.definition.name} was changed or taken away since {run.id} began"
            raise ToolError(ToolErrorCategory.POLICY_BLOCKED, told, "Give an agent the whole task in a new run.")
        run.told = True
        run.scope.cancel()
        with anyio.move_on_after(_CLEAN_UP):
            await run.over.wait()
        if not run.over.is_set():
            told = f"{run.id} was cancelled, but has not ended yet"
            raise ToolError(ToolErrorCategory.TIMEOUT, told, "Call again in a moment, or give a new run the task.")
        if self._runs.get(run.id, run) is not run:
            told = f"another call has steered {run.id} meanwhile"
            raise ToolError(ToolErrorCategory.POLICY_BLOCKED, told, "Give it all your words in one call.")
        return self._beside(run.definition, words, run.worker, run.id)

    # ------------------------------------------------------------------------------------- reports

    def news(self) -> str:
        """Return the ends of runs that the model does not know yet, and a line about messages; empty for neither."""
        ready = self._untold()
        for run in ready:
            run.told = True
        return "\n\n".join(filter(None, (*(_announced(run.shown()) for run in ready), self._mail())))

    async def wait(self) -> str:
        """Wait until a spawned run ends or writes. Return the news; empty if no run goes on and nothing is new."""
        while True:
            if mail := self._mail():
                return mail
            if self._untold():
                if self._going_on():
                    await anyio.sleep(_TOGETHER)
                return self.news()
            if not self._going_on():
                return ""
            await self._ended.wait()

    def wake(self) -> None:
        """Have `wait` look for messages."""
        ended, self._ended = self._ended, anyio.Event()
        ended.set()

    def _mail(self) -> str:
        shared = self._needs.shared()
        return "" if shared is None else shared.mail.announcement(MAIN)

    async def end(self) -> str:
        """End the spawned runs, because the turn ends, and return the news. Their cards are closed on return."""
        if going_on := self._going_on():
            for run in going_on:
                run.scope.cancel()
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                for run in going_on:
                    await run.over.wait()
        return self.news()

    def _going_on(self) -> list[_Run]:
        """Return the spawned runs whose cards are open."""
        return [run for run in self._runs.values() if run.beside and not run.over.is_set()]

    def _untold(self) -> list[_Run]:
        """Return the ended runs that the model has not been told of, including those that ended with their turn."""
        return [run for run in self._runs.values() if run.over.is_set() and not run.told]

    # ------------------------------------------------------------------------------------- finding

    def _find(self, agent: str) -> Definition:
        known = self._needs.definitions()
        found = known.get(agent.lower())
        if found is None:
            names = ", ".join(each.name for each in known.values())
            raise ToolError.invalid(f"there is no sub-agent {agent[:80]!r}", f"Use one of: {names}.")
        return found

    def _known(self, run_id: str) -> _Run:
        self._archive()
        run = self._runs.get(run_id)
        if run is None:
            ids = ", ".join(self._runs) or "none"
            raise ToolError.invalid(f"there is no run {run_id[:80]!r}", f"Runs: {ids}.")
        return run

    def _archive(self) -> None:
        """Forget runs that ended long ago."""
        oldest = time.monotonic() - self._needs.limits().archive_minutes * 60
        ended = [run for run in self._runs.values() if run.over.is_set() and run.told]
        for at, run in enumerate(ended):
            if run.ended < oldest or at < len(ended) - _MOST_KEPT:
                del self._runs[run.id]


def _ending(outcome: WorkOutcome | None, trouble: str) -> tuple[RunState, str]:
    """Return the state and the report of a run that has ended."""
    if outcome is None:
        return (RunState.CANCELLED, "") if trouble == "cancelled" else (RunState.FAILED, trouble)
    if not outcome.trouble:
        return RunState.DONE, outcome.report
    said = f"{outcome.report}\n\n" if outcome.report else ""
    return (RunState.DONE if said else RunState.FAILED), f"{said}[{outcome.trouble}]"


def _announced(run: AgentRun) -> str:
    """Return the end of a run for the model, in a fence: its words are data."""
    if not run.report:
        return f"[{summary(run)}]"
    said = fenced("tool-output", defanged(run.report), f' agent="{run.id}"')
    return f"[{summary(run)}. Its report:]\n{said}"
