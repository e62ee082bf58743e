"""The port web tools reach the network through. Nothing else a model asks for may open a connection (T5)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


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
    block_reason    why it was refused before a connection; None when it was not
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
    """A text from the web. `url` is where it came from in the end, `content_type` its MIME type in lower case."""

    url: str
    content_type: str
    text: str


class Web(Protocol):
    """Reads pages of public hosts over https."""

    async def get(self, url: str, caller: WebCaller, *, redirects: int = 3, leave_site: bool = False) -> WebPage:
        """The page, after at most so many redirects.

        A redirect to another site (`www.` aside) is followed with `leave_site` only: whoever allowed one host has
        not allowed what its redirects may carry elsewhere.

        Raises Refused for what must not be reached: another scheme, a forbidden host, port or address, at any hop.
        Raises ToolError for everything else: the status by T5.12, no connection, no answer in time, a body that is
        too large or no text.
        """
        ...
