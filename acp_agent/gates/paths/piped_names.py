"""Names that one command prints for another to open (`git ls-files | xargs wc -l`).

What a command prints may name any file: `git log --format=%x2fetc%x2fpasswd | xargs cat` reads /etc/passwd. So a rule
allows such a line only if it names both programs (`xargs wc *`), and if what feeds them prints nothing but names of
files below its folder. Options that are not listed here may print something else.

A name with a blank still becomes several names unless xargs has `-0`, and a name may be that of a link. A rule that
names both programs accepts this (docs/rules.md).
"""

import re
from collections.abc import Sequence

from acp_agent.gates.shell.command import Command
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
_LONG = {
    "ls": ("--all", "--almost-all", "--directory", "--recursive", "--reverse"),
    "grep": (
        *("--recursive", "--files-with-matches", "--files-without-match", "--include", "--exclude", "--exclude-dir"),
        *("--null", "--ignore-case", "--word-regexp", "--extended-regexp", "--fixed-strings", "--perl-regexp"),
    ),
    "rg": (
        *("--files", "--files-with-matches", "--files-without-match", "--hidden", "--no-ignore", "--glob", "--iglob"),
        *("--type", "--type-not", "--null", "--ignore-case", "--smart-case", "--fixed-strings", "--word-regexp"),
        *("--multiline", "--sort", "--max-depth"),
    ),
    "fd": ("--hidden", "--no-ignore", "--extension", "--type", "--max-depth", "--exclude", "--glob", "--print0"),
    "ls-files": (
        *("--cached", "--others", "--exclude-standard", "--modified", "--deleted", "--ignored", "--full-name"),
        *("--deduplicate", "--unmerged"),
    ),
    "diff": ("--name-only", "--cached", "--staged", "--diff-filter", "--relative", "--no-renames", "--merge-base"),
    "git grep": (
        *("--files-with-matches", "--files-without-match", "--name-only", "--cached", "--untracked", "--null"),
        *("--ignore-case", "--word-regexp", "--extended-regexp", "--fixed-strings", "--perl-regexp"),
    ),
}
_LETTERS = {
    "ls": "1aAtrSUXdRf",
    "grep": "rRlLiwxEFGPIsZ",
    "rg": "lgtTiSsFwxU0u.",
    "fd": "HIuetdE0agiFs",
    "ls-files": "zcmodiuX",
    "diff": "zr",
    "git grep": "lLziwEFGP",
}
_ALIASES = {"egrep": "grep", "fgrep": "grep", "fdfind": "fd", "gfind": "find"}
_LISTING = {
    "grep": ("l", "L", "--files-with-matches", "--files-without-match"),
    "rg": ("l", "--files", "--files-with-matches", "--files-without-match"),
    "diff": ("--name-only",),
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
    """Return whether a command reads the names for the program it starts from its input or from a list."""
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
    """Return whether a command and all it starts open none of the names they are given."""
    leaves = [each for each in command.walk() if not each.runs]
    return all(each.name in NAMES_ONLY and each.standard for each in leaves)


def feeds_names_below(pipeline: Sequence[Command], xargs: Command) -> bool:
    """Return whether `pipeline`, which writes the input of `xargs`, prints only names of files below its folder."""
    return bool(pipeline) and _takes_names_whole(xargs) and all(map(_filters, pipeline[1:])) and _lists(pipeline[0])


def _takes_names_whole(xargs: Command) -> bool:
    """Return whether xargs cuts names at most at blanks, adds nothing to them, and reads no list from a file."""
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
    """Return whether nothing but its output goes on: an error message may hold any text."""
    silenced = all(each.harmless and each.operator not in (">&", "<&") for each in command.redirections)
    blanks = any(char.isspace() for word in command.argv for char in word)
    options = any(word[:1] in "*?[" for word in command.patterns)  # a file may be called like an option
    plain = command.standard and not command.runs and not command.assignments
    return silenced and plain and not blanks and not options


def _filters(command: Command) -> bool:
    """Return whether a command prints lines of its input, each whole."""
    name, args = command.name, command.argv[1:]
    if not _quiet(command):
        return False
    if name in ("head", "tail"):
        words = [word for word in args if not re.fullmatch(r"(?:-n)?[-+]?\d+|-n", word)]
        return not words
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
        name, args = args[0] if args else "", args[1:]
        if any(word.startswith(":") for word in args):
            return False  # `:/` names the top of the repository, which may lie above the workspace
        name = "git grep" if name == "grep" else name
        if name not in ("ls-files", "diff", "git grep"):
            return False
    elif name not in _LETTERS or name in ("ls-files", "diff"):
        return False
    options = [word for word in args if word.startswith("-") and word not in ("-", "--")]
    given = {part for word in options for part in ([word.partition("=")[0]] if word.startswith("--") else word[1:])}
    known = {*_LETTERS[name], *_LONG[name]}
    return given <= known and (name not in _LISTING or not given.isdisjoint(_LISTING[name]))
