"""Commands that read a whole folder, so that no word names the files they show.

`grep -r`, `rg`, `find … -exec` and `diff` show the files at once. `tar`, `zip` and `git add` copy them to a place where
a later command can show them. `cp` and `mv` may rename a folder whose name makes its files secrets (`.config/gh`).
Files that plain options exclude (`--exclude`, `--include`, `-g`, `-name`) are left out. `rg` and `fd -x` leave out
hidden and ignored files. A line such as `!.env` in an ignore file, or a file type of `rg` that includes `.env`, makes
them read the file again, hidden or not.

`git diff --cached` shows what `git add` stored, and `git stash show` what `git stash -u` stored. So the user is asked
about the storing command. `git log -p` is allowed: it shows old commits, which are the content of the repository.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from itertools import product
from math import prod

from acp_agent.core.data import frozen
from acp_agent.core.secrets import secrecy
from acp_agent.gates.git_calls import GitCall, git_call
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import Argument, ParsedArguments, WordKind, grammar_of
from acp_agent.workspace.command_files import FoundSecret, Look
from acp_agent.workspace.git.index import GitState

_SPECIAL = "[]\\{}"


def everything(found: FoundSecret) -> bool:
    """Return True: every file is shown."""
    del found
    return True


@frozen
class Reading:
    """The files that a command reads without naming them.

    folders   the folders, and maybe files, as the command names them; the files are also judged as words
    look      how the command finds files below the folders
    shows     returns whether the command shows a file that was found
    how       a clause for the user's question that says why the command reads the file
    """

    folders: tuple[str, ...]
    look: Look = field(default_factory=Look)
    shows: Callable[[FoundSecret], bool] = everything
    how: str = "which it reads with its folder"


class Options:
    """The options of one call, read with the grammar of its program.

    If the grammar does not know every word, an option counts as given if any word may mean it.

    is_certain   whether the grammar knows every word
    parsed       the call as the grammar reads it
    """

    def __init__(self, program: str, args: Sequence[str], verb: str = "") -> None:
        form = grammar_of(program)
        if form is not None and verb:
            form = form.verbs.get(verb)
        self._args = tuple(args)
        self.parsed = form.parse(args) if form is not None else ParsedArguments(unknown=(program,))
        self.is_certain = not self.parsed.unknown

    def has(self, letters: str, *longs: str) -> bool:
        """Return whether one of the options is given. `letters` are short options, `longs` long ones."""
        given = self.parsed.options
        if any(option in longs or (option[:1] == "-" and option[1:] in letters) for option in given):
            return True
        return not self.is_certain and any(self._may_mean(word, letters, longs) for word in self._args)

    def count(self, *options: str) -> int:
        """Return how often options are given."""
        return sum(option in options for option in self.parsed.options)

    def values(self, *options: str) -> list[Argument]:
        """Return the values of options in their order. They are reliable only if `is_certain`."""
        return [each for each in self.parsed.arguments if each.option in options]

    def loose_values(self, long: str) -> Iterator[str]:
        """Yield the values of a long option that may be abbreviated."""
        for at, word in enumerate(self._args):
            name, equals, value = word.partition("=")
            if len(name) > 3 and long.startswith(name):
                yield value if equals else next(iter(self._args[at + 1 : at + 2]), "")

    def operands(self) -> tuple[str, ...]:
        """Return the operands that are paths, or every word that may be one."""
        if self.is_certain:
            return tuple(each.word for each in self.parsed.arguments if not each.option and each.kind.path)
        return tuple(word for word in self._args if not word.startswith("-"))

    def folders(self) -> tuple[str, ...]:
        """Return the operands, and "." if there are none or the grammar does not know every word."""
        operands = self.operands()
        return operands if operands and self.is_certain else (*operands, ".")

    @staticmethod
    def _may_mean(word: str, letters: str, longs: Sequence[str]) -> bool:
        if word.startswith("--"):
            return len(word) > 2 and any(long.startswith(word.partition("=")[0]) for long in longs)
        return word.startswith("-") and any(letter in word[1:] for letter in letters)


def surely_matches(name: str, glob: str) -> bool:
    """Return whether a glob matches a name in every program."""
    return not any(char in _SPECIAL for char in glob) and fnmatchcase(name, glob)


def may_match(name: str, glob: str) -> bool:
    """Return whether a glob may match a name, ignoring case. Its sets, choices and escapes may mean anything."""
    at = next((at for at, char in enumerate(glob) if char in _SPECIAL), None)
    plain = glob if at is None else f"{glob[:at]}*"
    return fnmatchcase(name.casefold(), plain.casefold())


FINDERS = frozenset(("rg", "ag", "ack", "ugrep", "ug"))
FILE_FINDERS = frozenset(("fd", "fdfind"))

_GLOBS = ("-g", "--glob", "--iglob")
_CHOICE = re.compile(r"\{([\w.,*-]*)\}")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_MAX_PARTS = 7
_MAX_CHOICES = 64


def finder(command: Command) -> Reading:
    """Return what a command that searches for text reads."""
    options = Options(command.name, command.own)
    configured = any(each.startswith("RIPGREP_CONFIG_PATH=") for each in command.assignments)
    if not options.is_certain or configured or command.name == "ack":
        return Reading(options.folders(), Look(follows=options.has("L", "--follow")))
    if command.name == "ag":
        follows = options.has("f", "--follow")
        no_ignore = options.has("aUtup", "--all-types", "--all-text", "--skip-vcs-ignores", "--unrestricted")
        hidden = options.has("u", "--hidden", "--unrestricted") or options.has("p", "--path-to-ignore")
        look = Look(ignores=not (no_ignore or options.has("", "--path-to-ignore")), follows=follows)
        return Reading(options.folders(), look, _left_in(hidden=hidden))
    return _ripgrep(options)


def file_finder(command: Command) -> Reading | None:
    """Return what a command reads if it finds files and starts another program with them."""
    options = Options(command.name, command.own)
    if not options.has("xX", "--exec", "--exec-batch"):
        return None
    pattern, *named = [each.word for each in options.parsed.arguments if not each.option] or [""]
    places = [each.word for each in options.values("--search-path", "--base-directory")]
    if not options.is_certain:
        return Reading(options.folders(), Look(follows=True))
    unrestricted = options.has("u", "--unrestricted")
    hidden = unrestricted or options.has("H", "--hidden") or options.has("", "--ignore-file")
    no_ignore = unrestricted or options.has("I", "--ignore-file") or _no_ignore(options)
    ends = [each.word.casefold() for each in options.values("-e", "--extension")]
    left_in = _left_in(hidden=hidden)

    def shows(found: FoundSecret) -> bool:
        if ends and not any(found.name.casefold().endswith(f".{end.lstrip('.')}") for end in ends):
            return False
        if _PLAIN.fullmatch(pattern) and not options.has("g", "--glob"):
            return pattern.casefold() in found.path.casefold() and left_in(found)
        return left_in(found)

    # The program that it starts follows links.
    look = Look(ignores=not no_ignore, needs_git=not options.has("", "--no-require-git"), follows=True)
    return Reading((*named, *places) or (".",), look, shows)


def _ripgrep(options: Options) -> Reading:
    globs = [choice for each in options.values(*_GLOBS) for choice in _choices(each.word)]
    unrestricted = options.count("-u", "--unrestricted")
    elsewhere = options.has("", "--ignore-file")
    typed = options.has("t", "--type") and options.has("", "--type-add")
    hidden = unrestricted > 1 or options.has(".", "--hidden") or elsewhere or typed
    no_ignore = unrestricted > 0 or elsewhere or _no_ignore(options)
    taken = not all(glob.startswith("!") for glob in globs)
    left_in = _left_in(hidden=hidden)

    def shows(found: FoundSecret) -> bool:
        for glob in reversed(globs):  # the last one that matches decides
            if glob.startswith("!"):
                if _excludes(glob[1:], found):
                    return False
            elif _may_take(glob, found):
                return True
        return not taken and left_in(found)

    look = Look(
        ignores=not no_ignore and not taken,
        needs_git=not options.has("", "--no-require-git"),
        follows=options.has("L", "--follow"),
    )
    return Reading(options.folders(), look, shows)


def _no_ignore(options: Options) -> bool:
    harmless = ("--no-ignore-messages",)
    return any(each.startswith("--no-ignore") and each not in harmless for each in options.parsed.options)


def _left_in(*, hidden: bool) -> Callable[[FoundSecret], bool]:
    return everything if hidden else lambda found: found.excepted or not found.is_hidden


def _choices(glob: str) -> Sequence[str]:
    """Return the globs of a glob with plain choices (`*.{py,md}`)."""
    parts = _CHOICE.split(glob)
    choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
    if len(parts) > _MAX_PARTS or prod(map(len, choices)) > _MAX_CHOICES:
        return (glob,)
    return ["".join(each) for each in product(*choices)]


def _excludes(glob: str, found: FoundSecret) -> bool:
    """Return whether a glob surely excludes a file, by a part of its path or by its path from the command's folder."""
    if "/" not in glob.strip("/"):
        parts = found.path.split("/")
        anchored, of_folder = glob.startswith("/"), glob.endswith("/")
        names = parts[:-1] if of_folder else parts
        if anchored:
            names = names[:1] if found.folder in (".", "./") else []
        return any(surely_matches(name, glob.strip("/")) for name in names)
    at_start = found.folder in (".", "./") and "**" not in glob
    return at_start and surely_matches(found.path, glob.lstrip("/"))


