"""How the editor spells paths. Ours are resolved; an editor only knows a folder by the name it opened it under."""

import os
from dataclasses import replace

from acp_agent.core.types import Diff, Location


class EditorPaths:
    """Translates resolved paths for the editor. `folder` is the session's cwd as the editor sent it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/") or "/"
        self._real = os.path.realpath(folder)

    def spell(self, path: str) -> str:
        """The editor's name for a resolved path; the path itself when it is not below a linked folder.

        A relative path, as a model wrote it, is one below the session's folder.
        """
        if not os.path.isabs(path):
            return os.path.normpath(os.path.join(self._folder, path))
        if self._real == self._folder:
            return path
        if path == self._real:
            return self._folder
        if path.startswith(self._real.rstrip("/") + "/"):
            return os.path.join(self._folder, os.path.relpath(path, self._real))
        return path

    def diff(self, diff: Diff) -> Diff:
        """The same change under the editor's name."""
        return replace(diff, path=self.spell(diff.path))

    def location(self, location: Location) -> Location:
        """The same place under the editor's name."""
        return replace(location, path=self.spell(location.path))
