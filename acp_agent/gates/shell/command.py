"""The commands that a shell text is proven to run, and all commands that it contains.

A text is read in two ways. `analyse` proves: its `Plain` lists exactly the commands that bash runs, word for word. For
a text that it cannot prove it returns `Opaque`: the user may be asked about such a text, but no rule allows it.
`survey` suspects: it lists every command anywhere in the text (in loops, substitutions, functions, here-documents for
shells, nested `sh -c` strings, after wrappers), for the gates that only forbid.

Nearly every text is one command of plain words, which is read without the parser. The parser is slow to load, so it is
imported only when another text is read.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from acp_agent.core.data import frozen
from acp_agent.gates.shell.options import option_texts, tables

if TYPE_CHECKING:
    from acp_agent.gates.shell.syntax import Parses

MAX_BYTES = 64 * 1024
"""Longer texts are Opaque."""

MAX_SECONDS = 1.0
"""Texts that take longer to parse are Opaque."""

CUT, CUT_IN_QUOTES = "\ufdd0", "\ufdd1"
"""They stand for what is left out of words: the end of a long value, or further words. No text has these characters."""

TOO_DEEP = "is nested too deep"

MAX_DEPTH = 5
"""The most nested shells that are read: `bash -c "sh -c '…'"` nests two."""

MAX_FOUND = 4000
"""The most commands of one text once variables are replaced by all their values, with those that they may start.

A text with more counts as unread.
"""

MAX_TREE_DEPTH = 100
"""The greatest depth of a syntax tree that is walked. Deeper texts count as unread."""

DAMAGED = "is damaged"
"""The `unclear` of a command that was guessed from a text with a syntax error, ignoring quotes."""

_LITERAL = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./:@%+,-][A-Za-z0-9_./:@%+,=-]*)*")
"""A text of words that bash passes to the program unchanged."""

_NUMBER = re.compile(r"[0-9]+-?")  # of a descriptor, which may be moved
_MAX_LITERAL = 1024
_GIT_STARTERS = frozenset(("bisect", "submodule"))

_STANDARD_FOLDERS = frozenset(
    ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
)
_INSTALLED = ("bin", ".bin", "Scripts")
_PROJECT_TOOLS = ("gradlew", "mvnw")
_HARMLESS_FILES = ("/dev/null", "/dev/stdout", "/dev/stderr")


@frozen
class Redirection:
    """One redirection: `2>&1` is operator ">&", target "1", descriptor "2"."""

    operator: str
    target: str
    descriptor: str = ""

    @property
    def harmless(self) -> bool:
        """Whether it neither reads nor changes a file: `2>&1`, `>/dev/null`, `</dev/null`."""
        if self.operator in (">&", "<&"):
            return _NUMBER.fullmatch(self.target) is not None or self.target == "-"
        return self.target in _HARMLESS_FILES

    @property
    def writes(self) -> bool:
        """Whether it opens its target for writing."""
        return ">" in self.operator

    def __str__(self) -> str:
        return f"{self.descriptor}{self.operator}{self.target}"


@frozen
class Command:
    """One simple command.

    argv          the words that bash passes, quotes removed; empty if it only sets variables
    assignments   `NAME=value` words before it, or those that its wrapper sets (`env A=1 …`)
    joined        the operator before it in the text: "", "&&", "||", ";", "|", "&"
    runs          the commands that it starts itself: as a wrapper, in `sh -c`, `eval`, `find -exec`, ...
    wrapper       whether it only starts `runs`, with exactly these words (`timeout 5 git status`)
    appended      whether it starts `runs` with further unknown words (`xargs`, `find -exec … +`)
    unclear       why it is unclear what it starts; empty if `runs` is all of it
    stdin         the literal text of a here-document, a here-string or `echo … |` that it reads
    patterns      the words that bash may replace by file names (`*.py`), as written
    scopes        the constructs around it in its text, outermost first, each with a number: `(1` for a subshell or a
                  substitution, `{1` for a group, `?1` for a construct that may not run, such as a loop or a function
    name          the base name of the program: "git" for /usr/bin/git; empty if there is none
    standard      whether the program is found on the PATH or lies in a folder of the system
    tool          the name under which the tables list the program; empty for a project's own script with such a name
    """

    argv: tuple[str, ...]
    redirections: tuple[Redirection, ...] = ()
    assignments: tuple[str, ...] = ()
    joined: str = ""
    runs: "tuple[Command, ...]" = ()
    wrapper: bool = False
    appended: bool = False
    unclear: str = ""
    stdin: str = ""
    patterns: frozenset[str] = frozenset()
    scopes: tuple[str, ...] = ()
    name: str = field(init=False, repr=False, compare=False)
    standard: bool = field(init=False, repr=False, compare=False)
    tool: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the names of the program once: the gates ask for them some hundred times a call."""
        program = self.argv[0] if self.argv else ""
        name = program.rstrip("/").rpartition("/")[2]
        folder, slash, _ = program.rpartition("/")
        standard = not slash or folder in _STANDARD_FOLDERS
        known = standard or folder.rpartition("/")[2] in _INSTALLED or name in _PROJECT_TOOLS
        for member, value in (("name", name), ("standard", standard), ("tool", name if known else "")):
            object.__setattr__(self, member, value)

    @property
    def own(self) -> tuple[str, ...]:
        """The arguments without the words of the commands that it starts: ("5",) for `timeout 5 git status`."""
        args, kept, position = self.argv[1:], list[str](), 0
        for inner in self.runs:  # `runs` is in the order of the text, so one pass is enough
            size = len(inner.argv)
            start = next((at for at in range(position, len(args)) if args[at : at + size] == inner.argv), None)
            if start is not None:
                kept.extend(args[position:start])
                position = start + size
        return (*kept, *args[position:])

    def walk(self) -> "Iterator[Command]":
        """Yield the command, then everything it starts, outermost first."""
        yield self
        for command in self.runs:
            yield from command.walk()


