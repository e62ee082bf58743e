"""The catalog: it builds a Provider from the configuration and a model's name.

Only this module knows every adapter. It imports an adapter, and with it the HTTP client, when the first model of that
type is built.
"""

import importlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeVar, assert_never

import anyio.to_thread

from acp_agent.config.llm_settings import LlmSettings, ModelOptions, ModelSettings, ProviderType
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import Embedder, ModelRequest, Provider
from acp_agent.llm import provider_config
from acp_agent.llm.models import ModelLimits, ModelRef, Price, load_table, parse_model
from acp_agent.llm.provider_config import ConfiguredProviders, ModelInfo, ProviderConfig, StoredKeys, endpoint_of
from acp_agent.llm.retry import ClosingStream, ToollessProvider

if TYPE_CHECKING:
    from acp_agent.net.client import HttpClient

_T = TypeVar("_T")


async def _built(build: Callable[[], _T]) -> _T:
    """Return what `build` makes, in a thread. A ConfigError becomes a ProviderError (NOT_CONFIGURED)."""
    try:
        return await anyio.to_thread.run_sync(build, abandon_on_cancel=True)
    except ConfigError as error:
        raise ProviderError(str(error), kind=ProviderErrorKind.NOT_CONFIGURED) from error


class DeferredProvider:
    """A Provider that is built in a thread when it is first asked, so an unused model costs nothing.

    window   the size of the context window in tokens, as far as it is known before the provider is built
    build    makes the provider; may raise ConfigError
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
        """Stream an answer, as the port says. A ConfigError becomes a ProviderError (NOT_CONFIGURED)."""
        if self._built is None:
            self._built = await _built(partial(self._build, self._ref))
        async with ClosingStream(self._built.stream(request)) as events:
            async for event in events:
                yield event


class DeferredEmbedder:
    """An Embedder that is built in a thread when it is first asked.

    model    `PROVIDER:MODEL`
    build    makes the embedder; may raise ConfigError
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
        """Embed the texts, as the port says. A ConfigError becomes a ProviderError (NOT_CONFIGURED)."""
        async with self._one_at_a_time:  # it remembers the length of its vectors
            if self._built is None:
                self._built = await _built(self._build)
        return await self._built.embed(texts)


__all__ = ["Catalog", "ModelRef", "ProviderConfig", "ProviderType", "parse_model"]


