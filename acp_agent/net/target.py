"""What a web address comes to: a host that may be asked, or the reason why not."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from acp_agent.core.errors import Refused
from acp_agent.core.web import BlockReason

MAX_URL: Final = 8192
"""Characters a URL may have; what common servers take."""

_USERINFO: Final = re.compile(r"^((?:(?:[^/\\?#@]*:)?[/\\]+)?)[^/\\?#]*@")


class Blocked(Refused):
    """A request that must not be made. `host` is empty when the URL names none that can be understood."""

    def __init__(self, block: BlockReason, reason: str, *, host: str = "", suggestion: str = "") -> None:
        super().__init__(reason, suggestion)
        self.block = block
        self.host = host


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that passed every rule that needs no look-up.

    url       normalised, without fragment; it never has userinfo
    host      lower-case ASCII name without a trailing dot, or a canonical IP address without brackets
    resource  path and query as they are sent
    """

    url: str
    host: str
    port: int
    resource: bytes

    @property
    def authority(self) -> str:
        """The host as the Host header names it."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == 443 else f"{name}:{self.port}"


class Judged(NamedTuple):
    """A URL that may be asked for, and the only addresses a connection may go to, in the order to try them."""

    target: Target
    addresses: tuple[str, ...]


def recordable(url: str) -> str:
    """A URL as the egress record names it: no userinfo, no fragment, bounded. Also for what no parser takes.

    The query stays: it is what left this machine, and the audit redacts what it writes.
    """
    return _USERINFO.sub(r"\1", url[:MAX_URL].partition("#")[0])
