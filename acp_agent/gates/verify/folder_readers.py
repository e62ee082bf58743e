"""Commands that read a whole folder, so that no word names the files they show.

`grep -r`, `rg`, `find … -exec` and `diff` show the files at once. `tar`, `zip` and `git add` put them within reach.
`cp` and `mv` give another name to a folder whose name makes its files secrets (`.config/gh`). Files that plain options
exclude (`--exclude`, `--include`, `-g`, `-name`) are left out.

`git diff --cached` shows what `git add` puts into the index, and `git stash show` what `git stash -u` puts away. So the
first command asks. Old commits are the content of the repository, which `git log -p` shows.
"""

import posixpath
from collections.abc import Sequence

from acp_agent.core.secrets import secrecy
from acp_agent.gates.git_calls import GitCall, git_call
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import WordKind
from acp_agent.gates.verify.reading import (
    FILE_FINDERS,
    FINDERS,
    Options,
    Reading,
    everything,
    file_finder,
    finder,
    may_match,
    surely_matches,
)
from acp_agent.workspace.command_files import FoundSecret, Look
from acp_agent.workspace.git.index import Known

EXCLUDING = (":!", ":^", ":(exclude)")
"""The beginnings of pathspecs that exclude files."""

_NAMES_ONLY = (
    *("--stat", "--name-only", "--name-status", "--numstat", "--shortstat", "--summary", "--raw", "--dirstat"),
    *("--quiet", "--compact-summary"),
)
_PATCHES = ("-p", "-u", "-U", "--patch", "--unified", "--patch-with-raw", "--patch-with-stat", "--binary")
_STASH_KEEPS = frozenset(("list", "show", "pop", "apply", "drop", "branch", "clear", "store"))
_OWN = Known.TRACKED | Known.UNTRACKED
_ALL = Known.TRACKED | Known.UNTRACKED | Known.IGNORED
_WILD = "*?["


def git_reading(command: Command) -> Reading | None:
    """Return what a command of git reads or stores; None if it names every file."""
    subcommand, args, folder, _ = git_call(command) or GitCall("")
    here = folder or ""
    match subcommand:
        case "add" | "stage":
            return _add(args, here)
        case "stash":
            return _stash(args, here)
        case "commit":
            return _commit(args, here)
        case "diff" | "difftool" | "diff-files" | "diff-index":
            return _diff(subcommand, args, here)
        case "status":
            options = Options("git", args, "status")
            return _shown(Known.CHANGED | Known.STAGED, here) if options.has("v", "--verbose") else None
        case "grep":
            return _grep(args, here)
        case "mv":
            folders = Options("git", args, "mv").operands()
            return Reading(_below(folders, here), shows=_loses_its_folder)
        case _:
            return None


def _add(args: Sequence[str], here: str) -> Reading | None:
    options = Options("git", args, "add")
    if options.parsed.options and options.has("n", "--dry-run", "--refresh") and options.is_certain:
        return None
    every = options.has("A", "--all")
    only_tracked = options.has("upei", "--update", "--patch", "--edit", "--interactive", "--renormalize")
    known = Known.CHANGED if only_tracked and not every else Known.CHANGED | Known.UNTRACKED
    if options.has("f", "--force"):
        known |= Known.UNTRACKED | Known.IGNORED
    if not (options.operands() or every or only_tracked) and options.is_certain:
        return None
    return _kept(options, known, here)


def _stash(args: Sequence[str], here: str) -> Reading | None:
    if next(iter(args), "") in _STASH_KEEPS:
        return None
    options = Options("git", args, "stash")
    known = Known.CHANGED
    if options.has("u", "--include-untracked"):
        known |= Known.UNTRACKED
    if options.has("a", "--all"):
        known |= Known.UNTRACKED | Known.IGNORED
    return _kept(options, known, here, named="push" in options.parsed.verbs)


def _commit(args: Sequence[str], here: str) -> Reading | None:
    options = Options("git", args, "commit")
    shows = Known.STAGED if options.has("v", "--verbose") else Known(0)
    takes = options.has("apio", "--all", "--patch", "--include", "--only", "--interactive") or options.operands()
    known = shows | (Known.CHANGED if takes else Known(0))
    return _kept(options, known, here) if known else None


