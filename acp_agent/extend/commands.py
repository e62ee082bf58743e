"""Slash commands of users: Markdown files whose text is sent to the model when the user types the file's name.

    ---
    description: Explain an error
    argument-hint: error message
    allowed-tools: Read, Grep
    ---
    Find out where "$ARGUMENTS" comes from.

`$ARGUMENTS` stands for all that the user types behind the name, `$1` to `$9` for single words, in quotes as in a shell.
`allowed-tools` only narrows: in that turn the model has no other tools, and those it has ask as always. Nothing in the
text is run or read before the model asks for it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acp_agent.core.events import OfferedCommand
from acp_agent.core.secrets import Redact
from acp_agent.extend.front_matter import OTHERS_KEYS, DefinitionProblem, Fields, Value, parse
from acp_agent.extend.sources import SourceFile, distinct
from acp_agent.text import plain

_NAME = re.compile(r"[\w.:-]{1,64}")
_PLACE = re.compile(r"\$(?:ARGUMENTS\b|([1-9])(?!\d))")
_LONGEST = 200
"""Characters of a description in the editor's list."""


def substituted(text: str, arguments: str) -> str:
    """Return a text with arguments in their places, or behind it if it has no place for them."""
    try:
        words = shlex.split(arguments)
    except ValueError:  # a quote that is not closed
        words = arguments.split()

    def value(place: "re.Match[str]") -> str:
        number = int(place[1] or 0)
        return arguments if not number else words[number - 1] if number <= len(words) else ""

    found = _PLACE.sub(value, text)
    return found if not arguments or _PLACE.search(text) else f"{found.rstrip()}\n\nArguments: {arguments}"


@dataclass(frozen=True, slots=True)
class UserCommand:
    """A slash command of the user.

    tools   the only tools that the model has in its turn; None for all
    """

    name: str
    description: str
    hint: str
    body: str
    file: SourceFile
    tools: tuple[str, ...] | None = None


def read_command(file: SourceFile) -> tuple[UserCommand | None, Sequence[DefinitionProblem]]:
    """Return the command of a file, or None if the file is not usable, and the problems of the file."""
    parsed = parse(file.data, file.shown)
    if isinstance(parsed, DefinitionProblem):
        return None, (parsed,)
    if not _NAME.fullmatch(file.name):
        return None, (DefinitionProblem(file.shown, "", "expected a file name of letters, digits and any of . _ - :"),)
    if not parsed.body.strip():
        return None, (DefinitionProblem(file.shown, "", "expected a text for the model behind the front matter"),)
    fields = Fields(file.shown, parsed.values, parsed.lines)
    first = next(line for line in parsed.body.splitlines() if line.strip())
    description = fields.description(first.strip("# "), most=2000) or file.name
    hint = _hint(fields, parsed.values)
    tools = tuple(each.partition("(")[0] for each in fields.texts("allowed-tools", blanks=True))
    if not fields.is_usable:  # a list that cannot be read must not widen
        return None, fields.problems
    fields.note_unknown(OTHERS_KEYS)
    narrowed = tools if "allowed-tools" in parsed.values else None
    return UserCommand(file.name, description, hint, parsed.body.strip(), file, narrowed), fields.problems


def _hint(fields: Fields, values: Mapping[str, Value]) -> str:
    """Return the hint for the argument. `[file]` is a list in YAML, and means what was written."""
    if isinstance(values.get("argument-hint"), list):
        return f"[{', '.join(fields.texts('argument-hint'))}]"
    return fields.text("argument-hint", most=200)


class UserCommands:
    """The slash commands of one session.

    reserved   the names of the agent's own commands
    clean      removes secrets and invisible characters from a text
    """

    def __init__(self, reserved: Sequence[str], clean: Redact) -> None:
        self._reserved = dict.fromkeys(reserved, "a command of the agent itself")
        self._clean = clean
        self._files: tuple[SourceFile, ...] = ()
        self._commands: Mapping[str, UserCommand] = {}
        self.problems: tuple[DefinitionProblem, ...] = ()

    def read(self, files: tuple[SourceFile, ...]) -> None:
        """Take the commands of these files. The same files again cost nothing."""
        if files is self._files:
            return
        read = [(file, *read_command(file)) for file in files]
        named = [(command.name, file, command) for file, command, _ in read if command is not None]
        self._commands, refused = distinct(named, self._reserved)
        self._files = files
        self.problems = (*(each for _, _, problems in read for each in problems), *refused)

    def find(self, name: str) -> UserCommand | None:
        """Return the command of a name."""
        return self._commands.get(name)

    def offered(self) -> tuple[OfferedCommand, ...]:
        """Return the commands as they are sent to editors."""
        return tuple(
            OfferedCommand(each.name, self._short(each.description), self._short(each.hint) or "words (optional)")
            for each in self._commands.values()
        )

    def _short(self, text: str) -> str:
        line = plain(self._clean(" ".join(text.split())))
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"

    def status(self) -> Sequence[str]:
        """Return a line for /status."""
        return (f"Commands: {', '.join(f'/{name}' for name in self._commands)}",) if self._commands else ()
