"""One model call: shows the answer while it streams and keeps it for the history."""

from collections.abc import AsyncGenerator, AsyncIterator
from uuid import uuid4

import anyio

from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.events import EventSink, TextDelta, ThoughtDelta
from acp_agent.core.messages import Message, ModelDone, ModelEvent, ModelText, ModelThought, Role, TextPart

_CLOSING = 2.0  # seconds a provider gets to close its connection


class Reply:
    """The answer of the model in one call.

    keeps   how many bytes of an unfinished answer are kept
    done    the end of the call, or None
    spoke   whether the user has seen any text of it
    shown   whether the user has seen anything of it
    """

    def __init__(self, emit: EventSink, keeps: int) -> None:
        self._emit = emit
        self._keeps = keeps
        self._text_id = str(uuid4())
        self._thought_id = str(uuid4())
        self._said: list[str] = []
        self.done: ModelDone | None = None
        self.spoke = False
        self.shown = False

    @property
    def message(self) -> Message:
        """The whole message, or the text so far. An unfinished thought has no signature and is not kept."""
        if self.done is not None:
            return self.done.message
        said = "".join(self._said).encode("utf-8", "replace")[: self._keeps].decode("utf-8", "ignore")
        return Message(Role.ASSISTANT, (TextPart(said),))

    async def read(self, events: AsyncIterator[ModelEvent]) -> ModelDone:
        """Read the stream to its end, then close it. Raises ProviderError, also if the stream has no end event."""
        try:
            async for event in events:
                match event:
                    case ModelText(text):
                        await self._say(text)
                    case ModelThought(text):
                        await self._think(text)
                    case ModelDone():
                        self.done = event
                        break
        finally:
            if isinstance(events, AsyncGenerator):
                with anyio.move_on_after(_CLOSING, shield=True):
                    await events.aclose()
        if self.done is None:
            raise ProviderError("the answer broke off before its end", kind=ProviderErrorKind.PROTOCOL)
        if not self._said:  # the endpoint does not stream
            await self._say(self.done.message.text)
        return self.done

    async def _say(self, text: str) -> None:
        if text:
            self._said.append(text)
            self.spoke = self.spoke or not text.isspace()
            self.shown = True
            await self._emit(TextDelta(text, self._text_id))

    async def _think(self, text: str) -> None:
        if text:
            self.shown = True
            await self._emit(ThoughtDelta(text, self._thought_id))
