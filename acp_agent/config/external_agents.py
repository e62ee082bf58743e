"""`[[agents.external]]`: other agents that speak ACP, to which the model may give tasks (docs/agents.md).

A value of `env` may hold `${NAME}`, as those of an MCP server may. A project's file cannot name such agents.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Protocol, TypeVar

from pydantic import AfterValidator, Field

from acp_agent.config.mcp_settings import Variables, Word, filled, references, shown_variables, without_nul
from acp_agent.config.section import Paths, Section
from acp_agent.core.delegation import RESERVED
from acp_agent.core.mcp import StdioServer

EXTERNAL_AGENTS = "agents.external"


def _not_reserved(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"a name besides {', '.join(RESERVED)}")
    return name


class LinkDirection(StrEnum):
    """Who gives tasks to whom. ACP has the first one only."""

    OUTBOUND = "outbound"
    INBOUND = "inbound"
    BOTH = "both"


def _outbound(direction: LinkDirection) -> LinkDirection:
    if direction is not LinkDirection.OUTBOUND:
        told = "outbound: over ACP an agent can give its client no task, only ask it for files, terminals and answers"
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
            description="Seconds without a message of it until its task has failed. Waiting for you does not count.",
        ),
    ] = 600.0
    enabled: Annotated[bool, Field(description="Whether the model may give it tasks.")] = True

    def program(self, environ: Mapping[str, str], folder: str) -> StdioServer:
        """Return its program with every `${NAME}` replaced. Raises ConfigError if a variable is not set."""
        variables = filled(f"[[{EXTERNAL_AGENTS}]] {self.name}", "env", self.env, environ)
        return StdioServer(self.command, self.args, variables, folder, self.allow_write)

    @property
    def identity(self) -> str:
        """What an "always" answer holds for: the SHA-256 in hex of its name, command line, and names of variables."""
        what = json.dumps([self.name, self.command, self.args, sorted(self.env), self.allow_write, self.sandbox])
        return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()

    def shown(self) -> dict[str, object]:
        """Return the settings to be shown. Variables are hidden unless they are `${NAME}`."""
        table = self.model_dump(mode="json", exclude_defaults=True)
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
