"""Files that may hold secrets, for the gate that judges commands: where a name leads, and what a folder holds."""

import os
from collections.abc import Sequence

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.secret_files import secrecy
from acp_agent.core.types import Access
from acp_agent.execution.roots import Place, Roots

MAX_ENTRIES = 10_000
"""Entries of folders that are looked at for one command, those nearest to the folder first."""

_SKIPPED = frozenset((".git", "node_modules", "site-packages", "dist-packages", "target"))
_RULE_SECONDS = 0.5


def real_path(path: str, folder: str) -> str:
    """Return where a path leads from `folder`, absolute. The path itself if no link is met, or nothing is there."""
    written = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    try:
        real = os.path.realpath(os.path.join(folder, os.path.expanduser(path)), strict=True)
    except (OSError, ValueError):
        return path
    return path if real == written else real


def secrets_below(roots: Roots, folder: str, ignores: bool, follows: bool) -> Sequence[str]:  # noqa: FBT001 - see Below
    """Return the files below a folder that may hold secrets, relative to it; the nearest first.

    ignores   leave out what .gitignore files name
    follows   look behind links as well
    Empty for a folder that may not be listed: other gates judge it. Raises nothing.
    """
    try:
        place = roots.place(os.path.expanduser(folder), Access.LIST)
    except (Refused, ToolError):
        return ()
    found = _found(place.path, follows=follows)
    return _not_ignored(place, found) if ignores and found else found


def _found(start: str, *, follows: bool) -> list[str]:
    found: list[str] = []
    folders, seen, visited = [""], 0, {start}
    while folders and seen < MAX_ENTRIES:
        below: list[str] = []
        for folder in folders:
            for entry in _entries(os.path.join(start, folder)):
                seen += 1
                if entry.is_symlink() and not follows:
                    continue
                path, real = os.path.join(folder, entry.name), entry.path
                if entry.is_symlink():
                    real = os.path.realpath(real)
                if entry.is_dir():
                    if entry.name not in _SKIPPED and real not in visited:
                        visited.add(real)
                        below.append(path)
                elif entry.is_file() and (secrecy(entry.path) or secrecy(real)):
                    found.append(path)
            if seen >= MAX_ENTRIES:
                break
        folders = below
    return found


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _not_ignored(place: Place, found: Sequence[str]) -> list[str]:
    from acp_agent.execution.ignore import IgnoreRules  # noqa: PLC0415 - only where there is a secret to look for
    from acp_agent.execution.time_limit import TimeLimit  # noqa: PLC0415 - likewise

    rules = IgnoreRules(place.root, place.relative, TimeLimit(_RULE_SECONDS))
    above = "" if place.relative == "." else f"{place.relative}/"

    def is_ignored(path: str) -> bool:
        names = f"{above}{path}".split("/")
        first = above.count("/") + 1
        folders = ("/".join(names[:depth]) for depth in range(first, len(names)))
        if any(rules.ignores(folder, is_directory=True) for folder in folders):
            return True
        return rules.ignores("/".join(names), is_directory=False)

    return [path for path in found if not is_ignored(path)]
