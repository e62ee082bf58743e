"""What the editor's language servers know, for clients that share it (requirements A27)."""

from typing import Protocol

from acp_agent.core.types import Json, JsonObject


class LanguageServers(Protocol):
    """The editor's language servers, one request each."""

    def offers(self, method: str) -> bool:
        """Whether the client serves a method, such as `lsp/hover`."""
        ...

    async def ask(self, method: str, params: JsonObject) -> Json:
        """What the client answers, as it came: not to be trusted (A27.7).

        Raises ToolError: no answer in time, an error of the editor's.
        """
        ...
