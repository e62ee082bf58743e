"""Paths stay inside the session's roots (requirements T2.11-T2.13, T4).

A tool's own paths must resolve inside, or the call is refused. A shell command is only read, not confined, so
its paths are judged as text:

- a relative path that climbs out by `..` is refused (T2.13). Where that depends on whether an earlier `cd`
  succeeded, it is asked about instead;
- any other path outside (absolute, `~`, a link that leads out) is asked about, with its name: reading
  /usr/include or a log is ordinary work, and no rule should allow it silently;
- devices such as /dev/null are nobody's files.

Words that are patterns or messages are no paths: the first operand of grep, sed and the like, whatever echo
prints, and words with blanks that do not begin like a path.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import Access, Allow, Ask, CommandSubject, Deny, PathSubject, Verdict
from acp_agent.core.wrapper import Gate
from acp_agent.gates.command import DAMAGED, Command, Plain, analyse, survey

_DEVICES = re.compile(r"/dev/(?:null|zero|full|u?random|tty|stdin|stdout|stderr|fd/\d+)")
_PATTERN_FIRST = frozenset(
    ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "sed", "gsed", "awk", "gawk", "mawk", "nawk", "jq", "yq")
)
_PATTERN_OPTIONS = ("-e", "-f", "--regexp", "--file", "--expression")
_PRINTERS = frozenset(("echo", "printf", "print", "test", "expr"))
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH_START = re.compile(r"(?:/|~|\.\.?(?:/|$))")
_CLIMBS = re.compile(r"(?![/~])(?:.*/)?\.\.(?:/|$)", re.DOTALL)
_UNKNOWN = re.compile(r"[$`]")
_VALUE = re.compile(r"(?:--?[\w-]+|[A-Za-z_]\w*)=(.+)", re.DOTALL)
_ATTACHED = re.compile(r"-[A-Za-z]((?:/|~/|\.\.?/).*|\.\.)", re.DOTALL)
_MAX_WORD = 4096

MAX_WORDS = 1000
"""Words of one command line that are looked up; more are asked about."""

Resolve = Callable[[str, Access], str]


class SandboxGate(Gate):
    """Judges every path a call names. Both functions raise Refused for one outside.

    resolve           for paths a tool itself touches (FileSystem.resolve)
    resolve_command   for paths a command names; the two sandboxes are configured apart (T4.1)
    """

    def __init__(self, wrapped: ToolExecutor, resolve: Resolve, resolve_command: Resolve) -> None:
        super().__init__(wrapped)
        self._resolve = resolve
        self._resolve_command = resolve_command

    def check(self, invocation: Invocation) -> Verdict:
        outside: list[str] = []
        for subject in invocation.subjects:
            match subject:
                case PathSubject(path, access):
                    try:
                        self._resolve(path, access)
                    except (Refused, ToolError) as error:
                        return Deny(str(error), error.failure.category)
                case CommandSubject(command):
                    verdict = self._command(command)
                    if isinstance(verdict, Deny):
                        return verdict
                    outside.extend(verdict)
                case _:
                    continue
        return Ask(f"outside the workspace: {_listed(outside)}") if outside else Allow()

    def _command(self, text: str) -> list[str] | Deny:
        """The outside paths a command names, or the refusal of one that climbs out."""
        analysis = analyse(text)
        commands = analysis.commands if isinstance(analysis, Plain) else survey(text).commands
        outside: list[str] = []
        folders = Folders()
        judged = 0
        for command in (each for outer in commands for each in outer.walk() if outer.unclear != DAMAGED):
            folders.enter(command)
            for word in path_words(command):
                judged += 1
                if judged > MAX_WORDS:
                    return [*outside, f"(more than {MAX_WORDS} paths)"]
                where = [self._is_outside(path) for path in folders.places(word)]
                if _CLIMBS.match(word) and all(where):
                    return Deny(f"'{word}' leads out of the workspace")
                if any(where) and word not in outside:
                    outside.append(word)
            folders.leave(command)
        return outside

    def _is_outside(self, path: str) -> bool:
        if path.startswith("~"):
            path = os.path.expanduser(path)
            if path.startswith("~"):
                return True
        if _DEVICES.fullmatch(posixpath.normpath(path)):
            return False
        try:
            self._resolve_command(path, Access.READ)
        except (Refused, ToolError):
            return True
        return False


class Folders:
    """The folders a command may run in, relative to the session's: `cd a && …` is certain, `cd a; …` is not."""

    def __init__(self) -> None:
        self.possible: tuple[str, ...] = ("",)
        self._seen: tuple[str, ...] = ("",)

    def places(self, word: str) -> Iterator[str]:
        """What a word may mean as a path."""
        if word.startswith(("/", "~")):
            yield word
        else:
            yield from (posixpath.join(folder, word) for folder in self.possible)

    def enter(self, command: Command) -> None:
        """Before the words of a command are judged."""
        if command.joined not in ("&&", ""):
            self.possible = self._seen

    def leave(self, command: Command) -> None:
        """After them: where a `cd` leads. An unknown folder (`cd -`, `cd $x`) adds nothing: its word was judged."""
        if command.name not in ("cd", "pushd"):
            return
        target = next((word for word in command.argv[1:] if not word.startswith("-")), "~")
        if _UNKNOWN.search(target):
            return
        self.possible = tuple(dict.fromkeys(posixpath.join(folder, target) for folder in self.possible))
        self._seen = tuple(dict.fromkeys((*self._seen, *self.possible)))


def path_words(command: Command) -> Iterator[str]:
    """The words of one command that may be paths, and the files it is redirected to."""
    for redirection in command.redirections:
        if not redirection.harmless and not _UNKNOWN.search(redirection.target):
            yield redirection.target
    if command.name in _PRINTERS:
        return
    if command.argv and not command.standard:
        yield command.argv[0]
    for word in _judged(command):
        for candidate in _candidates(word):
            if candidate and len(candidate) <= _MAX_WORD and _is_path(candidate):
                yield candidate


def _judged(command: Command) -> Iterable[str]:
    """The arguments, without the pattern of a search or the script of an editor."""
    args = command.own
    if command.name not in _PATTERN_FIRST or any(word.startswith(_PATTERN_OPTIONS) for word in args):
        return args
    pattern = next((index for index, word in enumerate(args) if not word.startswith("-")), len(args))
    return args[:pattern] + args[pattern + 1 :]


def _candidates(word: str) -> Iterator[str]:
    """A word, the value in `--option=value` and `name=value`, that in `-I/path`, that in `@file`."""
    if not word.startswith("-"):
        yield word.removeprefix("@")
    for pattern in (_VALUE, _ATTACHED):
        match = pattern.fullmatch(word)
        if match:
            yield match[1].removeprefix("@")


def _is_path(word: str) -> bool:
    """T2.12: begins like a path or holds a slash; a plain name counts too, it may be a link that leads out."""
    if _URL.match(word) or "\n" in word or "\0" in word or _UNKNOWN.search(word):
        return False
    return bool(_PATH_START.match(word)) or not any(char.isspace() for char in word)


def _listed(paths: list[str]) -> str:
    shown = ", ".join(paths[:5])
    return shown if len(paths) <= 5 else f"{shown} and {len(paths) - 5} more"
