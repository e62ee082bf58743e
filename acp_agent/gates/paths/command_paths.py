"""The words of a command that may be paths, and the folders where they may start.

Gates judge a command by the paths in its text. Patterns and messages are not paths: the first operand of grep, sed and
the like, the words of echo, and words with blanks that do not begin like a path.
"""

import posixpath
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice
from typing import NamedTuple

from acp_agent.core.data import frozen
from acp_agent.gates.shell.command import Command
from acp_agent.gates.shell.grammar import ParsedArguments, WordKind, grammar_of
from acp_agent.gates.shell.options import tables
from acp_agent.gates.shell.programs import only_reads
from acp_agent.text import lazy_regex

_PRINTERS = frozenset(("echo", "printf", "print", "test", "expr"))
URL = lazy_regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH_START = lazy_regex(r"(?:/|~|\.\.?(?:/|$))")
_UNKNOWN = lazy_regex(r"[$`]")
_IGNORE_FILE = lazy_regex(r"(?:^|/)\.\w*ignore$|(?:^|/)info/exclude$")
_BLANK = lazy_regex(r"\s")
_HIDDEN = lazy_regex(r"(?:^|/)\.\w*[*?\[]")
_LOOKERS = frozenset(("cat", "head", "tail", "grep", "rg", "ls", "wc", "test", "stat", "diff", "cmp"))
_MOVERS = frozenset(("cd", "pushd", "popd"))
_SAME_SHELL = frozenset(("time", "command", "builtin", "noglob", "nocorrect"))
_CHAINED = frozenset(("git", "make", "gmake"))
_VALUE = lazy_regex(r"(?:--?[\w.:-]+|[A-Za-z_][\w.:]*)=(.+)", re.DOTALL)
_BUNDLE = lazy_regex(r"-([A-Za-z0-9]+)")
_UNBUNDLED = lazy_regex(
    r"(?:.*-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cpp|ld|gfortran|nvcc|tcc|rustc)(?:-[\d.]+)?"
    r"|cmake|ninja|protoc|swig|javac?|go"
)
_VALUED = {
    **dict.fromkeys(("make", "gmake"), "CfIjloOW"),
    **dict.fromkeys(("perl", "ruby"), "eEI"),
    "patch": "BDFVdgioprxYzZ",
}
_MAX_WORD = 4096
"""The most characters of a path. Of a longer one, steps such as `./` are left out, as a shell or a program may do."""

_MAX_LETTERS = 255
"""The most letters of a word of short options at which a path may begin. No name of a file is longer."""

MAX_FOLDERS = 64
"""The most folders of a command that are followed."""

MAX_WORDS = 1000
"""The most paths of one command line (words in its possible folders) that are resolved. With more, the gate asks."""

Expand = Callable[[str, str], Sequence[str] | None]
"""Returns the paths that a shell's pattern stands for in a folder, relative to it; None if there are too many."""


IsFolder = Callable[[str], bool]
"""Returns whether a path relative to the session's folder names a folder, or leads to one."""

_ELSEWHERE = ("~",)
"""Stands for an unknown folder. Every path that is relative to it counts as outside."""


def nothing_known(path: str) -> bool:
    """Return False: an `IsFolder` for gates that know no folder."""
    del path
    return False


def unexpanded(pattern: str, folder: str) -> Sequence[str]:
    """Return no paths: an `Expand` for gates that judge patterns as text."""
    del pattern, folder
    return ()


