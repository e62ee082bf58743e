"""Which files below a folder the .gitignore files leave out, each within the repository that it stands in."""

import os
from typing import Self

from acp_agent.workspace.roots import Root
from acp_agent.workspace.tree_walk import IgnoreRules, TimeLimit

_SECONDS = 0.5


class IgnoredFiles:
    """The files below a folder that are left out. Rules above the top of a repository do not count in it.

    root    the folder of the session that `start` lies in
    start   absolute
    named   the folder is named, so that rules which name it or a folder above it do not count
    """

    def __init__(self, root: Root, start: str, *, named: bool) -> None:
        self._root = root
        self._start = start
        self._named = named
        self._time = TimeLimit(_SECONDS)
        self._opened = list[Root]()
        self._rules = dict[str, IgnoreRules]()
        self._tops = dict[str, str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for root in self._opened:
            root.close()

    def holds(self, path: str) -> bool:
        """Return whether a path below the folder, relative to it, or a folder above it is left out."""
        whole = os.path.join(self._start, path)
        first = len(self._start if self._named else self._top(self._start)) + 1
        ends = [at for at, char in enumerate(whole) if char == "/" and at >= first]
        return any(self._ignores(whole[:end], is_directory=True) for end in ends) or self._ignores(
            whole, is_directory=False
        )

    def _ignores(self, path: str, *, is_directory: bool) -> bool:
        top = self._top(os.path.dirname(path))
        if top not in self._rules:
            try:
                self._rules[top] = self._of(top)
            except OSError:
                return False
        return self._rules[top].ignores(os.path.relpath(path, top), is_directory=is_directory)

    def _of(self, top: str) -> IgnoreRules:
        root = self._root
        if top != root.path:
            root = Root(top)
            self._opened.append(root)
        below = self._named and f"{self._start}/".startswith(f"{top}/")
        return IgnoreRules(root, os.path.relpath(self._start, top) if below else ".", self._time)

    def _top(self, folder: str) -> str:
        """Return the nearest folder at or above one that is a repository's, or the root."""
        if folder not in self._tops:
            above = os.path.dirname(folder)
            is_top = folder in (self._root.path, above) or os.path.lexists(os.path.join(folder, ".git"))
            self._tops[folder] = folder if is_top else self._top(above)
        return self._tops[folder]
