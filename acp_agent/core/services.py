"""The port web tools reach the network through. Nothing else a model asks for may open a connection (T5)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from acp_agent.core.types import Json, JsonObject


class BlockReason(StrEnum):
    """Why a request was not made (T5.11)."""

    ALLOWLIST = "allowlist"
    BLOCKLIST = "blocklist"
    SSRF = "ssrf"
    SCHEME = "scheme"


@dataclass(frozen=True, slots=True)
class WebCaller:
    """On whose behalf a request is made: the tool's name and the id of its call, for the egress record."""

    tool: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Egress:
    """One request of a `get`, made or refused, for the audit (T5.11).

    hop             0 for the URL asked for, 1 to 3 for redirects
    address         the IP address connected to; None when there was no connection
    status          None when no answer came
    duration        seconds
    response_bytes  of the decoded body, as far as it was read
    block_reason    why it was refused before a connection; None when it was not. A redirect to a site that was not
                    asked for is `allowlist`: what one `get` allows is the site of its URL
    """

    caller: WebCaller
    url: str
    host: str
    hop: int
    address: str | None
    status: int | None
    duration: float
    response_bytes: int
    block_reason: BlockReason | None


@dataclass(frozen=True, slots=True)
class WebPage:
    """A text from the web.

    url           where it came from in the end
    content_type  its MIME type in lower case
    text          decoded; where it was truncated it ends with the last whole character within the limit
    truncated     whether there was more than may be read, and only the beginning is here
    """

    url: str
    content_type: str
    text: str
    truncated: bool = False


class Web(Protocol):
    """Reads pages of public hosts over https."""

    async def get(
        self, url: str, caller: WebCaller, *, redirects: int = 3, leave_site: bool = False, truncate: bool = False
    ) -> WebPage:
        """The page, after at most so many redirects.

        A redirect to another site than the URL's (another host, `www.` aside) is followed with `leave_site` only:
        whoever allowed one host has not allowed what its redirects may carry elsewhere. Otherwise it is a ToolError
        that names the address. Of a page too large, `truncate` gives the beginning (A24.9); else it is a ToolError.

        Raises Refused for what must not be reached: another scheme, a forbidden host, port or address, at any hop.
        Raises ToolError for everything else: the status by T5.12, a redirect too many or to nowhere, no connection,
        no answer in time, a body that is too large or no text.
        """
        ...


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


UNKNOWN_OVERFLOW = "overflow entry not found or expired"
"""The one answer for an id that never was, is gone, or belongs to another conversation (O5.6)."""

OVERFLOW_PREFIX = "overflow:"


class Overflow(Protocol):
    """What one conversation keeps. `text` is redacted already (O5.14)."""

    async def put(self, text: str) -> str:
        """Keep a text; returns its reference, `overflow:<uuid>`.

        Returns only once it would survive a kill. Raises StoreUnavailable, naming the cause; a text over the limit
        is such a cause.
        """
        ...

    async def get(self, reference: str) -> str | None:
        """The text, or None for any id this conversation has nothing under; `reference` is a UUID, prefix or not.

        Raises ValueError for what is no UUID, StoreUnavailable when nothing can be looked up now.
        """
        ...


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
