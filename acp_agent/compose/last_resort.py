"""The end of a process that was told to end and does not: first by a thread, then by the system."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from acp_agent.core.process_limits import DescriptorReserve

_BY_THREAD = 1.5
"""Seconds after which a thread ends the process, whatever holds up the event loop."""
_BY_SYSTEM = 4
"""Seconds after which the system does, where no thread gets a turn any more."""
_RESERVE = 8


class LastResort:
    """Ends the process some time after `arm`.

    kill        ends all processes below this one, in at most so many seconds
    exit_code   asked when the thread ends the process

    It holds back a few file descriptors until then: the end needs some to find children and to close what is open.
    """

    def __init__(self, kill: Callable[[float], None], exit_code: Callable[[], int]) -> None:
        self._kill = kill
        self._exit_code = exit_code
        self._armed = False
        self._reserve = DescriptorReserve(_RESERVE)

    def arm(self) -> None:
        """Start to wait. Nothing happens when it is called again. For the main thread."""
        if self._armed:
            return
        self._armed = True
        self._reserve.release()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_BY_SYSTEM)
        timer = threading.Timer(_BY_THREAD, self._end)
        timer.daemon = True
        with suppress(RuntimeError):  # no more threads can be started; the alarm is left
            timer.start()

    def _end(self) -> None:
        try:
            self._kill(0.4)
        finally:
            os._exit(self._exit_code())