class Catalog:
    """The configured providers, and the one HTTP client that their models share.

    models   the user's settings for single models, `[[llm.models]]`
    """

    def __init__(self, configs: Iterable[ProviderConfig], models: Sequence[ModelSettings] = ()) -> None:
        self._configured = ConfiguredProviders(configs, models)
        self._http: HttpClient | None = None
        self._one_client = Lock()
        self._loaded = set[ProviderType]()  # the modules and tables of these types are in memory

    @classmethod
    def of(cls, settings: LlmSettings, environ: Mapping[str, str], stored: StoredKeys | None = None) -> "Catalog":
        """Return the catalog of a configuration; see `ConfiguredProviders.of`."""
        catalog = cls(())
        catalog._configured = ConfiguredProviders.of(settings, environ, stored)
        return catalog

    def find(self, ref: ModelRef) -> ProviderConfig:
        """Return the configuration of a model's provider, adapted to this model.

        Raises ConfigError naming the known providers.
        """
        return self._configured.find(ref)

    def build(self, ref: ModelRef, options: ModelOptions | None = None) -> Provider:
        """Return the model, ready to stream. Reads packaged files and imports modules, so call it off the event loop.

        options   what a session has chosen over the configuration, such as another temperature or effort

        Raises:
            ConfigError: unknown provider, invalid base_url, missing or impossible key, bad script.

        """
        config = self.find(ref)
        config = config.with_options(options) if options else config
        provider = self._built(config, ref, load_table().limits(config.type, ref.model))
        self._loaded.add(config.type)
        return ToollessProvider(provider) if config.tools is False else provider

    def builds_at_once(self, ref: ModelRef) -> bool:
        """Return whether `build` reads neither a file nor the keyring now, so that it may run on the event loop.

        Raises ConfigError as `build` does.
        """
        config = self.find(ref)
        return config.type in self._loaded and config.type is not ProviderType.SCRIPTED and not config.key_is_stored

    def chain(self, refs: Sequence[ModelRef], options: Sequence[ModelOptions] = ()) -> tuple[Provider, ...]:
        """Return models in the order in which they are asked.

        Each model is built when it is first asked. A model that cannot be built raises a ProviderError
        (NOT_CONFIGURED) then. This method itself reads a packaged file.

        options   what a session has chosen for each of them; empty for the configured options
        """
        return tuple(
            DeferredProvider(ref, self.window(ref), partial(self.build, options=chosen))
            for ref, chosen in zip(refs, options or (None,) * len(refs), strict=True)
        )

    def window(self, ref: ModelRef) -> int:
        """Return the size of a model's context window in tokens, as far as it is known without asking its server."""
        try:
            config = self.find(ref)
        except ConfigError:
            # No model of an unknown provider is ever asked.
            return min(limits.context_window for limits in load_table().defaults.values())
        return config.context_window or load_table().limits(config.type, ref.model).context_window

    def takes_tools(self, ref: ModelRef) -> bool:
        """Return True if the model is offered tools. Raises ConfigError."""
        return self.find(ref).tools is not False

    def options_for(self, ref: ModelRef, level: str, temperature: str) -> ModelOptions:
        """Return the options for a thought level and the name of a temperature. Empty names choose nothing."""
        try:
            config = self.find(ref)
        except ConfigError:
            return ModelOptions()
        return provider_config.options_for(config, level, temperature)

    def least_thinking(self, ref: ModelRef) -> ModelOptions:
        """Return the options under which a model thinks as little as it can. Raises ConfigError."""
        return provider_config.least_thinking(self.find(ref), ref.model, load_table())

    def price(self, ref: ModelRef) -> Price | None:
        """Return what a model costs, or None if it is unknown. Raises ConfigError for an unknown provider.

        The packaged prices are the vendors' own. The prices at any other address are unknown.
        """
        for entry in self._configured.entries(ref):
            if entry.price is not None:
                return Price.model_validate(entry.price.model_dump())
        return load_table().price(ref.model) if self.find(ref).at_vendor else None

    async def models(self, provider: str) -> tuple[ModelInfo, ...]:
        """Return the models that a provider lists, completed from settings and tables.

        Raises ConfigError, ProviderError.
        """
        config = await _keyed(self.find(ModelRef(provider, "")))
        list_models = importlib.import_module("acp_agent.llm.model_list").list_models
        found: tuple[ModelInfo, ...] = await list_models(config, self._client(config))
        return tuple(map(self._completed, found))

    async def described(self, info: ModelInfo) -> ModelInfo:
        """Return the model with the values that the list of an Ollama server leaves out; other models unchanged.

        Asks the server. Raises as `models`.
        """
        config = self.find(ModelRef(info.provider, info.model))
        if config.type is not ProviderType.OLLAMA:
            return info
        describe = importlib.import_module("acp_agent.llm.model_list").describe_ollama_model
        return self._completed(await describe(await _keyed(config), self._client(config), info))

    def embedder(self, ref: ModelRef) -> Embedder:
        """Return an Embedder. It is built in a thread when it is first asked. A stored key is read then.

        Raises:
            ConfigError: as `build`, except for a stored key. Also if the provider's API has no embedding models.

        """
        config = self.find(ref)
        if config.type not in (ProviderType.OPENAI, ProviderType.OLLAMA):
            raise ConfigError("[llm]", "embedding_model", str(ref), "a model of a provider of type openai or ollama")
        known = None if config.key_is_stored else endpoint_of(config, ref.model)

        def build() -> Embedder:
            make: Callable[..., Embedder] = importlib.import_module("acp_agent.llm.embeddings").HttpEmbedder
            endpoint = known or endpoint_of(config, ref.model)
            return make(endpoint, self._client(config), ollama=config.type is ProviderType.OLLAMA)

        return DeferredEmbedder(str(ref), build)

    async def aclose(self) -> None:
        """Close the connections of every model that this catalog has built."""
        if self._http is not None:
            await self._http.aclose()

    def _built(self, config: ProviderConfig, ref: ModelRef, limits: ModelLimits) -> Provider:
        match config.type:
            case ProviderType.SCRIPTED:
                script = importlib.import_module("acp_agent.llm.scripted").load_script(config.script or ref.model)
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
        efforts = load_table().efforts_of(ref.model)
        return adapter(endpoint_of(config, ref.model, limits, efforts), self._client(config))

    def _completed(self, info: ModelInfo) -> ModelInfo:
        ref = ModelRef(info.provider, info.model)
        config = self.find(ref)
        known = load_table().known(ref.model) if config.type is not ProviderType.OLLAMA else None
        return info.completed(config, known, self.price(ref))

    def _client(self, config: ProviderConfig) -> "HttpClient":
        with self._one_client:  # several threads may build models
            if self._http is None:
                make: Callable[[], HttpClient] = importlib.import_module("acp_agent.net.client").HttpClient
                self._http = make()
        return self._http.with_headers(config.headers) if config.headers else self._http


async def _keyed(config: ProviderConfig) -> ProviderConfig:
    """Return the provider with its key. Raises ConfigError."""
    if not config.key_is_stored:
        return config
    return await anyio.to_thread.run_sync(config.with_stored_key, abandon_on_cancel=True)


def _adapter(module: str, name: str) -> "Callable[..., Provider]":
    return getattr(importlib.import_module(f"acp_agent.llm.{module}"), name)
