"""Prepare the destination of a new entry: nothing is there, and its directory exists.

There leftovers are swept up, too: a process that was killed while it wrote could not take its temporary file away.
"""

import os
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager, suppress

from acp_agent.core.backends import EntryKind
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.new_file import remove_leftovers
from acp_agent.workspace.beneath import Entered, holding, open_child
from acp_agent.workspace.paths import errors_about, kind_of
from acp_agent.workspace.roots import Place, Root
from acp_agent.workspace.tree_delete import removing

_OWN = 0o700


@contextmanager
def open_destination(place: Place) -> Generator[int]:
    """Open the directory of a new entry. Missing directories are made, and removed again if the block fails.

    Raises ToolError or Refused about `place`, also for an OSError of the block.
    """
    made = list[str]()
    with errors_about(place.given):
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
    """Raise ToolError if an entry cannot go to the path `new`: it lies in the entry itself, or something is there."""
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
    """Return the error for a destination that exists."""
    advice = "Choose another destination, or delete what is there first."
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, f"{new.given}: exists already; nothing was replaced", advice)


def into_itself(old: Place, new: Place) -> ToolError:
    """Return the error for a directory that should go into itself."""
    return ToolError(
        ToolErrorCategory.INVALID_PARAMETERS, f"{old.given} -> {new.given}: a directory cannot hold itself"
    )


def discard(parent: int, name: str) -> None:
    """Delete a directory with all its entries, whatever permissions its directories have. Raises OSError.

    `shutil.rmtree` fails below a directory that is not writable.
    """
    with holding(open_child(parent, name)) as top:
        os.fchmod(top, _OWN)
        with closing(removing(top)) as steps:
            for step in steps:
                if isinstance(step, Entered):
                    os.fchmod(step.at, _OWN)
    os.rmdir(name, dir_fd=parent)


def sweep(folders: Iterable[str]) -> None:
    """Delete what dead processes left in these folders, though not below them. It blocks."""
    for folder in folders:
        with suppress(OSError, ValueError), closing(Root(folder)) as root, holding(root.open_directory(".")) as fd:
            _sweep(fd)


def _sweep(directory_fd: int) -> None:
    """Delete what dead processes left in the directory. An entry that cannot be deleted stays."""
    for name in remove_leftovers(directory_fd):
        with suppress(OSError):
            discard(directory_fd, name)