def _diff(verb: str, args: Sequence[str], here: str) -> Reading | None:
    options = Options("git", args, "diff" if verb == "difftool" else verb)
    if options.has("", "--no-index"):
        return Reading(_below([word for word in args if not word.startswith("-")], here))
    given = options.parsed.options
    if any(each in _NAMES_ONLY for each in given) and not any(each in _PATCHES for each in given):
        return None
    if verb in ("diff-files", "diff-index") and options.is_certain and not any(each in _PATCHES for each in given):
        return None
    if "--" not in args and any(".." in word for word in options.operands()):
        return None  # between two commits
    paths = args[args.index("--") + 1 :] if "--" in args else ()
    staged = options.has("", "--cached", "--staged") or options.operands() or verb == "diff-index"
    known = Known.CHANGED | (Known.STAGED if staged else Known(0))
    return _of(paths, known, here, "whose changes it shows")


def _grep(args: Sequence[str], here: str) -> Reading:
    options = Options("git", args, "grep")
    known = _OWN
    if options.has("", "--no-index", "--no-exclude-standard"):
        known = _ALL
    paths = options.operands()
    return _of(paths if options.is_certain else (), known, here, "which it reads with its folder", top=False)


def _kept(options: Options, known: Known, here: str, *, named: bool = True) -> Reading:
    """Return the reading of a command that stores files in git's own storage."""
    paths = options.operands() if named and options.is_certain else ()
    return _of(paths, known, here, "of which git would keep a copy")


def _shown(known: Known, here: str) -> Reading:
    return _of((), known, here, "whose changes it shows")


def _of(paths: Sequence[str], known: Known, here: str, how: str, *, top: bool = True) -> Reading:
    """Return the reading of pathspecs, or of the whole repository if there are none."""
    left_out = [word for word in map(_excluded, paths) if word]
    wanted = [word for word in paths if not _excluded(word)]
    wild = [word for word in wanted if word.startswith(":") or any(char in word for char in _WILD)]

    def shows(found: FoundSecret) -> bool:
        path = posixpath.normpath(posixpath.join(found.folder, found.path))
        if any(_is_at(path, posixpath.normpath(posixpath.join(here, word))) for word in left_out):
            return False
        return not wild or len(wild) < len(wanted) or any(_may_mean(found, word) for word in wild)

    if wanted and not wild:
        return Reading(_below(wanted, here), Look(known=known), shows if left_out else everything, how)
    # If no place is named, "." stands for the whole repository, or for the folder in which patterns begin.
    whole = (not paths and top) or any(word.startswith(":") for word in wild)
    return Reading((here or ".",), Look(known=known, whole=whole), shows, how)


def _excluded(pathspec: str) -> str:
    """Return the plain path that a pathspec excludes; empty for any other pathspec."""
    for mark in EXCLUDING:
        if pathspec.startswith(mark):
            return pathspec.removeprefix(mark)
    return ""


def _is_at(path: str, pathspec: str) -> bool:
    return surely_matches(path, pathspec) or path.startswith(f"{pathspec}/")


def _may_mean(found: FoundSecret, pathspec: str) -> bool:
    """Return whether a pattern, whose stars match slashes too, may mean a file."""
    return pathspec.startswith(":") or may_match(found.path, pathspec) or may_match(found.path, f"{pathspec}/*")


def _below(paths: Sequence[str], here: str) -> tuple[str, ...]:
    return tuple(path if path.startswith(("/", "~")) or not here else f"{here}/{path}" for path in paths)


_GREPS = frozenset(
    ("grep", "egrep", "fgrep", "ggrep", "rgrep", "zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep", "zstdgrep")
)
_RECURSIVE = ("--recursive", "--dereference-recursive")
_TARS = frozenset(("tar", "gtar", "bsdtar"))
_SEVEN_ZIPS = frozenset(("7z", "7za", "7zr", "7zz"))
_PACKERS = _TARS | _SEVEN_ZIPS | {"zip", "cpio", "pax", "jar"}
_COPIERS = {"cp": "cp", "gcp": "cp", "mv": "mv", "gmv": "mv", "rsync": "rsync", "scp": "scp"}
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FIND_DOUBTS = ("-o", "-or", "!", "-not", ",", "(", ")")


def reading(command: Command) -> Reading | None:
    """Return what the command reads below folders, or None if it names every file it reads."""
    name = command.name
    if name in _GREPS:
        return _read_by_grep(command)
    if name in FINDERS:
        return finder(command)
    if name in FILE_FINDERS:
        return file_finder(command)
    if name in ("find", "gfind", "bfs"):
        return _find(command)
    if name in ("diff", "gdiff", "colordiff"):
        return _read_by_diff(command)
    if name in _COPIERS:
        options = Options(_COPIERS[name], command.own)
        follows = options.has("LHh", "--dereference", "--copy-links")
        return Reading(options.operands(), Look(follows=follows), _loses_its_folder)
    if name == "git" or name.startswith("git-"):
        return git_reading(command)
    return _packer(command) if name in _PACKERS else None


