"""What outlives a session: notes the model saves (E2), and summaries of conversations (L11)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Remembered:
    """A note. `created_at` is in whole seconds since 1970; a higher `score` fits a search better."""

    id: str
    content: str
    created_at: int
    score: float = 0.0


class Memories(Protocol):
    """Notes of all sessions of this user. Texts are redacted already (session/slash/handler.py)."""

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Keep a note; whether it is new: the same text twice is one note. Durable on return.

        Raises StoreUnavailable, ToolError (invalid_parameters) for a text that is blank or too long.
        """
        ...

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """The notes that fit best, best first. Raises StoreUnavailable."""
        ...

    @property
    def method(self) -> str:
        """How searches find: "words", or "words and meaning" with the embedding model's name; what failed last."""
        ...


class Compaction(StrEnum):
    """Why a conversation was shortened: the model's own wish, the window was filling up, the user said so (L11)."""

    AUTONOMOUS = "autonomous"
    TRIGGERED = "triggered"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands in place of older messages. `messages` is how many it replaced, `tokens` their estimated size."""

    text: str
    method: Compaction
    messages: int
    tokens: int


class Summaries(Protocol):
    """The summaries of one conversation."""

    async def add(self, summary: Summary) -> None:
        """Keep one. Durable on return. Raises StoreUnavailable."""
        ...


class Compressor(Protocol):
    """Shortens the conversation it belongs to, for the `compress_context` tool."""

    async def compress(self, focus: str) -> str:
        """Sum up what lies before the current turn; one line on what became of it, for the model.

        focus   what the summary must keep above all, in the model's words; may be empty
        Raises ToolError (permanent_failure) when there is nothing to sum up or no summary came: all is as it was.
        """
        ...
