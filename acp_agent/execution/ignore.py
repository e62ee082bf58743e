"""What a search leaves out: the .gitignore files of a root, nested ones included.

Only files inside the root are read; a repository around it, the user's global ignore file and .git/info/exclude
have no say. Patterns run in linear time (pathspec's RE2 backend), for they come with the repository.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import TypeAlias, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - the package has none
from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from acp_agent.execution.roots import Root
from acp_agent.execution.text_files import BOM
from acp_agent.execution.time_limit import TimeLimit

_ENGINE_ERROR = cast("type[Exception]", re2.error)
_LARGEST = 256 * 1024
_LONGEST = 4096  # bytes, like a path
_SLICE = 512  # lines that are compiled together: RE2 has a limit for what it compiles at once
_MOST_SETS = 12
"""Slices that count for one folder, and as many that are kept for others. Each may take 8 MB."""

_Spec: TypeAlias = Sequence[GitIgnoreSpec]
"""The rules of one file, in slices, the last lines first: they have the last word."""


class IgnoreRules:
    """The rules for a search below `base`, a directory relative to the root. Made for a walk in depth.

    Of a file the first 256 KiB count, and for one folder 6,000 patterns of the files above it and its own.
    Naming a directory that is itself ignored says it is wanted: then only the rules inside it count.
    """

    def __init__(self, root: Root, base: str, time: TimeLimit) -> None:
        self._root = root
        self._time = time
        self._chains: dict[str, tuple[tuple[int, _Spec], ...]] = {}
        self._specs: dict[bytes, _Spec] = {}  # many folders have the same rules; the oldest first
        self._top = "."
        self._base = base
        steps = [] if base == "." else base.split("/")
        if any(self.ignores("/".join(steps[: depth + 1]), is_directory=True) for depth in range(len(steps))):
            self._top = base
            self._chains.clear()

    @property
    def outer_file(self) -> bool:
        """Whether the root's own .gitignore exists, lies above the base and counts."""
        return self._top == "." != self._base and bool(self._read("."))

    @property
    def readable(self) -> bool:
        """Whether ripgrep, too, can read the rules of the root and the base: it waits for a pipe and reads any size."""
        for folder in {".", self._base}:
            name = ".gitignore" if folder == "." else f"{folder}/.gitignore"
            try:
                status = self._root.status(name)
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                return False
        return True

    @property
    def sets_kept(self) -> int:
        """Return how many slices of rules are in memory at most."""
        chains = {id(specs): len(specs) for chain in self._chains.values() for _, specs in chain}
        return sum(chains.values()) + sum(map(len, self._specs.values()))

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether git would leave this entry out, given that it does not leave out the directory it is in.

        Too few are left out when the time is over.
        """
        for start, specs in self._rules(path.rpartition("/")[0]):
            name = f"{path[start:]}/" if is_directory else path[start:]
            for spec in specs:
                verdict = spec.check_file(name).include
                if verdict is not None:
                    return verdict
            if self._time.is_over:
                return False
        return False

    def _rules(self, directory: str) -> tuple[tuple[int, _Spec], ...]:
        """What has a say on a directory's entries, nearest first, each with where a path starts for it.

        Only the rules of the folders above are kept: a walk never comes back to another one.
        """
        if directory in self._chains:
            return self._chains[directory]
        unknown, at = list[str](), directory
        while at not in self._chains:
            unknown.append(at)
            if not at or at == self._top:
                break
            at = at.rpartition("/")[0]
        chain = self._chains.get(at, ())
        self._chains = {known: self._chains[known] for known in self._chains if _is_above(known, directory)}
        for each in reversed(unknown):
            room = _MOST_SETS - sum(len(specs) for _, specs in chain)
            specs = self._read(each or ".")[-room:] if room else ()
            chain = ((len(each) + 1 if each else 0, specs), *chain) if specs else chain
            self._chains[each] = chain
        return chain

    def _read(self, directory: str) -> _Spec:
        name = ".gitignore" if directory == "." else f"{directory}/.gitignore"
        try:
            if self._root.status(name).st_nlink > 1:  # another name of a file that may be closed to tools
                return ()
            fd = self._root.open_regular(name)
        except OSError:
            return ()
        try:
            data = os.read(fd, _LARGEST)
        except OSError:
            return ()
        finally:
            os.close(fd)
        specs = self._specs.pop(data, None)
        if specs is None:
            specs = _parse(data, self._time)
        self._specs[data] = specs
        while sum(map(len, self._specs.values())) > _MOST_SETS:
            del self._specs[next(iter(self._specs))]
        return specs


def _is_above(folder: str, directory: str) -> bool:
    return not folder or directory == folder or directory.startswith(f"{folder}/")


def _parse(data: bytes, time: TimeLimit) -> _Spec:
    lines = data.removeprefix(BOM).decode("utf-8", "replace").split("\n")
    specs = list[GitIgnoreSpec]()
    for start in range(0, len(lines), _SLICE):
        if time.is_over or len(specs) >= _MOST_SETS:
            break
        patterns = [*_patterns(lines[start : start + _SLICE])]
        specs += _compiled(patterns, time)
    return specs[:_MOST_SETS][::-1]


def _patterns(lines: Sequence[str]) -> Iterator[GitIgnoreSpecPattern]:
    """The lines that are patterns; one bad line must not cost the others."""
    for line in lines:
        if len(line) > _LONGEST:
            continue
        try:
            pattern = GitIgnoreSpecPattern(line.removesuffix("\r"))
        except (ValueError, re.error):
            continue
        if pattern.include is not None:  # else a comment
            yield pattern


def _compiled(patterns: Sequence[GitIgnoreSpecPattern], time: TimeLimit) -> Iterator[GitIgnoreSpec]:
    """The patterns as RE2 takes them, in halves where they are too much for it or one is none for it."""
    if not patterns or time.is_over:
        return
    try:
        yield GitIgnoreSpec(patterns, backend="re2")
    except (ValueError, _ENGINE_ERROR):
        if len(patterns) > 1:
            middle = len(patterns) // 2
            yield from _compiled(patterns[:middle], time)
            yield from _compiled(patterns[middle:], time)
