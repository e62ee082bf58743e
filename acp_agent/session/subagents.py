"""The sub-agents of one session, and the parts of the session that they use.

The package `subagents` is loaded when the first one is given a task.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from acp_agent.agent.compaction import CompactorFactory
from acp_agent.agent.hooks import AnswerCheck
from acp_agent.agent.prompt import sub_agent_prompt
from acp_agent.agent.tool_calls import ShownPlan
from acp_agent.agent.turn import Limits
from acp_agent.config.agents_settings import ExternalAgentSettings, QualityGateSettings
from acp_agent.config.load import Loaded
from acp_agent.core.backends import FileSystem
from acp_agent.core.data import frozen
from acp_agent.core.delegation import (
    BACK,
    BUILT_IN,
    RESERVED,
    AgentRun,
    Evaluation,
    EvaluationTask,
    OfferedAgent,
    ParentCall,
    RunSlots,
)
from acp_agent.core.errors import AgentError, ConfigError, ToolError, ToolErrorCategory
from acp_agent.core.events import EventSink, ToolProgress
from acp_agent.core.mcp import McpOrigin, McpServer, StdioServer
from acp_agent.core.ports import Background, Provider, Toolset
from acp_agent.core.secrets import Redact
from acp_agent.core.session_options import Mode, tighter
from acp_agent.core.types import ToolSpec
from acp_agent.extend.front_matter import DefinitionProblem
from acp_agent.extend.sources import SourceFile
from acp_agent.gates.selection import ToolChoice
from acp_agent.output.sanitize import sanitize
from acp_agent.session.models import SessionModels
from acp_agent.session.session import Session
from acp_agent.session.toolset.sandboxing import is_contained, server_sandbox
from acp_agent.session.toolset.settings import PREVIEW, FolderRules
from acp_agent.text import clip, visible

if TYPE_CHECKING:
    from acp_agent.extend.hooks import Hook
    from acp_agent.subagents.board import SessionBoard, SessionMail, SharedWork
    from acp_agent.subagents.definitions import Definition
    from acp_agent.subagents.external import ExternalAgent
    from acp_agent.subagents.quality_gates import QualityGates
    from acp_agent.subagents.runs import RunLimits, SubAgentRuns
    from acp_agent.subagents.worker import Worker

_EXPLORE = "explore"


class AgentLibrary:
    """The definitions of the sub-agents of one session: the built-in ones, and those in files of the user.

    clean      removes secrets and invisible characters from a text
    external   returns the names of the other agents of the configuration, which definitions must not use
    problems   the problems of definitions
    hooks      the hooks in definitions by the agent's name in lower case
    """

    def __init__(self, clean: Redact, external: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._clean = clean
        self._external = external
        self._taken: tuple[str, ...] = ()
        self._files: tuple[SourceFile, ...] = ()
        self._offered = BUILT_IN
        self._by_name: dict[str, Definition] | None = None
        self.problems: Sequence[DefinitionProblem] = ()
        self.hooks: Mapping[str, Sequence[Hook]] = {}

    def read(self, files: tuple[SourceFile, ...]) -> None:
        """Read the definitions in these files. Files that are unchanged are not read again."""
        taken = self._external()
        if files is self._files and taken == self._taken:
            return
        self._files, self._taken, self._by_name, self._offered, self.problems = files, taken, None, BUILT_IN, ()
        self.hooks = {}
        if files:
            self._offered = tuple(each.offered for each in self.by_name().values())
            self.hooks = {name: each.hooks for name, each in self.by_name().items() if each.hooks}

    @property
    def is_current(self) -> bool:
        """Whether the configuration names the same other agents as at the last `read`."""
        return self._external() == self._taken

    def offered(self) -> Sequence[OfferedAgent]:
        """Return the agents that can be given a task now."""
        return self._offered

    def by_name(self) -> "Mapping[str, Definition]":
        """Return the definitions by their names in lower case."""
        if self._by_name is None:
            from acp_agent.subagents.definitions import definitions  # noqa: PLC0415 - most sessions have no sub-agents

            reserved = {**RESERVED, **dict.fromkeys(self._taken, "an agent of the configuration")}
            found = definitions(self._files, self._clean, reserved)
            self._by_name, self.problems = found.by_name, found.problems
        return self._by_name

    def users(self) -> "Sequence[Definition]":
        """Return the definitions in the user's files."""
        ours = {each.name for each in BUILT_IN}
        return [each for each in self.by_name().values() if each.name not in ours] if self._files else ()

    def status(self) -> Sequence[str]:
        """Return a line for /status if users have defined agents."""
        theirs = ", ".join(each.name for each in self.users())
        return (f"Agents: {theirs}; built in: {', '.join(each.name for each in BUILT_IN)}",) if theirs else ()


