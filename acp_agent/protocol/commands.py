"""Slash commands (A17): one table for what is advertised, what /help prints and what the engine runs."""

from dataclasses import dataclass
from enum import StrEnum

from acp_agent.core.types import Json, JsonObject


class Name(StrEnum):
    """Every command there is."""

    HELP = "help"
    STATUS = "status"
    TOOLS = "tools"
    MCP = "mcp"
    COMPACT = "compact"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Command:
    """How a command is described; `hint` names its argument."""

    name: Name
    description: str
    hint: str = ""


COMMANDS = (
    Command(Name.TOOLS, "List the tools the agent has in this mode"),
    Command(Name.STATUS, "Show the model, the context, the limits and what is switched on"),
    Command(Name.MCP, "List the MCP servers of this session and how they are"),
    Command(Name.COMPACT, "Sum up the conversation so far to make room", hint="what to keep above all (optional)"),
    Command(Name.RUN, "Run a shell command yourself, through the same gates", hint="command"),
    Command(Name.HELP, "Show what can be typed here"),
)


def parse(text: str) -> tuple[Name, str] | None:
    """The command a prompt starts with and its argument; None for text that is for the model."""
    name, *argument = text.strip().split(maxsplit=1) or [""]
    if not name.startswith("/") or name[1:] not in set(Name):
        return None
    return Name(name[1:]), argument[0] if argument else ""


def advertised() -> JsonObject:
    """The `available_commands_update`."""
    available: list[Json] = []
    for command in COMMANDS:
        entry: JsonObject = {"name": command.name.value, "description": command.description}
        if command.hint:
            entry["input"] = {"hint": command.hint}
        available.append(entry)
    return {"sessionUpdate": "available_commands_update", "availableCommands": available}


def help_text() -> str:
    """What /help prints."""
    lines = [f"- `/{c.name}{' ' + c.hint.upper() if c.hint else ''}` {c.description}" for c in COMMANDS]
    return "\n".join(("Commands:", "", *lines))
