"""ProcessTable where there is no /proc, by psutil."""

import os

import psutil

from acp_agent.execution.process_table import MARK, Status


class PsutilProcessTable:
    """What psutil can tell of processes of our own user; of others it tells less or nothing."""

    def status(self, pid: int) -> Status | None:
        try:
            process = psutil.Process(pid)
            return Status(pid, process.ppid(), _session(pid), zombie=process.status() == psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return None

    def children(self, pid: int) -> list[int]:
        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except psutil.Error:
            return []

    def mark(self, pid: int) -> str | None:
        try:
            return psutil.Process(pid).environ().get(MARK)
        except psutil.Error:
            return None

    def tag(self, pid: int) -> int | None:
        del pid  # only Linux has tags

    def pipes(self, pid: int) -> frozenset[int]:
        del pid  # nothing portable tells
        return frozenset()

    def pids(self) -> list[int]:
        return psutil.pids()


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