def _read_by_grep(command: Command) -> Reading | None:
    options = Options("grep", command.own)
    actions = [each.word for each in options.values("-d", "--directories")]
    recurses = any(each and "recurse".startswith(each) for each in (*actions, *options.loose_values("--directories")))
    inherited = any(each.startswith("GREP_OPTIONS=") for each in command.assignments)
    if not (recurses or inherited or command.name == "rgrep" or options.has("rR", *_RECURSIVE)):
        return None
    chosen = [(each.option, each.word) for each in options.values("--include", "--exclude")]
    folders = [each.word.rstrip("/") for each in options.values("--exclude-dir")]

    def shows(found: FoundSecret) -> bool:
        above = found.path.split("/")[:-1]
        if any(surely_matches(folder, glob) for folder in above for glob in folders):
            return False
        for option, glob in reversed(chosen):  # the last one that matches decides
            if option == "--include" and may_match(found.name, glob):
                return True
            if option == "--exclude" and surely_matches(found.name, glob):
                return False
        return not chosen or chosen[0][0] == "--exclude"

    follows = options.has("R", "--dereference-recursive")
    return Reading(options.folders(), Look(follows=follows), shows if options.is_certain else everything)


def _find(command: Command) -> Reading | None:
    args = command.own
    runs = next((at for at, word in enumerate(args) if word in _FIND_RUNS), None)
    if runs is None:
        return None
    options = Options("find", args[:runs])
    named = options.values("-name", "-iname")
    plain = options.is_certain and not any(word in _FIND_DOUBTS for word in args)

    def shows(found: FoundSecret) -> bool:
        return not plain or all(may_match(found.name, each.word) for each in named)

    rest = [word for word in args if word not in ("-L", "-H", "-P")]
    first = next((at for at, word in enumerate(rest) if word.startswith(("-", "(", "!"))), len(rest))
    return Reading(tuple(rest[:first]) or (".",), Look(follows=True), shows)  # the command that it starts follows links


def _read_by_diff(command: Command) -> Reading:
    """Return what `diff` reads: the files directly in two folders, and with `-r` all below them."""
    options = Options("diff", command.own)
    deep = options.has("r", "--recursive")
    left_out = [each.word for each in options.values("-x", "--exclude")] if options.is_certain else []
    others = [each.word for each in options.values("--from-file", "--to-file")]

    def shows(found: FoundSecret) -> bool:
        if any(surely_matches(part, glob) for part in found.path.split("/") for glob in left_out):
            return False
        return deep or "/" not in found.path

    return Reading((*options.operands(), *others), Look(follows=True), shows)


def _packer(command: Command) -> Reading | None:
    """Return what a program packs; None if it packs nothing."""
    name, args = command.name, command.own
    options = Options(name, args)
    if name in _TARS:
        packs = options.has("cruA", "--create", "--append", "--update", "--catenate", "--concatenate")
        listed = options.has("T", "--files-from") or not options.is_certain
        starts = ["", *(each.word for each in options.parsed.arguments if each.kind is WordKind.FOLDER)]
        names = (*options.operands(), *((".",) if listed else ()))
        folders = tuple(posixpath.join(start, name) for start in starts for name in names)
        return Reading(folders, Look(follows=options.has("hL", "--dereference"))) if packs else None
    if name == "zip":
        packs = any(word.startswith("-") and set(word) & set("rR@") for word in args) or "-" in args
        listed = (".",) if any(word.startswith("-") and set(word) & set("R@") for word in args) else ()
        return Reading((*options.operands(), *listed), Look(follows=True)) if packs else None
    if name in ("cpio", "pax"):
        packs = any(word.startswith(("-o", "-p", "-w", "--create", "--pass")) or _bundles(word) for word in args)
        words = tuple(word for word in args if not word.startswith("-"))
        return Reading((*words, "."), Look(follows=True)) if packs else None
    first = next(iter(args), "")
    packs = (name in _SEVEN_ZIPS and first in ("a", "u")) or (name == "jar" and bool(set(first[:3]) & set("cu")))
    return Reading(tuple(args[1:]), Look(follows=True)) if packs else None


def _bundles(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and not set(word).isdisjoint("opw")


def _loses_its_folder(found: FoundSecret) -> bool:
    """Return whether only the copied folder's name makes a file a secret, which a copy with another name does not."""
    return not secrecy(found.path)
