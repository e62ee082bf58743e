"""The board of tasks that the agents of one session share, and the messages between them.

The board is shown as the editor's plan. `ShownPlan` keeps it, and the transcript stores each plan before showing it, so
the board survives the death of the process. A change is made without waiting. So if two agents claim a task at once,
one gets it, and the other is told who has it.

Messages are kept in memory, since no sub-agent outlives the turn.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import anyio

from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.core.data import frozen
from acp_agent.core.delegation import BoardChange, Mail, RunState
from acp_agent.core.errors import ToolError
from acp_agent.core.events import MAIN, BoardTask, PlanEntry, PlanPriority, PlanStatus
from acp_agent.subagents.definitions import Definition
from acp_agent.text import counted, title

MOST_TASKS = 100
MOST_UNREAD = 20  # messages of one agent
LONGEST_MESSAGE = 4000  # characters
_READER = "messages"
"""The tool that reads messages."""
_PRIORITIES = tuple(PlanPriority)
_ID = re.compile(r"[A-Za-z0-9_.-]{1,40}")

Tasks = tuple[BoardTask, ...]


# ---------------------------------------------------------------------------------------------- board


class SessionBoard:
    """The board of one session.

    plan   keeps the tasks, and shows them as the editor's plan
    """

    def __init__(self, plan: ShownPlan) -> None:
        self._plan = plan

    def tasks(self) -> Sequence[BoardTask]:
        return by_priority(self._plan.tasks)

    def waits_for(self, task: BoardTask) -> Sequence[BoardTask]:
        return waits_for(task, self._plan.tasks)

    async def create(self, drafts: Sequence[BoardTask]) -> BoardChange:
        """Add all of these tasks, or none. Raises ToolError for bad ids, unknown dependencies and cycles."""
        now = self._plan.tasks
        if len(now) + len(drafts) > MOST_TASKS:
            full = f"the board has room for {MOST_TASKS} tasks and holds {len(now)}"
            raise ToolError.permanent(full, "Complete or cancel some first, or create fewer.")
        taken = {task.id for task in now}
        added: list[BoardTask] = []
        for draft in _numbered(drafts, taken):
            if draft.id in taken:
                raise ToolError.invalid(f"there is a task {draft.id} already", "Give each task an id of its own.")
            taken.add(draft.id)
            added.append(draft)
        _check_dependencies((*now, *added))
        return await self._change((*now, *added), [task.id for task in added])

    async def claim(self, task_id: str, who: str) -> BoardChange:
        """Take a task, or for an empty id the first one that is ready. Raises ToolError if it cannot be claimed."""
        if not task_id:
            ready = next((task for task in self.tasks() if is_ready(task, self._plan.tasks)), None)
            if ready is None:
                return BoardChange(())
            task_id = ready.id
        task = self._found(task_id)
        self._check_open(task, who)
        if task.owner == who:
            return BoardChange((task,))
        return await self._set(replace(task, status=PlanStatus.IN_PROGRESS, owner=who))

    async def complete(self, task_id: str, who: str, result: str) -> BoardChange:
        """Mark a task as done. Raises ToolError if another agent has it, or if it waits for others."""
        task = self._found(task_id)
        self._check_open(task, who)
        return await self._set(replace(task, status=PlanStatus.COMPLETED, owner=who, result=result, note=""))

    async def release(self, task_id: str, who: str, why: str) -> BoardChange:
        """Give a task back. Raises ToolError if nobody has it, or if another agent has it and `who` is not `MAIN`."""
        task = self._found(task_id)
        if task.status is not PlanStatus.IN_PROGRESS:
            raise ToolError.permanent(
                f"nobody works on {task.id}: it is {_state(task)}", "There is nothing to give back."
            )
        self._check_mine(task, who)
        reason = f": {why}" if why else ""
        return await self._set(_returned(task, f"given back by {task.owner}{reason}"))

    async def cancel(self, task_id: str, who: str) -> BoardChange:
        """Take a task from the board; nothing waits for it any more.

        Raises ToolError if another agent has it and `who` is not `MAIN`.
        """
        task = self._found(task_id)
        self._check_mine(task, who)
        rest = tuple(
            replace(each, after=tuple(other for other in each.after if other != task.id))
            if task.id in each.after
            else each
            for each in self._plan.tasks
            if each.id != task.id
        )
        change = await self._change(rest, ())
        return BoardChange((task,), change.ready)

    def held_by(self, who: str) -> Sequence[str]:
        """Return the ids of the tasks on which an agent works."""
        return [task.id for task in self._plan.tasks if task.owner == who and task.status is PlanStatus.IN_PROGRESS]

    async def give_back(self, who: str, why: str) -> Sequence[str]:
        """Give back the tasks that an agent has, because it has ended. Return their ids."""
        held, note = self.held_by(who), f"given back by {who}, {why}"
        await self._change(tuple(_returned(task, note) if task.id in held else task for task in self._plan.tasks), ())
        return held

    # ----------------------------------------------------------------------------------- changing

    async def _set(self, task: BoardTask) -> BoardChange:
        now = tuple(task if each.id == task.id else each for each in self._plan.tasks)
        return await self._change(now, [task.id])

    async def _change(self, now: Tasks, changed: Sequence[str]) -> BoardChange:
        """Replace the tasks of the board, and show them. Return the `changed` tasks, and others that became ready."""
        before, now = self._plan.tasks, self._plan.without_secrets(now)
        were_ready = {task.id for task in before if is_ready(task, before)}
        ready = [task for task in by_priority(now) if is_ready(task, now) and task.id not in (*were_ready, *changed)]
        if now != before:
            await self._plan.show(as_plan(now), now)
        return BoardChange(tuple(task for task in now if task.id in changed), tuple(ready))

    def _found(self, task_id: str) -> BoardTask:
        found = next((task for task in self._plan.tasks if task.id == task_id), None)
        if found is None:
            raise _unknown(task_id, self._plan.tasks)
        return found

    def _check_open(self, task: BoardTask, who: str) -> None:
        """Raise ToolError if a task is done, belongs to another agent, or waits for other tasks."""
        if task.status is PlanStatus.COMPLETED:
            raise ToolError.permanent(f"{task.id} is {_state(task)} already", "Go on with another task.")
        if task.owner not in ("", who):
            release = f", or release {task.id} first" if who == MAIN else ""
            raise ToolError.permanent(f"{task.owner} works on {task.id}", f"Go on with another task{release}.")
        if before := waits_for(task, self._plan.tasks):
            told = ", ".join(f"{each.id} ({_state(each)})" for each in before)
            raise ToolError.permanent(
                f"{task.id} waits for {told}", "Go on with another task, or end with your report."
            )

    def _check_mine(self, task: BoardTask, who: str) -> None:
        if task.owner not in ("", who) and who != MAIN:
            raise ToolError.permanent(
                f"{task.id} is not yours: {_state(task)}", "Leave it to that agent, or write to it."
            )


def by_priority(tasks: Tasks) -> Sequence[BoardTask]:
    """Return tasks in the order in which they are listed, shown, and claimed."""
    return sorted(tasks, key=lambda task: _PRIORITIES.index(task.priority))


def waits_for(task: BoardTask, tasks: Tasks) -> Sequence[BoardTask]:
    """Return the unfinished tasks that must be completed before this one can be claimed."""
    return [each for each in tasks if each.id in task.after and each.status is not PlanStatus.COMPLETED]


def is_ready(task: BoardTask, tasks: Tasks) -> bool:
    """Return whether a task can be claimed."""
    return task.status is PlanStatus.PENDING and not waits_for(task, tasks)


def abandoned(tasks: Tasks) -> Tasks:
    """Return the tasks of an earlier process. Those on which its sub-agents worked are free again."""
    return tuple(
        _returned(task, f"given back by {task.owner}, which ended with the agent's process")
        if task.status is PlanStatus.IN_PROGRESS and task.owner != MAIN
        else task
        for task in tasks
    )


def as_plan(tasks: Tasks) -> tuple[PlanEntry, ...]:
    """Return the board as the editor's plan: each task with its id, its owner, and the tasks for which it waits."""
    return tuple(
        PlanEntry(f"{task.id}: {task.title}{_remark(task, tasks)}", task.status, task.priority)
        for task in by_priority(tasks)
    )


