"""End a command for good: its shell, all processes that it started, and those that tried to escape.

A daemon leaves its process group, its session and its parent. On Linux it cannot leave us: as a subreaper we become the
parent of every orphan among our descendants. So all processes that a command left behind are below us. They are known
by the mark in their environment, their session, their output pipe or their tag (`core.process_limits`). A process
without all four is ended at shutdown, when everything below us ends. macOS has neither subreapers nor tags: a daemon
with an empty environment and a session of its own escapes there.

Commands also end when the agent dies suddenly (SIGKILL, out of memory): one shell, the watchdog, waits for that. It
reads from a pipe whose other end only the agent holds. Each line lists all running commands. The end of the pipe means
that the agent is dead. The shell then kills the commands of the last line, and ends. After an orderly end that line is
empty.

The watchdog knows a command by its process group and by its mark (`table.MARK`). The group works on every POSIX system.
Where there is /proc, the mark finds processes that have left the group (setsid, double fork). The shell is told the
mark before the command starts, and a newly forked child holds the pipe open until it has its own environment, so none
is missed. On Linux, the command's tag finds processes that left the group and cleared their environment. Only a sandbox
can stop a process that gets rid of the tag as well.

No process is mistaken for another one: the system reuses the number of a group only after its leader was reaped, and
the group is dismissed before that (without pidfds: right after that). A mark is random.
"""

import asyncio
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from acp_agent.core.process_limits import tag_of
from acp_agent.workspace.processes.table import (
    MARK,
    CommandLimits,
    NewProcesses,
    ProcessTable,
    Status,
    descendants,
    system_table,
)

_POLL = 0.005


@cache
def pidfd_works() -> bool:
    """Return whether this kernel has file descriptors for processes (Linux 5.3)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def signal_and_wait(pids: Iterable[int], number: int, patience: float, table: ProcessTable, *, pidfds: bool) -> None:
    """Send signal `number` (0 for none) to all of them, then wait until they have ended, at most `patience` seconds.

    Processes that are gone or belong to others are skipped. The parents still have to reap those that ended.
    """
    deadline = time.monotonic() + patience
    if pidfds:
        _by_pidfd(pids, number, deadline)
    else:
        _by_pid(pids, number, deadline, table)


def _by_pidfd(pids: Iterable[int], number: int, deadline: float) -> None:
    with contextlib.ExitStack() as closing:
        poll = select.poll()
        waiting = 0
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError:  # too many files are open: it gets the signal, but its end is not awaited
                _send(pid, number)
                continue
            closing.callback(os.close, fd)
            with contextlib.suppress(OSError):
                if number:
                    signal.pidfd_send_signal(fd, number)
            poll.register(fd, select.POLLIN)
            waiting += 1
        while waiting and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1000):
                poll.unregister(fd)
                waiting -= 1


def _by_pid(pids: Iterable[int], number: int, deadline: float, table: ProcessTable) -> None:
    """Poll the processes: without pidfds there is no event for the end of a process that is not our child."""
    waiting = {pid for pid in pids if _send(pid, number)}
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL)
        statuses = [table.status(pid) for pid in waiting]
        waiting = {status.pid for status in statuses if status is not None and not status.zombie}


def _send(pid: int, number: int) -> bool:
    """Send a signal if that is permitted. Return whether the process exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def reap(pid: int) -> None:
    """Reap a process if it is a dead child of ours."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_TERM_GRACE = 0.25
_KILL_PATIENCE = 0.1
_LOOKS = 20  # each looks for children of processes that ended during the last one
_KILL_ROUNDS = 20  # each round finds processes that were forked during the last one
_leaders: set[int] = set()  # children that only the code which started them may reap: shells of commands, watchdogs
_UNCLAIMED = 5.0  # seconds after which a dead child is reaped here


def harden_process() -> None:
    """Become the parent of orphans, and keep other processes out of our memory. Call it once before the first command.

    It does nothing on systems other than Linux.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_DUMPABLE, 0)
        is_subreaper.cache_clear()


@cache
def is_subreaper() -> bool:
    """Return whether orphans among our descendants become our children."""
    if sys.platform != "linux":
        return False
    answer = ctypes.c_int(0)
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer))
    return answer.value == 1


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None).prctl(ctypes.c_int(option), *map(ctypes.c_ulong, (argument, 0, 0, 0)))


