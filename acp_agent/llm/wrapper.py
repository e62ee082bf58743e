"""The base of what stands around a model: the same name and window, another way to ask it."""

from collections.abc import AsyncIterator

from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import ModelRequest, Provider


class WrapperProvider:
    """A Provider that is another one to everybody who asks its name. A concern overrides `stream`."""

    def __init__(self, wrapped: Provider) -> None:
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        return self.wrapped.name

    @property
    def model(self) -> str:
        return self.wrapped.model

    @property
    def context_window(self) -> int:
        return self.wrapped.context_window

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """As the port says."""
        return self.wrapped.stream(request)
