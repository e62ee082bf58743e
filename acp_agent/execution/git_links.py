"""Find the links in a git folder, through which git would read or write files of other places.

Git itself makes none there. It opens files such as COMMIT_EDITMSG, logs/HEAD and FETCH_HEAD and writes into them what
a command says, whether they are links or not, and reads packed-refs, info/grafts and the like through them.
"""

import os

from acp_agent.execution.git_folder import Looks
from acp_agent.gates.git_config_reader import NotReadable

MAX_FOLDERS = 4096
"""Folders of one git folder that are looked through; more cannot be told."""

_MAX_ENTRIES = 50_000
_STORES = frozenset(("objects", "lfs/objects", "annex/objects"))
_LISTED = frozenset(("objects/pack", "objects/info"))
_FREE = frozenset(("hooks",))
_OTHERS = frozenset(("modules",))


def link_in(looks: Looks, folder: str) -> str:
    """Return the first link below a git folder, symbolic or hard, as a path in it; empty when there is none.

    Objects are only looked at to their first folders. Hooks may be links, and each submodule is a git folder itself.

    Raises:
        NotReadable: there is more than is looked at.

    """
    pending, count = [""], 0
    while pending:
        at = pending.pop()
        count += 1
        if count > MAX_FOLDERS:
            raise NotReadable(f"has more than {MAX_FOLDERS} folders")
        store = at in _STORES or at in _LISTED
        for entry in looks.entries(os.path.join(folder, at), _MAX_ENTRIES):
            name = f"{at}/{entry.name}" if at else entry.name
            if name in _FREE:
                continue
            if entry.is_symlink():
                return name
            if entry.is_dir():
                if name not in _OTHERS and (not store or name in _LISTED):
                    pending.append(name)
            elif not store and _is_shared(entry):
                return name
    return ""


def _is_shared(entry: os.DirEntry[str]) -> bool:
    """Return whether a file has another name elsewhere (a hard link)."""
    try:
        return entry.stat(follow_symlinks=False).st_nlink > 1
    except OSError:
        return False