def _may_take(glob: str, found: FoundSecret) -> bool:
    last = glob.rpartition("/")[2]
    return "{" in glob or may_match(found.name, "*" if "**" in last else last)


EXCLUDING = (":!", ":^", ":(exclude)")
"""The beginnings of pathspecs that exclude files."""

_NAMES_ONLY = (
    *("--stat", "--name-only", "--name-status", "--numstat", "--shortstat", "--summary", "--raw", "--dirstat"),
    *("--quiet", "--compact-summary"),
)
_PATCHES = ("-p", "-u", "-U", "--patch", "--unified", "--patch-with-raw", "--patch-with-stat", "--binary")
_STASH_KEEPS = frozenset(("list", "show", "pop", "apply", "drop", "branch", "clear", "store"))
_OWN = GitState.TRACKED | GitState.UNTRACKED
_ALL = GitState.TRACKED | GitState.UNTRACKED | GitState.IGNORED
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
            return _shown(GitState.CHANGED | GitState.STAGED, here) if options.has("v", "--verbose") else None
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
    known = GitState.CHANGED if only_tracked and not every else GitState.CHANGED | GitState.UNTRACKED
    if options.has("f", "--force"):
        known |= GitState.UNTRACKED | GitState.IGNORED
    if not (options.operands() or every or only_tracked) and options.is_certain:
        return None
    return _kept(options, known, here)


