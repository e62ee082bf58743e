"""What a command reads below folders without naming it, and the options that tell."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from acp_agent.gates.shell.grammar import Argument, ParsedArguments, grammar_of
from acp_agent.workspace.secrets_below import FoundSecret, Look

_SPECIAL = "[]\\{}"


def everything(found: FoundSecret) -> bool:
    """Show every file."""
    del found
    return True


@dataclass(frozen=True, slots=True)
class Reading:
    """What a command reads without naming it.

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
