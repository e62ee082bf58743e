"""The models that sessions can choose: the lists of the providers, and the choices of one configuration."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.to_thread

from acp_agent.config.llm_settings import LlmSettings, ModelSettings, ProviderSettings, ProviderType
from acp_agent.core.errors import (
    AgentError,
    ConfigError,
    ProviderError,
    ProviderErrorKind,
    ToolError,
)
from acp_agent.core.session_options import Levels, ModelChoice, SessionOptions, model_in_force
from acp_agent.llm.models import ModelRef, ModelTable, Price, load_table
from acp_agent.llm.provider_config import (
    ConfiguredProviders,
    ModelInfo,
    ProviderConfig,
    temperature_levels,
    thinking_levels,
)
from acp_agent.log import Log
from acp_agent.text import some_of

if TYPE_CHECKING:
    from acp_agent.llm.catalog import Catalog

_PATIENCE = 5.0
"""Seconds for the list of one provider. All providers are asked at the same time."""
_PAUSE = 60.0
"""Seconds before a provider whose list did not arrive is asked again."""
_SLOW_IMPORTS = ("acp_agent.llm.model_list", "acp_agent.net.client")

_LevelsOf: TypeAlias = Callable[[ProviderConfig, str, ModelTable, ModelInfo | None], Levels | None]
"""Returns the levels of a setting for a model, from its provider, its name, the packaged table and its list's entry."""

_log = Log(__name__)