def kill_everything(within: float = 1.0, *, spared: int | None = None) -> bool:
    """End every process below this one in at most `within` seconds, first by SIGTERM. Return whether all have ended.

    It is for the shutdown only.

    It needs no event loop, and reaps children that other code has started. `spared` is the watchdog, a child that ends
    after us, and finishes the work if we are killed meanwhile.
    """
    table, own = system_table(), os.getpid()

    def living() -> list[int]:
        children = [pid for pid in table.children(own) if pid != spared]
        below = descendants(table, [*children, *_marked_orphans(table)])
        statuses = [status for status in map(table.status, below) if status is not None]
        for status in statuses:
            if status.zombie and status.parent == own:
                reap(status.pid)
        return [status.pid for status in statuses if not status.zombie]

    _end(living, time.monotonic() + within, _TERM_GRACE, table, set(), pidfds=pidfd_works())
    return not living()


def _marked_orphans(table: ProcessTable) -> list[int]:
    """Return the processes of our commands that are no longer below us. None on systems with subreapers."""
    if is_subreaper():
        return []
    prefix = f"{os.getpid()}."
    return [pid for pid in table.pids() if (table.mark(pid) or "").startswith(prefix)]


def _end(
    find: Callable[[], list[int]],
    deadline: float,
    grace: float,
    table: ProcessTable,
    ended: set[int],
    *,
    pidfds: bool,
) -> None:
    """Send SIGTERM, wait `grace` seconds, then send SIGKILL until `find` finds nothing more. Add all to `ended`.

    Parents come before their children: a shell whose child dies first would go on with its next line.
    """
    number, patience = signal.SIGTERM, grace
    for _ in range(_KILL_ROUNDS):
        found = find()
        left = deadline - time.monotonic()
        if not found or left <= 0:
            break
        ended.update(found)
        signal_and_wait(found, number, min(patience, left), table, pidfds=pidfds)
        number, patience = signal.SIGKILL, _KILL_PATIENCE


def claim(pid: int) -> None:
    """Note a child that belongs to no command. The code that started it reaps it."""
    _leaders.add(pid)


def release(pid: int) -> None:
    """Note that a child was reaped. Its number may mean another process now."""
    _leaders.discard(pid)


def dead_children(table: ProcessTable) -> list[int]:
    """Return our children that have ended and were not reaped, without those that other code will reap."""
    found = list[int]()
    for pid in table.children(os.getpid()):
        status = None if pid in _leaders else table.status(pid)
        if status is not None and status.zombie:
            found.append(pid)
    return found


