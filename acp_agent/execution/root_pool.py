"""The folders that one session holds open."""

import os

from acp_agent.execution.roots import Root


class RootPool:
    """Opens each folder once, for all that look below it, and closes every one of them at the end."""

    def __init__(self) -> None:
        self._open: dict[str, Root] = {}
        self._replaced: list[Root] = []

    def open(self, path: str) -> Root:
        """Return the folder that is at the path now. Raises OSError, and ValueError for what no path can be."""
        real = os.path.realpath(path, strict=True)
        root = self._open.get(real)
        if root is not None and root.is_at(os.stat(real)):
            return root
        made = Root(real)
        if root is not None:
            self._replaced.append(root)
        self._open[real] = made
        return made

    def close_replaced(self) -> None:
        """Close folders in whose place another one was found. For when nothing uses them any more."""
        for root in self._replaced:
            root.close()
        self._replaced = []

    def close(self) -> None:
        """Close all. Nothing below them can be opened afterwards."""
        self.close_replaced()
        for root in self._open.values():
            root.close()
        self._open = {}
