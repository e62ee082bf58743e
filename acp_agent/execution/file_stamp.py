"""What tells two states of a file on disk apart without reading it (requirements O6.5)."""

import os
import stat
from collections.abc import Callable

from anyio import to_thread

from acp_agent.core.clock import now_ns
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access
from acp_agent.execution.roots import Roots

_SETTLED = 2_000_000_000
"""Nanoseconds: the coarsest times a file system keeps (FAT)."""


async def file_stamp(roots: Roots, path: str, now: Callable[[], int] = now_ns) -> str | None:
    """The stamp of the file that `path` means to the session; another one whenever it was written or replaced.

    None for what is no regular file, may not be read, or changed less than 2 s ago: one more change in the same tick
    of the file system's clock would not show. `now` is in nanoseconds since 1970. Never raises.
    """
    return await to_thread.run_sync(_stamp, roots, path, now)


def _stamp(roots: Roots, path: str, now: Callable[[], int]) -> str | None:
    try:
        status = roots.place(path, Access.READ).status()
    except (Refused, ToolError):
        return None
    return None if status is None else _of(status, now())


def _of(status: os.stat_result, now: int) -> str | None:
    """The change time is in it because the modification time can be set back (`cp -p`, `touch -r`)."""
    settled = now - max(status.st_mtime_ns, status.st_ctime_ns) >= _SETTLED
    if not (stat.S_ISREG(status.st_mode) and settled):
        return None
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
