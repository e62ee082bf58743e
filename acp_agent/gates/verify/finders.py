"""Commands that search their folder and leave out hidden and ignored files: `rg`, `ag`, `fd -x`.

A line such as `!.env` in an ignore file includes such a file again, hidden or not. So does a type that names it.
"""

import re
from collections.abc import Callable, Sequence
from itertools import product

from acp_agent.gates.shell.command import Command
from acp_agent.gates.verify.reading import Options, Reading, everything, may_match, surely_matches
from acp_agent.workspace.secrets_below import FoundSecret, Look

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

    look = Look(
        ignores=not no_ignore, needs_git=not options.has("", "--no-require-git"), follows=True
    )  # what it starts does
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
    if len(parts) > _MAX_PARTS:
        return (glob,)
    found = ["".join(each) for each in product(*choices)]
    return found if len(found) <= _MAX_CHOICES else (glob,)


def _excludes(glob: str, found: FoundSecret) -> bool:
    """Return whether a glob surely excludes a file, by a name in it or by its path from the command's folder."""
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
