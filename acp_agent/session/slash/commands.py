"""The slash commands: one table for what the editor offers, what /help prints and what `handler.py` runs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from acp_agent.core.events import OfferedCommand

_NOTE = "System note:"
"""The beginning of a note that Jupyter AI puts before the first prompt of a session."""


class CommandName(StrEnum):
    """Every slash command."""

    HELP = "help"
    MODEL = "model"
    MODE = "mode"
    CLEAR = "clear"
    COMPACT = "compact"
    REVIEW = "review"
    RUN = "run"
    TOOLS = "tools"
    STATUS = "status"
    COST = "cost"
    MEMORY = "memory"
    MCP = "mcp"
    POLICY = "policy"
    PERMISSIONS = "permissions"


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """The description of a command. `hint` names its argument; a command without a hint takes none."""

    name: CommandName
    description: str
    hint: str = ""

    def usage(self) -> str:
        """Return the syntax of the command as markdown, with the placeholder of the argument in italics."""
        return f"`/{self.name}` *{self.hint}*" if self.hint else f"`/{self.name}`"


_N = CommandName
COMMANDS = (
    SlashCommand(_N.HELP, "Show what can be typed here"),
    SlashCommand(_N.MODEL, "Show the models there are, or choose the one that answers", "model id"),
    SlashCommand(_N.MODE, "Show the modes there are, or switch", "code | architect | ask"),
    SlashCommand(_N.CLEAR, "Forget this conversation and begin anew"),
    SlashCommand(_N.COMPACT, "Sum up the conversation so far to make room", "what to keep above all (optional)"),
    SlashCommand(_N.REVIEW, "Review uncommitted changes, or what is at a path", "path (optional)"),
    SlashCommand(_N.RUN, "Run a shell command yourself, through the same gates", "command"),
    SlashCommand(
        _N.TOOLS, "List the tools the agent has in this mode, or allow blocked ones again", "reset tool (optional)"
    ),
    SlashCommand(_N.STATUS, "Show the model, the context, the limits and what is switched on"),
    SlashCommand(_N.COST, "Show the tokens this conversation took, and their price"),
    SlashCommand(
        CommandName.MEMORY, "Show the notes of all sessions, find or delete some", "search words | delete id (optional)"
    ),
    SlashCommand(_N.MCP, "List the MCP servers of this session and how they are"),
    SlashCommand(
        CommandName.POLICY,
        "Show what is allowed, or judge a call without making it",
        "status | check command, path or url",
    ),
    SlashCommand(
        CommandName.PERMISSIONS, "List your answers with “always” in this project, or revoke one", "revoke N (optional)"
    ),
)

ALWAYS = frozenset(CommandName) - {CommandName.MEMORY, CommandName.MCP, CommandName.POLICY}
"""The commands that every configuration has. The others are offered once the configuration is known."""


def parse(texts: Sequence[str]) -> tuple[CommandName, str] | None:
    """Return the command that a prompt begins with, and its argument; None for a prompt for the model.

    A command stands at the very beginning, so that pasted text is never one. The user does not see Jupyter's note, so a
    prompt with the note begins after it. `/run` is not accepted there.

    texts   the texts of the prompt, in order
    """
    noted = bool(texts) and texts[0].startswith(_NOTE)
    name, argument = _words(_behind_note(texts) if noted else next(iter(texts), ""))
    if name not in set(CommandName) or (noted and name == CommandName.RUN):
        return None
    return CommandName(name), argument


def misspelt(texts: Sequence[str]) -> tuple[str, CommandName] | None:
    """Return the misspelt command that a prompt begins with, and the command that was meant; None for other prompts."""
    word = _words(next(iter(texts), ""))[0]
    if not word or word in set(CommandName):
        return None
    small = word.lower()
    near = small if small in set(CommandName) else next((name for name in CommandName if _one_slip(small, name)), None)
    return None if near is None else (word, CommandName(near))


def in_vain(name: CommandName, argument: str) -> str:
    """Return a message for the user if a command that takes no argument has one; else "".

    A sentence that begins like a command, such as "/clear the build folder", is meant for the model.
    """
    command = next(each for each in COMMANDS if each.name is name)
    if command.hint or not argument:
        return ""
    return (
        f"Nothing was done: `/{name}` takes no argument. Send it alone ({command.description}), or leave out "
        "the slash if all this is for the model."
    )


def offered(available: Collection[CommandName]) -> tuple[OfferedCommand, ...]:
    """Return the commands as they are sent to editors."""
    return tuple(OfferedCommand(each.name.value, each.description, each.hint) for each in _chosen(available))


def help_text(available: Collection[CommandName] = ALWAYS) -> str:
    """Return the output of /help."""
    lines = (f"- {command.usage()}: {command.description}" for command in _chosen(available))
    return "\n".join(("Commands:", "", *lines))


def _chosen(available: Collection[CommandName]) -> list[SlashCommand]:
    return [command for command in COMMANDS if command.name in available]


def _words(text: str) -> tuple[str, str]:
    """Return the name after the slash, and the rest of the text; two empty texts if there is no slash."""
    first, *rest = text.strip().split(maxsplit=1) or [""]
    return (first[1:], "".join(rest)) if first.startswith("/") else ("", "")


def _behind_note(texts: Sequence[str]) -> str:
    """Return the prompt after the note: the next text, or the last paragraph of the same text if it is one line."""
    if len(texts) > 1:
        return texts[1]
    last = texts[0].rpartition("\n\n")[2].strip()
    return "" if "\n" in last else last


def _one_slip(word: str, name: str) -> bool:
    """Return whether a word is a name with one letter added, missing, changed or swapped. The first must be right."""
    if word[:1] != name[:1]:
        return False
    at = next((at for at, (one, two) in enumerate(zip(word, name, strict=False)) if one != two), None)
    at = min(len(word), len(name)) if at is None else at
    rest, wanted = word[at:], name[at:]
    return wanted in (rest[1:], rest[1:2] + rest[:1] + rest[2:]) or wanted[1:] in (rest, rest[1:])
