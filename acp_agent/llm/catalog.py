"""From the configuration and a model's name to a Provider: the place that knows every adapter.

An adapter, and with it httpx, is imported when the first model of its type is built (design rule 6).
"""

import importlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Final, assert_never

import anyio.to_thread

from acp_agent.config.model_settings import ModelOptions, ModelSettings
from acp_agent.config.provider_settings import LlmSettings, ProviderType
from acp_agent.core.errors import ConfigError, ProviderError, ProviderErrorKind
from acp_agent.core.messages import ModelEvent
from acp_agent.core.ports import Embedder, ModelRequest, Provider
from acp_agent.llm import model_info as abilities
from acp_agent.llm.model_info import ModelInfo
from acp_agent.llm.models import ModelLimits, ModelRef, ModelTable, Price, load_table, parse_model
from acp_agent.llm.provider_config import ConfiguredProviders, ProviderConfig, StoredKeys, endpoint_of
from acp_agent.llm.wrapper import WithoutTools, closing


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


if TYPE_CHECKING:
    from acp_agent.llm.anthropic import TokenCounter
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
        make: Callable[..., TokenCounter] = importlib.import_module("acp_agent.llm.anthropic").AnthropicCounter
        limits, efforts = self._table.limits(config.type, ref.model), self._table.efforts_of(ref.model)
        return make(endpoint_of(config, ref.model, limits, efforts), self._client(config))

    async def aclose(self) -> None:
        """Close the connections of every model built here."""
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
