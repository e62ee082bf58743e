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


def secrets_below(roots: Roots, folder: str, ignores: bool) -> Sequence[str]:  # noqa: FBT001 - see gates' Below
    """Return the files below a folder that may hold secrets, relative to it; the nearest first.

    ignores   leave out what .gitignore files name
    Empty for a folder that may not be listed: other gates judge it. Links are not followed. Raises nothing.
    """
    try:
        place = roots.place(os.path.expanduser(folder), Access.LIST)
    except (Refused, ToolError):
        return ()
    found = _found(place.path)
    return _not_ignored(place, found) if ignores and found else found


def _found(start: str) -> list[str]:
    found: list[str] = []
    folders, seen = [""], 0
    while folders and seen < MAX_ENTRIES:
        below: list[str] = []
        for folder in folders:
            for name, is_directory in _entries(os.path.join(start, folder)):
                seen += 1
                path = os.path.join(folder, name)
                if is_directory and name not in _SKIPPED:
                    below.append(path)
                elif not is_directory and secrecy(os.path.join(start, path)):
                    found.append(path)
            if seen >= MAX_ENTRIES:
                break
        folders = below
    return found


def _entries(folder: str) -> list[tuple[str, bool]]:
    """Return the names of files and folders, and whether it is a folder. Links are neither."""
    try:
        with os.scandir(folder) as entries:
            return [
                (entry.name, is_directory)
                for entry in entries
                if (is_directory := entry.is_dir(follow_symlinks=False)) or entry.is_file(follow_symlinks=False)
            ]
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
