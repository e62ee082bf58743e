"""What gates may ask about the files of a workspace, to judge the links in it."""

from collections.abc import Mapping
from typing import Protocol


class Workspace(Protocol):
    """Looks at the files of a workspace. Paths are as a command names them: relative to its folder, absolute or `~`.

    Nothing here reads a file or raises.
    """

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return the links at or below `folder` that lead out of the workspace, and whether to a folder.

        Links into the workspace are followed. None if there are more files than are looked at.
        """
        ...

    def is_file(self, path: str) -> bool:
        """Return whether there is a regular file at `path`, and not a link to one."""
        ...

    def is_folder(self, path: str) -> bool:
        """Return whether `path` is a folder or leads to one."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is anything at `path`, if only a broken link."""
        ...


class UnseenWorkspace:
    """A workspace that cannot be looked at: it may hold any link."""

    def links_out(self, folder: str) -> Mapping[str, bool] | None:
        """Return None: any file may be a link."""
        del folder

    def is_file(self, path: str) -> bool:
        """Return False."""
        del path
        return False

    def is_folder(self, path: str) -> bool:
        """Return False."""
        del path
        return False

    def exists(self, path: str) -> bool:
        """Return True: nothing is surely missing."""
        del path
        return True
