"""agent: give work to sub-agents, which do it in conversations of their own. evaluate: have the work judged as well.

agent_action: the question of another agent whether it may do something. The model does not get this tool.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from acp_agent.core.backends import FileSystem
from acp_agent.core.delegation import (
    BACK,
    AgentRun,
    EvaluationTask,
    OfferedAgent,
    ParentCall,
    RunState,
    SubAgents,
)
from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import (
    Access,
    AgentSubject,
    CommandSubject,
    Frame,
    JsonObject,
    PathSubject,
    Subject,
    ToolKind,
    ToolResult,
    ToolSpec,
    UrlSubject,
)
from acp_agent.shape import Field
from acp_agent.text import abbreviated, counted, title
from acp_agent.tools.tool import WHOLE, Params, SessionTool, Text, Tool

_LISTED = 15
"""Agents whose names and descriptions are in the schema; the others are listed by `list`."""
_LINE = 100  # characters of a task in a list


class AgentParams(Params):
    """Give a task to an agent with a context of its own, which sees nothing of this conversation and reports.

    run calls in one message run together. spawn goes on beside your work; its report comes by itself.
    """

    op: Literal["run", "spawn", "list", "cancel", "steer"] = "run"
    agent: Annotated[Text, Field(max_length=100)] = ""
    task: Annotated[Text, Field(max_length=50_000)] = Field(default="", description="For steer: the new words")
    id: Annotated[Text, Field(max_length=100)] = Field(default="", description="For cancel also last, all")


class AgentTool(Tool[AgentParams]):
    """The tool that hands work to `Backends.agents`.

    offered   returns the agents that there are now
    """

    name = "agent"
    kind = ToolKind.THINK
    mutates = False

    def __init__(self, offered: Callable[[], Sequence[OfferedAgent]] = tuple) -> None:
        self._offered = offered
        self._told: tuple[OfferedAgent, ...] = ()
        self._with_agents: ToolSpec | None = None

    def spec(self) -> ToolSpec:
        agents = tuple(self._offered())
        if self._with_agents is None or agents != self._told:
            spec = super().spec()
            listed = "; ".join(f"{each.name}: {each.description}" for each in agents[:_LISTED])
            more = f"; {len(agents) - _LISTED} more (list, agent: words)" if len(agents) > _LISTED else ""
            self._told = agents
            self._with_agents = replace(spec, description=f"{spec.description} Agents: {listed}{more}")
        return self._with_agents

    def spec_of(self, params: AgentParams) -> ToolSpec:
        """Return the definition for one call. Agents that only read may run together, others run alone.

        What another agent does by itself is not judged call by call, so giving it work counts as a change.
        """
        found = self._meant(params)
        spec = _spec_with(self.spec(), found)
        if params.op != "run":
            return spec
        return replace(spec, delegates=True, alone=found is not None and not found.only_reads)

    def _meant(self, params: AgentParams) -> OfferedAgent | None:
        """Return the agent that a call gives work to; None if it gives none, or if there is no such agent."""
        if params.op not in ("run", "spawn", "steer"):
            return None
        name = params.id.rpartition("-")[0] if params.op == "steer" else params.agent
        return _named(name, self._offered())

    def title(self, params: AgentParams) -> str:
        match params.op:
            case "run" | "spawn":
                return title(f"{params.agent}: {params.task}")
            case "list":
                return "List the agents"
            case "cancel":
                return title(f"Cancel {params.id or 'last'}")
            case "steer":
                return title(f"Steer {params.id}: {params.task}")

    def subjects(self, params: AgentParams) -> tuple[Subject, ...]:
        """Return the program of another agent. The calls of our own are judged one by one."""
        return _programs(self._meant(params))

    async def summary(self, params: AgentParams, files: FileSystem) -> str:
        del files
        return _risks(self._meant(params))

    async def run(self, params: AgentParams, context: ToolContext) -> ToolResult:
        agents = _agents(context)
        _check(params)
        match params.op:
            case "run":
                return await _run(params, agents, context)
            case "spawn":
                run = await agents.spawn(params.agent, params.task)
                return _begun(run)
            case "list":
                return ToolResult(listing(agents, params.agent))
            case "cancel":
                ended = await agents.cancel(params.id or "last")
                return ToolResult("\n".join(map(summary, ended)) or "no run is under way")
            case "steer":
                return _begun(await agents.steer(params.id, params.task))


def _agents(context: ToolContext) -> SubAgents:
    """Return the sub-agents. Raises ToolError if the call may give them no work."""
    agents = context.backends.agents
    if agents is None or context.agent is not None:
        raise ToolError.permanent("there are no sub-agents here")
    return agents


async def _run(params: AgentParams, agents: SubAgents, context: ToolContext) -> ToolResult:
    found = _named(params.agent, agents.offered())
    if found is not None and found.background and not (context.by_user or context.verifies):
        return _begun(await agents.spawn(params.agent, params.task))
    return as_result(await agents.run(params.agent, params.task, ParentCall(context.call_id, context.progress)))


def _begun(run: AgentRun) -> ToolResult:
    told = f"{run.id} works on it. Its report comes to you by itself: go on with other work, or end your answer."
    return ToolResult(told, display=f"{run.id} works on it", envelope={"agent": run.agent, "run": run.id})


def _check(params: AgentParams) -> None:
    """Raise ToolError if an argument is missing that this operation needs."""
    needed = {"run": ("agent", "task"), "spawn": ("agent", "task"), "steer": ("id", "task")}.get(params.op, ())
    missing = [name for name in needed if not getattr(params, name).strip()]
    if missing:
        raise ToolError.invalid(f"agent: {' and '.join(missing)} missing (expected for op = {params.op})")


def as_result(run: AgentRun) -> ToolResult:
    """Return a run that has ended as the result of a tool call."""
    match run.state:
        case RunState.DONE:
            return ToolResult(run.report, envelope=_envelope(run), frame=Frame(head=_heading(run)))
        case RunState.CANCELLED:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.CANCELLED, f"{run.id} was cancelled"))
        case _:
            advice = "Do it yourself, or give the task once more in other words."
            failure = ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"{run.id} failed: {run.report}", advice)
            return replace(ToolResult.failed(failure), envelope=_envelope(run))


def _heading(run: AgentRun) -> str:
    """Return our words before the report of a run, outside of its fence."""
    return f"[{summary(run)}. Its report:]"


def _envelope(run: AgentRun) -> JsonObject:
    return {"agent": run.agent, "run": run.id, "calls": run.calls, "conversation": run.conversation}


class EvaluateParams(Params):
    """Have agents do a task and judge it by criteria, in rounds, until it is approved. Returns the last report."""

    task: Annotated[Text, Field(min_length=1, max_length=50_000)]
    criteria: Annotated[Text, Field(min_length=1, max_length=20_000)]
    generator: Annotated[Text, Field(max_length=100, description="Agent that does it")] = "general"
    evaluator: Annotated[Text, Field(max_length=100, description="Agent that judges")] = "review"
    rounds: Annotated[int, Field(ge=1, le=5), WHOLE] = 3


class EvaluateTool(Tool[EvaluateParams]):
    """The tool that has work done and judged by `Backends.agents`.

    offered     returns the agents that there are now
    for_model   whether the model has it; the user always does
    """

    name = "evaluate"
    kind = ToolKind.THINK
    mutates = False

    def __init__(self, offered: Callable[[], Sequence[OfferedAgent]] = tuple, *, for_model: bool = True) -> None:
        self._offered = offered
        self._spec = replace(self._spec, delegates=True, alone=True, users_only=not for_model)

    def title(self, params: EvaluateParams) -> str:
        return title(f"{params.generator}, judged by {params.evaluator}: {params.task}")

    def spec_of(self, params: EvaluateParams) -> ToolSpec:
        """Return the definition for one call. Giving work to another agent's program counts as a change."""
        return _spec_with(self.spec(), *self._meant(params))

    def subjects(self, params: EvaluateParams) -> tuple[Subject, ...]:
        """Return the programs of other agents. The calls of our own are judged one by one."""
        return _programs(*self._meant(params))

    async def summary(self, params: EvaluateParams, files: FileSystem) -> str:
        del files
        return _risks(*self._meant(params))

    def _meant(self, params: EvaluateParams) -> Sequence[OfferedAgent | None]:
        names = dict.fromkeys((params.generator, params.evaluator))
        return [_named(name, self._offered()) for name in names]

    async def run(self, params: EvaluateParams, context: ToolContext) -> ToolResult:
        wanted = EvaluationTask(params.task, params.criteria, params.generator, params.evaluator, params.rounds)
        found = await _agents(context).evaluate(wanted, ParentCall(context.call_id, context.progress))
        if found.run.state is not RunState.DONE:
            return as_result(found.run)
        report, judge, rounds = found.run.report, params.evaluator, counted(found.rounds, "round")
        said = report if found.approved else f"{report}\n\n{judge} said last: {found.feedback}"
        verdict = f"approved by {judge} after {rounds}" if found.approved else f"not approved after {rounds}"
        frame = Frame(_heading(found.run), ending=f"\n[{verdict}]")
        more: JsonObject = {"approved": found.approved, "rounds": found.rounds}
        return ToolResult(said, envelope={**_envelope(found.run), **more}, frame=frame)