def _stash(args: Sequence[str], here: str) -> Reading | None:
    if next(iter(args), "") in _STASH_KEEPS:
        return None
    options = Options("git", args, "stash")
    known = GitState.CHANGED
    if options.has("u", "--include-untracked"):
        known |= GitState.UNTRACKED
    if options.has("a", "--all"):
        known |= GitState.UNTRACKED | GitState.IGNORED
    return _kept(options, known, here, named="push" in options.parsed.verbs)


def _commit(args: Sequence[str], here: str) -> Reading | None:
    options = Options("git", args, "commit")
    shows = GitState.STAGED if options.has("v", "--verbose") else GitState(0)
    takes = options.has("apio", "--all", "--patch", "--include", "--only", "--interactive") or options.operands()
    known = shows | (GitState.CHANGED if takes else GitState(0))
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
    known = GitState.CHANGED | (GitState.STAGED if staged else GitState(0))
    return _of(paths, known, here, "whose changes it shows")


def _grep(args: Sequence[str], here: str) -> Reading:
    options = Options("git", args, "grep")
    known = _OWN
    if options.has("", "--no-index", "--no-exclude-standard"):
        known = _ALL
    paths = options.operands()
    return _of(paths if options.is_certain else (), known, here, "which it reads with its folder", top=False)


def _kept(options: Options, known: GitState, here: str, *, named: bool = True) -> Reading:
    """Return the reading of a command that stores files in git's own storage."""
    paths = options.operands() if named and options.is_certain else ()
    return _of(paths, known, here, "which git would copy into its storage")


def _shown(known: GitState, here: str) -> Reading:
    return _of((), known, here, "whose changes it shows")


def _of(paths: Sequence[str], known: GitState, here: str, how: str, *, top: bool = True) -> Reading:
    """Return the reading of pathspecs, or of the whole repository if there are none.

    how   as in `Reading`
    top   whether a call without pathspecs reads the whole repository, not only the command's folder
    """
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
    # Without a path, "." stands for the whole repository, or for the folder in which the patterns begin.
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
    """Return whether a pathspec pattern may match a file. Its stars match slashes too."""
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
    return Reading(tuple(rest[:first]) or (".",), Look(follows=True), shows)  # the program that it starts follows links


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
        packs = any(word.startswith(("--create", "--pass")) or _bundles(word, "opw") for word in args)
        words = tuple(word for word in args if not word.startswith("-"))
        return Reading((*words, "."), Look(follows=True)) if packs else None
    first, *others = args or [""]
    if name in _SEVEN_ZIPS:
        packs = first in ("a", "u")
    else:  # the first word of jar is a bundle even without a dash
        bundles = (first if first.startswith("-") else f"-{first}", *others)
        packs = any(word.startswith(("--c", "--u")) or _bundles(word, "cu") for word in bundles)
    return Reading(tuple(args[1:]), Look(follows=True)) if packs else None


def _bundles(word: str, letters: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and not set(word).isdisjoint(letters)


def _loses_its_folder(found: FoundSecret) -> bool:
    """Return whether only the name of the copied folder makes a file a secret. A copy with another name hides that."""
    return not secrecy(found.path)
