"""The tool calls of one assistant message: valid ids, the order in which they run, and their results."""

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from uuid import uuid4

import anyio

from acp_agent.agent.hooks import Received
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import BoardTask, EventSink, PlanChanged, PlanEntry, PlanStatus
from acp_agent.core.messages import Message, Part, ToolResultPart, ToolUsePart
from acp_agent.core.ports import Toolset
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.core.types import ToolCall, ToolResult, Touches

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # tool names that every API accepts
_UNFIT_NAME = "invalid_tool_name"  # without the model's text, which may contain a part of a secret
_NAMESPACE = "functions."  # some models put it before tool names, and some servers do not remove it
NOT_RUN = ToolFailure(ToolErrorCategory.CANCELLED, "The turn ended before this call; it was not run.")
CUT_OFF = ToolFailure(
    ToolErrorCategory.INVALID_PARAMETERS,
    "Your answer reached the output limit in the middle of a call, so none of its calls was run.",
    "Do it in smaller parts: write the beginning of a long file, then add the rest piece by piece.",
)
_INTERRUPTED = ToolFailure(
    ToolErrorCategory.CANCELLED,
    "The turn ended while this call ran; it may have had effects.",
    "Check what it did before you repeat it.",
)
_REUSED_ID = ToolFailure(
    ToolErrorCategory.INVALID_PARAMETERS,
    "This call has the id of another call in the same message, so it was not run.",
    "If it is still needed, call again with an id of its own.",
)

_CLEAN_UP = 5.0
"""Seconds to show the end of the calls that did not run, after a cancellation."""

MOST_CALLS = 64
"""The most calls of one message that run by default."""


def _too_many(most: int) -> ToolFailure:
    return ToolFailure(
        ToolErrorCategory.POLICY_BLOCKED,
        f"This message has more than {most} tool calls (agent.max_tool_calls_per_answer), so this one was not run.",
        f"If it is still needed, call again. Make at most {most} calls in one message.",
    )


def with_fit_calls(message: Message, taken: AbstractSet[str], most: int = MOST_CALLS) -> Received:
    """Return the message with tool uses that every API accepts, and the results of calls that must not run.

    An API would refuse the whole history because of an invalid tool name, so another name takes its place. Some servers
    leave ids out or count from zero in each message; such calls get new ids. An id that occurs twice in one message is
    taken for a call that was sent twice, and the second one is refused. A model that is stuck may send thousands of
    calls; those after the first `most` are refused.
    """
    runs = 0
    seen: set[str] = set()
    answered: dict[str, ToolResult] = {}
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolUsePart):
            parts.append(part)
            continue
        is_fit = part.id and part.id not in seen and part.id not in taken
        name = part.name.strip().removeprefix(_NAMESPACE)
        name = name if _NAME.fullmatch(name) else _UNFIT_NAME
        fit = replace(part, name=name, id=part.id if is_fit else f"call_{uuid4().hex}")
        if part.id and part.id in seen:
            answered[fit.id] = ToolResult.failed(_REUSED_ID)
        elif runs == most:
            answered[fit.id] = ToolResult.failed(_too_many(most))
        else:
            runs += 1
        seen.add(part.id)
        parts.append(fit)
    return Received(replace(message, parts=tuple(parts)), answered)