class HandoffParams(Params):
    """Hand this conversation over to an agent: its prompt and tools replace yours. `back` returns it."""

    agent: Annotated[Text, Field(min_length=1, max_length=100)]
    message: Annotated[Text, Field(min_length=1, max_length=50_000, description="What it is to do")]


class HandoffTool(SessionTool[HandoffParams]):
    """The tool that lets the session go on under another definition, whose calls are judged one by one."""

    name = "handoff"
    kind = ToolKind.THINK
    mutates = False

    def __init__(self) -> None:
        self._spec = replace(self._spec, delegates=True, alone=True)

    def title(self, params: HandoffParams) -> str:
        return title(f"Hand over to {params.agent}: {params.message}")

    async def run(self, params: HandoffParams, context: ToolContext) -> ToolResult:
        told = await _agents(context).hand_over(params.agent)
        to = "" if params.agent == BACK else params.agent
        return ToolResult(
            "", display=told, envelope={"agent": params.agent}, frame=Frame(handoff_prompt(to, params.message))
        )


def handoff_prompt(agent: str, message: str) -> str:
    """Return what the model reads first under another definition; `agent` is empty for the session's own."""
    who = f"you go on with it as {agent}" if agent else "you go on with it as before, with your own tools"
    return f"[This conversation was handed over: {who}.]\n\n{message}"


