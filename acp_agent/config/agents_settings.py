"""`[agents]`: sub-agents, the checks of their work, and other agents that speak ACP (docs/agents.md).

The model may give tasks to the entries of `[[agents.external]]`. A value of their `env` may hold `${NAME}`, as those of
an MCP server may. A project's file cannot name such agents.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Protocol, TypeVar

from acp_agent.config.llm_settings import OptionalModel
from acp_agent.config.mcp_settings import Variables, Word, filled, references, shown_variables
from acp_agent.config.section import OFF, SMALLER, Paths, Section, Words, without_nul
from acp_agent.core.delegation import RESERVED
from acp_agent.core.mcp import StdioServer
from acp_agent.shape import AfterValidator, Field

EXTERNAL_AGENTS = "agents.external"


def _not_reserved(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"a name besides {', '.join(RESERVED)}")
    return name


class LinkDirection(StrEnum):
    """The direction of tasks between two agents. ACP has the first one only."""

    OUTBOUND = "outbound"
    INBOUND = "inbound"
    BOTH = "both"


def _outbound(direction: LinkDirection) -> LinkDirection:
    if direction is not LinkDirection.OUTBOUND:
        told = "outbound, since over ACP an agent cannot give its client tasks"
        raise ValueError(told)
    return direction


class ExternalAgentSettings(Section):
    """One `[[agents.external]]` entry: a program that is an ACP agent on its stdin and stdout."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="Unique name, by which the model gives it tasks: codex."
        ),
        AfterValidator(_not_reserved),
    ]
    command: Annotated[Word, Field(description="Program to start, which speaks ACP on stdin and stdout.")]
    args: Annotated[tuple[Annotated[str, AfterValidator(without_nul)], ...], Field(strict=False)] = ()
    env: Annotated[
        Variables,
        Field(
            description="Variables it gets besides the usual few. ${NAME} is replaced by your variable of that name."
        ),
    ] = Field(default_factory=dict[str, str])
    description: Annotated[
        str, Field(max_length=1000, description="What it is good at: the model reads this in the tool agent.")
    ] = "another agent"
    direction: Annotated[
        LinkDirection,
        Field(strict=False, description="Who gives tasks to whom: outbound, the session to this agent."),
        AfterValidator(_outbound),
    ] = LinkDirection.OUTBOUND
    max_running: Annotated[
        int, Field(ge=1, le=64, description="Tasks that it does at once, in all sessions of one process.")
    ] = 2
    max_per_session: Annotated[
        int, Field(ge=0, le=64, description="Tasks of one session that it does at once; 0 = max_running.")
    ] = 0
    allow_write: Annotated[
        Paths,
        Field(
            description="Files and folders that its program may read and change in its sandbox, besides the session's "
            "own, such as those of its login."
        ),
    ] = ()
    sandbox: Annotated[bool, Field(description="Whether its program runs in the sandbox, where there is one.")] = True
    startup_timeout: Annotated[
        float, Field(gt=0, le=600, allow_inf_nan=False, description="Seconds until it must have opened a session.")
    ] = 60.0
    idle_timeout: Annotated[
        float,
        Field(
            gt=0,
            le=86400,
            allow_inf_nan=False,
            description="Seconds without a message from it after which its task fails. Waiting for you does not count.",
        ),
    ] = 600.0
    enabled: Annotated[bool, Field(description="Whether the model may give it tasks.")] = True

    def program(self, environ: Mapping[str, str], folder: str) -> StdioServer:
        """Return its program with every `${NAME}` replaced. Raises ConfigError if a variable is not set."""
        variables = filled(f"[[{EXTERNAL_AGENTS}]] {self.name}", "env", self.env, environ)
        return StdioServer(self.command, self.args, variables, folder, self.allow_write)

    @property
    def identity(self) -> str:
        """The SHA-256, in hex, of all settings that decide what its program may do. An "always" answer holds for it."""
        what = json.dumps([self.name, self.command, self.args, sorted(self.env), self.allow_write, self.sandbox])
        return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()

    def shown(self) -> dict[str, object]:
        """Return the settings to be shown. Variables are hidden unless they are `${NAME}`."""
        table = self.model_dump(exclude_defaults=True)
        return {**table, "env": shown_variables(self.env)} if self.env else table

    def referred(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the values of the variables that `${NAME}` refers to, so that they can be redacted."""
        return tuple(environ.get(name, "") for text in self.env.values() for name in references(text))


class _Named(Protocol):
    name: str


T = TypeVar("T", bound=_Named)


def distinct_names(entries: tuple[T, ...]) -> tuple[T, ...]:
    """Return the entries. Raises ValueError if two have one name."""
    twice = next((name for name, count in Counter(each.name for each in entries).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"entries with different names, got {twice!r} twice")
    return entries


class QualityEvent(StrEnum):
    """The moment at which a quality gate judges."""

    TURN = "turn"
    DELEGATION = "delegation"


class QualityGateSettings(Section):
    """`[[agents.gates]]`: a check of what the agent did. A command or an evaluator decides (docs/agents.md)."""

    name: Annotated[str, Field(min_length=1, max_length=60, description="Its name in messages.")]
    event: Annotated[
        QualityEvent,
        Field(
            strict=False,
            description="turn: when the model ends an answer in which files were changed; delegation: when a sub-agent "
            "reports.",
        ),
    ] = QualityEvent.TURN
    command: Annotated[
        str, Field(max_length=4000, description="A shell command; exit code 0 passes. It is judged like any call.")
    ] = ""
    evaluator: Annotated[str, Field(max_length=64, description="Instead of a command: the sub-agent that judges.")] = ""
    criteria: Annotated[str, Field(max_length=20_000, description="The criteria by which the evaluator judges.")] = ""
    agents: Annotated[
        Words, Field(description="The sub-agents whose reports are judged. Empty: those that may change files.")
    ] = ()
    block_on_failure: Annotated[
        bool, Field(description="Whether failed work goes back to the agent, with the reason. false: you are told.")
    ] = True
    max_retries: Annotated[int, Field(ge=0, le=10, description="The most times that the work goes back.")] = 2
    timeout_secs: Annotated[int, Field(ge=1, le=86_400, description="Seconds the command may take.")] = 300

    def check(self) -> None:
        """Raise ValueError, with what is expected, if the values do not fit each other."""
        if bool(self.command.strip()) == bool(self.evaluator.strip()):
            raise ValueError("either command or evaluator")
        if self.evaluator and not self.criteria.strip():
            raise ValueError("criteria beside evaluator")


class AgentsSettings(Section):
    """`[agents]`: sub-agents, which do a task in a conversation of their own and report (docs/agents.md)."""

    enabled: Annotated[bool, Field(description="Whether the model has the tool agent."), OFF] = True
    evaluate: Annotated[
        bool,
        Field(
            description="Whether the model has the tool evaluate: one agent works, another judges, until it approves. "
            "/evaluate works in both cases."
        ),
        OFF,
    ] = False
    handoff: Annotated[
        bool,
        Field(
            description="Whether the model has the tool handoff: the session goes on under the definition of another "
            "agent. /handoff works in both cases."
        ),
        OFF,
    ] = False
    board: Annotated[
        bool,
        Field(description="Whether the agents share a board of tasks, shown as the plan, and write to each other."),
        OFF,
    ] = False
    max_running: Annotated[
        int, Field(ge=1, le=64, description="Sub-agents that run at once in one process, in all its sessions.")
    ] = 8
    max_children: Annotated[
        int, Field(ge=1, le=64, description="Sub-agents of one session that run at once."), SMALLER
    ] = 5
    archive_minutes: Annotated[
        float,
        Field(
            ge=0,
            le=10_080,
            allow_inf_nan=False,
            description="Minutes that a finished run is listed and can be given new words.",
        ),
    ] = 60.0
    explore_model: Annotated[
        OptionalModel,
        Field(
            description='Model of the built-in sub-agent explore, "PROVIDER:MODEL". Empty: the model of the '
            "conversation. A small, cheap one is enough.",
            examples=["ollama:qwen3:8b"],
        ),
    ] = ""
    gates: Annotated[
        tuple[QualityGateSettings, ...],
        Field(
            strict=False,
            max_length=20,
            description="Checks of what the agent did, in this order.",
            examples=[[{"name": "tests", "command": "make test"}]],
        ),
        AfterValidator(distinct_names),
    ] = ()
    external: Annotated[
        tuple[ExternalAgentSettings, ...],
        Field(
            strict=False,
            max_length=100,
            description="Other agents that speak ACP. The model may give them tasks; you are asked before.",
            examples=[[{"name": "codex", "command": "codex-acp", "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"}}]],
        ),
        AfterValidator(distinct_names),
    ] = ()
