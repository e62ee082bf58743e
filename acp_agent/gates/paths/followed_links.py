"""Tell whether a command follows the links below a folder (`grep -R`, `find -exec cat`).

A link of the repository may lead out of the workspace, and a command that follows it reads there without naming it. If
this is unclear, the answer is that links are followed: the gate asks only if a link leads out.
"""

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import NamedTuple

from acp_agent.gates.paths.piped_names import NAMES_ONLY
from acp_agent.gates.shell.command import Command


class Followed(NamedTuple):
    """Links that a command follows.

    how       the program and its option, such as "grep -R"
    folders   the folders below which it meets them
    finder    the find or fd that gives links to another command; None if any link is followed
    """

    how: str
    folders: tuple[str, ...]
    finder: Command | None = None

    def reads_through(self, link: str, *, folder: bool) -> bool:
        """Return whether the command reads what `link` leads to, which may be a folder."""
        return self.finder is None or _gives(self.finder, link, folder=folder)


class _Follower(NamedTuple):
    """A program that follows links by an option.

    letters   short options, one of which makes it follow
    long      long options, one of which makes it follow
    flags     short options without a value; if there are others, any word may be a value
    needs     short options, one of which must be given as well
    """

    letters: str
    long: tuple[str, ...] = ()
    flags: str = ""
    needs: str = ""


