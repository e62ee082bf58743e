"""An agent on a scripted model and fake tools, with everything it told the user."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from acp_agent.agent.history import History
from acp_agent.agent.hooks import Hooks
from acp_agent.agent.turn import Agent, Limits
from acp_agent.core.events import Event, Notice, TextDelta, ThoughtDelta, UsageChanged
from acp_agent.core.messages import Message, Role, StopReason, TextPart, ToolResultPart
from tests.fakes.fake_toolset import FakeToolset, Tool
from tests.fakes.scripted_provider import Script, ScriptedProvider


async def no_pace() -> None:
    """Goes on at once."""


class Conversation:
    """One session's loop under test. `pace` is awaited wherever the loop waits for somebody."""

    def __init__(
        self,
        script: Iterable[Script],
        tools: Mapping[str, Tool] | None = None,
        *,
        mutating: tuple[str, ...] = (),
        polling: tuple[str, ...] = (),
        limits: Limits | None = None,
        context_window: int = 200_000,
        pace: Callable[[], Awaitable[None]] = no_pace,
        hooks: Hooks | None = None,
    ) -> None:
        self._pace = pace
        self.events: list[Event] = []
        self.provider = ScriptedProvider(script, context_window=context_window, pace=pace)
        self.toolset = FakeToolset(tools or {}, mutating, polling)
        self.history = History()
        self.agent = Agent(
            self.provider, self.toolset, self.history, self.emit, limits or Limits(), "system", hooks=hooks
        )

    async def emit(self, event: Event) -> None:
        await self._pace()
        self.events.append(event)

    async def prompt(self, text: str = "go") -> StopReason:
        return await self.agent.run(Message(Role.USER, (TextPart(text),)))

    @property
    def text(self) -> str:
        """What the user read."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def text_ids(self) -> list[str]:
        return [event.message_id for event in self.events if isinstance(event, TextDelta)]

    @property
    def thought_ids(self) -> list[str]:
        return [event.message_id for event in self.events if isinstance(event, ThoughtDelta)]

    @property
    def usage(self) -> list[UsageChanged]:
        return [event for event in self.events if isinstance(event, UsageChanged)]

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def results(self) -> list[ToolResultPart]:
        """Every tool result in the history."""
        parts = (part for message in self.history.messages() for part in message.parts)
        return [part for part in parts if isinstance(part, ToolResultPart)]

    @property
    def said(self) -> list[str]:
        """The assistant's texts in the history."""
        return [message.text for message in self.history.messages() if message.role is Role.ASSISTANT]
