"""One look-up a hop, and every answer must be public (T5.3, T5.4)."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import anyio

from acp_agent.core.web import BlockReason
from acp_agent.net.addresses import Address, first_forbidden, read_address
from acp_agent.net.target import Blocked, Target

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to IP addresses, best first. Raises OSError when there are none."""

LOOKUP_TIMEOUT: Final = 5.0
MAX_ANSWERS: Final = 16


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """What this machine's resolver says. Raises OSError."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]) for *_, address in answers]


async def addresses_of(target: Target, resolve: Resolve) -> tuple[str, ...]:
    """The addresses a connection for the target may go to, in the resolver's order; an IP address needs no look-up.

    Raises Blocked when the host has no address, too many, or one that is not public: a name that answers with both
    kinds is an attack or a mistake, and either way nobody's web page.
    """
    addresses = _literal(target.host) or await _looked_up(target, resolve)
    _refuse_forbidden(target, addresses)
    return tuple(map(str, addresses))


def refuse_literal(target: Target) -> None:
    """Raise Blocked when the host is itself an address that is not public."""
    _refuse_forbidden(target, _literal(target.host))


def _refuse_forbidden(target: Target, addresses: tuple[Address, ...]) -> None:
    if (found := first_forbidden(addresses)) is not None:
        address, why = found
        means = "is" if str(address) == target.host else f"is at {address}, which is"
        raise Blocked(BlockReason.SSRF, f"{target.host} {means} no public address ({why})", host=target.host)


def _literal(host: str) -> tuple[Address, ...]:
    try:
        return (read_address(host),)
    except ValueError:
        return ()


async def _looked_up(target: Target, resolve: Resolve) -> tuple[Address, ...]:
    answers: Sequence[str] = ()
    with anyio.move_on_after(LOOKUP_TIMEOUT):
        # The reasons for a failure differ from system to system, and are often wrong: one sentence says them all.
        with suppress(OSError, UnicodeError):
            answers = await resolve(target.host, target.port)
    if not answers:
        raise _unusable(target.host, "cannot be resolved", "Check the spelling of the host name.")
    try:
        addresses = tuple(dict.fromkeys(map(read_address, answers)))
    except ValueError:
        raise _unusable(target.host, "resolves to something that is no public address") from None
    if len(addresses) > MAX_ANSWERS:
        raise _unusable(target.host, f"has {len(addresses)} addresses, and {MAX_ANSWERS} is the most")
    return addresses


def _unusable(host: str, what: str, suggestion: str = "") -> Blocked:
    return Blocked(BlockReason.SSRF, f"{host} {what}", host=host, suggestion=suggestion)
