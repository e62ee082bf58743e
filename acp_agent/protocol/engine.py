"""TurnEngine: from the params of `session/prompt` to a stop reason."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol
from uuid import uuid4

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import AgentError
from acp_agent.core.events import EventSink, Notice, Severity, TextDelta, UserMessage
from acp_agent.core.messages import Message, Part, Role, StopReason, TextPart
from acp_agent.core.ports import Backends, Toolset
from acp_agent.core.prompt import typed
from acp_agent.core.redaction import Redact, verbatim
from acp_agent.core.types import JsonObject
from acp_agent.output.markdown_images import defused
from acp_agent.protocol import commands, wire
from acp_agent.protocol.answer import Answer
from acp_agent.protocol.commands import Name
from acp_agent.protocol.content import Prompt, redacted
from acp_agent.protocol.review import Review
from acp_agent.protocol.slash import Desk, Slash


class Loop(Protocol):
    """What runs turns of the model. `failure` is the error that ended the last one, if one did."""

    @property
    def failure(self) -> AgentError | None:
        """None after a turn that ended as it should."""
        ...

    async def run(self, prompt: Message) -> StopReason:
        """Run one turn."""
        ...


def _forget(text: str) -> None:
    del text


class TurnEngine:
    """Answers prompts: slash commands itself, everything else with the loop.

    loop       gives the loop, or raises an AgentError whose text tells the user how to set a model up
    backends   what a prompt may be read with, asked anew for each
    desk       answers for the session
    begin      told of each prompt's typed text before anything is done with it
    redact     takes secrets out of what is attached to a prompt, and out of all of it before it is kept
    complaints what the editor's language servers complain of, as text for the model; None where nobody knows
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
        complaints: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._loop = loop
        self._backends = backends
        self._emit = emit
        self._desk = desk
        self._begin = begin
        self._redact = redact
        self._complaints = complaints
        self._slash = Slash(desk, toolset)

    def commands(self) -> Collection[Name]:
        """The slash commands that make sense now, for the editor to offer (A17.1)."""
        return self._desk.available()

    async def answer(self, params: JsonObject) -> Answer:
        """One prompt. It was said once it is understood, whatever becomes of what it names (A6.3, A13)."""
        blocks = wire.prompt_blocks(params)
        texts = [block.text for block in blocks if isinstance(block, wire.Text)]
        command, slip = commands.parse(texts), commands.misspelt(texts)
        prompt = await Prompt.sent(blocks, self._redact)
        await self._emit(UserMessage(await redacted(prompt.parts, self._redact), str(uuid4())))
        self._begin(typed(prompt.parts))
        backends = await self._backends()
        complaints = None if command or slip else self._complaints
        message = await prompt.read(backends.files, backends.web, complaints)
        for skipped in prompt.skipped:
            await self._emit(Notice(Severity.WARNING, f"left out of the prompt: {skipped}"))
        if command:
            return await self._obey(*command, backends.files)
        if slip:
            return await self._say(_did_you_mean(*slip))
        return await self._ask(message.parts)

    async def _obey(self, name: Name, argument: str, files: FileSystem) -> Answer:
        outcome = await self._slash.obey(name, argument, files)
        if isinstance(outcome, Review):
            with self._desk.reading():
                return await self._ask((TextPart(outcome.prompt),))
        return await self._say(outcome)

    async def _ask(self, parts: Sequence[Part]) -> Answer:
        """A turn of the model."""
        try:
            loop = await self._loop()
        except AgentError as error:
            return await self._say(str(error), error)
        return Answer(await loop.run(Message(Role.USER, tuple(parts))), loop.failure)

    async def _say(self, text: str, failure: AgentError | None = None) -> Answer:
        """Words of ours, for the user alone (A17.6)."""
        await self._emit(TextDelta(defused(self._redact(text)), str(uuid4())))
        return Answer(StopReason.END_TURN, failure)


def _did_you_mean(word: str, name: Name) -> str:
    return (
        f"There is no command `/{word}`. Did you mean `/{name}`? "
        "Nothing was sent to the model; to send it this text, begin with another word."
    )
