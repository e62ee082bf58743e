"""The words of a command that may be paths, and the folders where they may start.

Gates judge commands by the paths that they name: a command is only read, not confined, so its paths are text. Patterns
and messages are no paths: the first operand of grep, sed and the like, the words of echo, and words with blanks that do
not begin like a path.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import ParsedArguments, WordKind, grammar_of

_PRINTERS = frozenset(("echo", "printf", "print", "test", "expr"))
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH_START = re.compile(r"(?:/|~|\.\.?(?:/|$))")
_UNKNOWN = re.compile(r"[$`]")
_IGNORE_FILE = re.compile(r"(?:^|/)\.\w*ignore$|(?:^|/)info/exclude$")
_HIDDEN = re.compile(r"(?:^|/)\.\w*[*?\[]")
_LOOKERS = frozenset(("cat", "head", "tail", "grep", "rg", "ls", "wc", "test", "stat", "diff", "cmp"))
_SAME_SHELL = frozenset(("time", "command", "builtin", "noglob", "nocorrect"))
_VALUE = re.compile(r"(?:--?[\w.:-]+|[A-Za-z_][\w.:]*)=(.+)", re.DOTALL)
_BUNDLE = re.compile(r"-([A-Za-z0-9]{1,16})")
_UNBUNDLED = re.compile(
    r"(?:.*-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cpp|ld|gfortran|nvcc|tcc|rustc)(?:-[\d.]+)?"
    r"|cmake|ninja|protoc|swig|javac?|go"
)
_VALUED = {
    **dict.fromkeys(("make", "gmake"), "CfIjloOW"),
    **dict.fromkeys(("perl", "ruby"), "eEI"),
    "patch": "BDFVdgioprxYzZ",
}
_MAX_WORD = 4096

MAX_FOLDERS = 64
"""The most folders of a command that are followed."""

MAX_WORDS = 1000
"""The most places of one command line (words in its possible folders) that are resolved. With more, it asks."""

Expand = Callable[[str, str], Sequence[str] | None]
"""Returns the paths that a shell's pattern stands for in a folder, relative to it; None if there are too many."""