def summary(run: AgentRun) -> str:
    """Return one line about a run."""
    kept = f"; its conversation: {run.conversation}" if run.conversation else ""
    return f"{run.id}: {run.state}, {counted(run.calls, 'tool call')} in {run.seconds:.0f} s{kept}"


def listing(agents: SubAgents, search: str = "") -> str:
    """Return the agents and their runs, one a line. With words to search for, only what has one of them."""
    wanted = search.lower().split()

    def is_wanted(*texts: str) -> bool:
        return not wanted or any(word in " ".join(texts).lower() for word in wanted)

    found = [each for each in agents.offered() if is_wanted(each.name, each.description)]
    offered = [f"- {each.name}: {each.description} ({each.source})" for each in found] or ["none with these words"]
    told = [run for run in agents.runs() if is_wanted(run.id, run.task)]
    runs = [f"- {summary(run)}{_reason(run)}; task: {_line(run.task)}" for run in told]
    return "\n".join(("Agents:", *offered, *(("", "Runs:", *runs) if runs else ())))


def _reason(run: AgentRun) -> str:
    return f"; why: {_line(run.report)}" if run.state is RunState.FAILED and run.report else ""


def _line(task: str) -> str:
    return abbreviated(" ".join(task.split()), _LINE)


# ------------------------------------------------------------------------------------------- other agents