@frozen
class Plain:
    """A proof that bash runs these commands and no others, in this order."""

    commands: tuple[Command, ...]


@frozen
class Opaque:
    """A text that is not proven. `reason` is shown to the user: "uses a command substitution"."""

    reason: str


Analysis: TypeAlias = Plain | Opaque


class Construct(StrEnum):
    """Syntax that passes the output of one command to another as words."""

    COMMAND_SUBSTITUTION = "command substitution $(…)"
    BACKTICK = "command substitution `…`"
    PROCESS_SUBSTITUTION = "process substitution <(…)"
    HERE_STRING = "here-string <<<"


class Survey(NamedTuple):
    """Every command and danger that was found in a text, even if the text was not fully understood.

    commands     every simple command anywhere, in source order; nested ones are in their `runs`
    constructs   the substitutions in the text
    hazards      dangers that are not a single command (a fork bomb, decoded text piped into a shell)
    damage       why it may contain more commands (a syntax error, bytes that the parser skipped); empty if it does not
    unread       why it was not read to the end (too long, too deep, too slow); empty if it was
    ahead        the commands that loops and the like may run with each line that they read. They can only justify a
                 refusal, since not all of them are known
    """

    commands: tuple[Command, ...] = ()
    constructs: frozenset[Construct] = frozenset()
    hazards: tuple[str, ...] = ()
    damage: str = ""
    unread: str = ""
    ahead: tuple[Command, ...] = ()

    def walk(self) -> Iterator[Command]:
        """Yield every command, nested ones included."""
        for command in self.commands:
            yield from command.walk()


class ShellText:
    """A shell text with its analysis and its survey. Each is computed when first needed, and at most once.

    beside   another text, with which it shares the time to be parsed
    """

    def __init__(self, text: str, beside: "ShellText | None" = None) -> None:
        self.text = text
        self._beside = beside

    @cached_property
    def literal(self) -> Command | None:
        """The command of a text that is one command of plain words and starts no other command; else None."""
        if len(self.text) > _MAX_LITERAL or not _LITERAL.fullmatch(self.text):
            return None
        command, table = Command(tuple(self.text.split(" "))), tables()
        name, args = command.name, command.argv[1:]
        if name in table.starters or (name == "git" and not _GIT_STARTERS.isdisjoint(args)):
            return None
        if name in ("make", "gmake") and any("=" in word for word in args):  # `SHELL=program`
            return None
        return None if name in table.text and option_texts(table.text[name], args) else command

    @cached_property
    def parses(self) -> "Parses":
        """The syntax trees of the text and of the texts inside it."""
        from acp_agent.gates.shell.syntax import Parses  # noqa: PLC0415

        return Parses() if self._beside is None else self._beside.parses

    @cached_property
    def analysis(self) -> Analysis:
        """The commands that the text is proven to run, or why they are unclear.

        Of 72,613 generated texts that were judged plain, none ran any other command in bash.
        """
        if self.literal is not None:
            return Plain((self.literal,))
        from acp_agent.gates.shell import reading  # noqa: PLC0415

        try:
            return reading.analyse(self.text, self.parses)
        except RecursionError:
            return Opaque(TOO_DEEP)

    @cached_property
    def survey(self) -> Survey:
        """Every command anywhere in the text, for gates that forbid."""
        if self.literal is not None:
            return Survey((self.literal,))
        from acp_agent.gates.shell import reading  # noqa: PLC0415

        try:
            return reading.survey(self.text, self.parses)
        except RecursionError:
            return Survey(unread=TOO_DEEP)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The proven commands. If the text is not proven, the surveyed ones, except those guessed from damaged text."""
        if isinstance(self.analysis, Plain):
            return self.analysis.commands
        return tuple(each for each in self.survey.commands if each.unclear != DAMAGED)


def is_cut(text: str) -> bool:
    """Return whether a text lacks its end, because a value in it is too long."""
    return CUT in text or CUT_IN_QUOTES in text


def analyse(text: str) -> Analysis:
    """Return the commands that a text is proven to run, or why they are unclear. Never raises."""
    return ShellText(text).analysis


def survey(text: str) -> Survey:
    """Return every command anywhere in a text. Never raises."""
    return ShellText(text).survey
