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