@frozen
class SubAgentSession:
    """The parts of a session that its sub-agents share.

    cwd         the session's folder, links resolved
    loaded      returns the configuration in force
    toolset     returns the session's tools
    notes       returns the notes of the project
    limits      returns the session's limits of a turn
    compactor   returns the compactor of a conversation, for its budget of tokens
    servers     returns the names of the session's MCP servers
    skills      returns the texts of the skills with these names
    changes     returns a number that grows with each call that changed files; None if changes are not observed
    files       returns the session's file system
    seen        returns whether the session has last seen exactly this text of a file
    redact      removes secrets from a text
    learn       takes secrets that must be redacted from now on
    homes       the folder of the home folders of programs in the sandbox
    highest_id  see RunDependencies
    """

    session: Session
    cwd: str
    loaded: Callable[[], Loaded]
    models: SessionModels
    toolset: Callable[[], Toolset]
    notes: Callable[[Loaded], Awaitable[str]]
    limits: Callable[[], Limits]
    compactor: CompactorFactory
    servers: Callable[[], Sequence[str]]
    skills: Callable[[Sequence[str]], str]
    changes: Callable[[], int | None]
    files: Callable[[], Awaitable[FileSystem]]
    seen: Callable[[str, str], bool]
    redact: Redact
    learn: Callable[[Sequence[str]], None]
    homes: str
    highest_id: Callable[[str], int]

    async def provider(self, definition: "Definition") -> Provider:
        """Return the model of a definition. Raises AgentError."""
        cheap = self.loaded().settings.agents.explore_model if definition.name == _EXPLORE else ""
        return await self.models.for_agents(definition.model or cheap)

    async def prompt(self, definition: "Definition", tools: Sequence[ToolSpec]) -> str:
        """Return the system prompt of a definition. An agent that only reads gets no notes of the project."""
        writes = definition.mode is Mode.CODE
        return sub_agent_prompt(
            "\n\n".join(filter(None, (definition.body, self.skills(definition.skills)))),
            self.cwd,
            self.session.workspace.additional,
            sys.platform,
            tighter(self.session.active.mode, definition.mode),
            tools=tools if self.models.take_tools() else (),
            notes=await self.notes(self.loaded()) if writes else "",
            in_editor=self.session.editor.owns_buffers,
        )


class OtherAgents:
    """The other agents of the configuration, which are programs that speak ACP."""

    def __init__(self, shared: SubAgentSession) -> None:
        self._shared = shared
        self._entries: tuple[ExternalAgentSettings, ...] = ()
        self._offered: tuple[OfferedAgent, ...] = ()

    def find(self, name: str) -> ExternalAgentSettings | None:
        return next((each for each in self._enabled() if each.name == name), None)

    def offered(self) -> tuple[OfferedAgent, ...]:
        """Return the agents that can be given a task now. The same object until the configuration changes."""
        entries = self._enabled()
        if entries != self._entries:
            self._entries, self._offered = entries, tuple(map(self._offer, entries))
        return self._offered

    def definitions(self) -> "dict[str, Definition]":
        """Return a definition for each of these agents, by its name."""
        from acp_agent.subagents.definitions import Definition  # noqa: PLC0415 - most sessions have none

        none = ToolChoice(session=())  # these agents have their own tools

        return {
            entry.name: Definition(
                entry.name,
                entry.description,
                "",
                "configuration",
                tools=none,
                max_running=entry.max_running,
                max_per_session=entry.max_per_session,
                identity=entry.identity,
            )
            for entry in self._enabled()
        }

    def agent(self, entry: ExternalAgentSettings) -> "ExternalAgent":
        """Return an agent with everything that a run of it needs. Raises ConfigError."""
        from acp_agent.subagents.external import ExternalAgent  # noqa: PLC0415 - it loads the SDK
        from acp_agent.workspace.processes.program import ProgramStart  # noqa: PLC0415 - likewise

        shared, loaded = self._shared, self._shared.loaded()
        shared.learn(entry.referred(os.environ))
        program, contain = entry.program(os.environ, shared.cwd), None
        walls = FolderRules(loaded, shared.cwd, shared.session.workspace.additional).walls()
        if walls is not None and self._contained(entry):
            contain = partial(server_sandbox, _server(entry.name, program), walls, loaded.settings, shared.homes)
        start = ProgramStart(os.environ, contain)
        return ExternalAgent(entry.name, entry.identity, program, start, entry.startup_timeout, entry.idle_timeout)

    def _enabled(self) -> tuple[ExternalAgentSettings, ...]:
        return tuple(each for each in self._shared.loaded().settings.agents.external if each.enabled)

    def _offer(self, entry: ExternalAgentSettings) -> OfferedAgent:
        walls = "in a sandbox" if self._contained(entry) else "with no sandbox around it"
        risk = f"{entry.command} may read and change this folder by itself, {walls}"
        return OfferedAgent(entry.name, entry.description, source="configuration", identity=entry.identity, risk=risk)

    def _contained(self, entry: ExternalAgentSettings) -> bool:
        server = _server(entry.name, StdioServer(entry.command))
        return entry.sandbox and is_contained(server, self._shared.loaded().settings)


