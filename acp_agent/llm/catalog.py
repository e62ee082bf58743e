"""From the configuration and a model's name to a Provider: the place that knows every adapter.

An adapter, and with it httpx, is imported when the first model of its type is built (design rule 6).
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Final, assert_never

from acp_agent.config.model_settings import ModelOptions, ModelSettings
from acp_agent.config.provider_settings import LlmSettings, ProviderType
from acp_agent.core.errors import ConfigError
from acp_agent.core.ports import Embedder, Provider
from acp_agent.llm import abilities
from acp_agent.llm.configured import ConfiguredProviders
from acp_agent.llm.deferred import DeferredEmbedder, DeferredProvider
from acp_agent.llm.limits import ModelLimits, ModelTable, Price, load_table
from acp_agent.llm.model_info import ModelInfo
from acp_agent.llm.model_ref import ModelRef, parse_model
from acp_agent.llm.provider_config import ProviderConfig, StoredKeys, endpoint_of
from acp_agent.llm.without_tools import WithoutTools

if TYPE_CHECKING:
    from acp_agent.llm.count_tokens import TokenCounter
    from acp_agent.net.client import HttpClient

_UNSAID: Final = ModelLimits(context_window=1, max_output=1)  # of embedding models nobody asks for any

__all__ = ["Catalog", "ModelRef", "ProviderConfig", "ProviderType", "parse_model"]


class Catalog:
    """The configured providers. Holds the one HTTP client its models share.

    models   what the user knows better about some of them, `[[llm.models]]`
    """

    def __init__(self, configs: Iterable[ProviderConfig], models: Sequence[ModelSettings] = ()) -> None:
        self._configured = ConfiguredProviders(configs, models)
        self._http: HttpClient | None = None
        self._one_client = Lock()

    @classmethod
    def of(cls, settings: LlmSettings, environ: Mapping[str, str], stored: StoredKeys | None = None) -> "Catalog":
        """All that is configured; see `ConfiguredProviders.of`."""
        catalog = cls(())
        catalog._configured = ConfiguredProviders.of(settings, environ, stored)
        return catalog

    @cached_property
    def _table(self) -> ModelTable:
        return load_table()

    def find(self, ref: ModelRef) -> ProviderConfig:
        """The configuration of a provider, as it is for this model. Raises ConfigError naming those there are."""
        return self._configured.find(ref)

    def build(self, ref: ModelRef, options: ModelOptions | None = None) -> Provider:
        """The model, ready to stream. Reads packaged files and imports: call it off the event loop.

        options   what a session has chosen over the configuration, such as another temperature or effort
        Raises ConfigError: unknown provider, bad base_url, missing or impossible key, bad script.
        """
        config = self.find(ref)
        config = config.with_options(options) if options else config
        provider = self._built(config, ref, self._table.limits(config.type, ref.model))
        return WithoutTools(provider) if config.tools is False else provider

    def chain(self, refs: Sequence[ModelRef], options: Sequence[ModelOptions] = ()) -> tuple[Provider, ...]:
        """Models in the order in which they are to be asked, each built when it first is.

        options   what a session has chosen for each of them; none for as they are configured
        One that cannot be built answers with a ProviderError (NOT_CONFIGURED). Reads a packaged file.
        """
        return tuple(
            DeferredProvider(ref, self.window(ref), partial(self.build, options=chosen))
            for ref, chosen in zip(refs, options or (None,) * len(refs), strict=True)
        )

    def window(self, ref: ModelRef) -> int:
        """Tokens that fit into a model, as far as that is known without asking its server."""
        try:
            config = self.find(ref)
        except ConfigError:
            return min(limits.context_window for limits in self._table.defaults.values())  # it will not be asked
        return config.context_window or self._table.limits(config.type, ref.model).context_window

    def takes_tools(self, ref: ModelRef) -> bool:
        """Whether a model is offered tools. Raises ConfigError."""
        return self.find(ref).tools is not False

    def chosen(self, ref: ModelRef, level: str, temperature: str) -> ModelOptions:
        """What a thought level and the name of a temperature mean for a model that takes them; empty: nothing."""
        try:
            config = self.find(ref)
        except ConfigError:
            return ModelOptions()
        return abilities.chosen(config, level, temperature)

    def thoughtless(self, ref: ModelRef) -> ModelOptions:
        """How a model is asked to think as little as it can. Raises ConfigError."""
        return abilities.thoughtless(self.find(ref), ref.model, self._table)

    def price(self, ref: ModelRef) -> Price | None:
        """What a model costs; None where that is not known. Raises ConfigError for no such provider.

        Packaged prices are the vendors' own: what another address takes, nobody here knows.
        """
        for entry in self._configured.entries(ref):
            if entry.price is not None:
                return Price.model_validate(entry.price.model_dump())
        return self._table.price(ref.model) if self.find(ref).at_vendor else None

    async def models(self, provider: str) -> tuple[ModelInfo, ...]:
        """What a provider offers, as its server says, with what is known besides. Raises ConfigError, ProviderError."""
        config = self.find(ModelRef(provider, ""))
        list_models = importlib.import_module("acp_agent.llm.model_list").list_models
        found: tuple[ModelInfo, ...] = await list_models(config, self._client(config))
        return tuple(self._completed(info) for info in found)

    async def described(self, info: ModelInfo) -> ModelInfo:
        """The same model with what its list leaves out: on Ollama its server is asked. Raises as `models`."""
        config = self.find(ModelRef(info.provider, info.model))
        if config.type is not ProviderType.OLLAMA:
            return info
        describe = importlib.import_module("acp_agent.llm.model_list").describe_ollama_model
        return self._completed(await describe(config, self._client(config), info))

    def embedder(self, ref: ModelRef) -> Embedder:
        """What places texts by their meaning. It is built when it is first asked, in a thread.

        Raises ConfigError, at once: as `build`, and for a provider whose API has no such models.
        """
        config = self.find(ref)
        name = {ProviderType.OPENAI: "openai_embedder", ProviderType.OLLAMA: "ollama_embedder"}.get(config.type)
        if name is None:
            raise ConfigError("[llm]", "embedding_model", str(ref), "a model of a provider of type openai or ollama")
        endpoint = endpoint_of(config, ref.model, _UNSAID)

        def build() -> Embedder:
            make: Callable[..., Embedder] = getattr(importlib.import_module("acp_agent.llm.embeddings"), name)
            return make(endpoint, self._client(config))

        return DeferredEmbedder(str(ref), build)

    def counter(self, ref: ModelRef) -> "TokenCounter | None":
        """What counts a request's tokens at the server; None where its API does not. Imports. Raises ConfigError."""
        config = self.find(ref)
        if config.type is not ProviderType.ANTHROPIC:
            return None
        make: Callable[..., TokenCounter] = importlib.import_module("acp_agent.llm.count_tokens").AnthropicCounter
        limits, efforts = self._table.limits(config.type, ref.model), self._table.efforts_of(ref.model)
        return make(endpoint_of(config, ref.model, limits, efforts), self._client(config))

    async def aclose(self) -> None:
        """Close the connections of every model built here."""
        if self._http is not None:
            await self._http.aclose()

    def _built(self, config: ProviderConfig, ref: ModelRef, limits: ModelLimits) -> Provider:
        match config.type:
            case ProviderType.SCRIPTED:
                script = importlib.import_module("acp_agent.llm.script").load_script(config.script or ref.model)
                window = config.context_window or limits.context_window
                return _adapter("scripted", "ScriptedProvider")(config.name, ref.model, script, window)
            case ProviderType.ANTHROPIC:
                adapter = _adapter("anthropic", "AnthropicProvider")
            case ProviderType.OPENAI if config.speaks_responses:
                adapter = _adapter("responses", "ResponsesProvider")
            case ProviderType.OPENAI:
                adapter = _adapter("openai", "OpenAIProvider")
            case ProviderType.OLLAMA:
                return _adapter("ollama", "OllamaProvider")(
                    endpoint_of(config, ref.model, limits),
                    self._client(config),
                    window=config.context_window,
                    images=config.images,
                    thinking=config.thinking,
                    effort=config.effort,
                )
            case _:
                assert_never(config.type)
        efforts = self._table.efforts_of(ref.model)
        return adapter(endpoint_of(config, ref.model, limits, efforts), self._client(config))

    def _completed(self, info: ModelInfo) -> ModelInfo:
        ref = ModelRef(info.provider, info.model)
        config = self.find(ref)
        known = self._table.known(ref.model) if config.type is not ProviderType.OLLAMA else None
        return info.completed(config, known, self.price(ref))

    def _client(self, config: ProviderConfig) -> "HttpClient":
        with self._one_client:  # models are built in threads
            if self._http is None:
                make: Callable[[], HttpClient] = importlib.import_module("acp_agent.net.client").HttpClient
                self._http = make()
        return self._http.with_headers(config.headers) if config.headers else self._http


def _adapter(module: str, name: str) -> "Callable[..., Provider]":
    return getattr(importlib.import_module(f"acp_agent.llm.{module}"), name)
