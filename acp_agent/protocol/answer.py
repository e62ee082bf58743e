"""How a turn ends, and what runs one."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from acp_agent.core.errors import AgentError
from acp_agent.core.messages import StopReason
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.sessions import Change
from acp_agent.core.types import JsonObject
from acp_agent.protocol.commands import Name


@dataclass(frozen=True, slots=True)
class Answer:
    """How a turn ended. `failure` is what kept it from doing its work; the user has read about it."""

    reason: StopReason
    failure: AgentError | None = None

    def to_wire(self, redact: Redact = verbatim) -> JsonObject:
        """ACP `PromptResponse`; a failure goes into `_meta`, for clients without a person in front."""
        response: JsonObject = {"stopReason": self.reason.value}
        if self.failure is not None:
            response["_meta"] = {"acp_agent": {"failure": redact(str(self.failure))}}
        return response


class Engine(Protocol):
    """What answers prompts."""

    async def answer(self, params: JsonObject) -> Answer:
        """Run one turn on the raw `session/prompt` params. Raises RpcError for params that are no prompt."""
        ...

    def state(self) -> Change:
        """What is to be kept of it now: history, tally, model."""
        ...

    async def kept(self) -> Change:
        """The same; what takes a while is done beside the loop."""
        ...

    def commands(self) -> Collection[Name]:
        """The slash commands that make sense now."""
        ...

    async def answered(self, answer: Answer) -> None:
        """The turn was answered: the time for what nobody waits for, such as a title."""
        ...

    async def close(self) -> None:
        """Give back what it holds: terminals, servers, children (A10.3)."""
        ...