def _remark(task: BoardTask, tasks: Tasks) -> str:
    before = ", ".join(each.id for each in waits_for(task, tasks))
    parts = (task.owner, f"waits for {before}" if before else "", "" if task.owner else title(task.note))
    remark = "; ".join(filter(None, parts))
    return f" ({remark})" if remark else ""


def _state(task: BoardTask) -> str:
    match task.status:
        case PlanStatus.COMPLETED:
            return f"done by {task.owner}"
        case PlanStatus.IN_PROGRESS:
            return f"{task.owner} works on it"
        case PlanStatus.PENDING:
            return "free"


def _returned(task: BoardTask, note: str) -> BoardTask:
    return replace(task, status=PlanStatus.PENDING, owner="", note=note)


def _unknown(task_id: str, tasks: Sequence[BoardTask], of: str = "") -> ToolError:
    known = ", ".join(task.id for task in tasks) or "none"
    return ToolError.invalid(f"{of}there is no task {task_id[:80]!r}", f"Tasks: {known}.")


def _numbered(drafts: Sequence[BoardTask], taken: set[str]) -> Iterator[BoardTask]:
    """Yield the drafts, each with an id. Raises ToolError for an invalid id."""
    given = taken | {draft.id for draft in drafts}
    numbers = (str(number) for number in count(1) if str(number) not in given)
    for draft in drafts:
        if draft.id and not _ID.fullmatch(draft.id):
            raise ToolError.invalid(f"{draft.id[:80]!r} is no id", "Use up to 40 letters, digits, dots, - and _.")
        yield draft if draft.id else replace(draft, id=next(numbers))


