"""The memory behind the redactor (S9): what it keeps, and what it searches for with another vendor's model."""

from anyio import to_thread

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.memory import Memories, Remembered
from acp_agent.core.redaction import Redact, placeholders


class RedactedMemories:
    """Memories before others: a core.memory.Memories that keeps the promise that texts are redacted already."""

    def __init__(self, memories: Memories, redact: Redact) -> None:
        self._memories = memories
        self._redact = redact

    @property
    def method(self) -> str:
        """How searches find."""
        return self._memories.method

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Keep a note without its secrets. Raises ToolError (invalid_parameters) too when nothing else is in it."""
        text = await self._redacted(content)
        words = text
        for mark in placeholders(text):
            words = words.replace(mark, "")
        if text.strip() and not words.strip():
            raise ToolError(
                ToolErrorCategory.INVALID_PARAMETERS,
                "the note is nothing but a secret, and secrets are not remembered",
                "Save where the secret is found instead, such as the name of its variable.",
            )
        return await self._memories.save(text)

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """The notes that fit a query without its secrets: no note has any."""
        return await self._memories.search(await self._redacted(query), limit)

    async def _redacted(self, text: str) -> str:
        return await to_thread.run_sync(self._redact, text, abandon_on_cancel=True)
