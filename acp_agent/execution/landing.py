"""The place a new entry lands at: free, and in a directory that exists (T4.20).

There leftovers are swept up, too: a process that was killed while it wrote could not take its temporary file away.
"""

import os
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress

from acp_agent.core.backends import EntryKind
from acp_agent.core.clock import now_ns
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.execution.atomic_write import is_temporary
from acp_agent.execution.entry_kind import kind_of
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.roots import Place
from acp_agent.execution.tree_delete import removing
from acp_agent.execution.tree_descent import Entered, holding, open_child

_OWN = 0o700
_ABANDONED = 3600  # seconds; what is younger may be somebody's work under way


@contextmanager
def landing(place: Place) -> Generator[int]:
    """The open directory a new entry goes into. What of it is missing is made, and goes again when the block fails.

    Raises ToolError or Refused about `place`, for an OSError of the block too.
    """
    made = list[str]()
    with told_as(place.given):
        try:
            try:
                directory = place.root.open_directory(place.parent)
            except FileNotFoundError:
                made = place.root.make_directories(place.parent)
                directory = place.root.open_directory(place.parent)
            with holding(directory):
                _sweep(directory)
                yield directory
        except BaseException:
            place.root.remove_directories(made)
            raise


def refuse_unfit(old: Place, kind: EntryKind, new: Place) -> None:
    """Raise ToolError unless `old`, of this kind, can get the path `new`: not in itself, and nothing is there."""
    if kind is EntryKind.DIRECTORY and new.path.startswith(os.path.join(old.path, "")):
        raise into_itself(old, new)
    status = new.status()
    there = None if status is None else kind_of(status.st_mode)
    named_a_directory = there is None and kind is not EntryKind.DIRECTORY and new.given.endswith("/")
    if there is EntryKind.DIRECTORY or named_a_directory:
        what = "names a directory" if named_a_directory else "is a directory that exists already"
        advice = f"Give the whole new path: {os.path.join(new.given, old.name)}"
        raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{new.given}: {what}", advice)
    if there is not None:
        raise taken(new)


def taken(new: Place) -> ToolError:
    """The error when there is something at the destination."""
    advice = "Choose another destination, or delete what is there first."
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{new.given}: exists already; nothing was replaced", advice)


def into_itself(old: Place, new: Place) -> ToolError:
    """The error when a directory should go into itself."""
    return ToolError(
        ToolErrorCategory.INVALID_PARAMETERS, f"{old.given} -> {new.given}: a directory cannot hold itself"
    )


def discard(parent: int, name: str) -> None:
    """Take a directory away with all that is in it, whatever permissions its directories have. Raises OSError."""
    with holding(open_child(parent, name)) as top:
        os.fchmod(top, _OWN)
        with closing(removing(top)) as steps:
            for step in steps:
                if isinstance(step, Entered):
                    os.fchmod(step.at, _OWN)
    os.rmdir(name, dir_fd=parent)


def _sweep(directory_fd: int) -> None:
    """Take away what dead processes left in the directory. What cannot be taken away stays."""
    with suppress(OSError), os.scandir(directory_fd) as entries:
        left = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries if is_temporary(entry.name)]
        for name, status in left:
            if now_ns() - status.st_mtime_ns < _ABANDONED * 1_000_000_000:
                continue
            with suppress(OSError):
                if stat.S_ISDIR(status.st_mode):
                    discard(directory_fd, name)
                elif stat.S_ISREG(status.st_mode):
                    os.unlink(name, dir_fd=directory_fd)
