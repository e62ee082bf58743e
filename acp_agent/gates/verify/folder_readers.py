"""Commands that read a folder with all that is in it, so that no word names the files they show.

`grep -r`, `rg`, `find … -exec` and `diff -r` show them at once; `tar` and `zip` put them within reach.
`cp` and `mv` give a folder that makes secrets of its files (`.config/gh`) another name.
What their options leave out (`--exclude`, `--include`, `-g`, `-name`) is left out here, where the option is plain.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from acp_agent.core.secret_files import secrecy
from acp_agent.gates.command import Command

_GREPS = frozenset(("grep", "egrep", "fgrep", "ggrep", "zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep"))
_FINDERS = frozenset(("rg", "ag", "ack", "ugrep", "ug"))
_PACKERS = {"tar": "c", "gtar": "c", "bsdtar": "c", "zip": "r"}
_COPIERS = frozenset(("cp", "gcp", "mv", "gmv", "rsync", "scp"))
_RUN = ("-exec", "-execdir", "-ok", "-okdir")
_LONG_VALUED = (
    *("--regexp", "--file", "--max-count", "--after-context", "--before-context", "--context", "--include"),
    *("--exclude", "--exclude-dir", "--exclude-from", "--binary-files", "--devices", "--directories", "--label"),
)
_RG_VALUED = (
    *("--glob", "--iglob", "--type", "--type-not", "--max-depth", "--max-columns", "--max-filesize", "--threads"),
    *("--sort", "--sortr", "--encoding", "--replace", "--pre", "--pre-glob", "--ignore-file", "--color", "--colors"),
    *("--path-separator", "--engine", "--context-separator", "--field-match-separator", "--type-add"),
)
_GREP = ("ABCDdefm", _LONG_VALUED)
_FINDER = ("ABCEGMTdefgjmrt", (*_LONG_VALUED, *_RG_VALUED))
_NONE = ("", ())
_BUNDLE = re.compile(r"-[A-Za-z0-9.]")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a command reads without naming it.

    folders   the folders as they are named; those that are files are judged as words
    shows     whether it shows a file below one of them, by its path from there
    ignores   whether it leaves out what .gitignore names
    follows   whether it reads what links lead to
    """

    folders: tuple[str, ...]
    shows: Callable[[str], bool]
    ignores: bool = False
    follows: bool = False


def reading(command: Command) -> Reading | None:
    """Return what the command reads below folders, or None if it names every file it reads."""
    name, args = command.name, command.own
    if name in _GREPS:
        return _grep(args)
    if name in _FINDERS:
        return _finder(args, name)
    if name in ("find", "gfind", "bfs"):
        return _find(args)
    if name == "git":
        return _git_grep(args)
    bundles = [word for word in args if _BUNDLE.match(word)]
    if name in ("diff", "gdiff", "colordiff") and (_has(bundles, "r") or _abbreviates(args, "--recursive")):
        return Reading(tuple(_operands(args, _NONE)), _all, follows=True)
    if name in _COPIERS:
        follows = _has(bundles, "LHh") or _abbreviates(args, "--dereference") or _abbreviates(args, "--copy-links")
        return Reading(tuple(_operands(args, _NONE)), _loses_its_folder, follows=follows)
    packs = name in _PACKERS and (_has([*bundles, *args[:1]], _PACKERS[name]) or _abbreviates(args, "--create"))
    follows = name == "zip" or _has([*bundles, *args[:1]], "hL") or _abbreviates(args, "--dereference")
    return Reading(tuple(_operands(args, _NONE)), _all, follows=follows) if packs else None


def _grep(args: Sequence[str]) -> Reading | None:
    bundles = [word for word in args if _BUNDLE.match(word)]
    long = any(_abbreviates(args, option) for option in ("--recursive", "--dereference-recursive"))
    if not (long or _has(bundles, "rR") or any("recurse" in word for word in args)):
        return None
    taken = _values(args, ("--include",))
    left_out = _values(args, ("--exclude",))
    folders = _values(args, ("--exclude-dir",))

    def shows(path: str) -> bool:
        *above, name = path.split("/")
        wanted = not taken or _any(name, taken)
        return wanted and not _any(name, left_out) and not any(_any(folder, folders) for folder in above)

    follows = _has(bundles, "R") or _abbreviates(args, "--dereference-recursive")
    return Reading(_or_here(args, _GREP), shows, follows=follows)


def _git_grep(args: Sequence[str]) -> Reading | None:
    """Return what `git grep` reads: the files git knows, taken for those that are not ignored."""
    if "grep" not in args:
        return None
    at = args.index("grep")
    here = next((args[index + 1] for index, word in enumerate(args[:at]) if word == "-C"), "")
    folders = (posixpath.join(here, folder) for folder in _or_here(args[at + 1 :], _GREP))
    return Reading(tuple(folders), _all, ignores="--no-exclude-standard" not in args and "--no-index" not in args)


