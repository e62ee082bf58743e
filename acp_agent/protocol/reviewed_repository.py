"""Whether git may be asked what has changed in a folder: its repository came with the files, and git obeys it (A17.5).

Two things no option of git switches off: programs that filters and hooks name, which git would run, and folders beyond
the session's, which git would read and show.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acp_agent.tools.visible import visible

GIT = (
    "GIT_ALLOW_PROTOCOL= git --no-pager --no-optional-locks"
    " -c color.ui=false -c color.status=false -c core.fsmonitor=false -c core.hooksPath=/dev/null"
)
"""No hook, and no protocol: what a partial clone lacks git fetches, by a program the configuration names."""
_NAMED = r"^(core[.]worktree|filter[.].*[.](clean|process|smudge)|hook[.].*[.]command)$"
LOOK = (
    f"{GIT} rev-parse --is-inside-work-tree --show-toplevel --absolute-git-dir"
    f" && {GIT} worktree list --porcelain"
    f" && {{ {GIT} config --includes --show-scope --name-only --get-regexp '{_NAMED}' || test $? -eq 1; }}"
)
"""Whether we stand in a work tree, which, whose, which ones that repository knows, what its configuration names.

Git runs nothing for that. 1 is its answer where the configuration names none of it.
"""

_OF_THE_REPOSITORY = frozenset(("local", "worktree"))
"""Scopes of a configuration that came with the files. What the user has set for all repositories is his own choice."""
_IDLE = ("hooks", "modules", "worktrees", "annex", "lfs")
"""What git keeps and does not look at for this. Hooks are often links, and none runs."""
_MOST_NAMED = 3
_LONGEST = 80  # characters of a name


@dataclass(frozen=True, slots=True)
class _Repository:
    """What LOOK tells. `keys` came with the files; `trees` are the work trees the repository knows."""

    inside: bool
    tree: str
    own: str
    trees: Sequence[str]
    keys: Sequence[str]


def objection(told: str) -> str:
    """Why git is not to be asked, by what LOOK has told; empty where it may be."""
    lines = told.splitlines()
    if len(lines) < 3:
        return "git does not say where its repository is"
    found = _Repository(
        inside=lines[0] == "true",
        tree=lines[1],
        own=lines[2],
        trees=[line.removeprefix("worktree ") for line in lines[3:] if line.startswith("worktree ")],
        keys=[*_keys(lines[3:])],
    )
    programs = [key for key in found.keys if key != "core.worktree"]
    if programs:
        return f"git would run programs this repository's own configuration names ({_named(programs)})"
    if not found.inside:
        return f"this repository's own configuration has git look at another folder ({_named([found.tree])})"
    if not _is_its_own(found):
        return f"the repository git finds does not know this folder ({_named([found.own])})"
    return ""


def list_links(told: str) -> str:
    """The command that lists links among git's own files, where LOOK has told this."""
    return f"find {shlex.quote(_own(told))} -type l"


def links_objection(told: str, listed: str) -> str:
    """Why git is not to be asked, by what LOOK and `list_links` have told: it would follow them."""
    own = _own(told)
    idle = tuple(f"{own}/{name}/" for name in _IDLE)
    links = [line for line in listed.splitlines() if not line.startswith(idle)]
    return f"links among git's own files may lead anywhere ({_named(links)})" if links else ""


def _own(told: str) -> str:
    """The folder of git's own files, where LOOK has told this."""
    return told.splitlines()[2]


def _keys(lines: Sequence[str]) -> Iterator[str]:
    for scope, tab, key in (line.partition("\t") for line in lines):
        if tab and scope in _OF_THE_REPOSITORY:
            yield key


def _is_its_own(found: _Repository) -> bool:
    """Whether the repository names the work tree, too: a `.git` can name any repository that can be read.

    One of a submodule, which is not kept within it, does so in its configuration.
    """
    return found.tree in found.trees or (found.own in found.trees and "core.worktree" in found.keys)


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{visible(name[:_LONGEST])}`" for name in names[:_MOST_NAMED])
    return shown + (" and more" if len(names) > _MOST_NAMED else "")
