"""The editor's spelling of paths. Ours have links resolved; the editor knows a folder by the name it opened."""

import os


class EditorPaths:
    """Translates resolved paths for the editor. `folder` is the session's `cwd` as the editor sent it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/") or "/"
        self._real = os.path.realpath(folder)

    def spell(self, path: str) -> str:
        """Return the editor's name of a resolved path: the path itself unless the session's folder is behind a link.

        A relative path, as a model writes it, starts at the session's folder.
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
