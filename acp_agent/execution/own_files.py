"""The agent's own files: settings and answers that decide what asks. No tool may write them (security.md, asset 11)."""

import os
from collections.abc import Iterable

from acp_agent.core.types import Access

PROJECT_FOLDER = ".acp-agent"


class OwnFiles:
    """A PathPolicy: refuses writing to `paths`, to anything below them, and to any project's `.acp-agent`.

    Reading stays allowed. Names are compared without case, as some file systems do, so that no twin slips by.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(os.path.realpath(path).casefold() for path in paths)

    def __call__(self, path: str, access: Access) -> str | None:
        if not access.changes:
            return None
        folded = path.casefold()
        own = any(folded == mine or folded.startswith(f"{mine}/") for mine in self._paths)
        return "belongs to the agent itself" if own or PROJECT_FOLDER in folded.split("/") else None
