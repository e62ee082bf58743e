"""The processes of this machine: how one is started that is ours to end, the properties of each, and its descendants.

On Linux /proc is read here: psutil looks at every process of the machine to list the children of one, which takes a
hundred times as long, and it does not report pipes. Only on other systems is psutil loaded and used.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from subprocess import PIPE
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import Process

from acp_agent.core.data import frozen
from acp_agent.core.process_limits import tag_of_process

MARK = "ACP_COMMAND_ID"
"""The environment variable that says which command or MCP server a process belongs to."""

_SOON = 0.25
"""Seconds in which no system starts so many processes that it begins their numbers anew."""
_FEW = 64
"""The most numbers of processes for which a look at each is faster than a list of all processes."""
_PIECE = 1 << 16
"""Bytes of a file of /proc that are read at once."""
_LOOK_AGAIN = 0.001
_MOST_LOOKS = 50


async def open_process(
    command: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str],
    stdin: int,
    stderr: int = PIPE,
    start_new_session: bool = False,
) -> Process:
    """Start a process with a pipe for its stdout, and return it. The caller ends it and closes its pipes.

    A cancellation comes before the start or after it. If asyncio is cancelled during the start, it kills the process,
    but nobody waits for its end or closes its pipes.

    Raises:
        OSError: the process cannot be started.

    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            command, stdin=stdin, stderr=stderr, cwd=cwd, env=env, start_new_session=start_new_session
        )
    assert process is not None
    return process


@frozen
class Status:
    """A process: its parent, its session (0 when unknown), and whether it has ended but not been reaped."""

    pid: int
    parent: int
    session: int
    zombie: bool


class ProcessTable(Protocol):
    """The processes of this machine. A process that is gone has no status, no children and no mark.

    The methods with a body are for systems that do not give the information.
    """

    def status(self, pid: int) -> Status | None:
        """Return the process, or None if there is none."""
        ...

    def children(self, pid: int) -> list[int]:
        """Return its direct children, zombies included."""
        ...

    def mark(self, pid: int) -> str | None:
        """Return the value of MARK that it was started with, or None if there is none or it cannot be read."""
        ...

    def tag(self, pid: int) -> int | None:
        """Return its tag (`core.process_limits`), or None if there is none or it cannot be read."""
        return tag_of_process(pid)

    def pipes(self, pid: int) -> frozenset[int]:
        """Return the inodes of its stdout and stderr if these are pipes."""
        del pid
        return frozenset()

    def pids(self) -> list[int]:
        """Return every process of the machine."""
        ...

    def newest(self) -> int:
        """Return the number that the last process or thread got, or 0 where the system does not tell."""
        return 0

    def is_nested(self, pid: int) -> bool:
        """Return whether a process or thread may be in a namespace of processes below this one."""
        del pid
        return True

    def leads_sandbox(self, pid: int) -> bool:
        """Return whether a process surely is the first one of a namespace that bubblewrap has made."""
        del pid
        return False


def descendants(table: ProcessTable, pids: Iterable[int]) -> list[int]:
    """Return the processes and everything below them, parents before their children."""
    found = dict.fromkeys(pids)
    level = list(found)
    while level:
        level = [child for pid in level for child in table.children(pid) if child not in found]
        found.update(dict.fromkeys(level))
    return list(found)


