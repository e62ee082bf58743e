"""TurnEngine: from the params of `session/prompt` to a stop reason."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, assert_never
from uuid import uuid4

from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta
from acp_agent.core.messages import Message, StopReason, TextPart
from acp_agent.core.ports import Backends, Toolset
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.types import CallOrigin, JsonObject, ToolCall, ToolResult
from acp_agent.output.markdown_images import defused
from acp_agent.protocol import commands, wire
from acp_agent.protocol.commands import Name
from acp_agent.protocol.content import read_prompt
from acp_agent.protocol.session import Answer

_REMEMBERED = 5
"""Commands of the user's own that the model hears of at the next turn."""


class Loop(Protocol):
    """What runs turns of the model. `failure` is the error that ended the last one, if one did."""

    @property
    def failure(self) -> AgentError | None:
        """None after a turn that ended as it should."""
        ...

    async def run(self, prompt: Message) -> StopReason:
        """Run one turn."""
        ...


class Desk(Protocol):
    """Where a session answers questions about itself. Lines are markdown."""

    def status(self) -> Sequence[str]:
        """Model, context, limits, and what is switched on."""
        ...

    def servers(self) -> Sequence[str]:
        """The MCP servers and how they are; none when there are none."""
        ...

    async def compact(self, focus: str) -> str:
        """Sum the conversation up; what became of it. Raises AgentError when it could not be done."""
        ...


def _forget(text: str) -> None:
    del text


class TurnEngine:
    """Answers prompts: slash commands itself, everything else with the loop.

    loop       gives the loop, or raises an AgentError whose text tells the user how to set a model up
    backends   what a prompt may be read with, asked anew for each
    desk       answers for the session
    begin      told of each prompt's typed text before anything is done with it
    redact     takes secrets out of what is attached to a prompt
    """

    def __init__(
        self,
        loop: Callable[[], Awaitable[Loop]],
        toolset: Toolset,
        backends: Callable[[], Awaitable[Backends]],
        emit: EventSink,
        desk: Desk,
        begin: Callable[[str], None] = _forget,
        redact: Redact = verbatim,
    ) -> None:
        self._loop = loop
        self._toolset = toolset
        self._backends = backends
        self._emit = emit
        self._desk = desk
        self._begin = begin
        self._redact = redact
        self._since_last_turn: list[TextPart] = []

    async def answer(self, params: JsonObject) -> Answer:
        blocks, backends = wire.prompt_blocks(params), await self._backends()
        prompt = await read_prompt(blocks, backends.files, backends.web, self._redact)
        self._begin(prompt.typed)
        for skipped in prompt.skipped:
            await self._emit(Notice(Severity.WARNING, f"left out of the prompt: {skipped}"))
        command = commands.parse(prompt.command)
        if command is not None:
            await self._say(await self._obey(*command))
            return Answer(StopReason.END_TURN)
        try:
            loop = await self._loop()
        except AgentError as error:
            await self._say(str(error))
            return Answer(StopReason.END_TURN, error)
        message = Message(prompt.message.role, (*self._since_last_turn, *prompt.message.parts))
        self._since_last_turn.clear()
        return Answer(await loop.run(message), loop.failure)

    async def _say(self, text: str) -> None:
        await self._emit(TextDelta(defused(self._redact(text)), str(uuid4())))

    async def _obey(self, name: Name, argument: str) -> str:
        match name:
            case Name.HELP:
                return commands.help_text()
            case Name.TOOLS:
                return self._list_tools()
            case Name.STATUS:
                return _listed(self._desk.status(), "Nothing is known yet.")
            case Name.MCP:
                return _listed(self._desk.servers(), "This session has no MCP servers.")
            case Name.COMPACT:
                return await self._compact(argument)
            case Name.RUN:
                return await self._run_command(argument)
            case _:
                assert_never(name)

    async def _compact(self, focus: str) -> str:
        try:
            return await self._desk.compact(focus)
        except AgentError as error:
            return str(error)

    def _list_tools(self) -> str:
        lines = [f"- `{spec.name}` {_first_sentence(spec.description)}" for spec in self._toolset.specs()]
        return "\n".join(("Tools in this mode:", "", *lines))

    async def _run_command(self, command: str) -> str:
        """Run what the user typed, through the same gates and the same terminal; the model hears of it later."""
        if not command:
            return "Usage: `/run COMMAND`"
        call = ToolCall(str(uuid4()), "bash", {"command": command}, origin=CallOrigin.USER)
        result = await self._toolset.run(call)
        self._since_last_turn.append(TextPart(f"[I ran this myself: {command}]\n{result.text}\n"))
        del self._since_last_turn[:-_REMEMBERED]
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
