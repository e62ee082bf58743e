"""The agent's own files: settings and answers that decide what asks. No tool may write them (security.md, asset 11).

Nor read the keys among them (asset 1): what a tool reads, the model gets.
"""

import os
from collections.abc import Iterable

from acp_agent.core.types import Access
from acp_agent.execution.read_policy import folded

PROJECT_FOLDER = ".acp-agent"


class OwnFiles:
    """A PathPolicy: refuses writing to `paths`, to anything below them, and to any project's `.acp-agent`.

    Reading stays allowed, but of the files `keys`. Names are compared without case, as some file systems do, so that no
    twin slips by. Of a path that is a link, the link is meant and what it leads to.
    """

    def __init__(self, paths: Iterable[str], keys: Iterable[str] = ()) -> None:
        self._paths = tuple({folded(spelling) for path in paths for spelling in spellings(path)})
        self._keys = frozenset(folded(spelling) for path in keys for spelling in spellings(path))

    def __call__(self, path: str, access: Access) -> str | None:
        name = folded(path)
        if name in self._keys:
            return "holds the agent's own keys"
        if not access.changes:
            return None
        own = any(name == mine or name.startswith(f"{mine}/") for mine in self._paths)
        return "belongs to the agent itself" if own or PROJECT_FOLDER in name.split("/") else None


def spellings(path: str) -> tuple[str, str]:
    """Where a path is and where it leads: a configuration file is often a link into somebody's collection."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name), os.path.realpath(path)