def unexpanded(pattern: str, folder: str) -> Sequence[str]:
    """Return an `Expand` that knows of no files: patterns are judged as text."""
    del pattern, folder
    return ()


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders in which a command may run, relative to the session's: `cd a && …` is certain, `cd a; …` is not.

    expand           returns the files that a pattern stands for
    lost             whether there are too many to follow, since each uncertain `cd` may double them
    changes_ignores  whether an earlier command named a file of ignore rules and may have changed it
    """

    expand: Expand = unexpanded
    possible: tuple[str, ...] = ("",)
    lost: bool = False
    changes_ignores: bool = False

    def places(self, word: str) -> Iterator[str]:
        """Yield the paths that a word may mean."""
        if word.startswith(("/", "~")):
            yield word
        else:
            yield from (posixpath.join(folder, word) for folder in self.possible)

    def matches(self, word: str, command: Command) -> Sequence[str] | None:
        """Return the files a word of a command stands for if it is a pattern; empty for others, None for too many."""
        found = dict[str, None]()
        for folder in self.possible if word in command.patterns else ():
            names = self.expand(word, folder)
            if names is None or len(found) > MAX_WORDS:
                return None
            found.update(dict.fromkeys(posixpath.join(folder, name) for name in names))
        return tuple(found)

    def entered_by(self, command: Command) -> tuple[str, ...] | None:
        """Return the folders that a `cd` may lead to; None for too many.

        An unknown folder (`cd -`, `cd $x`) adds nothing: its word is judged.
        """
        target = next((word for word in command.argv[1:] if not word.startswith("-")), "~")
        if _UNKNOWN.search(target):
            return ()
        matches = self.matches(target, command)
        named = [posixpath.join(folder, target) for folder in self.possible]
        # bash takes `link/..` for the folder of the link, `cd -P` for the parent of what it leads to.
        logical = [posixpath.normpath(each) for each in named if ".." in each.split("/")]
        return None if matches is None else (*named, *("" if each == "." else each for each in logical), *matches)


class CommandStep(NamedTuple):
    """A command of a line with its possible folders, and those of the next one.

    parents   the commands that start it, outermost first
    """

    command: Command
    parents: tuple[Command, ...]
    folders: Folders
    after: Folders


def steps_of(commands: Sequence[Command], expand: Expand) -> Iterator[CommandStep]:
    """Yield every command of a line, outermost first, with its possible folders.

    A `cd` surely takes effect only if everything before it is joined by `&&`: in `true || cd a && b` it is skipped, in
    `true | cd a && b` and `nice cd a && b` it is another process, and `b` runs every time.
    """
    folders, seen, certain = Folders(expand), ("",), True
    for command, parents in _nested(commands, ()):
        if command.joined not in ("&&", ""):
            folders, certain = replace(folders, possible=seen), False
        entered = folders.entered_by(command) if command.name in ("cd", "pushd") else ()
        after = replace(folders, changes_ignores=True) if _may_change_ignores(command) else folders
        if entered:
            apart = bool(parents) and parents[-1].wrapper and parents[-1].name not in _SAME_SHELL
            possible = tuple(dict.fromkeys((*(() if certain and not apart else folders.possible), *entered)))
            after, seen = replace(after, possible=possible), tuple(dict.fromkeys((*seen, *possible)))
        if entered is None or len(seen) > MAX_FOLDERS:
            after, seen = replace(after, possible=("",), lost=True), ("",)
        yield CommandStep(command, parents, folders, after)
        folders = after


def _nested(commands: Sequence[Command], parents: tuple[Command, ...]) -> Iterator[tuple[Command, tuple[Command, ...]]]:
    for command in commands:
        yield command, parents
        yield from _nested(command.runs, (*parents, command))


def _may_change_ignores(command: Command) -> bool:
    """Return whether a command may write a file of ignore rules that it names."""
    words = () if command.name in _LOOKERS else command.own
    if command.redirections:
        words = (*words, *(each.target for each in command.redirections if each.writes))
    return any(_IGNORE_FILE.search(word) or (word in command.patterns and _HIDDEN.search(word)) for word in words)


def path_words(command: Command) -> Iterator[str]:
    """Yield the words of one command that may be paths, and the targets of its redirections."""
    for redirection in command.redirections:
        if not redirection.harmless and not _UNKNOWN.search(redirection.target):
            yield redirection.target
    if command.tool in _PRINTERS:
        return
    yield from patterns_of(command)
    if command.argv and not command.standard:
        yield command.argv[0]
    grammar = grammar_of(command.tool)
    found = (
        _as_read(grammar.parse(command.own))
        if grammar is not None
        else (each for word in command.own for each in candidates(word, command.name))
    )
    yield from (each for each in found if each and len(each) <= _MAX_WORD and _is_path(each))


def patterns_of(command: Command) -> Iterator[str]:
    """Yield the arguments that the shell replaces by names of files.

    They count wherever they stand, since each name becomes a word of its own. `echo` and the like print the names.
    """
    yield from (word for word in command.own if word in command.patterns and _is_path(word))


def odd_words(command: Command) -> Iterator[str]:
    """Yield the words that look like text, but may be names: `a b`, `a$b`, `@x`, `-x` behind `--`.

    A link may have such a name. Only the files tell.
    """
    if command.tool in _PRINTERS:
        return
    yield from (each.target for each in command.redirections if not each.harmless and not _is_path(each.target))
    grammar = grammar_of(command.tool)
    if grammar is not None:
        words = [each.word for each in grammar.parse(command.own).arguments if each.kind.path]
    else:
        words = [each for word in command.own for each in (word, *candidates(word, command.name))]
    for word in words:
        if word and len(word) <= _MAX_WORD and "\0" not in word and (word[0] in "-@" or not _is_path(word)):
            yield word


def _as_read(parsed: ParsedArguments) -> Iterator[str]:
    """Yield the words that are paths by the program's grammar, also seen from the folder that an option names."""
    folders = [each.word for each in parsed.arguments if each.kind is WordKind.FOLDER]
    for each in parsed.arguments:
        if not each.kind.path:
            continue
        test_file = each.word.partition("::")[0] if "::" in each.word else ""  # of pytest's `a.py::test`
        for word in (*candidates(each.word), *filter(None, (test_file,))):
            yield word
            if each.kind is not WordKind.FOLDER:
                yield from (posixpath.join(folder, word) for folder in folders)
    yield from (posixpath.join(*folders[: at + 1]) for at in range(1, len(folders)))


def candidates(word: str, program: str = "") -> Iterator[str]:
    """Yield a word, the value in `--option=value` and `name=value`, that in `-I/path`, that in `@file`."""
    if not word.startswith("-"):
        yield word.removeprefix("@")
    elif not word.startswith("--"):
        yield from (value.removeprefix("@") for value in _attached(word, program))
    match = _VALUE.fullmatch(word)
    if match:
        yield match[1].removeprefix("@")


def _attached(word: str, program: str) -> Iterator[str]:
    """Yield the possible values at the end of a word of short options: `Cdocs`, `docs`, `ocs`, … for `-xCdocs`.

    If the letters with values are known, the first of them ends the options. `gcc -Isrc/x` has only one option.
    """
    bundle = _BUNDLE.match(word)
    if bundle is None:
        return
    valued = _VALUED.get(program)
    most = 1 if valued is None and _UNBUNDLED.fullmatch(program) else len(bundle[1])
    for at, letter in enumerate(bundle[1][:most], start=2):
        if valued is None or letter in valued or at == 2:
            yield word[at:]
        if valued is not None and letter in valued:
            return


def _is_path(word: str) -> bool:
    """Return whether a word may be a path. A plain name counts too, since it may be a link that leads out."""
    if URL.match(word) or "\n" in word or "\0" in word or _UNKNOWN.search(word):
        return False
    return bool(_PATH_START.match(word)) or not any(char.isspace() for char in word)
