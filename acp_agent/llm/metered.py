"""A model whose calls are counted: each by itself, for prices depend on how long one call was."""

from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from acp_agent.core.messages import ModelDone, ModelEvent, Usage
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.llm.closing import closing
from acp_agent.llm.model_ref import ModelRef
from acp_agent.llm.wrapper import WrapperProvider

Spent: TypeAlias = Callable[[ModelRef, Usage | None], None]
"""Told of each call that a model began to answer: what it took, or None where it broke off and nobody said."""


class MeteredProvider(WrapperProvider):
    """A Provider that tells what each of its calls took. Goes inside retries and fallbacks: they make calls, too."""

    def __init__(self, wrapped: Provider, spent: Spent) -> None:
        super().__init__(wrapped)
        self._spent = spent

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says. A call that fails before its first word took nothing."""
        ref, began, usage = ModelRef(self.name, self.model), False, None
        try:
            async with closing(self.wrapped.stream(request)) as events:
                async for event in events:
                    began = True
                    usage = event.usage if isinstance(event, ModelDone) else usage
                    yield event
        finally:
            if began:
                self._spent(ref, usage)