class LinuxProcessTable(ProcessTable):
    """The table in /proc. Kernels without `children_files` do not list children; then every process is read."""

    def __init__(self, *, children_files: bool | None = None) -> None:
        own = f"/proc/self/task/{os.getpid()}/children"
        self._children_files = os.path.exists(own) if children_files is None else children_files
        self._bare = dict[int, bytes]()  # processes that erased their arguments, and when they were started

    def status(self, pid: int) -> Status | None:
        if not (fields := _fields(pid)):
            return None
        state, parent, _group, session, *_ = fields
        # The state is that of the first thread, which may end before others. See proc(5) for the number of threads.
        return Status(pid, int(parent), int(session), zombie=state in (b"Z", b"X") and fields[17] in (b"0", b"1"))

    def children(self, pid: int) -> list[int]:
        if not self._children_files:
            return [status.pid for status in map(self.status, self.pids()) if status and status.parent == pid]
        threads, found = _names(f"/proc/{pid}/task"), list[int]()
        for tid in dict.fromkeys((str(pid), *threads)) if pid == os.getpid() else threads:
            found += map(int, _read(f"/proc/{pid}/task/{tid}/children").split())
        return found

    def mark(self, pid: int) -> str | None:
        """Return the mark. Read again if the process is just executing another program and has no environment."""
        before = None
        for _ in range(_MOST_LOOKS):
            environment = _read(f"/proc/{pid}/environ")
            if (mark := _mark_in(environment)) is not None:
                return mark
            # A process may have no environment. One with a program but without arguments is in the middle of exec.
            settled = environment or _read(f"/proc/{pid}/cmdline") or not _is_link(f"/proc/{pid}/exe")
            if (settled and environment == before) or self._bare.get(pid) == _since(pid):
                return None
            before = environment if settled else None
            if not settled:
                time.sleep(_LOOK_AGAIN)
        self._bare[pid] = _since(pid)
        return None

    def pipes(self, pid: int) -> frozenset[int]:
        found: set[int] = set()
        for fd in (1, 2):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("pipe:["):
                found.add(int(target[len("pipe:[") : -1]))
        return frozenset(found)

    def pids(self) -> list[int]:
        return [int(name) for name in _names("/proc") if name.isdecimal()]

    def newest(self) -> int:
        return int(_read("/proc/sys/kernel/ns_last_pid") or 0)

    def is_nested(self, pid: int) -> bool:
        _, _, numbers = _read(f"/proc/{pid}/status").partition(b"\nNSpid:")
        return len(numbers.partition(b"\n")[0].split()) != 1

    def leads_sandbox(self, pid: int) -> bool:
        status = _read(f"/proc/{pid}/status")
        _, _, numbers = status.partition(b"\nNSpid:")
        own = numbers.partition(b"\n")[0].split()
        return status.startswith(b"Name:\tbwrap\n") and len(own) > 1 and own[-1] == b"1"


def _read(path: str) -> bytes:
    """Return a file of /proc, or nothing if the process is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a file object takes twice as long
    except OSError:
        return b""
    parts = list[bytes]()
    try:
        while part := os.read(fd, _PIECE):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on. Empty if the process is gone."""
    line = _read(f"/proc/{pid}/stat")
    # The name may hold blanks and brackets; the fields come after its last bracket.
    return line[line.rindex(b")") + 2 :].split() if line else []


def _since(pid: int) -> bytes:
    """Return when a process was started, to tell it from another one with its number. Empty if it is gone."""
    return b"".join(_fields(pid)[19:20])


def _mark_in(environment: bytes) -> str | None:
    prefix = f"{MARK}=".encode()
    marks = (each[len(prefix) :] for each in environment.split(b"\0") if each.startswith(prefix))
    return next((mark.decode("utf-8", "replace") for mark in marks), None)


def _is_link(path: str) -> bool:
    """Return whether a path in /proc is a link that can be read."""
    try:
        return bool(os.readlink(path))
    except OSError:
        return False


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