def _check_dependencies(tasks: Tasks) -> None:
    """Raise ToolError for a dependency that is no task, and for tasks that wait for each other."""
    after = {task.id: task.after for task in tasks}
    for task in tasks:
        for other in task.after:
            if other not in after:
                raise _unknown(
                    other, [each for each in tasks if each is not task], f"{task.id} cannot wait for {other[:80]!r}: "
                )
    done = set[str]()
    for task in tasks:
        if cycle := _cycle(task.id, after, (), done):
            raise ToolError.invalid(
                f"these tasks wait for each other: {' -> '.join(cycle)}", "Leave out one of the dependencies."
            )


def _cycle(task_id: str, after: Mapping[str, Sequence[str]], path: tuple[str, ...], done: set[str]) -> Sequence[str]:
    """Return the ids of a cycle that a task depends on; empty for none. `done` collects tasks that depend on none."""
    if task_id in path:
        return (*path[path.index(task_id) :], task_id)
    if task_id in done:
        return ()
    for other in after[task_id]:
        if cycle := _cycle(other, after, (*path, task_id), done):
            return cycle
    done.add(task_id)
    return ()


# ------------------------------------------------------------------------------------------- messages


class SessionMail:
    """The messages between the agents of one session.

    wake   wakes the session's own agent, which may be waiting for messages at the end of its turn
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._unread: dict[str, list[Mail]] = {MAIN: []}
        self._announced: dict[str, int] = {}  # how many unread messages have been announced
        self._closed = set[str]()
        self._changed = anyio.Event()

    def open(self, who: str) -> None:
        """Let a sub-agent get messages from now on."""
        self._unread[who] = []

    def close(self, who: str) -> None:
        """Drop the messages of a sub-agent, which has ended."""
        if self._unread.pop(who, None) is not None:
            self._closed.add(who)
        self._announced.pop(who, None)
        self._wake_readers()

    def _wake_readers(self) -> None:
        """Wake the readers that wait for messages."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def names(self, who: str) -> Sequence[str]:
        return [name for name in self._unread if name != who]

    def send(self, who: str, to: str, text: str) -> None:
        names = self.names(who)
        if to not in names:
            why = f"{to} has ended" if to in self._closed else f"nobody here is called {to[:80]!r}"
            raise ToolError.permanent(why, f"You can write to: {', '.join(names) or 'nobody'}.")
        if len(text) > LONGEST_MESSAGE:
            raise ToolError.invalid(
                f"a message of {len(text):,} characters (at most {LONGEST_MESSAGE:,})", "Shorten it."
            )
        if len(self._unread[to]) >= MOST_UNREAD:
            raise ToolError.permanent(
                f"{to} has {MOST_UNREAD} unread messages, and gets no more", "Wait until it has read them."
            )
        self._unread[to].append(Mail(who, text))
        self._wake_readers()
        if to == MAIN:
            self._wake()

    async def read(self, who: str, seconds: float) -> Sequence[Mail]:
        others = {*self.names(who)}
        with anyio.move_on_after(seconds):
            while not self._unread.get(who) and others and others <= {*self.names(who)}:
                await self._changed.wait()
        messages = self._unread.get(who, [])
        if messages:
            self._unread[who] = []
            self._announced[who] = 0
        return messages

    def announcement(self, who: str) -> str:
        """Return one line about the messages that came since the last announcement; empty for none."""
        unread = self._unread.get(who, [])
        if len(unread) <= self._announced.get(who, 0):
            return ""
        self._announced[who] = len(unread)
        senders = ", ".join(
            f"{name} (it gave you your task)" if name == MAIN else name
            for name in dict.fromkeys(each.sender for each in unread)
        )
        return f"[{counted(len(unread), 'unread message')} from {senders}: read with the tool messages]"


@frozen
class SharedWork:
    """The board and the mail that the agents of one session share."""

    board: SessionBoard
    mail: SessionMail

    def began(self, run_id: str, definition: Definition) -> None:
        """Let the sub-agent of a new run get messages, if its definition lets it read them."""
        if not definition.selection().objection(_READER):
            self.mail.open(run_id)

    async def ended(self, run_id: str, state: RunState) -> Sequence[str]:
        """Give back the tasks that a sub-agent has, because its run has ended. Return their ids."""
        ending = {RunState.FAILED: "failed", RunState.CANCELLED: "was cancelled"}.get(state, "ended")
        return await self.board.give_back(run_id, f"which {ending}")


class SharedReports:
    """The reports that one sub-agent gets about its messages and its tasks of the board."""

    def __init__(self, shared: SharedWork, who: str) -> None:
        self._shared = shared
        self._who = who
        self._reminded = False

    def news(self) -> str:
        """Return one line about new messages; empty for none."""
        return self._shared.mail.announcement(self._who)

    async def wait(self) -> str:
        """Return what the sub-agent must read before it ends: new messages and, once, the tasks that it still has."""
        held = () if self._reminded else self._shared.board.held_by(self._who)
        self._reminded = self._reminded or bool(held)
        which = f"[You still have {', '.join(held)}: complete or release it, then give your report once more]"
        return "\n".join(filter(None, (self.news(), which if held else "")))

    async def end(self) -> str:
        """Return nothing, because there is nothing to end."""
        return ""
