"""An agent with a bug: `session/set_mode` meets the fault that the variable FAULT names (`python -m ...`)."""

import os
import sys
import time
from functools import partial

import anyio

from acp_agent import __main__, app
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.session_methods import SessionMethods


async def _raise(error: BaseException) -> None:
    raise error


async def _hang() -> None:
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()


async def _block() -> None:
    await anyio.lowlevel.checkpoint()
    time.sleep(60)  # noqa: ASYNC251 - that is the fault


class Fault:
    """What goes wrong, by name. Each is a method with the session's starter of background tasks."""

    @staticmethod
    def task(start) -> None:
        """A task of the process raises."""
        start(partial(_raise, RuntimeError("the bug")))

    @staticmethod
    def exit(start) -> None:
        """Something asks Python to leave, and says that all is well."""
        start(partial(_raise, SystemExit(0)))

    @staticmethod
    def stubborn(start) -> None:
        """A task raises while another one cannot be cancelled."""
        start(_hang)
        start(partial(_raise, RuntimeError("the bug")))

    @staticmethod
    def blocked(start) -> None:
        """A task raises, and then nothing gets a turn any more."""
        start(partial(_raise, RuntimeError("the bug")))
        start(_block)

    @staticmethod
    def unreported(start) -> None:
        """A task raises, and so does what reports it."""

        def report(error: BaseException) -> None:
            raise MemoryError from error

        app._report_crash = report  # pyright: ignore[reportPrivateUsage]
        start(partial(_raise, RuntimeError("the bug")))

    @staticmethod
    def request(start) -> None:
        """A request raises what is no Exception."""
        del start
        raise BaseExceptionGroup("the bug", [KeyboardInterrupt()])

    @staticmethod
    def reader(start) -> None:
        """The reader of the stream raises at the next line."""
        del start

        def receive(*_: object) -> None:
            raise RuntimeError("the bug")

        Peer._receive = receive  # pyright: ignore[reportPrivateUsage]


async def _faulty(self, params, incoming):
    del incoming
    session = self._sessions.get(params["sessionId"])
    getattr(Fault, os.environ["FAULT"])(session._dependencies.background)
    return {}


def prepare() -> None:
    """Give this process the fault."""
    assert app._BY_THREAD > 0.3  # pyright: ignore[reportPrivateUsage]
    app._BY_THREAD = 0.3  # pyright: ignore[reportPrivateUsage] - seconds until a process that is stuck is ended
    SessionMethods._set_mode = _faulty  # pyright: ignore[reportPrivateUsage]


if __name__ == "__main__":
    prepare()
    sys.exit(__main__.main([]))
