"""LocalTerminal: commands on this machine (T2.1-T2.14)."""

import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial

from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.execution.capture import Transcript
from acp_agent.execution.child_environment import child_environment
from acp_agent.execution.command_watchdog import CommandWatchdog
from acp_agent.execution.local_command import LocalCommand
from acp_agent.execution.process_signals import pidfd_works
from acp_agent.execution.process_table import MARK
from acp_agent.execution.process_tree import ProcessTree, Unclaimed
from acp_agent.execution.shell import check, spawn


class LocalTerminal:
    """The Terminal on this machine: one new shell a command, in its own session, without input.

    default_timeout   seconds a command may take when its request names none; 0 = no limit
    env_allow         names of variables that commands may see beside the usual ones (`child_environment`);
                      ConfigError for one that may not be passed on
    pidfds            for tests: whether to wait for ends by pidfd
    watchdog          ends the commands should this process be killed; None = one of its own
    """

    def __init__(
        self,
        env_allow: Iterable[str] = (),
        *,
        default_timeout: float = 30.0,
        pidfds: bool | None = None,
        watchdog: CommandWatchdog | None = None,
    ) -> None:
        self._environment = child_environment(os.environ, env_allow)
        self._default_timeout = default_timeout
        self._pidfds = pidfd_works() if pidfds is None else pidfds
        self._shell = shutil.which("bash") or shutil.which("sh")
        self._unclaimed = Unclaimed()
        self._watchdog = watchdog or CommandWatchdog()

    async def start(self, request: CommandRequest) -> LocalCommand:
        if self._shell is None:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, "neither bash nor sh is on PATH")
        check(request)
        tree = ProcessTree(self._unclaimed)
        over = partial(self._watchdog.dismiss, tree.mark)
        with ExitStack() as on_failure:
            on_failure.callback(over)
            self._watchdog.watch(tree.mark)
            # Not in a thread: it takes well under a millisecond, and a cancellation could lose the process.
            process, pipes = spawn(self._shell, request, {**self._environment, MARK: tree.mark}, tree.tag)
            on_failure.pop_all()
        self._watchdog.watch(tree.mark, process.pid)
        tree.started(process.pid, frozenset(os.fstat(fd).st_ino for fd in pipes.values()))
        # The user's limit, which the model may shorten and not stretch; for both, 0 is none.
        timeout = (self._default_timeout if request.timeout is None else request.timeout) or None
        pidfd = _pidfd(process.pid) if self._pidfds else None
        return LocalCommand(process, pipes, tree, Transcript(request.output_limit), timeout, pidfd, over)


def _pidfd(pid: int) -> int | None:
    """A file descriptor of the process, or None when there are too many open; a thread can wait as well."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
