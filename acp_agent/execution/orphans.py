"""Children that nobody waits for: what a command or a server leaves behind falls to us, and is reaped when it ends."""

import asyncio
import signal

from acp_agent.execution.process_tree import Unclaimed, dead_children, system_table


class OrphanReaper:
    """Reaps dead children that nobody has claimed for some seconds. For one event loop.

    It looks for them after a child has ended, and at no other time.
    """

    def __init__(self) -> None:
        self._unclaimed = Unclaimed()
        self._looks = False

    def begin(self) -> None:
        """Start to listen for the end of children. For the main thread."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._child_ended)

    def _child_ended(self) -> None:
        if not self._looks:
            self._look()

    def _look(self) -> None:
        self._unclaimed.note(dead_children(system_table()))
        seconds = self._unclaimed.next_review()
        self._looks = seconds is not None
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._look)
