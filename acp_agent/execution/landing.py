"""The place a moved or copied entry lands at: free, and in a directory that exists (T4.20)."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from acp_agent.core.backends import EntryKind
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.execution.entry_kind import kind_of
from acp_agent.execution.path_errors import told_as
from acp_agent.execution.roots import Place


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
            try:
                yield directory
            finally:
                os.close(directory)
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