class ModelLists:
    """The lists of all configurations of a process. `changed` is called when a list has arrived."""

    def __init__(
        self, environ: Mapping[str, str], changed: Callable[[], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self._environ = environ
        self._changed = changed
        self._clock = clock
        self._known: dict[tuple[tuple[ProviderSettings, ...], tuple[ModelSettings, ...]], KnownModels] = {}

    @cached_property
    def _table(self) -> ModelTable:
        return load_table()

    def of(self, llm: LlmSettings) -> "KnownModels":
        """Return the known models of a configuration."""
        key = llm.providers, llm.models
        if key not in self._known:
            providers = ConfiguredProviders.of(llm, self._environ)
            self._known[key] = KnownModels(providers, lambda: self._table, self._changed, self._clock)
        return self._known[key]


class KnownModels:
    """The known models of one configuration: from the packaged table, and from the lists of the providers.

    A list is fetched once, for all sessions with this configuration. A list that did not arrive, as on a machine
    without a network, is asked for again by a later session.

    table     returns the packaged table; reading it takes some milliseconds
    clock     returns seconds that never decrease
    version   increases with each list that arrives
    """

    def __init__(
        self,
        providers: ConfiguredProviders,
        table: Callable[[], ModelTable],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.providers = providers
        self.table = table
        self.version = 0
        self._changed = changed
        self._lists: dict[str, dict[str, ModelInfo]] = {}
        self._clock = clock
        self._next_fetch = -inf

    def config(self, model: str) -> ProviderConfig | None:
        """Return the configuration of a model's provider for this model; None if there is no such provider."""
        try:
            return self.providers.find(ref_of(model))
        except ConfigError:
            return None

    def entry(self, model: str) -> ModelInfo | None:
        """Return the entry of a model (`PROVIDER:MODEL`) in its provider's list."""
        ref = ref_of(model)
        return self._lists.get(ref.provider, {}).get(ref.model)

    def has_list(self, provider: str) -> bool:
        """Return whether the list of a provider has arrived."""
        return provider in self._lists

    def offered(self, provider: str) -> Iterator[ModelInfo]:
        """Return the models of a provider, except those that are known to take no tools."""
        return (info for info in self._lists.get(provider, {}).values() if info.tools is not False)

    async def fetch(self, catalog: "Catalog", configured: Sequence[str]) -> None:
        """Fetch the lists that are missing, at most once in `_PAUSE`. Run it as a background task.

        Failures are only logged.

        configured   models that the user has named. Ollama's list lacks details, which are fetched for these models
        """
        now = self._clock()
        if now < self._next_fetch:
            return
        self._next_fetch = now + _PAUSE
        version = self.version
        try:
            async with anyio.create_task_group() as tasks:
                for config in self.providers:
                    if config.type is not ProviderType.SCRIPTED and not self.has_list(config.name):
                        tasks.start_soon(self._try, catalog, config.name, configured)
        except anyio.get_cancelled_exc_class():
            self._next_fetch = -inf  # the next caller may ask again
            raise
        if self.version != version:
            self._changed()

    async def refresh(self, catalog: "Catalog", provider: str, configured: Sequence[str]) -> int:
        """Fetch the list of one provider again. Return how many models it has. Raises ConfigError, ProviderError."""
        await self._ask(catalog, provider, configured)
        self._changed()
        return sum(1 for _ in self.offered(provider))

    async def _ask(self, catalog: "Catalog", provider: str, configured: Sequence[str]) -> None:
        for module in _SLOW_IMPORTS:  # off the event loop
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

    async def _try(self, catalog: "Catalog", provider: str, configured: Sequence[str]) -> None:
        try:
            await self._ask(catalog, provider, configured)
        except AgentError as error:
            _log.debug("no list of models", provider=provider, error=str(error))


def ref_of(model: str) -> ModelRef:
    """Split `PROVIDER:MODEL` without checking the names."""
    provider, _, name = model.partition(":")
    return ModelRef(provider, name)


_MOST_SHOWN = 200
"""The most fetched models of one provider in the choices. Routers have hundreds, and each change is sent to editors."""
_MOST_NAMED = 20
"""The most models that a message names."""


class ModelChoices:
    """The models that sessions of one configuration can choose. It is a `Choices`, and it answers `/model`.

    available   `[acp] available_models`. If it is not empty, only these and `llm.model` can be chosen
    fetches     whether providers are asked for their lists
    """

    def __init__(self, llm: LlmSettings, available: Sequence[str], known: KnownModels, *, fetches: bool = True) -> None:
        self._llm = llm
        self._available = tuple(available)
        self._known = known
        self._fetches = fetches and not self._available
        self._shown: tuple[int, str, Sequence[ModelChoice]] | None = None

    async def fetch(self, catalog: "Catalog") -> None:
        """Fetch the providers' lists, if the configuration wants them. Run it as a background task."""
        if self._fetches:
            await self._known.fetch(catalog, self._configured())

    async def refresh(self, catalog: "Catalog", provider: str) -> int:
        """Fetch a provider's list again. Return its number of models. Raises ToolError, ConfigError, ProviderError."""
        if not self._fetches:
            raise ToolError.invalid("nothing to refresh: the models are those of the configuration")
        return await self._known.refresh(catalog, provider, self._configured())

    # ------------------------------------------------------------------------------------------- Choices

    @property
    def initial(self) -> str:
        return self._llm.model or next(iter(self._available), "")

    def models(self, current: str) -> Sequence[ModelChoice]:
        """Return the models that the user has named, then the newest of each provider."""
        shown = self._shown
        if shown is None or shown[:2] != (self._known.version, current):
            offered = self._offered(_MOST_SHOWN)
            names = [*self._configured(), *([current] if current else []), *offered]
            shown = self._shown = (self._known.version, current, self._grouped(names))
        return shown[2]

    def has(self, model: str) -> bool:
        if model in self._configured():
            return True
        config = self._known.config(model)
        if self._available or config is None or config.type is ProviderType.SCRIPTED:
            return False
        name = ref_of(model).model
        unlisted = bool(name) and name.isprintable() and " " not in name and not self._known.has_list(config.name)
        return unlisted or self._known.entry(model) is not None

    def thinking(self, model: str) -> Levels | None:
        return self._levels(thinking_levels, model)

    def temperature(self, model: str) -> Levels | None:
        return self._levels(temperature_levels, model)

    def _levels(self, levels: _LevelsOf, model: str) -> Levels | None:
        config = self._known.config(model)
        if config is None:
            return None
        return levels(config, ref_of(model).model, self._known.table(), self._known.entry(model))

    # --------------------------------------------------------------------------------------------- /model

    def find(self, text: str) -> Sequence[ModelChoice]:
        """Return the models that a text names: by whole name, by the part after the colon, or by words of the name."""
        everything = self._everything()
        exact = [choice for choice in everything if choice.value == text]
        exact = exact or [choice for choice in everything if ref_of(choice.value).model == text]
        words = text.lower().split()
        return exact or [
            choice
            for choice in everything
            if words and all(word in f"{choice.value} {choice.title}".lower() for word in words)
        ]

    def choose(self, options: SessionOptions, text: str) -> str:
        """Choose the model that a text names. Return the message for the user. Raises ToolError."""
        text = text.strip()
        found = self.find(text)
        if len(found) > 1:
            raise ToolError.invalid(f"ambiguous model, candidates: {_named(found)}")
        value = found[0].value if found else text
        if not found and not self.has(text):
            everything = self._everything()
            available = f". Available: {_named(everything)}" if everything else "; no model is configured"
            raise ToolError.invalid(f"no matching model found{available}")
        if value == model_in_force(options, self):
            return f"{value} answers already."
        options.choose(model=value)
        return f"{value} answers from the next prompt on."

    def listed(self, options: SessionOptions) -> str:
        """Return all models as markdown, with the current one marked. Raises ToolError if there are none."""
        current = model_in_force(options, self)
        models = self.models(current)
        if not models:
            raise ToolError.invalid(
                "model switching not configured: set model under [llm], or available_models under [acp]"
            )
        return "\n".join(_row(model, in_use=model.value == current) for model in models)

    # --------------------------------------------------------------------------------------------- within

    def _configured(self) -> tuple[str, ...]:
        """Return the models that the user has named, in the order in which they are shown."""
        initial = [self.initial] if self.initial else []
        if self._available:
            return tuple(dict.fromkeys((*([] if self.initial in self._available else initial), *self._available)))
        entries = (entry.id for entry in self._llm.models if self._is_model(entry.id))
        return tuple(dict.fromkeys((*initial, *self._llm.fallback, *entries)))

    def _is_model(self, entry: str) -> bool:
        """Return whether the id of an `[[llm.models]]` entry is a whole model name, not a prefix."""
        ref = ref_of(entry)
        if ref.provider not in self._known.providers or not ref.model[-1:].isalnum():
            return False
        return self._known.entry(entry) is not None or not self._known.has_list(ref.provider)

    def _everything(self) -> Sequence[ModelChoice]:
        return self._grouped([*self._configured(), *self._offered(None)])

    def _offered(self, most: int | None) -> Iterator[str]:
        """Yield the names of at most this many models of each provider."""
        for config in () if self._available else self._known.providers:
            yield from map(str, islice(self._known.offered(config.name), most))

    def _grouped(self, names: Iterable[str]) -> Sequence[ModelChoice]:
        choices = [self._choice(name) for name in dict.fromkeys(names)]
        order = {provider: place for place, provider in enumerate(dict.fromkeys(each.provider for each in choices))}
        return sorted(choices, key=lambda choice: order[choice.provider])

    def _choice(self, name: str) -> ModelChoice:
        info = self._known.entry(name)
        if info is None:
            return ModelChoice(name, ref_of(name).model)
        return ModelChoice(name, info.title, ", ".join(_described(info)))


def _described(info: ModelInfo) -> Iterator[str]:
    if info.context_window:
        yield f"{info.context_window:,} tokens"
    if isinstance(info.price, Price):
        yield f"${info.price.input:g} in, ${info.price.output:g} out a million"


def _row(model: ModelChoice, *, in_use: bool) -> str:
    name = f"**`{model.value}`** (in use)" if in_use else f"`{model.value}`"
    return f"- {name}: {model.description}" if model.description else f"- {name}"


def _named(models: Sequence[ModelChoice]) -> str:
    return some_of([model.value for model in models], _MOST_NAMED)
