"""Sessions that rest: their locks are given back, and another process may go on with them meanwhile (A11.5)."""

from collections.abc import MutableMapping
from contextlib import suppress

import anyio

from acp_agent.core.conduct import Conduct
from acp_agent.core.errors import StoreUnavailable
from acp_agent.protocol.client import Client
from acp_agent.protocol.jsonrpc import INTERNAL_ERROR, RpcError, invalid_request, session_not_found
from acp_agent.protocol.place import Place
from acp_agent.protocol.session import Session
from acp_agent.protocol.session_hold import SessionHold, asked, unreadable
from acp_agent.store.sessions import SessionStore

_MOMENT = 0.5
"""Seconds the store may hold up a session that is put to rest: others wait for its room."""


class SessionRest:
    """Puts them to rest, and has them go on. Whoever calls sees to it that nothing else happens to the session.

    known   all sessions there are
    store   where they are kept; None where nothing is
    """

    def __init__(self, known: MutableMapping[str, Session], store: SessionStore | None, hold: SessionHold) -> None:
        self._known = known
        self._store = store
        self._hold = hold

    async def lay_down(self, session: Session) -> None:
        """Put one to rest that is idle. One that is not kept remembers all of it, and stays ours until it is."""
        await session.rest(_MOMENT)
        self.share(session)

    def share(self, session: Session) -> None:
        """Let other processes have one that rests, if it is kept."""
        if self._store is not None and not session.awake and session.story.kept:
            session.trust_store()
            session.story.keep_with(self._store.of(session.id))  # the former holds the conversation in memory
            self._hold.give_back(session.id)

    async def end(self, session: Session) -> None:
        """Have one go on, with what others have chosen for it meanwhile. Raises RpcError."""
        # What is not kept is only here: nobody else can have gone on with it.
        session.woke(await self._reclaimed(session) if session.story.kept else None)

    async def keep_choice(self, session: Session) -> None:
        """Write what the user has chosen for one that rests (A7.5).

        Where another process has it open just now, or nothing can be written, that waits until it wakes.
        """
        if session.chosen_at_rest and session.story.kept and self._hold.is_free(session.id):
            with suppress(RpcError):  # the log has it
                await self.end(session)
                with anyio.CancelScope(shield=True):  # or nobody else could ever have it
                    await self.lay_down(session)

    async def make_way(self, before: Session) -> None:
        """End what was known of a session, all of which is kept. Raises RpcError, and then it is as it was."""
        async with self._hold.taken(before.id):  # one that rests may be open elsewhere
            if before.chosen_at_rest and before.story.kept:
                await self.end(before)
            await before.story.settle()
            must_be_idle(before)
            if not before.story.kept:
                raise RpcError(INTERNAL_ERROR, "what was said last is not kept yet: the database cannot be written now")
            del self._known[before.id]
            await before.close(tell=False)
        self._hold.give_back(before.id)  # for who takes it at once

    async def is_kept(self, session_id: str) -> bool:
        """Return whether the store has the whole of a session; if not, it is in the memory of this process alone.

        Raises RpcError where neither is so, or nobody can tell.
        """
        assert self._store is not None, "without a store nothing is asked"
        before = self._known.get(session_id)
        if before is not None:
            await before.story.settle()
        # At rest and kept it may have gone on in another process: then only the store knows.
        is_ours = before is not None and (before.awake or not before.story.kept)
        try:
            record = await self._store.find(session_id)
        except StoreUnavailable as error:
            if is_ours:
                return False
            raise unreadable(error) from None
        if record is None and not is_ours:
            raise session_not_found(session_id)
        return record is not None and (before is None or before.story.kept)

    async def move(self, session: Session, place: Place, client: Client) -> Session:
        """Put one to rest that is in memory alone, and have it go on in another place."""
        await self.lay_down(session)
        session.client, session.place = client, place
        session.move(place.cwd)
        return session

    async def _reclaimed(self, session: Session) -> Conduct:
        """Hold one that rested, while others could do with it what they liked; what is chosen now. Raises RpcError."""
        assert self._store is not None, "it is kept"
        async with self._hold.taken(session.id):
            conduct = await asked(self._store.of(session.id).conduct())
            if conduct is None:
                del self._known[session.id]
                raise session_not_found(session.id)
            return conduct


def must_be_idle(session: Session | None) -> None:
    """Raises RpcError where a turn runs."""
    if session is not None and session.turns.busy:
        raise invalid_request("the session has a prompt in progress: cancel it first")
