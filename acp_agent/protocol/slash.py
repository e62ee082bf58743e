"""What obeys the slash commands (A17)."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, assert_never
from uuid import uuid4

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.ports import Toolset
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.protocol import commands
from acp_agent.protocol.commands import Name
from acp_agent.protocol.review import Review, review_changes, review_path


class Desk(Protocol):
    """Where a session answers questions about itself. Lines and texts are markdown; what awaits may raise AgentError.

    A text given is what stands behind the command, and may be empty.
    """

    def available(self) -> Collection[Name]:
        """The commands that make sense now. Cheap."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """While it lasts, the running turn can read and search only."""
        ...

    def status(self) -> Sequence[str]:
        """Model, context, limits, and what is switched on."""
        ...

    def ran(self, command: str, output: str) -> None:
        """The user ran a command himself: the model hears of it at the next turn, whoever runs that."""
        ...

    def servers(self) -> Sequence[str]:
        """The MCP servers and how they are; none when there are none."""
        ...

    def cost(self) -> Sequence[str]:
        """What the model calls took and cost."""
        ...

    async def compact(self, focus: str) -> str:
        """Sum the conversation up; what became of it."""
        ...

    async def clear(self) -> str:
        """Forget the conversation; what became of it."""
        ...

    async def model(self, text: str) -> str:
        """List the models, or choose the one a text means."""
        ...

    async def mode(self, text: str) -> str:
        """List the modes, or switch."""
        ...

    async def memory(self, text: str) -> str:
        """List, find or delete notes."""
        ...

    async def policy(self, text: str) -> str:
        """What is allowed in general, or would be said to one call."""
        ...


class Slash:
    """Obeys the commands of one session."""

    def __init__(self, desk: Desk, toolset: Toolset) -> None:
        self._desk = desk
        self._toolset = toolset

    async def obey(self, name: Name, argument: str, files: FileSystem) -> str | Review:
        """What the user is told, or the model is asked. A command that takes no argument does nothing with one."""
        if told := commands.in_vain(name, argument):
            return told
        try:
            return await self._obey(name, argument, files)
        except AgentError as error:
            return str(error)

    async def _obey(  # noqa: C901, PLR0911, PLR0912 - the table
        self, name: Name, argument: str, files: FileSystem
    ) -> str | Review:
        match name:
            case Name.HELP:
                return commands.help_text(self._desk.available())
            case Name.MODEL:
                return await self._desk.model(argument)
            case Name.MODE:
                return await self._desk.mode(argument)
            case Name.CLEAR:
                return await self._desk.clear()
            case Name.COMPACT:
                return await self._desk.compact(argument)
            case Name.REVIEW:
                return await (review_path(argument, files) if argument else review_changes(self._toolset))
            case Name.RUN:
                return await self._run_command(argument)
            case Name.TOOLS:
                return self._list_tools()
            case Name.STATUS:
                return _listed(self._desk.status(), "Nothing is known yet.")
            case Name.COST:
                return _listed(self._desk.cost(), "No model was asked yet.")
            case Name.MEMORY:
                return await self._desk.memory(argument)
            case Name.MCP:
                return _listed(self._desk.servers(), "This session has no MCP servers.")
            case Name.POLICY:
                return await self._desk.policy(argument)
            case _:
                assert_never(name)

    def _list_tools(self) -> str:
        lines = [f"- `{spec.name}` {_first_sentence(spec.description)}" for spec in self._toolset.specs()]
        return "\n".join(("Tools in this mode:", "", *lines)) if lines else "No tool is available."

    async def _run_command(self, command: str) -> str:
        """Run what the user typed, through the same gates and the same terminal; the model hears of it later."""
        if not command:
            return "Usage: `/run COMMAND`"
        call = ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER)
        result = await self._toolset.run(call)
        self._desk.ran(command, result.text)
        return _outcome(command, result)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _listed(lines: Sequence[str], nothing: str) -> str:
    return "\n".join(f"- {line}" for line in lines) or nothing


def _outcome(command: str, result: ToolResult) -> str:
    if result.failure is not None:
        return f"`{command}`: {result.failure.message}"
    code = (result.envelope or {}).get("exit_code")
    return f"`{command}` finished." if code == 0 else f"`{command}` exited with code {code}."
