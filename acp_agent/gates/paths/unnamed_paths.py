"""Files that a command opens without naming them: behind links (`grep -R`), or named by another command (`| xargs`).

A link of the repository may lead out of the workspace, and a command that follows it reads a file there without naming
it. If it is unclear whether a command follows links, it counts as following them. The gate asks only if a link leads
out.

What a command prints may name any file: `git log --format=%x2fetc%x2fpasswd | xargs cat` reads /etc/passwd. So a rule
allows such a line only if it names both programs (`xargs wc *`), and if what feeds them prints nothing but names of
files below its folder. Options that are not listed here may print something else.

A name with a blank still becomes several names unless xargs has `-0`, and a name may be that of a link. A rule that
names both programs accepts this (docs/rules.md).
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import NamedTuple

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import ParsedArguments, WordKind, grammar_of
from acp_agent.gates.shell.options import getopt

NAMES_ONLY = frozenset(("echo", "printf", "basename", "dirname", "true", "false", ":"))
"""Programs that open none of the files whose names they are given."""

_FIND = frozenset(
    (
        *("-P", "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-type", "-maxdepth", "-mindepth"),
        *("-not", "!", "(", ")", "-o", "-or", "-a", "-and", "-size", "-mtime", "-mmin", "-atime", "-amin", "-ctime"),
        *("-cmin", "-newer", "-empty", "-prune", "-print", "-print0", "-regex", "-iregex", "-regextype", "-perm"),
        *("-user", "-group", "-executable", "-readable", "-writable", "-xdev", "-mount", "-depth"),
    )
)
_NUMBER = re.compile(r"-\d+[a-zA-Z]?")
_PATTERNS = ("--ignore-case", "--word-regexp", "--extended-regexp", "--fixed-strings", "--perl-regexp")
_LISTERS = {
    # With only these options a program prints nothing but names of files. Those in _LISTING also need an option there.
    "ls": (*"1aAtrSUXdRf", "--all", "--almost-all", "--directory", "--recursive", "--reverse"),
    "grep": (
        *(*"rRlLiwxEFGPIsZ", *_PATTERNS, "--recursive", "--files-with-matches", "--files-without-match", "--include"),
        *("--exclude", "--exclude-dir", "--null"),
    ),
    "rg": (
        *(*"lgtTiSsFwxU0u.", "--files", "--files-with-matches", "--files-without-match", "--hidden", "--no-ignore"),
        *("--glob", "--iglob", "--type", "--type-not", "--null", "--ignore-case", "--smart-case", "--fixed-strings"),
        *("--word-regexp", "--multiline", "--sort", "--max-depth"),
    ),
    "fd": (
        *(*"HIuetdE0agiFs", "--hidden", "--no-ignore", "--extension", "--type", "--max-depth", "--exclude", "--glob"),
        "--print0",
    ),
    "git ls-files": (
        *(*"zcmodiuX", "--cached", "--others", "--exclude-standard", "--modified", "--deleted", "--ignored"),
        *("--full-name", "--deduplicate", "--unmerged"),
    ),
    "git diff": (
        *(*"zr", "--name-only", "--cached", "--staged", "--diff-filter", "--relative", "--no-renames", "--merge-base"),
    ),
    "git grep": (
        *(*"lLziwEFGP", *_PATTERNS, "--files-with-matches", "--files-without-match", "--name-only", "--cached"),
        *("--untracked", "--null"),
    ),
}
_ALIASES = {"egrep": "grep", "fgrep": "grep", "fdfind": "fd", "gfind": "find"}
_LISTING = {
    "grep": ("l", "L", "--files-with-matches", "--files-without-match"),
    "rg": ("l", "--files", "--files-with-matches", "--files-without-match"),
    "git diff": ("--name-only",),
    "git grep": ("l", "L", "--files-with-matches", "--files-without-match", "--name-only"),
}
_FILTERS = {"sort": "urznfV", "uniq": "du", "grep": "vEFGPiwxs", "egrep": "viwx", "fgrep": "viwx"}
_LISTS = {
    **dict.fromkeys(("wc", "sort", "gsort", "du"), ("", "--files0-from")),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), ("T", "--files-from")),
    "rsync": ("", "--files-from"),
    "file": ("f", "--files-from"),
    "zip": ("@", ""),
    "cpio": ("op", "--create"),
    "pax": ("w", ""),
    **dict.fromkeys(("find", "gfind"), ("", "-files0-from")),
}
_SEPARATORS = ("\\n", "\\0", "\n")


def takes_names(command: Command) -> bool:
    """Return whether a command that starts a program reads names for it from its input or from a list (`xargs`)."""
    return command.name not in ("find", "gfind", "bfs", "fd", "fdfind")


def name_list(command: Command) -> str:
    """Return the option by which a command reads names of files from a file or its input; empty if there is none."""
    name, args = command.name, command.argv[1:]
    letters, long = _LISTS.get(name, ("", ""))
    for at, word in enumerate(args):
        given = word.partition("=")[0]
        if given.startswith("--") or long == given:
            if len(given) > 2 and long.startswith(given) and given != "--file":
                return long
            continue
        bundled = word.startswith("-") or (at == 0 and name.endswith("tar"))
        found = next((letter for letter in word if letter in letters), "") if bundled else ""
        if found:
            return f"-{found}"
    return ""


def names_only(command: Command) -> bool:
    """Return whether a command and those that it starts open none of the files whose names they get."""
    leaves = [each for each in command.walk() if not each.runs]
    return all(each.name in NAMES_ONLY and each.standard for each in leaves)


def feeds_names_below(pipeline: Sequence[Command], xargs: Command) -> bool:
    """Return whether `pipeline`, which writes the input of `xargs`, prints only names of files below its folder."""
    return bool(pipeline) and _takes_names_whole(xargs) and all(map(_filters, pipeline[1:])) and _lists(pipeline[0])


def _takes_names_whole(xargs: Command) -> bool:
    """Return whether xargs splits names only at blanks or line ends, adds nothing to them, and reads no list."""
    options, _ = getopt(xargs.own, "aIdELnPs", "--arg-file", "--delimiter", "--replace")
    given = [name for name, _ in options]
    loose = [word for word in xargs.own if word.startswith(("-i", "--replace"))]
    if "a" in given or "--arg-file" in given or loose or xargs.name != "xargs":
        return False
    if any(value not in _SEPARATORS for name, value in options if name in ("d", "--delimiter")):
        return False
    marks = [value for name, value in options if name == "I"]
    return all(word == mark for mark in marks for each in xargs.runs for word in each.argv if mark in word)


def _quiet(command: Command) -> bool:
    """Return whether a command passes on only its standard output. Error messages could contain any text."""
    silenced = all(each.harmless and each.operator not in (">&", "<&") for each in command.redirections)
    blanks = any(char.isspace() for word in command.argv for char in word)
    options = any(word[:1] in "*?[" for word in command.patterns)  # a file may have the name of an option
    plain = command.standard and not command.runs and not command.assignments
    return silenced and plain and not blanks and not options


def _filters(command: Command) -> bool:
    """Return whether a command prints only whole lines of its input."""
    name, args = command.name, command.argv[1:]
    if not _quiet(command):
        return False
    if name in ("head", "tail"):
        return all(re.fullmatch(r"(?:-n)?[-+]?\d+|-n", word) for word in args)
    letters = _FILTERS.get(name)
    if letters is None:
        return False
    operands = [word for word in args if not word.startswith("-")]
    options = [word for word in args if word.startswith("-")]
    return len(operands) == (1 if name.endswith("grep") else 0) and all(
        set(each[1:]) <= set(letters) for each in options
    )


def _lists(command: Command) -> bool:
    """Return whether a command prints nothing but names of files below its folder."""
    name, args = _ALIASES.get(command.name, command.name), command.argv[1:]
    if not _quiet(command):
        return False
    if name == "find":
        return all(not word.startswith("-") or word in _FIND or _NUMBER.fullmatch(word) for word in args)
    if name == "git":
        name, args = f"git {args[0]}" if args else "", args[1:]
        if any(word.startswith(":") for word in args):
            return False  # `:/` names the top of the repository, which may lie above the workspace
    if name not in _LISTERS:
        return False
    options = [word for word in args if word.startswith("-") and word not in ("-", "--")]
    given = {part for word in options for part in ([word.partition("=")[0]] if word.startswith("--") else word[1:])}
    return given <= {*_LISTERS[name]} and (name not in _LISTING or not given.isdisjoint(_LISTING[name]))


class Followed(NamedTuple):
    """Links that a command follows.

    how       the program and its option, such as "grep -R"
    folders   the folders in which the command looks for files
    finder    the find or fd that passes links to another command; None if the command follows every link
    """

    how: str
    folders: tuple[str, ...]
    finder: Command | None = None

    def reads_through(self, link: str, *, folder: bool) -> bool:
        """Return whether the command reads the target of `link`. `folder` says whether that is a folder."""
        return self.finder is None or _gives(self.finder, link, folder=folder)


class _Follower(NamedTuple):
    """A program that follows links by an option.

    letters   the short options that make it follow links
    long      the long options that make it follow links
    needs     short options; one of them must be given as well
    """

    letters: str
    long: tuple[str, ...] = ()
    needs: str = ""


FINDERS = frozenset(("find", "gfind", "bfs"))
_FD = frozenset(("fd", "fdfind"))
_FOLLOWERS = {
    **dict.fromkeys(
        ("grep", "egrep", "fgrep", "ugrep", "ug", "rgrep", "ggrep"), _Follower("RS", ("--dereference-recursive",))
    ),
    "rg": _Follower("L", ("--follow",)),
    "ag": _Follower("f", ("--follow",)),
    "ack": _Follower("", ("--follow",)),
    **dict.fromkeys(_FD, _Follower("L", ("--follow",))),
    **dict.fromkeys(("ls", "gls"), _Follower("L", ("--dereference",), "R")),
    "tree": _Follower("l"),
    **dict.fromkeys(("du", "gdu", "ncdu"), _Follower("L", ("--dereference",))),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _Follower("hL", ("--dereference",))),
    **dict.fromkeys(("cp", "gcp"), _Follower("LH", ("--dereference",))),
    "rsync": _Follower("Lk", ("--copy-links", "--copy-dirlinks", "--copy-unsafe-links")),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _Follower("LH", needs="R")),
    "cloc": _Follower("", ("--follow-links",)),
    "cpio": _Follower("L", ("--dereference",)),
    "pax": _Follower("LH"),
    "scp": _Follower("r"),
}
_SPARED = {"diff": "--no-dereference", "zip": "-y", "7z": "-snl", "7za": "-snl", "7zz": "-snl", "jar": ""}
"""Programs that follow links by default, and the option that turns this off."""
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
        yield Followed(f"{name} -x", _folders(command), command)
    option = _option(name, args) if name in _FOLLOWERS or name in _SPARED else None
    if option is not None:
        yield Followed(f"{name} {option}".rstrip(), _folders(command))


def spliced(command: Command) -> str:
    """Return the word in which find or fd makes another path of a name, such as `../{}`; empty if there is none."""
    if command.name not in FINDERS and command.name not in _FD:
        return ""
    for word in (word for inner in command.runs for each in inner.walk() for word in each.argv):
        before, mark, after = word.partition(next(iter(_MARK.findall(word)), "\0"))
        if mark and ("/" in after or not (before in ("", "./") or before.endswith("="))):
            return word
    return ""


def _option(name: str, args: tuple[str, ...]) -> str | None:
    """Return the option by which a program follows links, or None if it follows none.

    The option may be abbreviated or in a bundle. It is empty for a program that follows links by default.
    """
    if name in _SPARED:
        stopped = any(word == _SPARED[name] or (name == "zip" and _bundled(word, "y")) for word in args)
        return None if stopped else ""
    follower = _FOLLOWERS[name]
    if follower.needs and not any(_bundled(word, follower.needs) or word.startswith("--r") for word in args):
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


def _bundled(word: str, letters: str) -> str:
    """Return the first of these short options in a word, or empty."""
    if not word.startswith("-") or word.startswith("--"):
        return ""
    return next((f"-{letter}" for letter in word[1:] if letter in letters), "")


def _folders(command: Command) -> tuple[str, ...]:
    """Return the words that may be folders, and "." if the program may search the folder in which it runs."""
    words = tuple(word for word in command.argv[1:] if not word.startswith("-"))
    if command.name in _NEVER_HERE:
        return words
    grammar = grammar_of(command.tool)
    parsed = grammar.parse(command.own) if grammar is not None else ParsedArguments()
    named = tuple(each.word for each in parsed.arguments if each.kind.path and not each.option)
    unsure = parsed.unknown or any(each.kind is WordKind.FOLDER for each in parsed.arguments)
    if grammar is None or not named or unsure or not grammar.unsure.isdisjoint(parsed.options):
        return (*words, ".")
    return named


def starting_points(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders that find searches."""
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
    """Return whether find or fd is restricted to types, so that it passes no links to the commands it runs."""
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
    """Return whether find or fd may pass a link to a command that reads the target."""
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
    """Return whether a pattern of find may match a name. True if it is unclear how find reads the pattern."""
    if set(pattern) & set("[]\\") or (ignoring_case and not (pattern + base).isascii()):
        return True
    return fnmatchcase(base.casefold(), pattern.casefold()) if ignoring_case else fnmatchcase(base, pattern)


def _reads_no_folder(command: Command) -> bool:
    if command.name in _GREPS:
        recursive = any(_bundled(word, "rRd") or word.startswith(("--r", "--d")) for word in command.argv)
        return command.standard and not recursive
    return command.standard and command.name in _NO_FOLDERS


def _opens(command: Command) -> bool:
    """Return whether a command, or one that it starts, opens the files whose names it gets, links included."""
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