def _server(agent: str, program: StdioServer) -> McpServer:
    """Return the program of an agent as an MCP server, because it gets the same sandbox as one."""
    return McpServer(f"agent {agent}", program, McpOrigin.CONFIG)


class SessionSubAgents:
    """The sub-agents of one session: their runs, also in the background of a turn, and their reports to the model."""

    def __init__(
        self,
        shared: SubAgentSession,
        library: AgentLibrary,
        emit: EventSink,
        background: Background,
        keep: Callable[[str], Awaitable[str]],
        slots: RunSlots,
        hand_over: Callable[[str], Awaitable[str]],
        plan: ShownPlan,
    ) -> None:
        """Make the sub-agents.

        keep        stores a conversation and returns its reference. Raises StoreUnavailable
        plan        stores and shows the board of tasks
        hand_over   hands the session over to an agent. Raises AgentError
        """
        self._shared = shared
        self._library = library
        self._others = OtherAgents(shared)
        self._emit = emit
        self._background = background
        self._keep = keep
        self._slots = slots
        self._hand_over = hand_over
        self._plan = plan
        self._work: SharedWork | None = None
        self.prompt, self.provider = shared.prompt, shared.provider
        self._made: SubAgentRuns | None = None
        self._gates: QualityGates | None = None

    def offered(self) -> Sequence[OfferedAgent]:
        """Return the agents that can be given a task now."""
        return (*self._library.offered(), *self._others.offered())

    async def run(self, agent: str, task: str, parent: ParentCall) -> AgentRun:
        """Give an agent a task, and return the run when it has ended. Raises ToolError if too many runs are active."""
        of_gate = self._gates is not None and parent.id in self._gates.calls
        return await self._runs().run(agent, task, parent, self._worker if of_gate else None, judges=of_gate)

    async def evaluate(self, task: EvaluationTask, parent: ParentCall) -> Evaluation:
        """Let agents do and judge a task until it is approved. Raises ToolError if too many runs are active."""
        from acp_agent.subagents.quality_gates import evaluated  # noqa: PLC0415 - few sessions evaluate

        runs = self._runs()

        async def give(agent: str, words: str) -> AgentRun:
            return await runs.run(agent, words, parent, self._worker)

        async def tell(line: str) -> None:
            await parent.progress(ToolProgress(parent.id, output=f"\n\n{line}\n\n"))

        return await evaluated(task, give, tell)

    async def hand_over(self, agent: str) -> str:
        """Hand the session over to an agent from the next model call on. Raises AgentError."""
        return await self._hand_over(agent)

    async def spawn(self, agent: str, task: str) -> AgentRun:
        """Begin a run in the background of the turn. Raises ToolError if too many runs are active."""
        return await self._runs().spawn(agent, task)

    def runs(self) -> Sequence[AgentRun]:
        """Return the active runs and those that ended recently, oldest first."""
        return () if self._made is None else self._made.runs()

    async def cancel(self, which: str) -> Sequence[AgentRun]:
        """End runs, and return those that ended. Raises ToolError for an unknown id."""
        return await self._runs().cancel(which)

    async def steer(self, which: str, words: str) -> AgentRun:
        """End a run if it is active, and restart it. It continues its conversation with these words."""
        return await self._runs().steer(which, words)

    # ------------------------------------------------------------------------------------- reports

    def news(self) -> str:
        """Return the reports of spawned runs that ended since the last model call."""
        return "" if self._made is None else self._made.news()

    async def wait(self) -> str:
        """Wait until a spawned run ends, and return the new reports; empty if no run is active."""
        return "" if self._made is None else await self._made.wait()

    async def end(self) -> str:
        """End all runs, because the turn ends, and return the reports that the model does not know yet."""
        return "" if self._made is None else await self._made.end()

    # ------------------------------------------------------------------------------ board and mail

    @property
    def board(self) -> "SessionBoard":
        return self._share().board

    @property
    def mail(self) -> "SessionMail":
        """The messages between the session's agents."""
        return self._share().mail

    def _share(self) -> "SharedWork":
        if self._work is None:
            from acp_agent.subagents.board import SessionBoard, SessionMail, SharedWork  # noqa: PLC0415 - few have one

            self._work = SharedWork(SessionBoard(self._plan), SessionMail(lambda: self._runs().wake()))
        return self._work

    def _if_shared(self) -> "SharedWork | None":
        """Return the board and the mail if they exist, even if they were switched off since."""
        return self._share() if self._shared.loaded().settings.agents.board else self._work

    # --------------------------------------------------------------------------------- quality gates

    def begin(self) -> None:
        """Begin a turn. The quality gates judge only the changes since then."""
        if (gates := self._quality()) is not None:
            gates.begin()

    async def answered(self, *, is_last: bool) -> AnswerCheck:
        """Return the verdict of the quality gates on the turn. Raises only cancellation."""
        gates = self._quality()
        return AnswerCheck() if gates is None else await gates.answered(is_last=is_last)

    def _quality(self) -> "QualityGates | None":
        """Return the quality gates; None if none is configured."""
        if not self._configured_gates():
            return None
        if self._gates is None:
            from acp_agent.subagents.quality_gates import QualityGates  # noqa: PLC0415 - few sessions have gates

            self._gates = QualityGates(self._configured_gates, self._shared.toolset, self._shared.changes)
        return self._gates

    def _configured_gates(self) -> Sequence[QualityGateSettings]:
        return self._shared.loaded().settings.agents.gates

    # --------------------------------------------------------------------------------------- making

    def _runs(self) -> "SubAgentRuns":
        if self._made is None:
            from acp_agent.subagents import runs  # noqa: PLC0415 - most sessions have no sub-agents

            needs = runs.RunDependencies(
                lambda: {**self._others.definitions(), **self._library.by_name()},
                self._checked_worker,
                self._emit,
                self._background,
                self._keep,
                self._readable,
                self._limits,
                self._slots,
                self._if_shared,
                self._shared.highest_id,
            )
            self._made = runs.SubAgentRuns(needs)
        return self._made

    async def _readable(self, report: str) -> str:
        """Return a report as the session's model may read it. Its conversation is stored whole."""
        shared, most = self._shared, self._shared.loaded().settings.tools.overflow.threshold
        clean = await to_thread.run_sync(lambda: shared.redact(sanitize(report, terminal=False)))
        return clean if len(clean) <= most else clip(clean, min(PREVIEW, most))

    def _checked_worker(self, definition: "Definition") -> "Worker":
        worker, gates = self._worker(definition), self._quality()
        return worker if gates is None else gates.checked(worker, definition)

    def _worker(self, definition: "Definition") -> "Worker":
        from acp_agent.subagents.worker import ModelDependencies, ModelWorker  # noqa: PLC0415 - likewise

        shared = self._shared
        is_ours = definition.name.lower() in self._library.by_name()
        entry = None if is_ours else self._others.find(definition.name)
        if entry is not None:
            from acp_agent.subagents.client import ExternalDependencies  # noqa: PLC0415 - loads the SDK
            from acp_agent.subagents.external import ExternalWorker  # noqa: PLC0415 - likewise

            given = ExternalDependencies(shared.cwd, shared.toolset, shared.files, shared.seen, shared.redact)
            try:
                return ExternalWorker(self._others.agent(entry), given)
            except ConfigError as error:
                advice = "Tell the user. Do the task yourself, or give it to another agent."
                raise ToolError.permanent(str(error), advice) from error
        needs = ModelDependencies(
            shared.toolset,
            shared.provider,
            shared.prompt,
            shared.servers,
            shared.limits,
            shared.compactor,
            self._if_shared,
        )
        return ModelWorker(definition, needs)

    def _limits(self) -> "RunLimits":
        from acp_agent.subagents.runs import RunLimits  # noqa: PLC0415 - likewise

        agents = self._shared.loaded().settings.agents
        return RunLimits(agents.max_running, agents.max_children, agents.archive_minutes)


