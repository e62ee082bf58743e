"""find_path on this machine: names that match a glob (T4.17, A22.5)."""

import os
import stat

from acp_agent.core.backends import EntryKind, FoundPaths
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.execution.glob import Glob
from acp_agent.execution.ignore import IgnoreRules
from acp_agent.execution.roots import Place, Roots
from acp_agent.execution.time_limit import SEARCH_SECONDS, TimeLimit
from acp_agent.execution.tree_walk import Met, walk

_REPOSITORY = ".git"


def find_paths(roots: Roots, path: str, pattern: str, limit: int, seconds: float = SEARCH_SECONDS) -> FoundPaths:
    """Files, links and directories below `path` that match, at most `limit`, in the order of the walk.

    Left out: what .gitignore files ignore, .git, what may not be shown, and links that lead there or outside the
    roots. A directory that may not be listed is entered: rules make exceptions below it. After `seconds` the answer is
    what was found so far. Raises ToolError or Refused. Runs in a worker thread.
    """
    time = TimeLimit(seconds)
    base = roots.place(path, Access.LIST)
    os.close(base.open_directory())
    glob = Glob(pattern)
    start = _start(roots, base, glob.prefix)
    if start is None:
        return FoundPaths((), more=False)
    rules = IgnoreRules(start.root, start.relative, time)
    skip = 0 if start.relative == "." else len(start.relative) + 1

    def wanted(met: Met) -> bool:
        if met.name == _REPOSITORY or time.stopped is not None:
            return False
        ignored = rules.ignores(met.path, is_directory=met.kind is EntryKind.DIRECTORY)
        return not time.stops_at(start.root.absolute(met.path)) and not ignored

    found: list[str] = []
    for met in walk(start.root, start.relative, wanted, glob.depth):
        if glob.directories_only and met.kind is not EntryKind.DIRECTORY:
            continue
        if glob.matches(met.path[skip:]) and _may_show(roots, start, met):
            if len(found) == limit:
                return FoundPaths(tuple(found), more=True)
            found.append(start.root.absolute(met.path))
    return FoundPaths(tuple(found), more=False, stopped=time.stopped)


def _start(roots: Roots, base: Place, prefix: str) -> Place | None:
    """The directory the pattern's plain beginning names, or None when there is none to search."""
    if not prefix:
        return base
    try:
        start = roots.place(os.path.join(base.path, prefix), Access.LIST)
        os.close(start.open_directory())
    except Refused:
        return None
    except ToolError as error:
        if error.failure.category is ToolErrorCategory.PERMANENT_FAILURE:
            return None
        raise
    return start


def _may_show(roots: Roots, start: Place, met: Met) -> bool:
    """Whether the path may be shown: a directory when it may be listed, anything else when it may be read."""
    path = start.root.absolute(met.path)
    if met.kind is EntryKind.SYMLINK:
        return _leads_to_shown(roots, path)
    return roots.allows(path, Access.LIST if met.kind is EntryKind.DIRECTORY else Access.READ)


def _leads_to_shown(roots: Roots, link: str) -> bool:
    """Whether a link leads inside the roots to something that may be shown."""
    try:
        status = roots.place(link, Access.LIST).status()
        if status is None or not stat.S_ISDIR(status.st_mode):
            roots.place(link, Access.READ)
    except (Refused, ToolError):
        return False
    return True
