"""The models of one session: the one that answers, those that do chores, the one that places texts by meaning."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio.to_thread

from acp_agent.compose.ledger import Ledger
from acp_agent.config import LlmSettings, Loaded, model_advice
from acp_agent.core.errors import AgentError, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.ports import Embedder, Provider
from acp_agent.core.redaction import Redact
from acp_agent.llm.catalog import Catalog, ModelRef, parse_model
from acp_agent.llm.fallback import FallbackProvider
from acp_agent.llm.metered import MeteredProvider
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
    ledger    what all of them took so far
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
        self._answers: Provider | None = None
        self.ledger = Ledger()

    async def answering(self) -> Provider:
        """What runs turns: `llm.model`, with `llm.fallback` behind it. Raises AgentError, with advice."""
        self._answers = await self._asked(self._refs())
        return PresentableProvider(self._answers, self._redact)

    async def for_chores(self, name: str = "") -> Provider:
        """A model by name, else those that run turns, the one now in use first. Raises AgentError.

        Not the very same: which of them is asked next in a turn is no matter of chores.
        """
        if name:
            return await self._asked([parse_model(name)])
        refs, in_use = self._refs(), self._in_use()
        return await self._asked(sorted(refs, key=lambda ref: ref != in_use))

    def embedder(self, settings: LlmSettings) -> Embedder | None:
        """What `llm.embedding_model` names; None where nothing does. Raises ConfigError."""
        if settings.embedding_model is None:
            return None
        return self._catalog(settings).embedder(parse_model(settings.embedding_model, key="embedding_model"))

    def window(self) -> int:
        """Tokens that fit into the model in use, or the one that would be asked first; 0 without a model."""
        if self._answers is not None:
            return self._answers.context_window
        ref = self._in_use()
        return 0 if ref is None else self._configured().window(ref)

    def take_tools(self) -> bool:
        """Whether the model in use, or the one that would be asked first, is offered tools."""
        ref = self._in_use()
        try:
            return ref is None or self._configured().takes_tools(ref)
        except ConfigError:
            return True  # it will not be asked

    async def _asked(self, refs: Sequence[ModelRef]) -> Provider:
        """Models in the order in which they are asked; nobody waits long for one behind which another stands."""
        catalog = self._configured()
        counted = partial(MeteredProvider, spent=partial(self.ledger.add, catalog.price))
        if len(refs) == 1:
            model = await anyio.to_thread.run_sync(catalog.build, refs[0], abandon_on_cancel=True)
            return RetryingProvider(counted(model), on_retry=self._retold)
        *before, last = map(counted, await anyio.to_thread.run_sync(catalog.chain, refs, abandon_on_cancel=True))
        retrying = [RetryingProvider(model, on_retry=self._retold, policy=_IMPATIENT) for model in before]
        retrying.append(RetryingProvider(last, on_retry=self._retold))
        return FallbackProvider(retrying, self._retold)

    def _refs(self) -> list[ModelRef]:
        """The models that run turns, as they are configured. Raises AgentError, with advice."""
        loaded = self._loaded()
        llm = loaded.settings.llm
        if llm.model is None:
            advice = model_advice(llm.providers, loaded.file)
            raise ProviderError(advice, kind=ProviderErrorKind.NOT_CONFIGURED)
        return [parse_model(name) for name in (llm.model, *llm.fallback)]

    def _in_use(self) -> ModelRef | None:
        """The model that answered last, else the one that would be asked first; None where there is none."""
        if self._answers is not None:
            return ModelRef(self._answers.name, self._answers.model)
        try:
            return self._refs()[0]
        except AgentError:
            return None

    def _configured(self) -> Catalog:
        return self._catalog(self._loaded().settings.llm)

    async def _retold(self, status: str) -> None:
        await self._tell(self._redact(status))