@frozen
class Folders:
    """The folders in which a command may run, relative to the session's: `cd a && …` is certain, `cd a; …` is not.

    expand           returns the files that a pattern stands for
    lost             whether there are too many folders to follow, since each uncertain `cd` may double them
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
        """Return the files that a word stands for if it is a pattern; empty for other words, None for too many."""
        found = dict[str, None]()
        for folder in self.possible if word in command.patterns else ():
            names = self.expand(word, folder)
            if names is None or len(found) > MAX_WORDS:
                return None
            found.update(dict.fromkeys(posixpath.join(folder, name) for name in names))
        return tuple(found)

    def entered_by(self, command: Command, searched: Sequence[str] = ()) -> tuple[str, ...] | None:
        """Return the folders that a `cd` may lead to; None for too many.

        An unknown folder (`cd $x`) adds nothing, because the word itself is judged.

        searched   the folders of CDPATH, where a name is looked for as well
        """
        target = next((word for word in command.argv[1:] if not word.startswith("-")), "~")
        if _UNKNOWN.search(target):
            return ()
        matches = self.matches(target, command)
        above = searched if not target.startswith(("/", "~", ".")) else ()
        named = [*self.places(target), *(posixpath.join(folder, target) for folder in above)]
        # In bash `link/..` is the folder that contains the link; with `cd -P` it is the parent of the link's target.
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


def steps_of(commands: Sequence[Command], expand: Expand, is_folder: IsFolder = nothing_known) -> Iterator[CommandStep]:
    """Yield every command of a line, outermost first, with its possible folders.

    In `cd a && b`, `b` runs only if the `cd` worked. In `true || cd a && b` the `cd` is skipped, and in
    `true | cd a && b` and `(cd a) && b` it runs in another process: there `b` runs in the old folder. In `cd a; b` the
    `cd` may fail, unless `a` is a folder now and no earlier command of the line may have changed that.

    is_folder   returns whether a folder is there; it is asked only if the commands are proven to be all that run
    """
    return _Walk(expand, is_folder).steps(commands, (), _Shell())


def _union(*folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain(*folders)))


@frozen
class _Shell:
    """The folders in which a shell may be.

    now     the folders in which the next command may run
    begun   the folders in which the present list of commands began
    ends    the folders in which that list may end so far
    sure    whether `&&` alone joins the list, so that the next command runs only if all before it worked
    before  the folders to which `cd -` may lead; empty if nothing is known
    back    the folders to which `cd -` may lead behind that list
    stack   the folders that `pushd` stored, the latest last
    vague   whether the stack may be wrong
    doubtful  whether a move in that list may have failed, so that the stack may be wrong behind it
    """

    now: tuple[str, ...] = ("",)
    begun: tuple[str, ...] = ("",)
    ends: tuple[str, ...] = ("",)
    sure: bool = True
    before: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    stack: tuple[tuple[str, ...], ...] = ()
    vague: bool = False
    doubtful: bool = False

    def inside(self) -> "_Shell":
        """Return the shell at the beginning of a list of commands inside its present command."""
        return replace(self, begun=self.now, ends=self.now, sure=True, back=self.before, doubtful=False)

    def behind(self, operator: str) -> "_Shell":
        """Return the shell before the command that an operator joins."""
        match operator:
            case "&&":
                return self
            case ";" | "":
                shell = replace(self, now=self.ends, begun=self.ends, before=self.back, sure=True)
                return replace(shell, vague=self.vague or self.doubtful, doubtful=False)
            case _:  # the command before the operator may have failed, or been another process
                every, back = _union(self.begun, self.ends, self.now), _union(self.before, self.back)
                return replace(self, now=every, ends=every, before=back, back=back, sure=False, vague=True)

    def moved(self, folders: Sequence[str], *, certain: bool, stack: tuple[tuple[str, ...], ...]) -> "_Shell":
        """Return the shell after a command that enters one of these folders. It may have failed unless `certain`."""
        now = tuple(folders) if self.sure else _union(self.now, folders)
        done = certain and self.sure
        ends = tuple(folders) if done else _union(self.ends, folders)
        before = self.now if self.sure else _union(self.before or _ELSEWHERE, self.now)
        back, doubtful = before if done else _union(self.back, before), self.doubtful or not done
        shell = replace(self, now=now, ends=ends, before=before, back=back, stack=stack, doubtful=doubtful)
        return replace(shell, vague=self.vague or not self.sure)

    def after_group(self, inner: "_Shell", *, certain: bool) -> "_Shell":
        """Return the shell after a group that it ran itself. If `certain`, all commands of it ran in their order."""
        back, doubtful = _union(self.back, inner.back), self.doubtful or inner.doubtful
        if certain and self.sure:
            ends = _union(self.ends, inner.ends)
            return replace(inner, begun=self.begun, ends=ends, back=back, doubtful=doubtful)
        every, back = _union(self.now, self.ends, inner.begun, inner.ends, inner.now), _union(back, inner.before)
        shell = replace(inner, now=every, begun=_union(self.begun, every), ends=every, before=back, back=back)
        return replace(shell, sure=False, vague=True)


class _Walk:
    """A walk through the commands of a line."""

    def __init__(self, expand: Expand, is_folder: IsFolder) -> None:
        self._folders = Folders(expand)
        self._is_folder = is_folder
        self._seen: tuple[str, ...] = ("",)
        self._searched: tuple[str, ...] = ()  # CDPATH
        self._steady = True  # whether no command so far may have changed a folder

    def steps(
        self, commands: Sequence[Command], parents: tuple[Command, ...], shell: _Shell
    ) -> Generator[CommandStep, None, _Shell]:
        """Yield the steps of commands that a shell runs. Return the shell after them."""
        scopes, outer = tuple[str, ...](), list[_Shell]()
        for number, command in enumerate(commands):
            kept = len(posixpath.commonprefix((scopes, command.scopes)))
            for scope in reversed(scopes[kept:]):
                shell = self._left(scope, outer.pop(), shell)
            if number and not command.joined:  # another reading of the line, or a text that cannot be parsed
                shell = replace(shell, ends=self._seen)
            shell = shell.behind(command.joined) if number else shell
            for _ in command.scopes[kept:]:
                outer.append(shell)
                shell = shell.inside()
            scopes = command.scopes
            folders = replace(self._folders, possible=shell.now)
            if command.name in _MOVERS and not self._folders.lost:
                alone = not parents and all(each.startswith("(") for each in scopes)
                shell = self._entered(command, folders, shell, alone=alone)
            self._note(command, shell)
            shell = _Shell() if self._folders.lost else shell
            yield CommandStep(command, parents, folders, replace(self._folders, possible=shell.now))
            if command.runs:
                inner = yield from self.steps(command.runs, (*parents, command), shell.inside())
                if command.wrapper and command.name in _SAME_SHELL:
                    shell = shell.after_group(inner, certain=True)
                elif not (command.wrapper or command.name in tables().shells):
                    shell = shell.after_group(inner, certain=False)
        for scope in reversed(scopes):
            shell = self._left(scope, outer.pop(), shell)
        return shell

    def _left(self, scope: str, outer: _Shell, inner: _Shell) -> _Shell:
        """Return the shell behind a bracket. A subshell changes nothing. Commands in a condition may not have run."""
        if scope.startswith("("):
            return outer
        grouped = scope.startswith("{")
        return outer.after_group(inner if grouped else replace(inner, ends=self._seen), certain=grouped)

    def _entered(self, command: Command, folders: Folders, shell: _Shell, *, alone: bool) -> _Shell:
        """Return the shell after a `cd`, `pushd` or `popd`."""
        args, stack = command.argv[1:], shell.stack
        plain = not any(word.startswith(("-", "+")) for word in args)
        if command.name == "cd" and args == ("-",):
            found: tuple[str, ...] | None = shell.before or _ELSEWHERE
        elif command.name == "cd" or (command.name == "pushd" and args and plain):
            found = folders.entered_by(command, self._searched)
            stack = stack if command.name == "cd" else (*stack, shell.now)
        elif not args and stack and not shell.vague:  # popd, or pushd alone, which swaps
            found, stack = stack[-1], (*stack[:-1], shell.now) if command.name == "pushd" else stack[:-1]
        else:
            named = folders.entered_by(command, self._searched) if command.name == "pushd" and args else ()
            found = None if named is None else _union(shell.now, *stack, named)
            shell = replace(shell, vague=True)
        if found is None:
            self._folders = replace(self._folders, lost=True)
        if not found:
            return shell
        bare = len(args) == 1 and not (command.redirections or command.assignments)
        first = alone and bare and command.joined in ("", ";")
        certain = first and self._steady and not self._searched and all(map(self._is_folder, found))
        return shell.moved(found, certain=certain, stack=stack)

    def _note(self, command: Command, shell: _Shell) -> None:
        """Note what a command may change for the commands behind it."""
        self._seen = _union(self._seen, shell.now, shell.ends)
        if len(self._seen) > MAX_FOLDERS:
            self._folders, self._seen = replace(self._folders, lost=True), ("",)
        reads = only_reads(command)
        if not reads and _may_change_ignores(command):
            self._folders = replace(self._folders, changes_ignores=True)
        for word in (*command.assignments, *command.argv):
            if word.startswith("CDPATH="):
                self._searched += tuple(word.removeprefix("CDPATH=").split(":"))
        self._steady = self._steady and (reads or command.name in _MOVERS) and not command.assignments


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
            yield _shortened(redirection.target) or redirection.target
    if command.tool in _PRINTERS:
        return
    yield from patterns_of(command)
    if command.argv and not command.standard:
        yield command.argv[0]
    grammar = grammar_of(command.tool)
    found = (
        _as_read(grammar.parse(command.own), chained=command.tool in _CHAINED)
        if grammar is not None
        else (each for word in command.own for each in candidates(word, command.name))
    )
    yield from (each for each in map(_shortened, found) if each and _is_path(each))


def _shortened(word: str) -> str:
    """Return a word that may be a path, without needless steps if it is long; empty if it is too long for any path."""
    if len(word) <= _MAX_WORD:
        return word
    short = posixpath.normpath(word)
    return short if len(short) <= _MAX_WORD else ""


def patterns_of(command: Command) -> Iterator[str]:
    """Yield the arguments that the shell replaces by names of files.

    They count at every position, since each name becomes a word of its own, and for `echo` as well, which prints names.
    """
    if command.patterns:
        yield from (word for word in command.own if word in command.patterns and _is_path(word))


def odd_words(command: Command) -> Iterator[str]:
    """Yield the words that look like text, but may be names of files: `a b`, `a$b`, `@x`, `-x` behind `--`.

    A link may have such a name, so the caller must look whether the file exists.
    """
    if command.tool in _PRINTERS:
        return
    yield from (each.target for each in command.redirections if not each.harmless and not _is_path(each.target))
    grammar = grammar_of(command.tool)
    if grammar is not None:
        words = [each.word for each in grammar.parse(command.own).arguments if each.kind.path]
    else:
        words = [each for word in command.own for each in (word, *candidates(word, command.name))]
    for word in map(_shortened, words):
        if word and "\0" not in word and (word[0] in "-@" or not _is_path(word)):
            yield word


def _as_read(parsed: ParsedArguments, *, chained: bool) -> Iterator[str]:
    """Yield the words that are paths by the program's grammar, also relative to the folder that an option names.

    With `chained` every such option is relative to the previous one, and all other paths are relative to the last one.
    """
    folders = [each.word for each in parsed.arguments if each.kind is WordKind.FOLDER]
    nested = accumulate(folders, posixpath.join)
    if chained and folders and not parsed.unknown:
        last = ""
        for last in nested:
            yield last
        others = [each.word for each in parsed.arguments if each.kind.path and each.kind is not WordKind.FOLDER]
        yield from (posixpath.join(last, each) for word in others for each in candidates(word))
        return
    folders = list(dict.fromkeys(folders))
    for each in dict.fromkeys(parsed.arguments):
        if not each.kind.path:
            continue
        test_file = each.word.partition("::")[0] if "::" in each.word else ""  # of pytest's `a.py::test`
        for word in (*candidates(each.word), *filter(None, (test_file,))):
            yield word
            if each.kind is not WordKind.FOLDER:
                yield from (posixpath.join(folder, word) for folder in folders)
    yield from islice(nested, 1, None)


def candidates(word: str, program: str = "") -> Iterator[str]:
    """Yield the paths that a word may hold: the word itself, and the values of `--option=value`, `-I/path`, `@file`."""
    if not word.startswith("-"):
        yield word.removeprefix("@")
    elif not word.startswith("--"):
        yield from (value.removeprefix("@") for value in _attached(word, program))
    match = _VALUE.fullmatch(word)
    if match:
        yield match[1].removeprefix("@")


def _attached(word: str, program: str) -> Iterator[str]:
    """Yield the possible values at the end of a word of short options: `Cdocs`, `docs`, `ocs`, … for `-xCdocs`.

    If it is known which letters take a value, the first of these ends the options. Programs such as gcc do not bundle
    options, so `-Isrc/x` has only one.
    """
    bundle = _BUNDLE.match(word)
    if bundle is None:
        return
    valued = _VALUED.get(program)
    most = 1 if _UNBUNDLED.fullmatch(program) else len(bundle[1])
    for at, letter in enumerate(bundle[1][:most], start=2):
        nearby = valued is not None or len(bundle[1]) - at < _MAX_LETTERS
        if at == 2 or (nearby and (valued is None or letter in valued)):
            yield word[at:]
        if valued is not None and letter in valued:
            return


def _is_path(word: str) -> bool:
    """Return whether a word may be a path. A plain name counts too, since it may be a link that leads out."""
    if URL.match(word) or "\n" in word or "\0" in word or _UNKNOWN.search(word):
        return False
    return bool(_PATH_START.match(word)) or not _BLANK.search(word)
