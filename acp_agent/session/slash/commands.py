"""Slash commands (A17): one table for what is advertised, what /help prints and what protocol/slash.py obeys."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from acp_agent.core.types import Json, JsonObject

_NOTE = "System note:"
"""What Jupyter AI puts before the first prompt of a session (acp.md 4.6, 11)."""


class Name(StrEnum):
    """Every command there is."""

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


@dataclass(frozen=True, slots=True)
class Command:
    """How a command is described; `hint` names its argument. One without a hint takes none."""

    name: Name
    description: str
    hint: str = ""

    def usage(self) -> str:
        """How it is typed, as markdown: what is typed as it stands looks otherwise than what stands for something."""
        return f"`/{self.name}` *{self.hint}*" if self.hint else f"`/{self.name}`"


COMMANDS = (
    Command(Name.HELP, "Show what can be typed here"),
    Command(Name.MODEL, "Show the models there are, or choose the one that answers", "model id"),
    Command(Name.MODE, "Show the modes there are, or switch", "code | architect | ask"),
    Command(Name.CLEAR, "Forget this conversation and begin anew"),
    Command(Name.COMPACT, "Sum up the conversation so far to make room", "what to keep above all (optional)"),
    Command(Name.REVIEW, "Review uncommitted changes, or what is at a path", "path (optional)"),
    Command(Name.RUN, "Run a shell command yourself, through the same gates", "command"),
    Command(Name.TOOLS, "List the tools the agent has in this mode"),
    Command(Name.STATUS, "Show the model, the context, the limits and what is switched on"),
    Command(Name.COST, "Show the tokens this conversation took, and their price"),
    Command(Name.MEMORY, "Show the notes of all sessions, find or delete some", "search words | delete id (optional)"),
    Command(Name.MCP, "List the MCP servers of this session and how they are"),
    Command(
        Name.POLICY, "Show what is allowed, or judge a call without making it", "status | check command, path or url"
    ),
)

ALWAYS = frozenset(Name) - {Name.MEMORY, Name.MCP, Name.POLICY}
"""The commands that make sense whatever the configuration; the others are advertised once it is known that they do."""


def parse(texts: Sequence[str]) -> tuple[Name, str] | None:
    """The command a prompt begins with and its argument; None for what is for the model (A12.12).

    texts   the texts of the prompt, in order: only its very beginning can be a command, so that nothing which is
            pasted behind is one. Behind Jupyter's note, which the user never sees, it is what follows the note; but
            nothing runs from there.
    """
    noted = bool(texts) and texts[0].startswith(_NOTE)
    name, argument = _words(_behind_note(texts) if noted else next(iter(texts), ""))
    if name not in set(Name) or (noted and name == Name.RUN):
        return None
    return Name(name), argument


def misspelt(texts: Sequence[str]) -> tuple[str, Name] | None:
    """A word a prompt begins with as if it were a command, and the command that is one slip away from it."""
    word = _words(next(iter(texts), ""))[0]
    if not word or word in set(Name):
        return None
    small = word.lower()
    near = small if small in set(Name) else next((name for name in Name if _one_slip(small, name)), None)
    return None if near is None else (word, Name(near))


def in_vain(name: Name, argument: str) -> str:
    """What to tell of words behind a command that takes none; empty where it takes some, or there are none.

    A sentence that begins like a command, such as "/clear the build folder", is meant for the model.
    """
    command = next(each for each in COMMANDS if each.name is name)
    if command.hint or not argument:
        return ""
    return (
        f"Nothing was done: `/{name}` takes no words behind it. Send it alone ({command.description}), or leave out "
        "the slash if all this is for the model."
    )


def advertised(available: Collection[Name] = ALWAYS) -> JsonObject:
    """The `available_commands_update`."""
    listed: list[Json] = []
    for command in _chosen(available):
        entry: JsonObject = {"name": command.name.value, "description": command.description}
        if command.hint:
            entry["input"] = {"hint": command.hint}
        listed.append(entry)
    return {"sessionUpdate": "available_commands_update", "availableCommands": listed}


def help_text(available: Collection[Name] = ALWAYS) -> str:
    """What /help prints: the same (A17.2)."""
    lines = (f"- {command.usage()}: {command.description}" for command in _chosen(available))
    return "\n".join(("Commands:", "", *lines))


class Announcement:
    """What the editor knows of the commands there are."""

    def __init__(self) -> None:
        self._told: frozenset[Name] | None = None

    def news(self, available: Collection[Name]) -> JsonObject | None:
        """The update to send; None where the editor knows it already. Cheap: for after each turn."""
        if frozenset(available) == self._told:
            return None
        self._told = frozenset(available)
        return advertised(available)


def _chosen(available: Collection[Name]) -> list[Command]:
    return [command for command in COMMANDS if command.name in available]


def _words(text: str) -> tuple[str, str]:
    """The name behind a slash, and the rest; two empty texts where there is no slash."""
    first, *rest = text.strip().split(maxsplit=1) or [""]
    return (first[1:], "".join(rest)) if first.startswith("/") else ("", "")


def _behind_note(texts: Sequence[str]) -> str:
    """What follows the note: the next text, or the last paragraph of the same, where that is one line."""
    if len(texts) > 1:
        return texts[1]
    last = texts[0].rpartition("\n\n")[2].strip()
    return "" if "\n" in last else last


def _one_slip(word: str, name: str) -> bool:
    """Whether a word is a name with one letter too many, too few, another, or two swapped, but for the first one."""
    if word[:1] != name[:1]:
        return False
    at = next((at for at, (one, two) in enumerate(zip(word, name, strict=False)) if one != two), None)
    at = min(len(word), len(name)) if at is None else at
    rest, wanted = word[at:], name[at:]
    return wanted in (rest[1:], rest[1:2] + rest[:1] + rest[2:]) or wanted[1:] in (rest, rest[1:])
