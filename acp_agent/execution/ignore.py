"""What a search leaves out: the .gitignore files of a root, nested ones included.

Only files inside the root are read; a repository around it, the user's global ignore file and .git/info/exclude
have no say. Patterns run in linear time (pathspec's RE2 backend), for they come with the repository.
"""

import os
import re

from pathspec import GitIgnoreSpec

from acp_agent.execution.roots import Root

_LARGEST = 1024 * 1024


class IgnoreRules:
    """The rules for a search below `base`, a directory relative to the root.

    Naming a directory that is itself ignored says it is wanted: then only the rules inside it count.
    """

    def __init__(self, root: Root, base: str) -> None:
        self._root = root
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        self._top = "."
        self._base = base
        steps = [] if base == "." else base.split("/")
        if any(self.ignores("/".join(steps[: depth + 1]), is_directory=True) for depth in range(len(steps))):
            self._top = base

    @property
    def outer_file(self) -> bool:
        """Whether the root's own .gitignore exists, lies above the base and counts."""
        return self._top == "." != self._base and self._spec(".") is not None

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Whether git would leave this entry out, given that it does not leave out the directory it is in."""
        directory = os.path.dirname(path)
        while True:
            spec = self._spec(directory or ".")
            if spec is not None:
                inside = path[len(directory) + 1 :] if directory else path
                verdict = spec.check_file(f"{inside}/" if is_directory else inside).include
                if verdict is not None:
                    return verdict
            if (directory or ".") == self._top or not directory:
                return False
            directory = os.path.dirname(directory)

    def ignores_file_below(self, path: str) -> bool:
        """Whether a file below the base is left out, by its own name or a directory between."""
        start = 0 if self._base == "." else len(self._base) + 1
        cuts = [at for at, character in enumerate(path) if character == "/" and at > start]
        return any(self.ignores(path[:at], is_directory=True) for at in cuts) or self.ignores(path, is_directory=False)

    def _spec(self, directory: str) -> GitIgnoreSpec | None:
        if directory not in self._specs:
            self._specs[directory] = self._read(directory)
        return self._specs[directory]

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
        spec = _parse(data.decode("utf-8", "replace").split("\n"))
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
