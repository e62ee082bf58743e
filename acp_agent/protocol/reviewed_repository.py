"""Whether git may be asked what has changed in a folder: its repository came with the files, and git obeys it (A17.5).

Two things no option of git switches off: programs that filters and hooks name, which git would run, and folders beyond
the session's, which git would read and show. The shell that looks decides, and tells by its exit code alone: what it
prints is a repository's own words, which clipping, redaction and cleaning may have changed.
"""

import shlex
from dataclasses import dataclass

from acp_agent.tools.visible import visible

GIT = (
    "LC_ALL=C GIT_ALLOW_PROTOCOL= GIT_NO_LAZY_FETCH=1 git --no-pager --no-optional-locks"
    " -c color.ui=false -c color.status=false -c core.fsmonitor=false -c core.hooksPath=/dev/null"
    " -c core.untrackedCache=false"
)
"""No hook, and no protocol: what a partial clone lacks git fetches, by a program the configuration names."""

_GREP = "LC_ALL=C grep -a"
"""In another locale, what is no text there matches nothing."""
_NO_LINE = f"{_GREP}c '' | {_GREP}qx 0"
"""Nothing was written: a count, which has to be there, so that a program that fails says no."""
_OF_THE_REPOSITORY = "^(local|worktree|submodule|unknown)[[:blank:]]"
"""Scopes of a configuration that came with the files. What the user has set for all repositories is his own choice."""
_NAMED = (
    f"{_OF_THE_REPOSITORY}((filter|hook|lfs[.]extension|lfs[.]customtransfer)[.]"
    "|core[.](attributes|excludes)file$|diff[.]orderfile$)"
)
"""Programs; of git-lfs, too, which many users have for all repositories. And files of which git tells something."""
_KEYS = f"{{ {GIT} config --includes --show-scope --name-only --list || echo local filter.unknown; }}"
"""A line per key, where git can list them. No key holds a line break: git takes none from a file or the environment."""
_INDEX = f"{{ {GIT} ls-files --full-name -- :/ || echo ..; }}"
"""A name per line, in quotes where it is an odd one. git believes its index, also where an entry is no file of ours."""
_ASTRAY = '(^"?|/)([.][.]?|[.]git)?(/|"?$)'
"""A part of a name that leads out of the work tree, or among git's own files."""
_PLACES = "--path-format=absolute --show-toplevel --git-dir --git-common-dir"
_IDLE = " -o ".join(f"-path '*/./{name}'" for name in ("hooks", "modules", "worktrees", "annex", "lfs"))
"""What git keeps and does not look at for this. Hooks are often links, and none runs."""

_UNCLEAR, _PROGRAMS, _OUTSIDE, _UNKNOWN, _LINKS, _ALTERNATES, _STRAYS = range(81, 88)
_REASONS = {
    _UNCLEAR: "git does not say clearly where its repository is",
    _PROGRAMS: "git would run programs, or read files, this repository's own configuration names",
    _OUTSIDE: "this repository's own configuration has git look at another folder",
    _UNKNOWN: "the repository git finds does not know this folder",
    _LINKS: "links among git's own files may lead anywhere",
    _ALTERNATES: "this repository takes objects from another one",
    _STRAYS: "this repository counts files elsewhere among its own",
}
"""What the exit codes of `look` mean. Any but these and 0 is git's or the shell's own."""
_MOST_NAMED = 3
_LONGEST = 80  # characters of a name

WHERE = f"{GIT} rev-parse --is-inside-work-tree {_PLACES}"
"""A line each: whether we stand in a work tree, its folder, git's own, and what work trees share."""


@dataclass(frozen=True, slots=True)
class Places:
    """What WHERE has told, as far as it can be read: `look` has the shell compare it with what git says."""

    tree: str
    own: str
    common: str


def places(told: str) -> Places | None:
    """The folders in what WHERE has told; None where it is not that."""
    lines = told.splitlines()
    return Places(*lines[1:4]) if len(lines) >= 4 else None


def look(found: Places) -> str:
    """The command that exits with 0 where git may be asked; else with the reason's code. Git runs nothing for it.

    The repository has to know the work tree, too: a `.git` can name any repository that can be read. One of a
    submodule, which is not kept within it, does so in its configuration. What fails on the way refuses.
    """
    tree, own, common = (shlex.quote(place) for place in (found.tree, found.own, found.common))
    in_tree, in_own = (shlex.quote(f"worktree {place}") for place in (found.tree, found.own))
    none_named = f"{_KEYS} | {_GREP}ciE '{_NAMED}' | {_GREP}qx 0"
    named = f"{_KEYS} | {_GREP}iE '{_NAMED}' | cut -f 2 | head -n {_MOST_NAMED}"
    own_tree = f"{_KEYS} | {_GREP}qiE '{_OF_THE_REPOSITORY}core[.]worktree$'"
    trees = f"{GIT} worktree list --porcelain | {_GREP}qxF -e"
    links = f"{{ find {own}/. {common}/. '(' {_IDLE} ')' -prune -o -type l -print || echo unknown; }}"
    borrowed = " && ".join(f"test ! -e {common}/objects/info/{name}" for name in ("alternates", "http-alternates"))
    none_astray = f"{_INDEX} | {_GREP}ciE '{_ASTRAY}' | {_GREP}qx 0"
    return "\n".join(
        (
            f"{GIT} rev-parse {_PLACES} | {_GREP}c '' | {_GREP}qx 3 || exit {_UNCLEAR}",
            f"{GIT} rev-parse --show-toplevel | {_GREP}qxF -e {tree} || exit {_UNCLEAR}",
            f"{GIT} rev-parse --path-format=absolute --git-dir | {_GREP}qxF -e {own} || exit {_UNCLEAR}",
            f"{GIT} rev-parse --path-format=absolute --git-common-dir | {_GREP}qxF -e {common} || exit {_UNCLEAR}",
            f"{none_named} || {{ {named}; exit {_PROGRAMS}; }}",
            f"{GIT} rev-parse --is-inside-work-tree | {_GREP}qx true || exit {_OUTSIDE}",
            f"{trees} {in_tree} || {{ {trees} {in_own} && {own_tree}; }} || exit {_UNKNOWN}",
            f"{links} | {_NO_LINE} || {{ {links} | sort -u | head -n {_MOST_NAMED}; exit {_LINKS}; }}",
            f"{borrowed} || exit {_ALTERNATES}",
            f"{none_astray} || {{ {_INDEX} | {_GREP}iE '{_ASTRAY}' | head -n {_MOST_NAMED}; exit {_STRAYS}; }}",
        )
    )


def objection(found: Places, code: object, told: str) -> str:
    """Why git is not to be asked, by the exit code of `look`; empty for 0 alone. `told`, its names, is for the eye."""
    match code:
        case 0:
            return ""
        case int() if code in _REASONS:
            names = told.splitlines()[:_MOST_NAMED]
        case _:
            return f"git exited with code {code}"
    if code == _OUTSIDE:
        names = [found.tree]
    elif code in (_UNKNOWN, _ALTERNATES):
        names = [found.own]
    shown = ", ".join(f"`{visible(name[:_LONGEST])}`" for name in names)
    return _REASONS[code] + (f" ({shown})" if shown else "")
