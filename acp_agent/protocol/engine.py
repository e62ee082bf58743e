"""TurnEngine: from the params of `session/prompt` to a stop reason."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta
from acp_agent.core.messages import Message, StopReason, TextPart
from acp_agent.core.ports import FileSystem, Toolset
from acp_agent.core.types import CallOrigin, JsonObject, ToolCall, ToolResult
from acp_agent.protocol import wire
from acp_agent.protocol.commands import Command, Commands
from acp_agent.protocol.content import read_prompt

RunTurn = Callable[[Message], Awaitable[StopReason]]


class TurnEngine:
    """Answers prompts: slash commands itself, everything else with the loop.

    loop     gives the loop's entry, or raises an AgentError whose text tells the user how to set a model up
    """

    def __init__(
        self, loop: Callable[[], Awaitable[RunTurn]], toolset: Toolset, files: FileSystem, emit: EventSink
    ) -> None:
        self._loop = loop
        self._toolset = toolset
        self._files = files
        self._emit = emit
        self._since_last_turn: list[TextPart] = []
        self._commands = Commands(
            [
                Command("tools", "List the tools the agent has", self._list_tools),
                Command("run", "Run a shell command yourself", self._run_command, hint="command"),
            ]
        )

    def commands(self) -> JsonObject:
        return self._commands.advertised()

    async def answer(self, params: JsonObject) -> StopReason:
        prompt = await read_prompt(wire.prompt_blocks(params), self._files)
        for skipped in prompt.skipped:
            await self._emit(Notice(Severity.WARNING, f"left out of the prompt: {skipped}"))
        found = self._commands.find(prompt.command)
        if found is not None:
            command, argument = found
            await self._say(await command.run(argument))
            return StopReason.END_TURN
        try:
            run = await self._loop()
        except AgentError as error:
            await self._say(str(error))
            return StopReason.END_TURN
        message = Message(prompt.message.role, (*self._since_last_turn, *prompt.message.parts))
        self._since_last_turn.clear()
        return await run(message)

    async def _say(self, text: str) -> None:
        await self._emit(TextDelta(text, str(uuid4())))

    async def _list_tools(self, _argument: str) -> str:
        lines = [f"- `{spec.name}` {spec.description.partition('. ')[0].rstrip('.')}" for spec in self._toolset.specs()]
        return "\n".join(("Tools in this mode:", "", *lines))

    async def _run_command(self, command: str) -> str:
        """Run what the user typed, through the same gates and the same terminal; the model hears of it later."""
        if not command:
            return "Usage: `/run COMMAND`"
        call = ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER)
        result = await self._toolset.run(call)
        self._since_last_turn.append(TextPart(f"[I ran this myself: {command}]\n{result.text}\n"))
        return _outcome(command, result)


def _outcome(command: str, result: ToolResult) -> str:
    if result.failure is not None:
        return f"`{command}`: {result.failure.message}"
    code = (result.envelope or {}).get("exit_code")
    return f"`{command}` finished." if code == 0 else f"`{command}` exited with code {code}."
