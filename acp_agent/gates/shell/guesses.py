"""The values that a text gives to its variables, the texts that it prints or writes to files, and its functions."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import dropwhile

from acp_agent.gates.shell.command import CUT, Redirection
from acp_agent.gates.shell.lines import ARRAY_READERS, ReadLines, options_of, variable_of
from acp_agent.gates.shell.options import tables
from acp_agent.gates.shell.words import (
    MAX_SHIFTS,
    MAX_SPREAD,
    MAX_VALUES,
    PRINTERS,
    Word,
    ansi_c,
    count_variants,
    kept,
    most_words,
    parameters,
    program_of,
    suffixes,
    unknown,
    variants,
)
from acp_agent.text import lazy_regex

_SEPARATOR = re.compile(r"[\s;&|]+")
_BLANKS = " \t\n"
_FILLED = re.compile("%s")
_ECHO_OPTION = lazy_regex(r"-[neE]+")
_QUOTES = str.maketrans("", "", "'\"")
_READERS_OF_INPUT = frozenset(("read", "mapfile", "readarray"))
_REFERRERS = frozenset(("declare", "typeset", "local", "readonly"))
_DECLARERS = _REFERRERS.union(("export", "env", "eval", "time"))
_COPIERS = frozenset(("cp", "mv", "ln", "install"))
_PASSING = frozenset(("cat", "tee", "head", "tail", "sed", "tr", "rev", "sort", "uniq", "grep", "tac"))
_FOLLOWED = PRINTERS | _READERS_OF_INPUT | _DECLARERS | _COPIERS | _PASSING | {"set", "shift", "unset", "getopts"}

MAX_FED_TEXT = 256 * 1024
"""The most characters of printed text that are kept, in case a shell reads them. A reader of more counts as unread."""

MAX_PIPED = 4 * MAX_FED_TEXT
"""The most characters that all commands of a text read from pipes. A text whose commands read more counts as unread."""

TOO_MANY_WORDS = f"has more than {MAX_SPREAD:,} words with the values of its variables"
TOO_MUCH_TEXT = "pipes too much text"


@dataclass(slots=True)
class Candidate:
    """A simple command while it is collected."""

    words: list[Word] = field(default_factory=list[Word])
    assignments: list[str] = field(default_factory=list[str])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    patterns: set[str] = field(default_factory=set[str])
    joined: str = ""
    scopes: tuple[str, ...] = ()
    stdin: str = ""

    def feed(self, text: str) -> None:
        """Add a text to its input."""
        self.stdin += text


@dataclass(slots=True)
class Guesses:
    """The values that a text gives to its variables. The proof does not guess: `known` is empty there.

    known       the values that variables were seen to take, newest first
    files       the texts that were written to files, by file name
    functions   the bodies of functions, by name
    arguments   the values of `$1`, `$2`, …
    earlier     the values that these had before, oldest first
    fed         the text printed so far, which may be piped into a shell
    unread      why not every value was followed; empty if every one was
    cut         whether more was printed than is kept
    piped       the number of characters that were read from pipes
    words       the number of words that were read so far, with the values of their variables
    lines       the lines that `read` takes one after the other, if they are known
    """

    known: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: dict[str, str] = field(default_factory=dict[str, str])
    functions: dict[str, str] = field(default_factory=dict[str, str])
    arguments: tuple[str, ...] = ()
    earlier: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    fed: str = ""
    unread: str = ""
    cut: bool = False
    piped: int = 0
    words: int = 0
    lines: ReadLines | None = None

    def learn(self, name: str, values: list[str]) -> None:
        """Note that a variable was set to one of these values. Without values nothing changes."""
        if self.known and values:
            values = list(dict.fromkeys((*map(kept, values), *self.known.get(name, ()))))
            if len(values) > MAX_VALUES:
                self.unread = f"gives a variable more than {MAX_VALUES} values"
            self.known[name] = tuple(values[:MAX_VALUES])

    def learn_slices(self, name: str, texts: list[str]) -> None:
        """Note what `${name[@]:1}` may be. Further slices count as cut, since hardly any text reads them."""
        if self.known:
            values = list(dict.fromkeys((*map(kept, texts), *self.known.get(f"{name}:", ()))))
            self.known[f"{name}:"] = tuple(values if len(values) <= MAX_VALUES else [*values[: MAX_VALUES - 1], CUT])

    def define(self, name: str, body: str) -> None:
        """Note the body of a function. An earlier body stays, because it may have run before."""
        if self.known:
            self.functions[name] = f"{self.functions[name]}\n{body}" if name in self.functions else body

    def give(self, words: tuple[str, ...]) -> None:
        """Note that `$1`, `$2`, … and `$@` were set."""
        if self.unread:
            return
        self.unset(*(str(place) for place in range(len(words) + 1, len(self.arguments) + 1)))
        if not words:
            self.unset("@", "*")
        self.earlier += [self.arguments] if self.arguments else []
        self.arguments = words
        for name, values in parameters(words).items():
            if name == "@:":
                self.learn_slices("@", list(values))
            else:
                self.learn(name, list(values))

    def shift(self) -> None:
        """Note that the arguments were shifted. The number is unknown, since a loop may shift repeatedly."""
        for words in (*self.earlier, self.arguments) if not self.unread else ():
            if len(words) > MAX_SHIFTS:
                self.unread = f"shifts among more than {MAX_SHIFTS} words"
                return
            for place in range(1, min(len(words), 9) + 1):
                self.learn(str(place), [*words[place - 1 :], ""])
            for name in ("@", "*"):
                self.learn(name, [*suffixes(words), ""])
        self.earlier, self.arguments = [], ()

    def unset(self, *names: str) -> None:
        """Note that variables or elements of arrays (`x[0]`) were unset. Unknown variables stay unknown."""
        for name in map(variable_of, names):
            if name in self.known:
                self.learn(name, [""])

    def feed(self, text: str) -> None:
        """Note that a text was printed."""
        fed = f"{self.fed}\n{text}"
        self.fed, self.cut = fed[-MAX_FED_TEXT:], self.cut or len(fed) > MAX_FED_TEXT

    def read_fed(self) -> str:
        """Return the text printed so far, for a command or a file that receives it."""
        self.piped += len(self.fed)
        if self.cut or self.piped > MAX_PIPED:
            self.unread = TOO_MUCH_TEXT
            return ""
        return self.fed

    def forget_fed_after(self, fed: str) -> None:
        """Restore an earlier value of `fed`, because the output of an inner command is not the outer one's."""
        self.fed = fed

    def newest(self, *words: Word) -> tuple[str, ...]:
        """Return the words with the most recent values of their variables."""
        return variants(list(words), self.known, 1)[0]

    def forms(self, *words: Word, own: str = "") -> list[tuple[str, ...]]:
        """Return the words with each value that their variables may have, the most recent values first.

        If there are too many values, the last form has CUT for its words. A text with too many words has no more forms.

        own   the variable that gets these words: only its most recent value is put in, since `x="$x a"` adds to it
        """
        known = {**self.known, own: self.known[own][:1]} if own in self.known else self.known
        every = count_variants([*words], known)
        self.words += min(every, MAX_VALUES) * most_words([*words], known)
        if self.words > MAX_SPREAD:
            self.unread = TOO_MANY_WORDS
            return []
        found = variants([*words], known, MAX_VALUES)
        if any(piece.default for word in words for piece in word):  # `${x:+word}`, or `${x:-word}` of an empty variable
            found += variants([[unknown(piece) for piece in word] for word in words], known, MAX_VALUES)
        if any(piece.variable and not piece.quoted for word in words for piece in word):
            found += variants([*words], split, MAX_VALUES) if (split := split_by(known)) else []
        found = list(dict.fromkeys(found))
        return found if every <= MAX_VALUES else [*found, (*found[0][:1], CUT)]

    def _set_variables(self, name: str, args: tuple[str, ...], stdin: str) -> None:
        """Note what built-in commands put into variables: `printf -v`, `read`, `mapfile`, `set`, `shift`, `unset`."""
        match name:
            case "printf" if variable := printed_into(args):
                words = args[2:] if args[0] == "-v" else args[1:]
                self.learn(variable_of(variable), [filled(words), "".join(words[1:]), *words])
            case "set":
                self.give(words_set(args))
            case "shift":
                self.shift()
            case "unset":
                self.unset(*args)
            case "getopts":
                words = (*args[2:], *self.arguments)
                self.learn("OPTARG", [*words, *(word[2:] for word in words if word[:1] == "-")])
            case _ if name in _READERS_OF_INPUT:
                read = dict.fromkeys(map(kept, (stdin.strip(), *stdin.split())))
                lines = map(str.strip, stdin.splitlines()[: None if name in ARRAY_READERS else 1])
                more = {**dict.fromkeys(map(kept, lines)), **read}
                read = more if len(more) <= MAX_VALUES else read
                values = [*read][: MAX_VALUES + 1]  # one too many marks the text as unread
                names = [*filter(str.isidentifier, map(variable_of, args))]
                for variable in names or ("REPLY", "MAPFILE"):
                    self.learn(variable, values)
            case _ if name in _DECLARERS:
                words = _SEPARATOR.split(" ".join(args).translate(_QUOTES)) if name == "eval" else args
                for variable, equals, value in (word.partition("=") for word in words):
                    self.learn(variable.removesuffix("+"), assigned(variable, [value], self.known) if equals else [])
                if name in _REFERRERS and any(word[:1] == "-" != word[1:2] and "n" in word for word in args):
                    self.unread = "uses a name reference"
            case _:
                pass

    def _take_lines(self, candidate: Candidate, argv: tuple[str, ...], read: str) -> None:
        """Note the variables that a call of `read` or `mapfile` sets from known lines, or by splitting its input."""
        if argv[0] not in _READERS_OF_INPUT:
            return
        lines = self.lines
        own = [text.removeprefix("IFS=") for text in candidate.assignments if text.startswith("IFS=")]
        marks = "".join((own or self.known.get("IFS", ()))[:1] or (" ",)).replace(" ", _BLANKS)
        if lines is None or candidate.stdin:
            if lines is not None:
                lines.give_back(candidate)
            elif marks == _BLANKS and "d" not in options_of(argv)[0]:
                return  # each word is among the values already
            lines = ReadLines(read)
        for name, values in lines.take(candidate, argv, marks).items():
            self.learn(name, values)
            if len(values) > 1:
                self.learn_slices(name, values)

    def note(self, candidate: Candidate) -> None:
        """Note a complete command. A later command may run what it prints or writes."""
        if not self.known:
            return
        if candidate.joined == "|" and not candidate.stdin:
            candidate.stdin = self.read_fed()
        forms = [*map(_called, self.forms(*candidate.words))]
        names = set(map(program_of, forms))
        printed = dict.fromkeys(text for argv in forms for text in (*printed_by(argv), *self._passed(argv)))
        if printed:
            self.feed("\n".join(printed))
        read = candidate.stdin or ("" if names.isdisjoint(_READERS_OF_INPUT) else self.read_fed())
        for argv in reversed(forms):  # the most recent values stay the most recent ones
            if self.lines is None or names.isdisjoint(_READERS_OF_INPUT):
                self._set_variables(program_of(argv), argv[1:], read)
            if read or self.lines is not None:
                self._take_lines(candidate, (program_of(argv), *argv[1:]), read)
        copied = [argv[-2:] for argv in forms if len(argv) > 2 and program_of(argv) in _COPIERS]
        texts = [(target, self.written(source)) for source, target in copied]
        targets = [each.target for each in candidate.redirections if each.writes]
        targets += [word for argv in forms if program_of(argv) == "tee" for word in argv[1:]]
        if targets:
            passed = "" if names.isdisjoint(_PASSING) else candidate.stdin
            texts += [(target, passed or (self.read_fed() if printed else "")) for target in targets]
        for target, text in texts:
            self.write(target, text)

    def _passed(self, argv: tuple[str, ...]) -> list[str]:
        """Return the texts of files that the line has written and `cat` or the like prints."""
        return list(filter(None, map(self.written, argv[1:]))) if program_of(argv) in _PASSING else []

    def written(self, name: str) -> str:
        """Return what the line has written to a file; empty for other files."""
        return self.files.get(posixpath.normpath(name), "")

    def write(self, target: str, text: str) -> None:
        """Note that a text was written to a file. An earlier text stays, because this one may not have been written."""
        target = posixpath.normpath(target)
        before = self.files.get(target, "")
        if text and before not in text:
            self.piped += len(before) + len(text)
            text = f"{before}\n{text}"
        if self.piped > MAX_PIPED:
            self.unread = TOO_MUCH_TEXT
        elif text:
            self.files[target] = text