@dataclass(slots=True)
class _Pending:
    """A call that is running or waits. The editor sees `call.id`, the model sees `use.id`.

    touches   what the call touches; None if its start was not shown yet
    unseen    whether a refused call is not shown to the user
    over      is set when the call has ended
    """

    use: ToolUsePart
    call: ToolCall
    touches: Touches | None = None
    started: bool = False
    result: ToolResult | None = None
    unseen: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class ToolCalls:
    """The calls of one message. Each has its own UUID from the start and a result at any time."""

    def __init__(self, received: Received) -> None:
        """Take the calls of a message that is in the history, and the results of those that do not run."""
        batch = str(uuid4())
        self._pending: list[_Pending] = []
        for use in received.message.tool_uses:
            call = ToolCall(str(uuid4()), use.name, use.arguments, use.raw_arguments, batch=batch, use_id=use.id)
            result, unseen = received.answered.get(use.id), use.id in received.unseen
            self._pending.append(_Pending(use, call, result=result, unseen=unseen))

    async def run(self, toolset: Toolset, max_parallel: int) -> None:
        """Show the start of every call, then run them: together, or in order where one touches what another changes.

        If it is cancelled, every call that was shown gets its end, and `outcomes` has a result for every call.
        """
        waiting = [pending for pending in self._pending if pending.result is None]
        try:
            for pending in self._pending:
                if pending.result is None and len(self._pending) > 1:
                    pending.touches = await toolset.announce(pending.call)
                elif pending.result is not None and not pending.unseen:
                    await toolset.refuse(pending.call, pending.result)
            if len(waiting) == 1:  # there is no other call to wait for
                waiting[0].started = True
                waiting[0].result = await toolset.run(waiting[0].call, announced=waiting[0].touches is not None)
                return
            limiter = anyio.CapacityLimiter(max_parallel)
            async with anyio.create_task_group() as tasks:
                for at, pending in enumerate(waiting):
                    tasks.start_soon(_run, pending, waiting[:at], toolset, limiter)
        finally:
            shown = [pending for pending in waiting if pending.touches is not None and not pending.started]
            if shown:
                with anyio.move_on_after(_CLEAN_UP, shield=True):
                    for pending in shown:
                        await toolset.refuse(pending.call, ToolResult.failed(NOT_RUN), announced=True)

    def outcomes(self, printed: Callable[[str], str]) -> list[tuple[ToolUsePart, ToolResult]]:
        """Return every call with its result, in the order of the request. Calls that did not run have a failure.

        printed   returns what a cancelled call had printed
        """
        outcomes: list[tuple[ToolUsePart, ToolResult]] = []
        for pending in self._pending:
            result = pending.result
            if result is None:
                result = _interrupted(printed(pending.call.id)) if pending.started else ToolResult.failed(NOT_RUN)
            outcomes.append((pending.use, result))
        return outcomes


def _interrupted(printed: str) -> ToolResult:
    result = ToolResult.failed(_INTERRUPTED)
    return replace(result, text=f"{result.text}\n\nIts output until then:\n{printed}") if printed else result


def result_part(use_id: str, result: ToolResult) -> ToolResultPart:
    """Return a result as the model reads it."""
    return ToolResultPart(use_id, result.text, is_error=result.failure is not None, images=result.images)


async def _run(
    pending: _Pending, earlier: Sequence[_Pending], toolset: Toolset, limiter: anyio.CapacityLimiter
) -> None:
    """Wait for the earlier calls that must end before this one, then run it."""
    for each in earlier:
        if pending.touches is None or each.touches is None or pending.touches.keeps_order_with(each.touches):
            await each.over.wait()
    async with limiter:
        pending.started = True
        pending.result = await toolset.run(pending.call, announced=pending.touches is not None)
        pending.over.set()


class ShownPlan:
    """The plan of one conversation. Where there is a board of tasks, the plan shows the board.

    redact    removes secrets from the plan
    entries   the plan that the user saw last, possibly before a restart of the agent
    tasks     the present tasks of the board
    """

    def __init__(
        self,
        emit: EventSink,
        redact: Redact = verbatim,
        entries: tuple[PlanEntry, ...] = (),
        tasks: tuple[BoardTask, ...] = (),
    ) -> None:
        self._emit = emit
        self._redact = redact
        self._entries = entries
        self.tasks = tasks

    async def show(self, entries: tuple[PlanEntry, ...], tasks: tuple[BoardTask, ...] | None = None) -> None:
        """Show a plan in place of the previous one, unless they are equal. None for `tasks` keeps the board.

        The board is replaced before the first await, so no other call sees the old one. `tasks` must be redacted.
        """
        shown = tuple(replace(entry, content=self._redact(entry.content)) for entry in entries)
        board = self.tasks if tasks is None else tasks
        if (shown, board) != (self._entries, self.tasks):
            self._entries, self.tasks = shown, board
            await self._emit(PlanChanged(shown, board))

    def turn_began(self) -> None:
        """Clear the board if all tasks are done. The user still sees them until a new plan is shown."""
        if all(task.status is PlanStatus.COMPLETED for task in self.tasks):
            self.tasks = ()

    async def clear(self) -> None:
        """Remove the plan, because a new conversation begins."""
        await self.show((), ())

    def without_secrets(self, tasks: tuple[BoardTask, ...]) -> tuple[BoardTask, ...]:
        """Return `tasks` with secrets removed from those that are not on the board yet."""
        before, redact = {*self.tasks}, self._redact
        return tuple(
            task
            if task in before
            else replace(
                task,
                title=redact(task.title),
                text=redact(task.text),
                result=redact(task.result),
                note=redact(task.note),
            )
            for task in tasks
        )
