"""What a model says, fit for an editor: nothing it would fetch or obey (security.md 2.7), no secret in an error."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from acp_agent.core.errors import ProviderError
from acp_agent.core.messages import ModelDone, ModelEvent, ModelText, ModelThought
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.redaction import Redact
from acp_agent.llm.wrapper import WrapperProvider
from acp_agent.output.markdown_images import AnswerGuard, defused


class PresentableProvider(WrapperProvider):
    """A Provider whose deltas and errors are fit for an editor. The message for the history stays as the model said it.

    redact   takes secrets out of errors: some servers quote the key they refuse, or the request
    """

    def __init__(self, wrapped: Provider, redact: Redact) -> None:
        super().__init__(wrapped)
        self._redact = redact

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """As Provider says. An endpoint that does not stream has its whole text as one delta."""
        try:
            async with aclosing(_harmless(self.wrapped.stream(request))) as events:
                async for event in events:
                    yield event
        except ProviderError as error:
            error.args = (defused(self._redact(str(error))),)
            raise


async def _harmless(stream: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent]:
    text, thought, spoke = AnswerGuard(), AnswerGuard(), False
    async with aclosing(cast("AsyncGenerator[ModelEvent]", stream)) as events:
        async for event in events:
            match event:
                case ModelText(delta):
                    spoke = spoke or bool(delta)
                    yield ModelText(text.feed(delta))
                case ModelThought(delta):
                    yield ModelThought(thought.feed(delta))
                case ModelDone():
                    yield ModelThought(thought.finish())
                    yield ModelText(text.finish() if spoke else defused(event.message.text))
                    yield event
