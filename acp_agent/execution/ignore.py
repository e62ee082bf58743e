"""What a search leaves out: the .gitignore files of a root, nested ones included.

Only files inside the root are read; a repository around it, the user's global ignore file and .git/info/exclude
have no say. Patterns run in linear time (pathspec's RE2 backend), for they come with the repository.
"""

import os
import re

from pathspec import GitIgnoreSpec

from acp_agent.execution.roots import Root
from acp_agent.execution.text_files import BOM

_LARGEST = 1024 * 1024


class IgnoreRules:
    """The rules for a search below `base`, a directory relative to the root.

    Naming a directory that is itself ignored says it is wanted: then only the rules inside it count.
    """

    def __init__(self, root: Root, base: str) -> None:
        self._root = root
        self._chains: dict[str, tuple[tuple[int, GitIgnoreSpec], ...]] = {}
        self._top = "."
        self._base = base
        steps = [] if base == "." else base.split("/")
        if any(self.ignores("/".join(steps[: depth + 1]), is_directory=True) for depth in range(len(steps))):
            self._top = base
            self._chains.clear()

    @property
    def outer_file(self) -> bool:
        """Whether the root's own .gitignore exists, lies above the base and counts."""
        return self._top == "." != self._base and self._read(".") is not None

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether git would leave this entry out, given that it does not leave out the directory it is in."""
        for start, spec in self._rules(path.rpartition("/")[0]):
            verdict = spec.check_file(f"{path[start:]}/" if is_directory else path[start:]).include
            if verdict is not None:
                return verdict
        return False

    def _rules(self, directory: str) -> tuple[tuple[int, GitIgnoreSpec], ...]:
        """What has a say on a directory's entries, nearest first, each with where a path starts for it."""
        known = self._chains.get(directory)
        if known is None:
            spec = self._read(directory or ".")
            own = ((len(directory) + 1 if directory else 0, spec),) if spec is not None else ()
            ends = (directory or ".") == self._top or not directory
            known = own if ends else own + self._rules(directory.rpartition("/")[0])
            self._chains[directory] = known
        return known

    def _read(self, directory: str) -> GitIgnoreSpec | None:
        name = ".gitignore" if directory == "." else f"{directory}/.gitignore"
        try:
            fd = self._root.open_regular(name)
        except OSError:
            return None
        try:
            data = os.read(fd, _LARGEST)
        except OSError:
            return None
        finally:
            os.close(fd)
        lines = data.removeprefix(BOM).decode("utf-8", "replace").split("\n")
        spec = _parse([line.removesuffix("\r") for line in lines])
        return spec if len(spec) else None


def _parse(lines: list[str]) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(lines, backend="re2")
    except (ValueError, re.error):  # one bad line must not cost the others
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)], backend="re2")


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True