HANDOFF_USAGE = "Usage: `/handoff NAME`, `/handoff NAME WORDS` or `/handoff back`; `/agents` lists the names."
_LONGEST_NAME = 80


class SessionHandoff:
    """The agent to which a session is handed over (`/handoff`): its prompt, its model, and some of the session's tools.

    The name is one of the session's options: it is stored with them, and a load restores it. The definition is looked
    up before each prompt. If it no longer exists, or waits for the user's approval, no prompt is answered until
    `/handoff back`. Otherwise a session that the definition had limited would get its rights back by itself.

    library   the definitions
    servers   returns the names of the session's MCP servers
    loaded    returns the configuration in force
    model     returns the model of a definition. Raises AgentError
    """

    def __init__(
        self,
        session: Session,
        library: AgentLibrary,
        servers: Callable[[], Sequence[str]],
        loaded: Callable[[], Loaded],
        model: "Callable[[Definition], Awaitable[Provider]]",
    ) -> None:
        self._session = session
        self._library = library
        self._servers = servers
        self._loaded = loaded
        self._model = model

    @property
    def name(self) -> str:
        """The name of the agent; empty for the session's own."""
        return self._session.options.agent

    def settle(self) -> "Definition | None":
        """Put the agent's mode and tools in force, and return its definition; None for the session's own agent.

        Raises ToolError if the agent does not exist any more.
        """
        if not self.name:
            self._session.narrow(Mode.CODE, None)
            return None
        definition = self._found(self.name)
        if definition is None:
            raise ToolError(
                ToolErrorCategory.POLICY_BLOCKED,
                f"this session was handed over to the agent {visible(self.name)}, which does not exist any more. "
                "`/handoff back` continues without it; `/status` says whether its file has a problem or waits for your "
                "approval",
            )
        self._session.narrow(definition.mode, definition.selection(self._servers(), as_main=True))
        return definition

    async def to(self, name: str) -> str:
        """Hand the session over to an agent, or with `back` to its own one. Return the message for the user.

        Raises ToolError if there is no such agent, or if its model is not configured. Then nothing changes.
        """
        if name == BACK:
            before = self.name
            self.put("")
            return f"{before} hands back: the session goes on as before." if before else "Nothing was handed over."
        definition = self._found(name)
        if definition is None:
            offered = self._library.offered() if self._loaded().settings.agents.enabled else ()
            known = ", ".join(each.name for each in offered) or "none"
            raise ToolError.invalid(f"there is no agent {visible(name[:_LONGEST_NAME])}. Agents: {known}")
        if definition.model:
            await self._check_model(definition)
        self.put(definition.name)
        what = definition.offered.description.rstrip(".")
        return f"The session goes on as `{definition.name}`: {what}. `/handoff back` ends it."

    def put(self, name: str) -> None:
        """Hand over to an agent without checking its model. An empty name stands for the session's own agent."""
        self._session.hand_over(name)
        self.settle()

    async def _check_model(self, definition: "Definition") -> None:
        """Raise ToolError if the definition's model is not configured. Do not contact the model's server."""
        try:
            await self._model(definition)
        except AgentError as error:
            raise ToolError.permanent(
                f"the agent {definition.name} cannot take over, because its model {visible(definition.model)} is not "
                f"configured: {visible(str(error))}. Configure its provider under `[[llm.providers]]` or with "
                f"`acp-agent login`, or change `model` in {definition.source}. The session goes on as before",
                "Tell the user. Go on with the task without this agent.",
            ) from error

    def status(self) -> Sequence[str]:
        """Return a line for /status if the session was handed over."""
        return (f"Agent: {visible(self.name)} (`/handoff back` ends it)",) if self.name else ()

    def _found(self, name: str) -> "Definition | None":
        if not self._loaded().settings.agents.enabled:
            return None
        return self._library.by_name().get(name.lower())