class PsutilProcessTable(ProcessTable):
    """The table as psutil knows it. Of processes of other users it tells less or nothing."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 - 15 ms that Linux need not pay

        self._psutil = psutil

    def status(self, pid: int) -> Status | None:
        try:
            process = self._psutil.Process(pid)
            zombie = process.status() == self._psutil.STATUS_ZOMBIE
            return Status(pid, process.ppid(), _session(pid), zombie)
        except self._psutil.Error:
            return None

    def children(self, pid: int) -> list[int]:
        try:
            return [child.pid for child in self._psutil.Process(pid).children()]
        except self._psutil.Error:
            return []

    def mark(self, pid: int) -> str | None:
        try:
            return self._psutil.Process(pid).environ().get(MARK)
        except self._psutil.Error:
            return None

    def pids(self) -> list[int]:
        return self._psutil.pids()


@cache
def system_table() -> ProcessTable:
    """Return the process table of this system. It is shared: it remembers processes that erased their arguments."""
    return LinuxProcessTable() if sys.platform == "linux" else PsutilProcessTable()


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


class NewProcesses:
    """The processes of this machine that began since this object was made.

    The system numbers processes one after another. So the numbers that it gave meanwhile tell which these are, and no
    list of all processes is needed before a short command.

    known   whether it tells numbers. False makes a list of all processes
    clock   returns seconds
    """

    def __init__(self, table: ProcessTable, *, known: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._made = clock()
        self._newest = table.newest() if known else 0
        self._others = None if self._newest else frozenset(table.pids())

    def note_others(self) -> None:
        """Note all other processes. Call it in the first moments of a long command. It blocks.

        After these moments, all processes count as new if this was not called.
        """
        if self._others is None:
            pids, numbers = frozenset(self._table.pids()), self._numbers()
            self._others = None if numbers is None else pids.difference(numbers)

    def pids(self) -> set[int]:
        """Return them, or all processes where it is unknown which of them are new."""
        pids = {*self._table.pids()}
        if self._others is not None:
            return pids - self._others
        numbers = self._numbers()
        return pids if numbers is None else pids.intersection(numbers)

    def all_ended(self, *, nested: bool = False) -> bool:
        """Return whether none of them lives, nor any that they have started. It is False in doubt.

        nested   whether only those count that are in a namespace of processes of their own
        """
        lives, numbers = self._lives_nested if nested else self._lives, self._numbers()
        few = numbers is not None and len(numbers) <= _FEW
        # One that ended just now may have started another, so look twice.
        if few and not any(map(lives, numbers or ())) and self._numbers() == numbers:
            return True
        new = self.pids()
        return not any(map(lives, new)) and (not new or self.pids() <= new)

    def _lives(self, pid: int) -> bool:
        status = self._table.status(pid)
        return status is not None and not status.zombie

    def _lives_nested(self, pid: int) -> bool:
        return self._lives(pid) and self._table.is_nested(pid)

    def _numbers(self) -> range | None:
        """Return the numbers that new processes and threads have, or None if they are unknown.

        They are known for a moment only: later, numbers may have been given that others had before.
        """
        if self._others is not None or self._clock() - self._made > _SOON:
            return None
        newest = self._table.newest()
        return range(self._newest + 1, newest + 1) if newest > self._newest else None


# ------------------------------------------------------------------------------------------- limits of a command

_CPUS = os.cpu_count() or 1
MOST_TASKS = max(4096, 128 * _CPUS)
"""The processes and threads that a contained command can have. On many CPUs, many programs start many threads each."""


@frozen
class CommandLimits:
    """The limits of a contained command, beyond which it is ended.

    processes   the most processes. A compiler takes five a job, so that `make -j` on 64 CPUs has some 330
    spare       the part of the machine's memory that has to stay free
    large       the part of the memory that the command may use even while less than `spare` is free
    """

    processes: int = max(1024, 16 * _CPUS)
    spare: float = 0.1
    large: float = 0.25

    def reached(self, first: int) -> str:
        """Return which limit the namespace of a first process has reached, in words, or "" (Linux).

        Its own /proc lists its processes and no others. Walking down a tree takes longer than a fork bomb needs to
        grow. Nothing is listed while the machine has so few processes and so much memory that no limit can be reached.
        """
        memory, own = _memory(), f"/proc/{first}/root/proc"
        total = memory.get("MemTotal", 0)
        full = memory.get("MemAvailable", 0) < total * self.spare
        if not full and _tasks() <= self.processes:
            return ""
        if _is_link(f"{own}/self"):  # it is the machine's /proc, which has this process: the sandbox is not built yet
            return ""
        pids = [name for name in _names(own) if name.isdecimal()]
        if len(pids) > self.processes:
            return f"it had more than {self.processes} processes; run fewer at a time"
        if not full:
            return ""
        used = sum(_resident(f"{own}/{pid}") for pid in pids) + _in_files(f"/proc/{first}/root/dev/shm")
        return f"it used {used >> 20} MiB, and memory ran out; use less at a time" if used > total * self.large else ""


def _tasks() -> int:
    """Return the number of processes and threads of this machine; 0 if it does not tell."""
    return int((_read("/proc/loadavg").split() or [b"0/0"] * 4)[3].partition(b"/")[2])


def _memory() -> dict[str, int]:
    """Return the bytes of the machine's memory by their names in /proc/meminfo."""
    lines = (line.split() for line in _read("/proc/meminfo").decode().splitlines())
    return {words[0].rstrip(":"): int(words[1]) << 10 for words in lines if len(words) > 1}


def _resident(folder: str) -> int:
    """Return the bytes that a process has in memory, without those of files and shared ones."""
    fields = _read(f"{folder}/statm").split()
    return max(0, int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 2 else 0


def _in_files(folder: str) -> int:
    """Return the bytes of the files in a file system in memory, such as that of /dev/shm."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize
