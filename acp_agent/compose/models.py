"""The models of one session: the one that answers, those that do chores, the one that places texts by meaning."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio.to_thread

from acp_agent.config import LlmSettings, Loaded, model_advice
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.ports import Embedder, Provider
from acp_agent.core.redaction import Redact
from acp_agent.llm.catalog import Catalog, parse_model
from acp_agent.llm.fallback import FallbackProvider
from acp_agent.llm.presentable import PresentableProvider
from acp_agent.llm.retry import RetryingProvider, RetryPolicy

_IMPATIENT = RetryPolicy(longest_asked=10.0)
"""For a model behind which another one stands ready: nobody waits a minute for it."""


class SessionModels:
    """Builds them when they are needed: sessions work without a model, too.

    catalog   the catalog of a configuration
    loaded    the configuration in force: a file that is mended may name the model that was missing
    redact    takes secrets out of errors: some servers quote what they refuse
    tell      tells the user that a model is asked again, or another one
    """

    def __init__(
        self,
        catalog: Callable[[LlmSettings], Catalog],
        loaded: Callable[[], Loaded],
        redact: Redact,
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        self._catalog = catalog
        self._loaded = loaded
        self._redact = redact
        self._tell = tell

    async def answering(self) -> Provider:
        """What runs turns: `llm.model`, with `llm.fallback` behind it. Raises AgentError, with advice."""
        settings = self._loaded().settings.llm
        if not settings.fallback:
            model = await self._built(settings.model)
            return PresentableProvider(RetryingProvider(model, on_retry=self._retold), self._redact)
        refs = [parse_model(name) for name in (self._chosen(settings.model), *settings.fallback)]
        *before, last = await anyio.to_thread.run_sync(self._catalog(settings).chain, refs, abandon_on_cancel=True)
        retrying = [RetryingProvider(model, on_retry=self._retold, policy=_IMPATIENT) for model in before]
        retrying.append(RetryingProvider(last, on_retry=self._retold))
        return PresentableProvider(FallbackProvider(retrying, self._retold), self._redact)

    async def for_chores(self, name: str = "") -> Provider:
        """A model by name, else the session's own. Raises AgentError."""
        model = await self._built(name or self._loaded().settings.llm.model)
        return RetryingProvider(model, on_retry=_unheard)

    def embedder(self, settings: LlmSettings) -> Embedder | None:
        """What `llm.embedding_model` names; None where nothing does. Imports. Raises ConfigError."""
        if settings.embedding_model is None:
            return None
        return self._catalog(settings).embedder(parse_model(settings.embedding_model, key="embedding_model"))

    def cost(self) -> Callable[..., float | None] | None:
        """What turns usage into US dollars for the model that answers; None where its price is not known."""
        settings = self._loaded().settings.llm
        if settings.model is None or settings.fallback:
            return None
        try:
            return partial(self._catalog(settings).cost, ref=parse_model(settings.model))
        except ConfigError:
            return None

    async def _built(self, name: str | None) -> Provider:
        build = self._catalog(self._loaded().settings.llm).build
        return await anyio.to_thread.run_sync(build, parse_model(self._chosen(name)), abandon_on_cancel=True)

    def _chosen(self, name: str | None) -> str:
        if name is None:
            loaded = self._loaded()
            advice = model_advice(loaded.settings.llm.providers, loaded.file)
            raise ProviderError(advice, kind=ProviderErrorKind.NOT_CONFIGURED)
        return name

    async def _retold(self, status: str) -> None:
        await self._tell(self._redact(status))


async def _unheard(status: str) -> None:
    """Chores are done in silence."""
    del status
