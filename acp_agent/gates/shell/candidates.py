"""Simple commands while they are collected from a tree, and the values that their variables may have."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from acp_agent.gates.shell.command import Command, Redirection
from acp_agent.gates.shell.options import MAX_SHIFTS, MAX_VALUES, parameters, suffixes
from acp_agent.gates.shell.words import Word, ansi_c, variants

_GLOB = frozenset("*?[")
_PRINTERS = frozenset(("echo", "printf", "print"))
_READERS_OF_INPUT = frozenset(("read", "mapfile", "readarray"))
_DECLARERS = frozenset(("declare", "typeset", "local"))
_PASSING = frozenset(("cat", "tee", "head", "tail", "sed", "tr", "rev", "sort", "uniq", "grep", "tac"))

MAX_FED_TEXT = 16 * 1024
"""The most characters of printed text that are kept, in case a shell reads them."""

MAX_VALUE = 1024
"""The most characters of a variable's value that are kept."""

MAX_FOUND = 4000
"""The most commands that one text may become with its values put in. A text with more counts as unread."""


@dataclass(slots=True)
class Candidate:
    """A simple command while it is collected."""

    words: list[Word] = field(default_factory=list[Word])
    assignments: list[str] = field(default_factory=list[str])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    patterns: set[str] = field(default_factory=set[str])
    joined: str = ""
    stdin: str = ""

    def feed(self, text: str) -> None:
        """Add a text to its input."""
        self.stdin += text


@dataclass(slots=True)
class Guesses:
    """What a text says about the values in it. The reading that proves does not guess: `known` is empty there.

    known       the values that variables were seen to take, newest first
    files       the texts that were written to files, by file name
    functions   the bodies of functions, by name
    arguments   the words that `$1`, `$2`, … stand for
    fed         the text printed so far, which may be piped into a shell
    unread      why there is more than was followed; empty if everything was
    """

    known: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: dict[str, str] = field(default_factory=dict[str, str])
    functions: dict[str, str] = field(default_factory=dict[str, str])
    arguments: tuple[str, ...] = ()
    fed: str = ""
    unread: str = ""

    def learn(self, name: str, values: list[str]) -> None:
        """Note that a variable was set to one of these values."""
        if self.known:
            short = (value[:MAX_VALUE] for value in values)
            values = list(dict.fromkeys((*short, *self.known.get(name, ()))))
            self.known[name] = tuple(values[:MAX_VALUES])
            if len(values) > MAX_VALUES:
                self.unread = f"gives a variable more than {MAX_VALUES} values"

    def define(self, name: str, body: str) -> None:
        """Note the body of a function. An earlier body stays, because it may have run before."""
        if self.known:
            self.functions[name] = f"{self.functions[name]}\n{body}" if name in self.functions else body

    def give(self, words: tuple[str, ...]) -> None:
        """Note that `$1`, `$2`, … and `$@` were set."""
        if self.unread:
            return
        self.arguments = words[:MAX_VALUES]
        for name, value in parameters(words).items():
            self.learn(name, list(value))

    def shift(self) -> None:
        """Note that the arguments were shifted by an unknown number: a loop may shift again and again."""
        words, self.arguments = self.arguments if not self.unread else (), ()
        if len(words) > MAX_SHIFTS:
            self.unread = f"shifts among more than {MAX_SHIFTS} words"
            return
        for place in range(1, min(len(words), 9) + 1):
            self.learn(str(place), list(words[place - 1 :]))
        for name in ("@", "*"):
            self.learn(name, suffixes(words))

    def feed(self, text: str) -> None:
        """Note that a text was printed."""
        self.fed = f"{self.fed}\n{text}"[-MAX_FED_TEXT:]

    def forget_fed_after(self, fed: str) -> None:
        """Go back to an earlier value of `fed`: what an inner command printed stays inside."""
        self.fed = fed

    def words(self, word: Word) -> tuple[str, ...]:
        """Return the words that one word most likely becomes."""
        return (variants([word], self.known, 1) or [()])[0]

    def argv(self, candidate: Candidate) -> tuple[str, ...]:
        """Return the words that a command most likely has."""
        return (variants(candidate.words, self.known, 1) or [()])[0]

    def _set_variables(self, name: str, args: tuple[str, ...], stdin: str) -> None:
        """Note what built-in commands put into variables: `printf -v`, `read`, `mapfile`."""
        if name == "printf" and (variable := _printed_into(args)):
            words = args[2:] if args[0] == "-v" else args[1:]
            filled = words[0] if words else ""
            for word in words[1:]:
                filled = filled.replace("%s", word, 1)
            self.learn(variable, [ansi_c(filled) if "\\" in filled else filled, "".join(words[1:]), *words])
        elif name in _READERS_OF_INPUT:
            text = stdin or self.fed
            values = [text.strip(), *text.split()]
            for word in args:
                if word.isidentifier():
                    self.learn(word, values[:MAX_VALUE])
        elif name in _DECLARERS and any(word[:1] == "-" and word[1:2] != "-" and "n" in word for word in args):
            self.unread = "uses a name reference"

    def note(self, candidate: Candidate) -> None:
        """Note a complete command. A later command may run what it prints or writes."""
        if not self.known:
            return
        if candidate.joined == "|" and not candidate.stdin:
            candidate.stdin = self.fed
        argv = self.argv(candidate)
        name = argv[0].rpartition("/")[2] if argv else ""
        if name in _PRINTERS:
            text = " ".join(word for word in argv[1:] if not word.startswith("-"))
            self.feed(ansi_c(text) if "\\" in text else text)
            self.feed("\n".join(argv[2:]) if name == "printf" else "")
        self._set_variables(name, argv[1:], candidate.stdin)
        if name == "set":
            self.give(_set(argv[1:]))
        if name == "shift":
            self.shift()
        written = candidate.stdin if name in _PASSING else self.fed if name in _PRINTERS else ""
        if written:
            targets = [each.target for each in candidate.redirections if each.writes]
            targets += [word for word in argv[1:] if name == "tee"]
            self.files.update(dict.fromkeys((_file_key(target) for target in targets), written))


