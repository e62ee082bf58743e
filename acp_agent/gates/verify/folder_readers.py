"""Commands that read a whole folder, so that no word names the files they show.

`grep -r`, `rg`, `find … -exec` and `diff` show the files at once. `tar`, `zip` and `git add` put them within reach.
`cp` and `mv` give another name to a folder whose name makes its files secrets (`.config/gh`). Files that plain options
exclude (`--exclude`, `--include`, `-g`, `-name`) are left out.
"""

import posixpath

from acp_agent.core.secret_files import secrecy
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import WordKind
from acp_agent.gates.verify.finders import FILE_FINDERS, FINDERS, file_finder, finder
from acp_agent.gates.verify.git_readers import git_reading
from acp_agent.gates.verify.reading import Options, Reading, everything, may_match, surely_matches
from acp_agent.workspace.secrets_below import FoundSecret, Look

_GREPS = frozenset(
    ("grep", "egrep", "fgrep", "ggrep", "rgrep", "zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep", "zstdgrep")
)
_RECURSIVE = ("--recursive", "--dereference-recursive")
_TARS = frozenset(("tar", "gtar", "bsdtar"))
_SEVEN_ZIPS = frozenset(("7z", "7za", "7zr", "7zz"))
_COPIERS = {"cp": "cp", "gcp": "cp", "mv": "mv", "gmv": "mv", "rsync": "rsync", "scp": "scp"}
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_FIND_DOUBTS = ("-o", "-or", "!", "-not", ",", "(", ")")


def reading(command: Command) -> Reading | None:
    """Return what the command reads below folders, or None if it names every file it reads."""
    name = command.name
    if name in _GREPS:
        return _grep(command)
    if name in FINDERS:
        return finder(command)
    if name in FILE_FINDERS:
        return file_finder(command)
    if name in ("find", "gfind", "bfs"):
        return _find(command)
    if name in ("diff", "gdiff", "colordiff"):
        return _diff(command)
    if name in _COPIERS:
        options = Options(_COPIERS[name], command.own)
        follows = options.has("LHh", "--dereference", "--copy-links")
        return Reading(options.operands(), Look(follows=follows), _loses_its_folder)
    return git_reading(command) or _packer(command)


def _grep(command: Command) -> Reading | None:
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


def _diff(command: Command) -> Reading:
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
