"""What is known of the models of a process: the packaged table, and the lists of providers (A16.1).

Light: it is there before the first session. A list is fetched once, for all sessions of the same configuration.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import anyio
import anyio.to_thread

from acp_agent.config.model_settings import ModelSettings
from acp_agent.config.provider_settings import LlmSettings, ProviderSettings, ProviderType
from acp_agent.core.errors import AgentError, ConfigError, ProviderError, ProviderErrorKind
from acp_agent.llm.model_info import ModelInfo
from acp_agent.llm.models import ModelRef, ModelTable, load_table
from acp_agent.llm.provider_config import ConfiguredProviders, ProviderConfig
from acp_agent.log import Log

_PATIENCE = 5.0
"""Seconds for the list of one provider; all are asked at the same time."""
_HEAVY = ("acp_agent.llm.model_list", "acp_agent.net.client")

_log = Log(__name__)


class ListsModels(Protocol):
    """What asks servers: a `llm.catalog.Catalog`."""

    async def models(self, provider: str) -> tuple[ModelInfo, ...]:
        """What a provider offers. Raises ConfigError, ProviderError."""
        ...

    async def described(self, info: ModelInfo) -> ModelInfo:
        """The same model with what its list leaves out. Raises as `models`."""
        ...


class ModelLists:
    """One a process. `changed` is told when lists have arrived: options of sessions may be others now."""

    def __init__(self, environ: Mapping[str, str], changed: Callable[[], None]) -> None:
        self._environ = environ
        self._changed = changed
        self._known: dict[tuple[tuple[ProviderSettings, ...], tuple[ModelSettings, ...]], KnownModels] = {}

    @cached_property
    def _table(self) -> ModelTable:
        return load_table()

    def of(self, llm: LlmSettings) -> "KnownModels":
        """What is known by a configuration."""
        key = llm.providers, llm.models
        if key not in self._known:
            providers = ConfiguredProviders.of(llm, self._environ)
            self._known[key] = KnownModels(providers, lambda: self._table, self._changed)
        return self._known[key]


class KnownModels:
    """The models of one configuration, as far as anybody has said.

    table     gives the packaged table; reading it takes some milliseconds
    version   grows with each list that arrives
    """

    def __init__(
        self, providers: ConfiguredProviders, table: Callable[[], ModelTable], changed: Callable[[], None]
    ) -> None:
        self.providers = providers
        self.table = table
        self.version = 0
        self._changed = changed
        self._lists: dict[str, dict[str, ModelInfo]] = {}
        self._asked = False

    def config(self, model: str) -> ProviderConfig | None:
        """The configuration of a model's provider, as it is for this model; None for no such provider."""
        try:
            return self.providers.find(ref_of(model))
        except ConfigError:
            return None

    def said(self, model: str) -> ModelInfo | None:
        """What its provider's list says of a model, `PROVIDER:MODEL`."""
        ref = ref_of(model)
        return self._lists.get(ref.provider, {}).get(ref.model)

    def has_list(self, provider: str) -> bool:
        """Whether a provider has told what it offers."""
        return provider in self._lists

    def offered(self, provider: str) -> Iterator[ModelInfo]:
        """What a provider offers, but for models that are known to take no tools."""
        return (info for info in self._lists.get(provider, {}).values() if info.tools is not False)

    async def fetch(self, catalog: ListsModels, configured: Sequence[str]) -> None:
        """Ask every provider, once in the life of the process. For the background: failures are only logged.

        configured   models the user has named: of Ollama's its server is asked for more than its list tells
        """
        if self._asked:
            return
        self._asked = True
        try:
            async with anyio.create_task_group() as tasks:
                for config in self.providers:
                    if config.type is not ProviderType.SCRIPTED:
                        tasks.start_soon(self._try, catalog, config.name, configured)
        except anyio.get_cancelled_exc_class():
            self._asked = False  # somebody else may ask again
            raise
        if self._lists:
            self._changed()

    async def refresh(self, catalog: ListsModels, provider: str, configured: Sequence[str]) -> int:
        """Ask one provider again (A16.1); how many models it offers. Raises ConfigError, ProviderError."""
        await self._ask(catalog, provider, configured)
        self._changed()
        return sum(1 for _ in self.offered(provider))

    async def _ask(self, catalog: ListsModels, provider: str, configured: Sequence[str]) -> None:
        for module in _HEAVY:  # off the event loop: it is httpx
            await anyio.to_thread.run_sync(importlib.import_module, module, abandon_on_cancel=True)
        try:
            with anyio.fail_after(_PATIENCE):
                found = {info.model: info for info in await catalog.models(provider)}
                for ref in map(ref_of, configured):
                    info = found.get(ref.model) if ref.provider == provider else None
                    if info is not None and info.thinking is None:
                        found[ref.model] = await catalog.described(info)
        except TimeoutError:
            problem = f"{provider} did not list its models within {_PATIENCE:g} s"
            raise ProviderError(problem, kind=ProviderErrorKind.TIMEOUT) from None
        self._lists[provider] = found
        self.version += 1

    async def _try(self, catalog: ListsModels, provider: str, configured: Sequence[str]) -> None:
        try:
            await self._ask(catalog, provider, configured)
        except AgentError as error:
            _log.debug("no list of models", provider=provider, error=str(error))


def ref_of(model: str) -> ModelRef:
    """`PROVIDER:MODEL` taken apart, whatever it is."""
    provider, _, name = model.partition(":")
    return ModelRef(provider, name)