def _printed_into(args: tuple[str, ...]) -> str:
    """Return the variable that `printf -v NAME` sets; empty for none."""
    for at, word in enumerate(args):
        if word == "-v":
            return args[at + 1] if at + 1 < len(args) else ""
        if not word.startswith("-v"):
            return ""
        return word[2:]
    return ""


def _emptied(words: list[Word], known: dict[str, tuple[str, ...]]) -> list[Word]:
    """Return the words with unknown variables empty, in the program's name and where one is a whole word.

    `$x curl`, `cu${x}rl` and `sh -c $x curl` run curl. Elsewhere variables stay: `rm -rf $folder/` is no `rm -rf /`.
    """
    first = [piece for piece in words[0] if not piece.variable or piece.variable in known]
    return [first, *(word for word in words[1:] if not _vanishes(word, known))]


def _vanishes(word: Word, known: dict[str, tuple[str, ...]]) -> bool:
    return all(piece.variable and not piece.quoted and piece.variable not in known for piece in word)


def _set(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that `set` makes the arguments of the shell, without its own options."""
    at = 0
    while at < len(args) and args[at][:1] in ("-", "+") and args[at] not in ("-", "--"):
        at += 2 if args[at].endswith("o") else 1
    return args[at + (args[at : at + 1] in (("-",), ("--",))) :]


def _file_key(name: str) -> str:
    return name.removeprefix("./")


def commands(
    candidates: list[Candidate], guesses: Guesses, finish: Callable[[Command], Command]
) -> tuple[Command, ...]:
    """Return the candidates as commands, one for each value of their variables. `finish` adds what they start."""
    found: list[Command] = []
    for candidate in candidates:
        if len(found) > MAX_FOUND:  # the survey reports that it is incomplete
            break
        forms: list[tuple[str, ...]] = variants(candidate.words, guesses.known) or [()]
        if guesses.known and any(piece.variable for word in candidate.words for piece in word):
            forms += variants(_emptied(candidate.words, guesses.known), guesses.known)
        patterns = (candidate.patterns | {pattern(word) for word in candidate.words}) - {""}
        quoted = {"".join(piece.text for piece in word) for word in candidate.words if _closed(word)}
        for argv in forms:
            if argv or candidate.assignments or candidate.redirections:
                # Values and braces may contain patterns as well.
                more = {word for word in argv if not _GLOB.isdisjoint(word)} - quoted if guesses.known else ()
                command = Command(argv, tuple(candidate.redirections), tuple(candidate.assignments), candidate.joined)
                found.append(finish(replace(command, stdin=candidate.stdin, patterns=frozenset({*patterns, *more}))))
    return tuple(found)


def _closed(word: Word) -> bool:
    return all(piece.quoted and not piece.variable for piece in word)


def pattern(word: Word) -> str:
    """Return the text of a word that bash may replace by file names; empty for any other word."""
    unquoted = any(not piece.quoted and not _GLOB.isdisjoint(piece.text) for piece in word)
    return "".join(piece.text for piece in word) if unquoted else ""
