"""What a session has of its editor's language servers. `EditorLanguages` is loaded for the editors that share some."""

from typing import Protocol

from acp_agent.core.lsp import LanguageServers
from acp_agent.core.types import Json


class SharedLanguages(LanguageServers, Protocol):
    """Language servers that also tell something without being asked (requirements A27.3, A27.4)."""

    def published(self, uri: str, found: Json) -> None:
        """The editor says what is wrong with a file now. Raises ToolError for no list."""
        ...

    async def saved(self, uri: str) -> None:
        """The user saved a file."""
        ...
