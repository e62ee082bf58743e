"""tasks and messages: the board and the mail that the agents of a session share.

The user sees the board as the plan, so there is no other plan (`update_plan`) beside it. What others have written is
data: it stands indented below a line of ours, and the output pipeline fences it like the text of any tool.
"""

from collections.abc import Sequence
from textwrap import indent
from typing import Annotated, Literal

from acp_agent.core.delegation import BoardChange, Mailbox, SubAgents, TaskBoard
from acp_agent.core.errors import ToolError
from acp_agent.core.events import MAIN, BoardTask, PlanPriority, PlanStatus
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import JsonObject, ToolKind, ToolResult
from acp_agent.shape import BeforeValidator, Field
from acp_agent.text import counted, defanged, title, visible
from acp_agent.tools.tool import WHOLE, Name, Params, Part, SessionTool, Text


def _as_text(value: object) -> object:
    """Turn a number into a text, because models number their tasks."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


TaskId = Annotated[Text, BeforeValidator(_as_text), Field(max_length=100)]


class NewTask(Part):
    """A task to be created."""

    id: Annotated[TaskId, Field(description="A short name")] = ""
    content: Annotated[Name, Field(max_length=200)]
    details: Annotated[Text, Field(max_length=4000)] = ""
    priority: Literal["high", "medium", "low"] = "medium"
    after: list[TaskId] = Field(default_factory=list[str], max_length=100, description="Ids of tasks to be done before")

    def draft(self) -> BoardTask:
        """Return the task. Its title is on one line."""
        line = visible(" ".join(self.content.split()))
        return BoardTask(self.id, line, self.details, PlanPriority(self.priority), tuple(dict.fromkeys(self.after)))


class TasksParams(Params):
    """Work on a board of tasks that you share with your sub-agents, or with the agents beside you.

    The user sees it as the plan. claim without id takes the next task that is ready.
    """

    action: Literal["list", "create", "claim", "complete", "release", "cancel", "search"] = "list"
    tasks: list[NewTask] = Field(default_factory=list[NewTask], max_length=100, description="For create")
    id: TaskId = ""
    text: Annotated[
        Text, Field(max_length=4000, description="complete: what came of it; release: why; search: words")
    ] = ""


class Tasks(SessionTool[TasksParams]):
    """The tool that works on the board of `Backends.agents`."""

    name = "tasks"
    kind = ToolKind.OTHER
    mutates = False

    def fitted(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments as they are meant: to create one task, models also send its fields without a list."""
        rest = {key: value for key, value in arguments.items() if key not in ("action", "tasks")}
        if arguments.get("action") == "create" and rest and not arguments.get("tasks"):
            arguments = {"action": "create", "tasks": [rest]}
        return super().fitted(arguments)

    def title(self, params: TasksParams) -> str:
        match params.action:
            case "list":
                return "List the tasks"
            case "create":
                return title(f"New tasks: {', '.join(task.content for task in params.tasks)}")
            case "search":
                return title(f"Search the tasks: {params.text}")
            case action:
                return title(f"{action.capitalize()} {params.id or 'the next task'}")

    async def run(self, params: TasksParams, context: ToolContext) -> ToolResult:
        board, who = _shared(context).board, _caller(context)
        _check(params)
        match params.action:
            case "list":
                return ToolResult(_listing(board, board.tasks(), who))
            case "search":
                found = [task for task in board.tasks() if _has_words(task, params.text)]
                return ToolResult("\n".join(_whole(task, board) for task in found) or "no task has these words")
            case "create":
                change = await board.create([task.draft() for task in params.tasks])
                return ToolResult("\n".join(("created:", *(_line(task, board) for task in change.changed))))
            case "claim":
                change = await board.claim(params.id, who)
                return ToolResult(_claimed(change, board, who))
            case "complete":
                return _changed("is done", await board.complete(params.id, who, params.text), board)
            case "release":
                return _changed("is free", await board.release(params.id, who, params.text), board)
            case "cancel":
                return _changed("is off the board", await board.cancel(params.id, who), board)


def _check(params: TasksParams) -> None:
    """Raise ToolError if an argument is missing that this action needs."""
    needed = {"create": params.tasks, "search": params.text.strip()}
    needed |= dict.fromkeys(("complete", "release", "cancel"), params.id)
    if not needed.get(params.action, True):
        missing = {"create": "tasks", "search": "text"}.get(params.action, "id")
        raise ToolError.invalid(f"tasks: {missing} missing (expected for action = {params.action})")


def _shared(context: ToolContext) -> SubAgents:
    agents = context.backends.agents
    if agents is None:
        raise ToolError.permanent("there are no sub-agents here")
    return agents


def _caller(context: ToolContext) -> str:
    return MAIN if context.agent is None else context.agent.id


# ------------------------------------------------------------------------------- the board in words


def _listing(board: TaskBoard, tasks: Sequence[BoardTask], who: str) -> str:
    if not tasks:
        return f"the board is empty (you are {who})"
    left = sum(task.status is not PlanStatus.COMPLETED for task in tasks)
    head = f"{counted(len(tasks), 'task')}, {left} not done (you are {who}):"
    return "\n".join((head, *(_line(task, board) for task in tasks)))