def _finder(args: Sequence[str], name: str) -> Reading:
    globs = _values(args, ("-g", "--glob", "--iglob"))
    taken = [glob.casefold() for glob in globs if not glob.startswith("!")]
    left_out = [glob[1:] for glob in globs if glob.startswith("!")]
    letters = "".join(word for word in args if re.fullmatch(r"-[A-Za-z0-9.]+", word))
    unrestricted = letters.count("u") + sum(word.startswith("--unr") for word in args)
    hidden = name == "ack" or unrestricted > (name == "rg") or any(word.startswith("--hid") for word in args)
    hidden = hidden or "." in letters
    no_ignore = name not in ("rg", "ag") or unrestricted > 0 or any(word.startswith("--no-ig") for word in args)
    no_ignore = no_ignore or (name == "ag" and not {*letters}.isdisjoint("aUt"))

    follows = "L" in letters or any(word.startswith("--fol") for word in args)

    def shows(path: str) -> bool:
        name = path.rpartition("/")[2]
        if any(fnmatchcase(name, glob) or fnmatchcase(path, glob.lstrip("/")) for glob in left_out):
            return False
        if taken:
            return any(_may_match(path.casefold(), glob) for glob in taken)
        return hidden or not any(part.startswith(".") for part in path.split("/"))

    return Reading(_or_here(args, _FINDER), shows, ignores=not no_ignore and not taken, follows=follows)


def _find(args: Sequence[str]) -> Reading | None:
    if not any(word in _RUN for word in args):
        return None
    args = [word for word in args if word not in ("-L", "-H", "-P")]
    first = next((at for at, word in enumerate(args) if word.startswith(("-", "(", "!"))), len(args))
    names = [args[at + 1].casefold() for at, word in enumerate(args[:-1]) if word in ("-name", "-iname")]
    plain = not any(word in ("-o", "-or", "!", "-not", ",") for word in args)

    def shows(path: str) -> bool:
        return not (names and plain) or all(fnmatchcase(path.rpartition("/")[2].casefold(), name) for name in names)

    return Reading(tuple(args[:first]) or (".",), shows, follows=True)  # what it runs does


def _all(path: str) -> bool:
    del path
    return True


def _loses_its_folder(path: str) -> bool:
    """Whether a secret is known as one by the folder alone that is copied: a copy under another name is not."""
    return not secrecy(path)


def _may_match(path: str, glob: str) -> bool:
    """Whether a glob of a finder may mean a path; one with choices or a `**` in it may mean any."""
    if "{" in glob or "**" in glob:
        return True
    return fnmatchcase(path if "/" in glob.strip("/") else path.rpartition("/")[2], glob.strip("/"))


def _any(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob.rstrip("/")) for glob in globs)


def _has(bundles: Sequence[str], letters: str) -> bool:
    return any(letter in word for word in bundles for letter in letters if not word.startswith("--"))


def _abbreviates(args: Sequence[str], option: str) -> bool:
    return any(len(word) > 3 and option.startswith(word) for word in args if word.startswith("--"))


def _values(args: Sequence[str], options: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for at, word in enumerate(args):
        option, equals, value = word.partition("=")
        if option in options:
            found += [value] if equals else args[at + 1 : at + 2]
        elif "-g" in options and re.match(r"-g.", word):
            found.append(word[2:])
    return found


def _operands(args: Sequence[str], valued: tuple[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the words that are neither options nor the value of one."""
    letters, names = valued
    is_value = False
    for at, word in enumerate(args):
        if is_value:
            is_value = False
        elif word == "--":
            yield from args[at + 1 :]
            return
        elif word == "-" or not word.startswith("-"):
            yield word
        elif word.startswith("--"):
            is_value = "=" not in word and any(_abbreviates((word,), name) for name in names)
        else:
            at_letter = _valued_letter(word, letters)
            is_value = at_letter > 0 and at_letter == len(word) - 1


def _valued_letter(word: str, letters: str) -> int:
    """Return where the first letter stands that takes the rest of the word, or the next one, as its value; else 0."""
    return next((index for index, char in enumerate(word) if index and char in letters), 0)


def _or_here(args: Sequence[str], valued: tuple[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the folders a search names behind its pattern, else the one it runs in."""
    letters, _ = valued
    short = (word[_valued_letter(word, letters)] for word in args if _BUNDLE.match(word))
    pattern_apart = any(letter in "ef" for letter in short) or any(
        _abbreviates((word.partition("=")[0],), option) for word in args for option in ("--regexp", "--file")
    )
    return tuple(_operands(args, valued))[0 if pattern_apart else 1 :] or (".",)
