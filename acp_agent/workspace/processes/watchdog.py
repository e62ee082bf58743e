"""End commands when the agent dies suddenly (SIGKILL, out of memory): one shell waits for that.

The shell reads from a pipe whose other end only the agent holds. Each line lists all running commands. The end of the
pipe means that the agent is dead. The shell then kills the commands of the last line, and ends. After an orderly end
that line is empty.

A command is known by its process group and by its mark (`table.MARK`). The group works on every POSIX system. Where
there is /proc, the mark finds processes that have left the group (setsid, double fork). The shell is told the mark
before the command starts, and a newly forked child holds the pipe open until it has its own environment, so none is
missed. On Linux, the command's tag finds processes that left the group and cleared their environment. Only a sandbox
can stop a process that gets rid of the tag as well.

No process is mistaken for another one: the system reuses the number of a group only after its leader was reaped, and
the group is dismissed before that (without pidfds: right after that). A mark is random.
"""

import contextlib
import os
import subprocess
import weakref
from typing import Final

from acp_agent.core.process_limits import tag_of
from acp_agent.workspace.processes.table import MARK

# The later rounds find processes that were forked or in the middle of exec during the first one. An empty pattern would
# match every process of the user, hence `$#`. The second way to find marks is for systems without grep, or with that of
# busybox, which ends a line at a NUL. It is not the first, because reading is slow in some shells.
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
    """Watches all commands of this process. Its shell starts with the first command, and again if it is lost.

    Commands run even if the shell cannot be started. When this object is deleted, the shell kills every watched command
    and ends.
    """

    def __init__(self) -> None:
        self._groups: dict[str, int | None] = {}
        self._shell: subprocess.Popen[bytes] | None = None
        self._let_go: weakref.finalize[[subprocess.Popen[bytes]], CommandWatchdog] | None = None

    @property
    def pid(self) -> int | None:
        """The shell's process, or None if there is none."""
        return None if self._shell is None else self._shell.pid

    def watch(self, mark: str, group: int | None = None) -> None:
        """Watch a command that is about to start with this mark, or that runs and leads the process group `group`."""
        self._groups[mark] = group
        self._tell()

    def dismiss(self, mark: str) -> None:
        """Stop watching a command of which nothing is left. Call it before its shell is reaped."""
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
        """Write a line to the shell. Return False if it was killed, or was stopped long ago."""
        if self._shell is None or self._shell.stdin is None:
            return False
        try:
            return os.write(self._shell.stdin.fileno(), line) == len(line)
        except OSError:
            return False

    def _start(self) -> None:
        with contextlib.suppress(OSError):  # the command is more important than its watchdog
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,  # Ctrl-C at the agent's terminal must not end it
            )
            assert self._shell.stdin is not None
            os.set_blocking(self._shell.stdin.fileno(), False)
            self._let_go = weakref.finalize(self, _let_go, self._shell)

    def _end(self) -> None:
        if self._shell is not None and self._let_go is not None:
            self._shell.kill()  # otherwise it would take the end of the pipe for the agent's death
            self._let_go()
        self._shell = None


def _let_go(shell: "subprocess.Popen[bytes]") -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        shell.wait(_PATIENCE)