class OrphanReaper:
    """A reaper of dead children that no other code has claimed for some seconds, in one event loop.

    It looks for them only after a child has ended. `patience` is in seconds.
    """

    def __init__(self, patience: float = _UNCLAIMED, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._since: dict[int, float] = {}

    def begin(self) -> None:
        """Start to listen for the end of children. Call it in the main thread."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._child_ended)

    def note(self, zombies: Iterable[int]) -> bool:
        """Note all dead children there are now, and reap those noted long ago. Return whether any are left."""
        now = self._clock()
        since = {pid: self._since.get(pid, now) for pid in zombies}
        self._since = {pid: noted for pid, noted in since.items() if now - noted <= self._patience}
        for pid in since.keys() - self._since.keys():
            reap(pid)
        return bool(self._since)

    def _child_ended(self) -> None:
        if not self._since:
            self._look()

    def _look(self) -> None:
        dead = dead_children(system_table())
        if (dead or self._since) and self.note(dead):
            asyncio.get_running_loop().call_later(self._patience * 1.2, self._look)


class ProcessTree:
    """The processes of one command. It is made before the command, and told the shell's pid by `started`.

    The shell is our child and leads its own session and group. It must be started with `mark` in the variable MARK and
    with the tag `tag`.

    grace       seconds that processes get to end by themselves, in `wait`, and in `end` after SIGTERM
    elsewhere   whether another program starts the shell, such as an editor in its terminal. Then only mark and tag tell
                what belongs to the command; where this machine does not run it, nothing is found
    long        whether it will surely run long. Then all other processes are listed before it starts
    limits      what it may take if it is contained
    new         the processes that began since, if any of them may be the command's; None where orphans become ours
    """

    def __init__(
        self,
        *,
        grace: float = _TERM_GRACE,
        table: ProcessTable | None = None,
        elsewhere: bool = False,
        long: bool = False,
        limits: CommandLimits | None = None,
    ) -> None:
        self._grace = grace
        self._limits = limits or CommandLimits()
        self._elsewhere = elsewhere
        self.mark = f"{os.getpid()}.{os.urandom(8).hex()}"
        self.tag = tag_of(self.mark)
        self._table = table or system_table()
        self._subreaper = is_subreaper() and not elsewhere
        self.new = None if self._subreaper else NewProcesses(self._table, known=elsewhere and not long)
        self._pidfds = pidfd_works()
        self._own_session = os.getsid(0)
        self._signalled: set[int] = set()
        self._sessions: set[int] = set()
        self._leader = 0
        self._keepers = self._outer = 0
        self._first = 0
        self._pipes = frozenset[int]()

    def started(self, leader: int, pipes: frozenset[int], keepers: int = 0) -> None:
        """Note that the shell runs as process `leader` and writes to pipes with these inodes.

        keepers   how many processes of a sandbox itself run as long as anything runs in it; `end` does not count them
        """
        self._keepers = keepers
        self._leader = leader
        claim(leader)
        self._sessions.add(leader)
        self._pipes = pipes

    def surely_ended(self, *, nested: bool = False) -> bool:
        """Return whether every living process of this machine was there before the command, so nothing of it can live.

        This is faster than `living`. It is False if any other process began meanwhile, and where orphans become our
        children.

        nested   whether all processes of the command are in a namespace of their own. Then other processes may begin
        """
        return self.new is not None and self.new.all_ended(nested=nested)

    def living(self) -> list[int]:
        """Return the processes that have not ended, parents first. It is fast if there are none.

        Ended processes that became our children are reaped. If a process ends during a look, its own child may have
        become ours only then (a daemon that forks twice). So we look again.
        """
        gone = set[int]()
        for _ in range(_LOOKS):
            known = len(gone)
            members = self._look(gone)
            if members or len(gone) == known:
                return members
        return []

    def left_behind(self) -> bool:
        """Return whether a contained command has ended elsewhere, while processes in its namespace live.

        Then the parent of the namespace's first process is older than the command. It is False in doubt.
        """
        outer = self._table.status(self._outer)
        if outer is not None and not outer.zombie:
            return False
        found = {pid: self._table.status(pid) for pid in self.living()}
        tops = [status for status in found.values() if status is not None and status.parent not in found]
        self._outer = next((top.pid for top in tops if not self._table.leads_sandbox(top.pid)), 0)
        new = set[int]() if self.new is None else self.new.pids()
        parents = {top.parent for top in tops}
        older = bool(new and parents) and parents.isdisjoint({0, *new})
        return older and not self._outer and all(self._table.mark(pid) != self.mark for pid in parents)

    def _look(self, gone: set[int]) -> list[int]:
        """Return the living processes that one look finds. Add those that have ended by now to `gone`."""
        candidates = self._table.children(os.getpid()) if self.new is None else self.new.pids()
        ours, dead = dict[int, Status](), list[Status]()
        for pid in candidates:
            if pid in _leaders and pid != self._leader:  # another command, a watchdog, or a network namespace's process
                continue
            status = self._table.status(pid)
            if status is None or status.zombie:
                gone.add(pid)
            if status is not None and status.zombie:
                dead.append(status)
            elif status is not None and self._belongs(status):
                ours[pid] = status
        members = self._below(ours) if ours else []
        if not members:  # they have ended since
            gone.update(ours)
        for status in dead:
            if status.parent != os.getpid() or status.pid == self._leader:
                continue
            known = status.session in self._sessions or status.pid in self._signalled
            if known or self._table.tag(status.pid) == self.tag:
                reap(status.pid)
        return members

    def _below(self, ours: dict[int, Status]) -> list[int]:
        """Return the living ones of these processes and of everything below them, and note their sessions."""
        tops, members = [pid for pid, status in ours.items() if status.parent not in ours], list[int]()
        for pid in descendants(self._table, tops):
            status = self._table.status(pid)
            if status is not None and not status.zombie:
                self._sessions.add(status.session)
                members.append(pid)
        self._sessions -= {0, self._own_session}
        return members

    @property
    def contained(self) -> bool:
        """Whether it runs in a namespace of its own. All of that ends with its first process."""
        return self._keepers > 0

    def limit_reached(self) -> str:
        """Return which limit a contained command has reached, in words, or "". If it has, all of it gets SIGKILL."""
        self._first = self._first or self._find_first()
        reached = self._limits.reached(self._first) if self._first else ""
        return reached if reached and self._kill_namespace() else ""

    def _find_first(self) -> int:
        """Return the pid of the namespace's first process, or 0. It becomes our child when bubblewrap has ended."""
        own = (pid for pid in self._table.children(os.getpid()) if pid != self._leader)
        orphans = (pid for pid in own if self._table.tag(pid) == self.tag)
        return next(iter(self._table.children(self._leader)), 0) or next(orphans, 0)

    def _kill_namespace(self) -> bool:
        """End the namespace with one signal, which a fork bomb cannot outrun. Return False if it had already ended."""
        try:
            fd = os.pidfd_open(self._first)
        except OSError:  # it has ended
            return False
        try:
            ours = self._table.tag(self._first) == self.tag  # another process may have got its number
            if ours:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return ours

    def reaped(self) -> None:
        """Note that the shell was reaped. Its number may mean another process now."""
        release(self._leader)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the grace period or so many seconds, in which living processes can end by themselves. It blocks."""
        patience = self._grace if seconds is None else seconds
        signal_and_wait(self.living(), 0, patience, self._table, pidfds=self._pidfds)

    def finish(self) -> int:
        """Give processes that outlive the shell a moment to end, then end them. Return their number. It blocks."""
        self.wait()
        return self.end()

    def end(self, grace: float | None = None) -> int:
        """End every process: SIGTERM, the grace period, SIGKILL. Return their number. It blocks.

        The caller still has to reap the leader.
        """
        grace = self._grace if grace is None else grace
        deadline = time.monotonic() + grace + _KILL_ROUNDS * _KILL_PATIENCE
        _end(self.living, deadline, grace, self._table, self._signalled, pidfds=self._pidfds)
        for pid in self._signalled - {self._leader}:
            reap(pid)
        return max(0, len(self._signalled) - self._keepers)

    def _belongs(self, status: Status) -> bool:
        """Return whether a process belongs to this command, or to a command that has ended."""
        if status.session == self._leader and not self._elsewhere:
            return True
        mark, tag = self._table.mark(status.pid), self._table.tag(status.pid)
        if mark == self.mark or tag == self.tag:
            return True
        if self._elsewhere:
            return False
        if self._pipes & self._table.pipes(status.pid):
            return True
        another_command = tag is not None or (mark is not None and mark.startswith(f"{os.getpid()}."))
        if another_command or not self._subreaper or status.session in (0, status.pid, self._own_session):
            return False
        return self._table.status(status.session) is None  # the leader of its session is gone


# The later rounds find processes that were forked or in the middle of exec during the first one. After three rounds
# that found nothing, nothing is left. Each round reads two files of every process of the machine, which takes long
# beside a fork bomb. An empty pattern would match every process of the user, hence `$#`. The second way to find marks
# is for systems without grep, or with that of busybox, which ends a line at a NUL. It is not the first, because reading
# is slow in some shells.
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
        # A read that fails because the process has just ended leaves the variable as it was.
        while line=; read -r line || [ -n "$line" ]; do
            for mark; do case $line in *"$mark"*) echo "$file" ;; esac; done
        done <"$file"
    done
}}
empty=0
for round in 1 2 3 4 5 6 7 8; do
    [ $empty -lt 3 ] || exit 0
    empty=$((empty + 1))
    for file in $(marked "$@"); do
        empty=0
        file=${{file#/proc/}}
        kill -s KILL "${{file%/*}}"
    done
done
"""
_PATIENCE: Final = 0.5


class CommandWatchdog:
    """A watchdog for all commands of this process. Its shell starts with the first command, and again if it is lost.

    Commands run even if the shell cannot be started. When this object is deleted, the shell kills every watched command
    and ends.
    """

    def __init__(self) -> None:
        self._groups: dict[str, int | None] = {}
        self._shell: subprocess.Popen[bytes] | None = None
        self._let_go: weakref.finalize[[subprocess.Popen[bytes]], CommandWatchdog] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the shell, or None if there is none."""
        return None if self._shell is None else self._shell.pid

    def watch(self, mark: str, group: int | None = None) -> None:
        self._groups[mark] = group
        self._tell()

    def dismiss(self, mark: str) -> None:
        """Stop watching a command after all its processes have ended. Call it before its shell is reaped."""
        if mark in self._groups:
            del self._groups[mark]
            self._tell()

    def close(self) -> None:
        """Dismiss all commands and end the shell."""
        self._groups.clear()
        self._end()

    def _tell(self) -> None:
        words = list[str]()
        for mark, group in self._groups.items():
            words += (mark, f"+{tag_of(mark)}", *((str(group),) if group else ()))
        line = " ".join(words).encode() + b"\n"
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
            claim(self._shell.pid)
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
    release(shell.pid)
