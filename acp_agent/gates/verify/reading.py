"""What a command reads below folders without naming it, the options that tell, and programs such as `rg` and `fd -x`.

Those search their folder and leave out hidden and ignored files. A line such as `!.env` in an ignore file includes such
a file again, hidden or not. So does a type that names it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from itertools import product

from acp_agent.core.data import frozen
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import Argument, ParsedArguments, grammar_of
from acp_agent.workspace.command_files import FoundSecret, Look

_SPECIAL = "[]\\{}"


def everything(found: FoundSecret) -> bool:
    """Show every file."""
    del found
    return True


@frozen
class Reading:
    """The files that a command reads without naming them.

    folders   the folders as they are named; files among them are judged as words
    look      how it finds files below them
    shows     returns whether it shows a file that was found
    how       a clause for the question that says how it comes to a file
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
        """Return whether one of the options is given. `letters` are short ones."""
        given = self.parsed.options
        if any(option in longs or (option[:1] == "-" and option[1:] in letters) for option in given if option != "-"):
            return True
        return not self.is_certain and any(self._may_mean(word, letters, longs) for word in self._args)

    def count(self, *options: str) -> int:
        """Return how often options are given."""
        return sum(option in options for option in self.parsed.options)

    def values(self, *options: str) -> list[Argument]:
        """Return the values of options in their order. They are only sure if `is_certain`."""
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
        """Return the operands, and the command's folder if there are none or they are unsure."""
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
    """Return whether a glob may match a name, whatever its sets, choices and escapes mean. Case does not count."""
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
