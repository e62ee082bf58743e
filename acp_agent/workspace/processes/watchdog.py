"""Ends commands when the agent is gone without a word (SIGKILL, out of memory): one shell that waits for it.

It reads from a pipe whose other end only the agent holds; a line says all that runs now. The end of the pipe means
that the agent is no more: what the last line says is killed, and the shell ends; after an orderly end there is nothing.

A command is known by its process group and by its mark (`table.MARK`). The group works on every POSIX system.
The mark finds, where there is /proc, what has left the group (setsid, double fork); it is told before the command
starts, and a child that was just forked holds the pipe open until it has its own environment, so none slips through.
What has left the group and scrubbed its environment is found by the command's tag, on Linux. What gets rid of that,
too, gets away, which only a sandbox can prevent.

No number is mixed up: a group's cannot be given to anybody else before its leader is reaped, and it is dismissed before
that (without pidfds: at once thereafter). A mark is random, and nobody else's.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import weakref
from typing import Final

from acp_agent.core.process_limits import tag_of
from acp_agent.workspace.processes.table import MARK, system_table
from acp_agent.workspace.processes.tree import Unclaimed, dead_children

# The last rounds find what was forked, or in the middle of exec, during the first. An empty pattern would match every
# process of the user: hence `$#`. The other way to find marks is for a grep that is missing, or busybox's, which ends
# a line at a NUL; reading is slow in some shells.
SCRIPT: Final = rf"""
while read -r line; do names=$line; done
for name in $names; do
    case $name in
        +*) set -- "$@" " ${{name#+}} " ;;
        *.*) set -- "$@" "{MARK}=$name" ;;
        *) kill -s KILL -- "-$name" ;;
    esac
done
[ $# -gt 0 ] || exit 0
IFS='
'
marked() {{ grep -lsF "$*" /proc/[0-9]*/environ /proc/[0-9]*/limits; }}
printf 'a\000b' | grep -q b || marked() {{
    for file in /proc/[0-9]*/environ /proc/[0-9]*/limits; do
        while read -r line || [ -n "$line" ]; do
            for mark; do case $line in *"$mark"*) echo "$file" ;; esac; done
        done <"$file"
    done
}}
for round in 1 2 3 4 5 6 7 8; do
    for file in $(marked "$@"); do
        file=${{file#/proc/}}
        kill -s KILL "${{file%/*}}"
    done
done
"""
_PATIENCE: Final = 0.5


class CommandWatchdog:
    """Watches over all commands of this process. Its shell is started at the first of them, and again when it is lost.

    Nothing fails where it cannot be had. When this object goes, so does the shell, with every command still watched.
    """

    def __init__(self) -> None:
        self._groups: dict[str, int | None] = {}
        self._shell: subprocess.Popen[bytes] | None = None
        self._let_go: weakref.finalize[[subprocess.Popen[bytes]], CommandWatchdog] | None = None

    @property
    def pid(self) -> int | None:
        """The shell's process, or None when there is none."""
        return None if self._shell is None else self._shell.pid

    def watch(self, mark: str, group: int | None = None) -> None:
        """A command is about to start with this mark in its environment; or runs, and leads process group `group`."""
        self._groups[mark] = group
        self._tell()

    def dismiss(self, mark: str) -> None:
        """Nothing of the command is left. Say so before its shell is reaped."""
        if mark in self._groups:
            del self._groups[mark]
            self._tell()

    def close(self) -> None:
        """Dismiss all commands and end the shell."""
        self._groups.clear()
        self._end()

    def _tell(self) -> None:
        marks, groups = [*self._groups], [str(group) for group in self._groups.values() if group]
        tags = [f"+{tag_of(mark)}" for mark in marks]
        line = " ".join([*marks, *tags, *groups]).encode() + b"\n"
        if not self._told(line):
            self._end()
            if self._groups:
                self._start()
                self._told(line)

    def _told(self, line: bytes) -> bool:
        """Whether the shell will read it; not when it was killed, or was stopped long ago."""
        if self._shell is None or self._shell.stdin is None:
            return False
        try:
            return os.write(self._shell.stdin.fileno(), line) == len(line)
        except OSError:
            return False

    def _start(self) -> None:
        with contextlib.suppress(OSError):  # no shell, or too much of everything: the command counts for more
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,  # what is typed at the agent's terminal does not end it
            )
            assert self._shell.stdin is not None
            os.set_blocking(self._shell.stdin.fileno(), False)
            self._let_go = weakref.finalize(self, _let_go, self._shell)

    def _end(self) -> None:
        if self._shell is not None and self._let_go is not None:
            self._shell.kill()  # or it would take the end of the pipe for ours
            self._let_go()
        self._shell = None


def _let_go(shell: "subprocess.Popen[bytes]") -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        shell.wait(_PATIENCE)


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