def _named(name: str, offered: Sequence[OfferedAgent]) -> OfferedAgent | None:
    return next((each for each in offered if each.name.lower() == name.lower()), None)


def _programs(*agents: OfferedAgent | None) -> tuple[Subject, ...]:
    """Return the programs of those that are other agents."""
    return tuple(AgentSubject(each.name, each.identity) for each in agents if each is not None and each.identity)


def _spec_with(spec: ToolSpec, *agents: OfferedAgent | None) -> ToolSpec:
    return replace(spec, mutates=True, external=True) if _programs(*agents) else spec


def _risks(*agents: OfferedAgent | None) -> str:
    """Return what other agents may do by themselves, for the user who is asked; empty for ours."""
    return "; ".join(f"give work to {each.name}: {each.risk}" for each in agents if each is not None and each.risk)


_ACCESS = {"read": Access.READ, "search": Access.READ, "delete": Access.DELETE}
_OURS = {
    "read": ("read",),
    "search": ("read",),
    "edit": ("write", "edit"),
    "delete": ("delete_path",),
    "move": ("move_path",),
}
"""By kind of action, our tools that do the same to a path. An action of another kind may do what any of them does."""
_ANY = tuple(dict.fromkeys(tool for tools in _OURS.values() for tool in tools))


class AgentActionParams(Params):
    """Let another agent do by itself what it asks for.

    agent     its name; `program` is what an "always" answer to it covers
    action    what it would do, in its words
    kind      the kind of action, in its words
    command   the command line that it would run; empty for none
    paths     the files that it names
    urls      the URLs that it names
    details   what else it says about the action
    """

    agent: Text
    program: Text
    action: Text
    kind: Text = ""
    command: Text = ""
    paths: tuple[Text, ...] = Field(default=(), strict=False)
    urls: tuple[Text, ...] = Field(default=(), strict=False)
    details: Text = ""


class AgentAction(Tool[AgentActionParams]):
    """The question of another agent whether it may do something, which it does by itself if the gates allow it.

    What the agent says may be untrue. So every such action counts as a change, and its command as one for a shell in an
    unknown state.
    """

    name = "agent_action"
    kind = ToolKind.OTHER
    mutates = True

    def title(self, params: AgentActionParams) -> str:
        return title(f"{params.agent}: {params.action}")

    def spec_of(self, params: AgentActionParams) -> ToolSpec:
        """Return the definition for one call. What our own tools may not do, it may not do either."""
        command = ("bash",) if params.command.strip() else ()
        paths = _OURS.get(params.kind, _ANY) if params.paths else ()
        return replace(self.spec(), acts_as=(*command, *paths, *(("fetch",) if params.urls else ())))

    def subjects(self, params: AgentActionParams) -> tuple[Subject, ...]:
        access = _ACCESS.get(params.kind, Access.WRITE)
        command = (CommandSubject(params.command, typed=True),) if params.command.strip() else ()
        also_reads = (Access.READ,) if access is Access.WRITE else ()  # to change a file, the agent reads it
        paths = tuple(PathSubject(path, each) for path in params.paths for each in (*also_reads, access))
        return (*command, *paths, *map(UrlSubject, params.urls), AgentSubject(params.agent, params.program))

    async def run(self, params: AgentActionParams, context: ToolContext) -> ToolResult:
        if context.agent is None:
            raise ToolError.permanent("only other agents ask for this")
        return ToolResult(f"{params.agent} may do it", envelope={"agent": params.agent, "allowed": True})