def _line(task: BoardTask, board: TaskBoard) -> str:
    """Return a task on one line: id, state, title."""
    priority = "" if task.priority is PlanPriority.MEDIUM else f", {task.priority.value} priority"
    note = f" ({defanged(title(task.note))})" if task.note else ""
    return f"- {task.id} [{_state(task, board)}{priority}] {_inline(task.title)}{note}"


def _state(task: BoardTask, board: TaskBoard) -> str:
    match task.status:
        case PlanStatus.COMPLETED:
            return f"done by {task.owner}"
        case PlanStatus.IN_PROGRESS:
            return f"{task.owner} works on it"
        case PlanStatus.PENDING:
            before = ", ".join(each.id for each in board.waits_for(task))
            return f"waits for {before}" if before else "ready"


def _whole(task: BoardTask, board: TaskBoard) -> str:
    """Return a task with its text, with what came of it, and with a long reason why it came back."""
    note = task.note if title(task.note) != task.note else ""
    return "\n".join((_line(task, board), *map(_quoted, filter(None, (task.text, _result(task), note)))))


def _result(task: BoardTask) -> str:
    return f"result:\n{task.result}" if task.result else ""


def _claimed(change: BoardChange, board: TaskBoard, who: str) -> str:
    tasks = board.tasks()
    if not change.changed:
        return f"no task is ready. {_listing(board, tasks, who)}"
    (task,) = change.changed
    told = [f"you ({who}) have:", _whole(task, board)]
    for each in tasks:
        if each.id in task.after:
            told += [f"done before it:\n{_line(each, board)}", *map(_quoted, filter(None, (_result(each),)))]
    return "\n".join(told)


def _changed(what: str, change: BoardChange, board: TaskBoard) -> ToolResult:
    (task,) = change.changed
    ready = ("ready now:", *(_line(each, board) for each in change.ready)) if change.ready else ()
    left = sum(each.status is not PlanStatus.COMPLETED for each in board.tasks())
    ending = f"{counted(left, 'task')} not done" if left else "all tasks are done"
    return ToolResult("\n".join((f"{task.id} {what}; {ending}", *ready)))


def _has_words(task: BoardTask, words: str) -> bool:
    text = f"{task.id} {task.title} {task.text} {task.owner} {task.result} {task.note}".lower()
    return any(word in text for word in words.lower().split())


def _inline(text: str) -> str:
    return defanged(visible(" ".join(text.split())))


def _quoted(text: str) -> str:
    """Return a text of others indented, so that no line of it passes for ours."""
    return indent(defanged(text), "    ", lambda _: True)


# -------------------------------------------------------------------------------------- messages


class MessagesParams(Params):
    """Write to your sub-agents, or to the agents beside you, and read what they wrote. The session's own is main."""

    action: Literal["read", "send", "broadcast"] = "read"
    to: Annotated[Text, Field(max_length=100, description="A name such as general-1")] = ""
    text: Annotated[Text, Field(max_length=50_000)] = ""
    wait: Annotated[int, Field(ge=0, le=60, description="Seconds that read waits for a message"), WHOLE] = 0


class Messages(SessionTool[MessagesParams]):
    """The tool that sends and reads the messages of `Backends.agents`."""

    name = "messages"
    kind = ToolKind.OTHER
    mutates = False
    polls = True

    def title(self, params: MessagesParams) -> str:
        match params.action:
            case "read":
                return "Read messages"
            case "send":
                return title(f"Message to {params.to}: {params.text}")
            case "broadcast":
                return title(f"Message to all: {params.text}")

    async def run(self, params: MessagesParams, context: ToolContext) -> ToolResult:
        mail, who = _shared(context).mail, _caller(context)
        if params.action == "read":
            return ToolResult(await _read(mail, who, params.wait))
        if not params.text.strip() or (params.action == "send" and not params.to):
            missing = "text" if not params.text.strip() else "to"
            raise ToolError.invalid(f"messages: {missing} missing (expected for action = {params.action})")
        if params.action == "send":
            mail.send(who, params.to, params.text)
            return ToolResult(f"sent to {params.to}")
        return ToolResult(_broadcast(mail, who, params.text))


async def _read(mail: Mailbox, who: str, seconds: float) -> str:
    messages = await mail.read(who, seconds)
    here = f"you are {who}; you can write to: {', '.join(mail.names(who)) or 'nobody now'}"
    told = [f"from {each.sender}:\n{_quoted(each.text)}" for each in messages]
    return "\n".join((*(told or ["no messages"]), here))


def _broadcast(mail: Mailbox, who: str, text: str) -> str:
    """Send a message to all others. Raises ToolError if none can get it."""
    sent: list[str] = []
    failed: list[ToolError] = []
    for name in mail.names(who):
        try:
            mail.send(who, name, text)
        except ToolError as error:
            failed.append(error)
        else:
            sent.append(name)
    if not sent:
        raise (
            failed[0]
            if failed
            else ToolError.invalid("there is nobody to write to", "Sub-agents can be written to while they run.")
        )
    return "; ".join((f"sent to {', '.join(sent)}", *(f"not sent: {error.failure.message}" for error in failed)))
