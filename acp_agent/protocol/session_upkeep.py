"""What is done about sessions while nobody asks for anything. For the background."""

import anyio

from acp_agent.core.errors import StoreUnavailable
from acp_agent.log import Log
from acp_agent.protocol.sessions import Sessions

_log = Log(__name__)
_TICK = 60.0
_UNUSED_DAYS = 7
"""Days after which a session that was never prompted is forgotten: editors open many for nothing."""


async def reap(sessions: Sessions) -> None:
    """Put sessions to rest that nobody has used for long (A11.4). Runs for ever; nothing happens at once."""
    while True:
        await anyio.sleep(_TICK)
        sessions.share_rested()
        seconds = sessions.limits().idle_seconds
        if seconds:
            await sessions.rest_idle(seconds)


async def purge_unused(sessions: Sessions) -> None:
    """Remove sessions from the store that nobody has ever prompted, and nobody has open."""
    if sessions.store is None:
        return
    try:
        removed = await sessions.store.purge_unused(_UNUSED_DAYS, sessions.in_use)
    except StoreUnavailable as error:
        _log.warning("unused sessions were not removed", reason=str(error))
    else:
        _log.debug("unused sessions removed", count=removed)
