"""The words of a command that may be paths, and the folders they may be seen from (requirements T2.12).

For the gates that judge commands by the paths they name: a command is only read, not confined, so its paths are text.
Words that are patterns or messages are no paths: the first operand of grep, sed and the like, whatever echo prints,
and words with blanks that do not begin like a path.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator

from acp_agent.gates.command import Command

_PATTERN_FIRST = frozenset(
    ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "sed", "gsed", "awk", "gawk", "mawk", "nawk", "jq", "yq")
)
_PATTERN_OPTIONS = ("-e", "-f", "--regexp", "--file", "--expression")
_PRINTERS = frozenset(("echo", "printf", "print", "test", "expr"))
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH_START = re.compile(r"(?:/|~|\.\.?(?:/|$))")
_UNKNOWN = re.compile(r"[$`]")
_VALUE = re.compile(r"(?:--?[\w-]+|[A-Za-z_]\w*)=(.+)", re.DOTALL)
_ATTACHED = re.compile(r"-[A-Za-z]((?:/|~/|\.\.?/).*|\.\.)", re.DOTALL)
_MAX_WORD = 4096

MAX_FOLDERS = 64
"""Folders a command may run in that are followed."""

MAX_WORDS = 1000
"""Words of one command line that are looked up; more are asked about."""


class Folders:
    """The folders a command may run in, relative to the session's: `cd a && …` is certain, `cd a; …` is not.

    lost   there are more than anyone can follow (each uncertain `cd` may double them): judge nothing by them
    """

    def __init__(self) -> None:
        self.lost = False
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
        if len(self._seen) > MAX_FOLDERS:
            self.lost, self.possible, self._seen = True, ("",), ("",)


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
        for candidate in candidates(word):
            if candidate and len(candidate) <= _MAX_WORD and _is_path(candidate):
                yield candidate


def _judged(command: Command) -> Iterable[str]:
    """The arguments, without the pattern of a search or the script of an editor."""
    args = command.own
    if command.name not in _PATTERN_FIRST or any(word.startswith(_PATTERN_OPTIONS) for word in args):
        return args
    pattern = next((index for index, word in enumerate(args) if not word.startswith("-")), len(args))
    return args[:pattern] + args[pattern + 1 :]


def candidates(word: str) -> Iterator[str]:
    """A word, the value in `--option=value` and `name=value`, that in `-I/path`, that in `@file`."""
    if not word.startswith("-"):
        yield word.removeprefix("@")
    for pattern in (_VALUE, _ATTACHED):
        match = pattern.fullmatch(word)
        if match:
            yield match[1].removeprefix("@")


def _is_path(word: str) -> bool:
    """T2.12: begins like a path or holds a slash; a plain name counts too, it may be a link that leads out."""
    if URL.match(word) or "\n" in word or "\0" in word or _UNKNOWN.search(word):
        return False
    return bool(_PATH_START.match(word)) or not any(char.isspace() for char in word)
