"""Simple commands while they are collected, and what may be guessed about the values in them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from acp_agent.gates.command import Command, Redirection
from acp_agent.gates.shell.words import Word, ansi_c, variants

_GLOB = frozenset("*?[")
_PRINTERS = frozenset(("echo", "printf", "print"))
_PASSING = frozenset(("cat", "tee", "head", "tail", "sed", "tr", "rev", "sort", "uniq", "grep", "tac"))

MAX_FED_TEXT = 16 * 1024
"""Characters of printed text that are kept, in case a shell reads them."""

MAX_VALUE = 1024
"""Characters of a variable's value that are kept."""


@dataclass(slots=True)
class Draft:
    """A simple command while it is being collected."""

    words: list[Word] = field(default_factory=list[Word])
    assignments: list[str] = field(default_factory=list[str])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    joined: str = ""
    stdin: str = ""


@dataclass(slots=True)
class Guesses:
    """What a text says about the values in it. A reading that proves guesses nothing: `known` is empty then.

    known   the values variables were seen to take, newest first
    files   texts that were written to files, by file name
    fed     what was printed so far, and may be piped into a shell
    """

    known: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: dict[str, str] = field(default_factory=dict[str, str])
    fed: str = ""

    def learn(self, name: str, values: list[str]) -> None:
        """A variable was set to one of these."""
        if self.known:
            short = (value[:MAX_VALUE] for value in values)
            self.known[name] = tuple(dict.fromkeys((*short, *self.known.get(name, ()))))[:4]

    def feed(self, text: str) -> None:
        """Text was printed."""
        self.fed = f"{self.fed}\n{text}"[-MAX_FED_TEXT:]

    def words(self, word: Word) -> tuple[str, ...]:
        """What one word most likely becomes."""
        return (variants([word], self.known, 1) or [()])[0]

    def argv(self, draft: Draft) -> tuple[str, ...]:
        """The arguments a command most likely has."""
        return (variants(draft.words, self.known, 1) or [()])[0]

    def note(self, draft: Draft) -> None:
        """A command is complete: what it prints or writes may be run by a later one."""
        if not self.known:
            return
        if draft.joined == "|" and not draft.stdin:
            draft.stdin = self.fed
        argv = self.argv(draft)
        name = argv[0].rpartition("/")[2] if argv else ""
        if name in _PRINTERS:
            text = " ".join(word for word in argv[1:] if not word.startswith("-"))
            self.feed(ansi_c(text) if "\\" in text else text)
            self.feed("\n".join(argv[2:]) if name == "printf" else "")
        if name == "set" and "--" in argv:
            rest = argv[argv.index("--") + 1 :]
            self.known |= {"@": (" ".join(rest),), "*": (" ".join(rest),)}
            self.known |= {str(place): (word,) for place, word in enumerate(rest[:9], start=1)}
        written = draft.stdin if name in _PASSING else self.fed if name in _PRINTERS else ""
        if written:
            targets = [each.target for each in draft.redirections if each.writes]
            targets += [word for word in argv[1:] if name == "tee"]
            self.files.update(dict.fromkeys((_file_key(target) for target in targets), written))


def _emptied(words: list[Word], known: dict[str, tuple[str, ...]]) -> list[Word]:
    """The words with unknown variables empty: in the program's name, and where one is a whole word.

    `$x curl`, `cu${x}rl` and `sh -c $x curl` run curl. Elsewhere they stay: `rm -rf $folder/` is no `rm -rf /`.
    """
    first = [piece for piece in words[0] if not piece.variable or piece.variable in known]
    return [first, *(word for word in words[1:] if not _vanishes(word, known))]


def _vanishes(word: Word, known: dict[str, tuple[str, ...]]) -> bool:
    return all(piece.variable and not piece.quoted and piece.variable not in known for piece in word)


def _file_key(name: str) -> str:
    return name.removeprefix("./")


def commands(drafts: list[Draft], guesses: Guesses, finish: Callable[[Command], Command]) -> tuple[Command, ...]:
    """The drafts as commands, one for each value its variables may have; `finish` adds what they start."""
    found: list[Command] = []
    for draft in drafts:
        forms: list[tuple[str, ...]] = variants(draft.words, guesses.known) or [()]
        if guesses.known and any(piece.variable for word in draft.words for piece in word):
            forms += variants(_emptied(draft.words, guesses.known), guesses.known)
        patterns = frozenset(_pattern(word) for word in draft.words) - {""}
        for argv in forms:
            if argv or draft.assignments or draft.redirections:
                command = Command(argv, tuple(draft.redirections), tuple(draft.assignments), draft.joined)
                found.append(finish(replace(command, stdin=draft.stdin, patterns=patterns)))
    return tuple(found)


def _pattern(word: Word) -> str:
    """A word bash may put file names in place of, as its text; empty for any other."""
    unquoted = any(not piece.quoted and not _GLOB.isdisjoint(piece.text) for piece in word)
    return "".join(piece.text for piece in word) if unquoted else ""
