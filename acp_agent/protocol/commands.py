"""Slash commands (A17): one registry for what is advertised, what /help prints and what runs."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from acp_agent.core.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Command:
    """`run` takes what stands behind the name and returns the reply."""

    name: str
    description: str
    run: Callable[[str], Awaitable[str]]
    hint: str = ""


class Commands:
    """The commands of one session."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = {command.name: command for command in commands}
        self._commands["help"] = Command("help", "Show what can be typed here", self._help)

    def find(self, text: str) -> tuple[Command, str] | None:
        """The command a prompt starts with and its argument; None for text that is for the model."""
        name, _, argument = text.strip().removeprefix("/").partition(" ")
        if not text.lstrip().startswith("/") or name not in self._commands:
            return None
        return self._commands[name], argument.strip()

    def advertised(self) -> JsonObject:
        """The `available_commands_update`."""
        available: list[Json] = []
        for command in self._commands.values():
            entry: JsonObject = {"name": command.name, "description": command.description}
            if command.hint:
                entry["input"] = {"hint": command.hint}
            available.append(entry)
        return {"sessionUpdate": "available_commands_update", "availableCommands": available}

    async def _help(self, _argument: str) -> str:
        lines = [
            f"- `/{command.name}{' ' + command.hint if command.hint else ''}` {command.description}"
            for command in self._commands.values()
        ]
        return "\n".join(("Commands:", "", *lines))