FINDERS = frozenset(("find", "gfind", "bfs"))
_FD = frozenset(("fd", "fdfind"))
_GREP = _Follower("RS", ("--dereference-recursive",), "RinwvlLcoqshHEFPGxazI")
_COPY = _Follower("LH", ("--dereference",), "LHrRavfupinTd")
_MODE = _Follower("LH", (), "LHRvcf", "R")
_FOLLOWERS = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "ugrep", "ug", "rgrep", "ggrep"), _GREP),
    "rg": _Follower("L", ("--follow",)),
    "ag": _Follower("f", ("--follow",)),
    "ack": _Follower("", ("--follow",)),
    **dict.fromkeys(_FD, _Follower("L", ("--follow",))),
    **dict.fromkeys(("ls", "gls"), _Follower("L", ("--dereference",), "LRla1AhtrSF", "R")),
    "tree": _Follower("l", (), "ladfhpugsDFqNr"),
    **dict.fromkeys(("du", "gdu", "ncdu"), _Follower("L", ("--dereference",), "Lshackmx")),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _Follower("hL", ("--dereference",))),
    **dict.fromkeys(("cp", "gcp"), _COPY),
    "rsync": _Follower("Lk", ("--copy-links", "--copy-dirlinks", "--copy-unsafe-links"), "Lkavzrhn"),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _MODE),
    "cloc": _Follower("", ("--follow-links",)),
    "cpio": _Follower("L", ("--dereference",)),
    "pax": _Follower("LH"),
    "scp": _Follower("r", (), "rpqC"),
}
_SPARED = {"diff": "--no-dereference", "zip": "-y", "7z": "-snl", "7za": "-snl", "7zz": "-snl", "jar": ""}
"""Programs that follow links by themselves, and the option that stops them."""
_NEVER_HERE = frozenset(("cp", "gcp", "rsync", "scp", "chmod", "chown", "chgrp", "diff", "zip", "7z", "7za", "7zz"))
"""Programs that search only the folders that they are given."""
_BY_ENTRY = frozenset(("rm", "rmdir", "unlink", "readlink", "test", "[", "mv", "gmv"))
"""Programs that treat a link itself, not what it leads to."""
_NO_FOLDERS = frozenset(
    (
        *("cat", "head", "tail", "wc", "nl", "tac", "rev", "cut", "sort", "uniq", "od", "xxd", "hexdump", "strings"),
        *("jq", "sed", "awk", "gawk", "mawk", "md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "file", "column"),
    )
)
"""Programs that read files only: a folder is an error."""
_GREPS = frozenset(("grep", "egrep", "fgrep", "ggrep"))
_TYPES = re.compile(r"[fdbcps](?:,[fdbcps])*")
_FD_TYPES = ("f", "file", "d", "dir", "directory")
_UNSURE = ("!", "-not", "(", ",", "-o", "-or")
_MARK = re.compile(r"\{[^{}]*\}")


def followed(command: Command) -> Iterator[Followed]:
    """Yield the links that a command follows, without those of the commands it starts."""
    name, args = command.name, command.argv[1:]
    if name in FINDERS:
        yield from _found(command)
        return
    if name in _FD and command.runs and not _only_types(command.own) and any(map(_opens, command.runs)):
        yield Followed(f"{name} -x", _folders(name, args), command)
    option = _option(name, args)
    if option is not None:
        yield Followed(f"{name} {option}".rstrip(), _folders(name, args))


def spliced(command: Command) -> str:
    """Return the word in which find or fd puts a name into another path, such as `../{}`; empty without one."""
    if command.name not in FINDERS | _FD:
        return ""
    for word in (word for inner in command.runs for each in inner.walk() for word in each.argv):
        before, mark, after = word.partition(next(iter(_MARK.findall(word)), "\0"))
        if mark and ("/" in after or not (before in ("", "./") or before.endswith("="))):
            return word
    return ""


def _option(name: str, args: tuple[str, ...]) -> str | None:
    """Return the option by which a program follows links, also abbreviated or in a bundle; None if it follows none."""
    if name in _SPARED:
        stopped = any(word == _SPARED[name] or (name == "zip" and _bundled(word, "y")) for word in args)
        return None if stopped else ""
    follower = _FOLLOWERS.get(name)
    if follower is None or not _needed(follower, args):
        return None
    for at, word in enumerate(args):
        given = word.partition("=")[0]
        if given.startswith("--"):
            found = next((each for each in follower.long if len(given) > 3 and each.startswith(given)), "")
        else:
            bundle = f"-{word}" if at == 0 and name.endswith("tar") and word[:1] != "-" else word
            found = _bundled(bundle, follower.letters)
        if found:
            return found
    return None


def _needed(follower: _Follower, args: tuple[str, ...]) -> bool:
    return not follower.needs or any(_bundled(word, follower.needs) or word.startswith("--r") for word in args)


def _bundled(word: str, letters: str) -> str:
    """Return the first of these short options in a word, or empty."""
    if not word.startswith("-") or word.startswith("--"):
        return ""
    return next((f"-{letter}" for letter in word[1:] if letter in letters), "")


def _folders(name: str, args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that may be folders, and "." if the program may search the folder in which it runs."""
    operands, follower = tuple(word for word in args if not word.startswith("-")), _FOLLOWERS.get(name)
    if name in _NEVER_HERE:
        return operands
    flags = set(follower.flags) if follower else set[str]()
    sure = all("=" in word if word.startswith("--") else set(word[1:]) <= flags for word in args if word[:1] == "-")
    named = len(operands) > (1 if follower is _GREP else 0)
    return operands if flags and sure and named else (*operands, ".")


def starting_points(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders that find is told to search."""
    at = _first_start(args)
    end = next((each for each in range(at, len(args)) if args[each][:1] in ("-", "(", "!", ",")), len(args))
    return args[at:end] or (".",)


def _first_start(args: tuple[str, ...]) -> int:
    at = 0
    while at < len(args) and re.fullmatch(r"-[HLPEXdsx]+|-O\d*|-D", args[at]):
        at += 2 if args[at] == "-D" else 1
    return at


def _found(command: Command) -> Iterator[Followed]:
    name, args = command.name, command.argv[1:]
    at, starts = _first_start(args), starting_points(args)
    option = next((word for word in args[:at] if "L" in word), "-follow" if "-follow" in args else "")
    if option:
        yield Followed(f"{name} {option}", starts)
    elif any(map(_opens, command.runs)) and not _only_types(command.own):
        yield Followed(f"{name} -exec", starts, command)


def _only_types(own: tuple[str, ...]) -> bool:
    """Return whether find or fd gives no links to the commands it runs."""
    if "-type" in own:
        tests = _tests(own)
        typed = any(word == "-type" and _TYPES.fullmatch(value) for word, value in pairwise(tests))
        return typed and not any(word in _UNSURE for word in own)
    values = [own[at + 1] for at, word in enumerate(own[:-1]) if word in ("-t", "--type")]
    values += [word.partition("=")[2] for word in own if word.startswith("--type=")]
    attached = any(re.match(r"-\w*t.", word) for word in own)
    return bool(values) and not attached and all(value in _FD_TYPES for value in values)


def _tests(own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words before the first command that find runs."""
    return own[: next((at for at, word in enumerate(own) if word.startswith(("-exec", "-ok"))), len(own))]


def _gives(finder: Command, link: str, *, folder: bool) -> bool:
    """Return whether find or fd may give a link to a command that reads through it."""
    if folder and all(_reads_no_folder(leaf) for inner in finder.runs for leaf in inner.walk() if not leaf.runs):
        return False
    own, base = finder.own, posixpath.basename(link)
    if finder.name in _FD:
        ends = [own[at + 1] for at, word in enumerate(own[:-1]) if word in ("-e", "--extension")]
        return not ends or any(base.casefold().endswith(f".{each.casefold().lstrip('.')}") for each in ends)
    if any(word in _UNSURE and word not in ("!", "-not") for word in own):
        return True
    tests = _tests(own)
    named = [at for at, word in enumerate(tests[:-1]) if word in ("-name", "-iname") and tests[at - 1] not in _UNSURE]
    return all(_named(base, tests[at + 1], ignoring_case=tests[at] == "-iname") for at in named)


def _named(base: str, pattern: str, *, ignoring_case: bool) -> bool:
    """Return whether a pattern of find may match a name. True if find may read the pattern in another way."""
    if set(pattern) & set("[]\\") or (ignoring_case and not (pattern + base).isascii()):
        return True
    return fnmatchcase(base.casefold(), pattern.casefold()) if ignoring_case else fnmatchcase(base, pattern)


def _reads_no_folder(command: Command) -> bool:
    if command.name in _GREPS:
        recursive = any(_bundled(word, "rRd") or word.startswith(("--r", "--d")) for word in command.argv)
        return command.standard and not recursive
    return command.standard and command.name in _NO_FOLDERS


def _opens(command: Command) -> bool:
    """Return whether a command, or one that it starts, opens the targets of the names that it is given."""
    return any(_opens_itself(each) for each in command.walk() if not each.runs)


def _opens_itself(command: Command) -> bool:
    name, args = command.name, command.argv[1:]
    if not command.standard:
        return True
    if name in NAMES_ONLY or name in _BY_ENTRY:
        return False
    if name in ("ls", "stat", "realpath"):
        return any(_bundled(word, "LH") or word.startswith("--de") for word in args) or (
            name == "ls" and not any(_bundled(word, "d") for word in args)
        )
    if name in ("chmod", "chown", "chgrp", "touch"):
        return not any(_bundled(word, "h") or word == "--no-dereference" for word in args)
    return True
