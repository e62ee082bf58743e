"""The files below a folder that .gitignore files exclude, each in its own repository, or that may be included again."""

import os
import stat
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Self

from acp_agent.workspace.roots import Root
from acp_agent.workspace.tree_walk import IgnoreRules, TimeLimit

_SECONDS = 0.5


class IgnoredFiles:
    """The ignored files below a folder. Rules above the top of a repository do not count in it.

    root    the root of the session that contains `start`
    start   the absolute path of the folder
    named   whether the command names the folder, so that rules for it or a folder above do not count
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
        """Return whether a path relative to the folder, or a folder above it, is ignored."""
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
        """Return the top of the repository that contains a folder, or the root."""
        if folder not in self._tops:
            above = os.path.dirname(folder)
            is_top = folder in (self._root.path, above) or os.path.lexists(os.path.join(folder, ".git"))
            self._tops[folder] = folder if is_top else self._top(above)
        return self._tops[folder]


_LARGEST = 256 * 1024


def exceptions(files: Iterator[str], most: int) -> Callable[[str], bool]:
    """Return a function that returns whether a line of the ignore files may include a path again.

    most   the most files that are read; if there are more, or one cannot be read whole, any path may be included
    """
    lines = set[str]()
    for number, path in enumerate(islice(dict.fromkeys(files), most + 1)):
        found = _lines(path) if number < most else None
        if found is None:
            return _any
        lines.update(found)
    return lambda path: any(_may_mean(path, line) for line in lines)


def _any(path: str) -> bool:
    del path
    return True


def _lines(path: str) -> set[str] | None:
    """Return the lines with `!` without that mark; None if they are unknown."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return set()
        data = os.read(fd, _LARGEST + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) > _LARGEST:
        return None
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return {line[1:].rstrip() for line in text.split("\n") if line.startswith("!")}


def _may_mean(path: str, line: str) -> bool:
    """Return whether a line may match a file, or a folder above one that is not hidden itself."""
    *above, name = path.casefold().split("/")
    pattern = line.casefold().rstrip("/").rpartition("/")[2]
    special = next((at for at, char in enumerate(pattern) if char in "[\\"), None)
    if special is not None:
        pattern = f"{pattern[:special]}*"
    if not line.endswith("/") and fnmatchcase(name, pattern):
        return True
    return not name.startswith(".") and any(fnmatchcase(folder, pattern) for folder in above)
