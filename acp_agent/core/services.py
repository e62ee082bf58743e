"""The services that tools use beside files and terminals: web, memories, past conversations, summaries, skills, ..."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol

from acp_agent.core.data import frozen


class BlockReason(StrEnum):
    """The reason why a request was not made."""

    ALLOWLIST = "allowlist"
    BLOCKLIST = "blocklist"
    SSRF = "ssrf"
    SCHEME = "scheme"


@frozen
class WebCaller:
    """The tool that makes a request, and the id of its call, for the audit."""

    tool: str
    call_id: str


@frozen
class Egress:
    """One request of a `get`, or one connection of a contained command, made or refused, for the audit.

    hop             0 for the requested URL, 1 to 3 for redirects
    address         the IP address of the connection; None if there was none
    status          None if no answer came
    duration        seconds
    response_bytes  of the decoded body, as far as it was read
    block_reason    why it was refused before a connection; None if it was made. A redirect to another site is
                    `allowlist`, since one `get` allows only the site of its URL
    method          CONNECT for the connection of a command: its URL is a host and a port, and its call is not known
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
    method: Literal["GET", "CONNECT"] = "GET"


@frozen
class WebPage:
    """A text from the web.

    url           the URL after all redirects
    content_type  its MIME type in lower case, "" if the server does not name one
    text          decoded; if it was truncated, it ends with the last whole character within the limit
    truncated     whether the page is longer than may be read, and this is its beginning
    """

    url: str
    content_type: str
    text: str
    truncated: bool = False


class Web(Protocol):
    """A reader of pages of public hosts over https. Web tools open no other connections."""

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3, truncate: bool = False) -> WebPage:
        """Return the page.

        A redirect to another site (another host, apart from `www.`) is not followed, since the user may have allowed
        only the first host.

        redirects    the most redirects that are followed
        truncate     whether a page that is too large is cut; otherwise it is a ToolError

        Raises:
            Refused: The scheme, the host, the port or the address is forbidden, at any hop.
            ToolError: The status is an error, there are too many redirects or one to another site, there is no
                connection or no answer in time, or the body is too large or no text.

        """
        ...


@frozen
class Remembered:
    """A note that the model saved.

    created_at   whole seconds since 1970
    score        how well it fits a search; higher is better
    """

    id: str
    content: str
    created_at: int
    score: float = 0.0


class Memories(Protocol):
    """Notes of all sessions of this user. `RedactedMemories` of session/toolset/settings.py redacts their texts."""

    async def save(self, content: str) -> tuple[Remembered, bool]:
        """Keep a note. Return it, and whether it is new: the same text twice is one note. Durable on return.

        Raises StoreUnavailable, ToolError (invalid_parameters) for a text that is blank or too long.
        """
        ...

    async def search(self, query: str, limit: int) -> tuple[Remembered, ...]:
        """Return the notes that fit best, best first. Raises StoreUnavailable."""
        ...

    @property
    def method(self) -> str:
        """How notes are found: "words", "words and meaning (MODEL)", or "words only (MODEL failed)"."""
        ...


@frozen
class PastMessage:
    """A message of an earlier conversation.

    title     the title of its session
    at        milliseconds since 1970
    by_user   whether the user wrote it; else the model did
    text      the part of it that fits a search, on one line
    """

    session: str
    title: str
    at: int
    by_user: bool
    text: str


class PastConversations(Protocol):
    """The earlier conversations in the folder of one session, as they are stored: without secrets."""

    async def search(self, query: str, limit: int) -> tuple[PastMessage, ...]:
        """Return the messages that fit best, best first. A query without a word gives the newest prompts.

        Raises StoreUnavailable.
        """
        ...


class Compaction(StrEnum):
    """The reason why a conversation was shortened: the model asked, the window was filling up, or the user asked."""

    AUTONOMOUS = "autonomous"
    TRIGGERED = "triggered"
    MANUAL = "manual"


@frozen
class Summary:
    """The summary that replaces older messages: how many `messages`, and their estimated size in `tokens`."""

    text: str
    method: Compaction
    messages: int
    tokens: int


class Summaries(Protocol):
    """The summaries of one conversation."""

    async def add(self, summary: Summary) -> None:
        """Store a summary durably. Raises StoreUnavailable."""
        ...


class Compressor(Protocol):
    """The shortening of one conversation, for the `compress_context` tool."""

    async def compress(self, focus: str) -> str:
        """Summarize the messages before the current turn. Return one line about the result for the model.

        focus   what the summary must keep above all, in the model's words; may be empty

        Raises:
            ToolError: permanent_failure if there is nothing to summarize or no summary came. Nothing has changed then.

        """
        ...


UNKNOWN_OVERFLOW = "overflow entry not found or expired"
"""The answer for an id that never existed, has expired, or belongs to another conversation."""


class Overflow(Protocol):
    """The long outputs of one conversation, kept outside the context window. Texts are redacted already."""

    async def put(self, text: str) -> str:
        """Store a text and return its reference, `overflow:<uuid>`. On return it survives the death of the process.

        Raises:
            StoreUnavailable: It cannot be stored, or the text is over the limit. The message names the cause.

        """
        ...

    async def get(self, reference: str) -> str | None:
        """Return the text of a reference (a UUID with or without the prefix), or None for an unknown one.

        Raises:
            ValueError: The reference is no UUID.
            StoreUnavailable: Nothing can be looked up now.

        """
        ...


@frozen
class SkillText:
    """A skill as the model reads it, and a line about it for the user."""

    text: str
    shown: str


class Skills(Protocol):
    """The skills that the model may use. Texts are redacted already."""

    def load(self, name: str, arguments: str | None = None) -> SkillText:
        """Return a skill with the arguments in place of its placeholders. Raises ToolError for an unknown name."""
        ...

    def search(self, query: str, limit: int) -> Sequence[tuple[str, str]]:
        """Return names and descriptions of the skills that fit best, best first."""
        ...


class Scheduler(Protocol):
    """The scheduled prompts of one session. Its methods raise ToolError, and StoreUnavailable."""

    def begin(self) -> None:
        """Carry out prompts from now on."""
        ...

    def stop(self) -> None:
        """Carry out no more prompts. A turn that runs goes on."""
        ...

    async def preview(self, when: str, prompt: str) -> str:
        """Return what would be added, for the user who is asked. Nothing changes."""
        ...

    async def add(self, when: str, prompt: str, *, by_model: bool = False) -> str:
        """Add a prompt. Return a line about it and its next time."""
        ...

    async def listed(self) -> str:
        """Return a line for each prompt, with its next time."""
        ...

    async def cancel(self, which: str) -> str:
        """Remove the prompt with this number, or all (`all`). Return what was removed."""
        ...

    async def command(self, text: str) -> str:
        """Carry out `/schedule`. Return the message for the user."""
        ...

    async def now(self, number: str) -> str:
        """Claim a prompt for the turn that runs. Return its words for the model."""
        ...
