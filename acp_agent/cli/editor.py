"""The editor of `run` and `demo`: the client side of the ACP SDK."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import ClassVar, Self, TypeVar, cast

import acp
import anyio
from acp.schema import ClientCapabilities, Implementation, PermissionOption, PromptResponse, ToolCallUpdate

from acp_agent.cli.agent_process import AgentGone, AgentProcess, AgentRefused
from acp_agent.core.types import Json, JsonObject

_T = TypeVar("_T")

Decide = Callable[[JsonObject], Awaitable[str | None]]
"""The user's answer to the parameters of `session/request_permission`: an optionId, or None to cancel the question."""


class Editor:
    """An ACP client of a running agent, without files and terminals. Leaving its context ends the agent.

    The SDK calls the methods that are named as those of `acp.Client`, and refuses requests for the missing ones.
    """

    capabilities: ClassVar[JsonObject] = {}

    def __init__(self, agent: AgentProcess, decide: Decide) -> None:
        self._agent = agent
        self._decide = decide
        self._asking: dict[str, set[anyio.CancelScope]] = {}
        self._connection = acp.connect_to_agent(cast("acp.Client", self), agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._agent.end()  # while its messages are still read, so that it can write the last ones
            await self._connection.close()

    async def initialize(self) -> None:
        """Send `initialize`."""
        capabilities = ClientCapabilities.model_validate(self.capabilities)
        info = Implementation(name="acp-agent-editor", version="1")
        await self._answer("initialize", self._connection.initialize(acp.PROTOCOL_VERSION, capabilities, info))

    async def new_session(self, cwd: str) -> str:
        """Create a session in a folder and return its id."""
        return (await self._answer("session/new", self._connection.new_session(cwd))).session_id

    async def prompt(self, session_id: str, text: str) -> PromptResponse:
        """Send a prompt and wait for the end of the turn."""
        return await self._answer("session/prompt", self._connection.prompt(session_id, [acp.text_block(text)]))

    async def cancel(self, session_id: str) -> None:
        """Cancel the turn and answer its open questions with `cancelled`, as the protocol demands of clients."""
        await self._answer("session/cancel", self._connection.cancel(session_id))
        for scope in self._asking.get(session_id, ()):
            scope.cancel()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_meta: object
    ) -> JsonObject:
        """Answer a permission question of the agent."""
        chosen: str | None = None
        waiting = self._asking.setdefault(session_id, set())
        with anyio.CancelScope() as scope:
            waiting.add(scope)
            try:
                chosen = await self._decide(
                    {
                        "sessionId": session_id,
                        "toolCall": _json(tool_call),
                        "options": [_json(option) for option in options],
                    }
                )
            except OSError as error:  # the user cannot see the question
                await self._agent.fail(error)
            finally:
                waiting.discard(scope)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    async def _answer(self, method: str, request: Awaitable[_T]) -> _T:
        """Return the agent's answer. Raises AgentGone, AgentRefused, or the OSError of a screen that is gone."""
        try:
            return await request
        except acp.RequestError as error:
            data = "" if error.data is None else f": {error.data}"
            raise AgentRefused(f"{error} ({error.code}){data}") from error
        except ConnectionError as error:
            raise self._agent.failure or AgentGone(f"no answer to {method}") from error
        except ValueError as error:  # the SDK's models refuse it
            raise AgentGone(f"the answer to {method} is not ACP: {error}") from error


def _json(model: ToolCallUpdate | PermissionOption) -> Json:
    """Return the JSON that the agent sent."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)
