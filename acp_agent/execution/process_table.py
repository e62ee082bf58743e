"""What processes there are and how they hang together: /proc on Linux, psutil elsewhere."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from acp_agent.core.process_limits import tag_in

MARK = "ACP_COMMAND_ID"
"""The variable that says which command a process belongs to, however far it has wandered off."""

_LOOK_AGAIN = 0.001
_MOST_LOOKS = 50


@dataclass(frozen=True, slots=True)
class Status:
    """A process: its parent, its session (0 when unknown), and whether it has ended but not been reaped."""

    pid: int
    parent: int
    session: int
    zombie: bool


class ProcessTable(Protocol):
    """The processes of this machine. A process that is gone has no status, no children and no mark."""

    def status(self, pid: int) -> Status | None:
        """The process, or None when there is none."""
        ...

    def children(self, pid: int) -> list[int]:
        """Its direct children, zombies included."""
        ...

    def mark(self, pid: int) -> str | None:
        """The value of MARK it was started with, or None when there is none or it cannot be read."""
        ...

    def tag(self, pid: int) -> int | None:
        """Return its tag (`core.process_limits`), or None when there is none or it cannot be told."""
        ...

    def pipes(self, pid: int) -> frozenset[int]:
        """The inodes of the pipes its stdout and stderr are. Empty where that cannot be told."""
        ...

    def pids(self) -> list[int]:
        """Every process of the machine."""
        ...


def descendants(table: ProcessTable, pids: Iterable[int]) -> list[int]:
    """The processes and everything below them, parents before their children."""
    found = dict.fromkeys(pids)
    level = list(found)
    while level:
        level = [child for pid in level for child in table.children(pid) if child not in found]
        found.update(dict.fromkeys(level))
    return list(found)


class LinuxProcessTable:
    """/proc. `children_files` is false on kernels that do not list children; then every process is looked at."""

    def __init__(self, *, children_files: bool | None = None) -> None:
        own = f"/proc/self/task/{os.getpid()}/children"
        self._children_files = os.path.exists(own) if children_files is None else children_files
        self._bare = dict[int, bytes]()  # processes that have wiped out their arguments, and when they were started

    def status(self, pid: int) -> Status | None:
        if not (fields := _fields(pid)):
            return None
        state, parent, _group, session, *_ = fields
        return Status(pid, int(parent), int(session), zombie=state in (b"Z", b"X"))

    def children(self, pid: int) -> list[int]:
        if not self._children_files:
            return [status.pid for status in map(self.status, self.pids()) if status and status.parent == pid]
        if pid == os.getpid():
            threads = [str(pid), *(tid for tid in _names(f"/proc/{pid}/task") if tid != str(pid))]
        else:
            threads = _names(f"/proc/{pid}/task")
        return [int(child) for tid in threads for child in _read(f"/proc/{pid}/task/{tid}/children").split()]

    def mark(self, pid: int) -> str | None:
        """A process that becomes another program has no environment for that moment, and is looked at again."""
        before = None
        for _ in range(_MOST_LOOKS):
            environment = _read(f"/proc/{pid}/environ")
            if (mark := _mark_in(environment)) is not None:
                return mark
            # To have none is nothing strange; to have no arguments either, with a program to run, is to be under way.
            settled = environment or _read(f"/proc/{pid}/cmdline") or not _is_link(f"/proc/{pid}/exe")
            if (settled and environment == before) or self._bare.get(pid) == _since(pid):
                return None
            before = environment if settled else None
            if not settled:
                time.sleep(_LOOK_AGAIN)
        self._bare[pid] = _since(pid)
        return None

    def tag(self, pid: int) -> int | None:
        return tag_in(_read(f"/proc/{pid}/limits").decode("ascii", "replace"))

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


def _read(path: str) -> bytes:
    """A file of /proc, or nothing when the process is gone or not ours to read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _fields(pid: int) -> list[bytes]:
    """Of a process: its state, and what follows. Empty when it is gone."""
    line = _read(f"/proc/{pid}/stat")
    # The name may hold anything, blanks and brackets too; the fields come after its last bracket.
    return line[line.rindex(b")") + 2 :].split() if line else []


def _since(pid: int) -> bytes:
    """When it was started, which tells it from another one with its number. Empty when it is gone."""
    return b"".join(_fields(pid)[19:20])


def _mark_in(environment: bytes) -> str | None:
    prefix = f"{MARK}=".encode()
    marks = (each[len(prefix) :] for each in environment.split(b"\0") if each.startswith(prefix))
    return next((mark.decode("utf-8", "replace") for mark in marks), None)


def _is_link(path: str) -> bool:
    """Whether a link of /proc leads anywhere: a process that has ended, and one of the kernel, runs no program."""
    try:
        return bool(os.readlink(path))
    except OSError:
        return False


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
