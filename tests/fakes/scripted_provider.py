"""A Provider that plays steps: what the model says, where it hangs, how it fails.

ScriptedProvider([
    say("Let me look."),                                  # text only
    use(call("read", path="a.py"), text="Reading."),      # text and tool calls
    ProviderError("...", kind=...),                       # fails before the first event
    Step(text="half", failure=ProviderError(...)),        # fails after the text
    Step(text="thinking", hang=Hang()),                   # waits after the text, before the end
    lambda request: say(str(len(request.messages))),      # looks at the request
])
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import anyio
import anyio.lowlevel

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import (
    Message,
    ModelDone,
    ModelEvent,
    ModelStop,
    ModelText,
    ModelThought,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolUsePart,
    Usage,
)
from acp_agent.core.ports import ModelRequest
from acp_agent.core.types import Json

_numbers = count(1)


class Hang:
    """A place where a step waits. Await `reached` to know it is there, set `release` to let it go on."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.release = anyio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.release.wait()


@dataclass(frozen=True, slots=True)
class Step:
    """One model call: thought, text (one event for each piece), then a failure, a hang or both, then the end.

    stop       None means TOOL_USE when there are calls, else END
    ends       False lets the stream end without its ModelDone, as a server that breaks off does
    streams    False sends nothing before the end, as an endpoint that does not stream does
    """

    text: str | tuple[str, ...] = ""
    thought: str = ""
    calls: tuple[ToolUsePart, ...] = ()
    stop: ModelStop | None = None
    usage: Usage = field(default_factory=lambda: Usage(input=100, output=10))
    hang: Hang | None = None
    failure: ProviderError | None = None
    ends: bool = True
    streams: bool = True

    @property
    def message(self) -> Message:
        parts: list[Part] = []
        if self.thought:
            parts.append(ThoughtPart(self.thought, "scripted", {"signature": "fake"}))
        if text := "".join(self.text):
            parts.append(TextPart(text))
        return Message(Role.ASSISTANT, (*parts, *self.calls))

    @property
    def done(self) -> ModelDone:
        return ModelDone(self.message, self.stop or (ModelStop.TOOL_USE if self.calls else ModelStop.END), self.usage)


Script: TypeAlias = Step | ProviderError | Callable[[ModelRequest], Step | ProviderError]


def say(*text: str, thought: str = "") -> Step:
    """The model says something and is done."""
    return Step(text=text, thought=thought)


def use(*calls: ToolUsePart, text: str = "") -> Step:
    """The model calls tools."""
    return Step(text=text, calls=calls)


def call(name: str, *, id: str | None = None, **arguments: Json) -> ToolUsePart:  # noqa: A002 - the field's name
    """A tool call, with an id of its own unless one is given."""
    return ToolUsePart(f"toolu_{next(_numbers)}" if id is None else id, name, arguments)


class ScriptedProvider:
    """Plays one step a call and records the requests. Fails the test when the script is over.

    pace      awaited before every event, for tests that stop at each point
    closed    streams that were closed, by their end or from outside
    """

    def __init__(
        self,
        script: Iterable[Script],
        *,
        name: str = "scripted",
        model: str = "script-1",
        context_window: int = 200_000,
        pace: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
    ) -> None:
        self._script = iter(script)
        self._pace = pace
        self.name = name
        self.model = model
        self.context_window = context_window
        self.requests: list[ModelRequest] = []
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        step = next(self._script, None)
        assert step is not None, f"the script ends before call {len(self.requests)}"
        if not isinstance(step, Step | ProviderError):
            step = step(request)
        try:
            await self._pace()
            if isinstance(step, ProviderError):
                raise step
            for event in _pieces(step):
                yield event
                await self._pace()
            if step.failure is not None:
                raise step.failure
            if step.hang is not None:
                await step.hang.wait()
            if step.ends:
                yield step.done
        finally:
            self.closed += 1


def _pieces(step: Step) -> Iterable[ModelEvent]:
    if not step.streams:
        return
    if step.thought:
        yield ModelThought(step.thought)
    pieces = (step.text,) if isinstance(step.text, str) else step.text
    yield from (ModelText(piece) for piece in pieces)