def split_by(known: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the values of variables with blanks where a changed IFS splits them; nothing if it was not changed."""
    marks = "".join(known.get("IFS", ())).replace(" ", "")
    if not marks:
        return {}
    blanks = dict.fromkeys(map(ord, marks), " ")
    return {name: tuple(value.translate(blanks) for value in values) for name, values in known.items()}


def _called(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without those of a wrapper in front of a command whose text is followed: `env -i echo a`."""
    if program_of(argv) not in tables().wrappers:
        return argv
    return argv[next((at for at, word in enumerate(argv) if at and program_of((word,)) in _FOLLOWED), 0) :]


def words_set(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that `set` makes the shell's arguments (`$1`, …): all but its own options."""
    at = 0
    while at < len(args) and args[at][:1] in ("-", "+") and args[at] not in ("-", "--"):
        at += 2 if args[at].endswith("o") else 1
    return args[at + (args[at : at + 1] in (("-",), ("--",))) :]


def assigned(name: str, values: list[str], known: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the values that a variable may have after `name=value`. For `name+=value`, the name ends with a plus."""
    before = known.get(name[:-1], ())[:1] if name.endswith("+") else ()
    return [*(earlier + value for earlier in before for value in values), *values]


def printed_into(args: tuple[str, ...]) -> str:
    """Return the variable that `printf -v NAME` sets; empty for none."""
    for at, word in enumerate(args):
        if word == "-v":
            return args[at + 1] if at + 1 < len(args) else ""
        if not word.startswith("-v"):
            return ""
        return word[2:]
    return ""


def printed_by(argv: tuple[str, ...]) -> list[str]:
    """Return the texts that a call of `echo` or `printf` may print; nothing for other programs."""
    name = program_of(argv)
    if name not in PRINTERS:
        return []
    words = argv[2:] if name == "printf" and argv[1:2] == ("--",) else argv[1:]
    shown = dropwhile(_ECHO_OPTION.fullmatch, words) if name == "echo" else words
    text = " ".join(word for word in shown if name != "print" or not word.startswith("-"))
    more = "\n".join((*words[1:], filled(words))) if name == "printf" and words[1:] else ""
    return [ansi_c(text) if "\\" in text else text, more]


def filled(words: tuple[str, ...]) -> str:
    """Return what printf prints for a format and its words, if each is filled in by `%s`."""
    text, *rest = words or ("",)
    if (count := text.count("%s")) and rest:
        # It prints the format again while words are left.
        rounds, given = min(-(-len(rest) // count), 1 + MAX_FED_TEXT // len(text)), iter(rest)
        text = _FILLED.sub(lambda _: next(given, ""), text * rounds)
    return ansi_c(text) if "\\" in text else text
