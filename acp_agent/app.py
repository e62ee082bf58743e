"""The server process: its stream, its signals, its end. Light; `compose` builds what turns need.

Whatever ends it - the editor closing the stream, SIGTERM, SIGINT, SIGHUP - turns are cancelled, commands
killed, terminals given back if the pipe still works, and the process is gone within two seconds (A1.11).
"""

import importlib
import os
import signal
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import anyio
import anyio.to_thread

from acp_agent.config.conduct import conduct_at_start
from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.events import Notice, Severity
from acp_agent.protocol.client import Client
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.server import Server
from acp_agent.protocol.session import Engine, Place, Session
from acp_agent.protocol.stdio import LineReader, MessageWriter

if TYPE_CHECKING:
    from acp_agent.boot import Handover
    from acp_agent.compose.workshop import Workshop

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LAST_RESORT = 1.0
"""Seconds after which a process that was told to end ends, whatever still holds it."""


def main(handover: "Handover", argv: Sequence[str] = ()) -> NoReturn:
    """Serve until the end, then leave: 0, or 128 + n after signal n."""
    app = App(handover, Flags.from_argv(argv))
    code = anyio.run(app.run)
    app.close()
    os._exit(code)  # an import that a head start abandoned would hold up an orderly exit for a second


class App:
    """One process, one editor, many sessions."""

    def __init__(self, handover: "Handover", flags: Flags) -> None:
        self._handover = handover
        self._flags = flags
        self._exit_code = 0
        self._workshop: Workshop | None = None

    async def run(self) -> int:
        """Serve the editor and heed signals."""
        reader = LineReader(self._handover.input_fd, self._handover.unread)
        self._peer = Peer(reader, MessageWriter(self._handover.output_fd))
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._heed_signals)
            server = Server(self._peer, self._open_session, self._warm_up, self._handover.initialized)
            await server.serve(self._ending)
            if self._workshop is not None:
                await self._workshop.aclose()
            self._tasks.cancel_scope.cancel()
        return self._exit_code

    def close(self) -> None:
        """Leave nothing behind. Cancelled turns have ended their commands; this is for what they missed."""
        if self._workshop is not None:
            self._workshop.kill_everything()

    async def _heed_signals(self) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            async for number in signals:
                self._exit_code = 128 + number
                self._peer.end()

    def _ending(self) -> None:
        timer = threading.Timer(_LAST_RESORT, self._end_hard)
        timer.daemon = True
        timer.start()

    def _end_hard(self) -> None:
        if self._workshop is not None:
            self._workshop.kill_everything(within=0.4)
        os._exit(self._exit_code)

    # -------------------------------------------------------------------------------------- sessions

    def _open_session(self, place: Place, client: Client) -> Session:
        reload = partial(load, self._flags, os.environ, place.cwd)
        loaded = reload()

        async def make_engine(session: Session) -> Engine:
            return (await self._load_workshop(loaded)).engine(self._peer, session, loaded, reload)

        return Session(
            peer=self._peer,
            client=client,
            place=place,
            conduct=conduct_at_start(loaded),
            make_engine=make_engine,
            notices=[Notice(Severity.WARNING, f"configuration: {problem}") for problem in loaded.problems],
        )

    def _warm_up(self, session: Session) -> None:
        """The session is known: load what the first prompt needs while the user types it."""
        self._tasks.start_soon(session.announce)

    async def _load_workshop(self, loaded: Loaded) -> "Workshop":
        if self._workshop is not None:
            return self._workshop
        # In a thread, so that the editor is served meanwhile; abandoned by a cancel, which must not wait.
        module = await anyio.to_thread.run_sync(
            importlib.import_module, "acp_agent.compose.workshop", abandon_on_cancel=True
        )
        workshop = self._workshop
        if workshop is None:  # nobody else has made one meanwhile
            workshop = self._workshop = module.Workshop(loaded, self._tasks.start_soon)
            self._tasks.start_soon(workshop.tidy_up, loaded)
        return workshop
