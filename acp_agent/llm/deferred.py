"""Models that are built when they are first asked: one that is never needed costs nothing."""

from collections.abc import AsyncGenerator, Callable, Sequence

import anyio.to_thread

from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import Embedder, ModelRequest, Provider
from acp_agent.llm.closing import closing
from acp_agent.llm.model_ref import ModelRef


class DeferredProvider:
    """A Provider that stands for one to be built.

    window   tokens that fit, as far as that is known before
    build    makes it, in a thread. May raise ConfigError
    """

    def __init__(self, ref: ModelRef, window: int, build: Callable[[ModelRef], Provider]) -> None:
        self._ref = ref
        self._window = window
        self._build = build
        self._built: Provider | None = None

    @property
    def name(self) -> str:
        return self._ref.provider

    @property
    def model(self) -> str:
        return self._ref.model

    @property
    def context_window(self) -> int:
        return self._built.context_window if self._built else self._window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """As the port says. What the user has to mend is a ProviderError here, too (NOT_CONFIGURED)."""
        if self._built is None:
            try:
                self._built = await anyio.to_thread.run_sync(self._build, self._ref, abandon_on_cancel=True)
            except ConfigError as error:
                raise ProviderError(str(error), kind=ProviderErrorKind.NOT_CONFIGURED) from error
        async with closing(self._built.stream(request)) as events:
            async for event in events:
                yield event


class DeferredEmbedder:
    """An Embedder that stands for one to be built.

    model    `PROVIDER:MODEL`
    build    makes it, in a thread
    """

    def __init__(self, model: str, build: Callable[[], Embedder]) -> None:
        self._model = model
        self._build = build
        self._one_at_a_time = anyio.Lock()
        self._built: Embedder | None = None

    @property
    def model(self) -> str:
        return self._model

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """As the port says."""
        async with self._one_at_a_time:  # it remembers how long its vectors are
            if self._built is None:
                self._built = await anyio.to_thread.run_sync(self._build, abandon_on_cancel=True)
        return await self._built.embed(texts)
