"""The providers of a configuration and what the user says of their models. Light: no adapter, no network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

from acp_agent.config.model_settings import ModelSettings
from acp_agent.config.provider_settings import LlmSettings
from acp_agent.core.errors import ConfigError
from acp_agent.llm.model_ref import ModelRef
from acp_agent.llm.provider_config import ProviderConfig, StoredKeys


class ConfiguredProviders:
    """Finds a provider's configuration by a model's name.

    models   what the user knows better about some of them, `[[llm.models]]`
    """

    def __init__(self, configs: Iterable[ProviderConfig], models: Sequence[ModelSettings] = ()) -> None:
        self._configs = {config.name: config for config in configs}
        self._unusable: dict[str, ConfigError] = {}
        self._models = tuple(models)

    @classmethod
    def of(
        cls, settings: LlmSettings, environ: Mapping[str, str], stored: StoredKeys | None = None
    ) -> "ConfiguredProviders":
        """All that is configured, keys read from their variables; `stored` has those that are in none.

        A provider whose headers name a variable that is not set is left out; asking for it tells why.
        """
        configured = cls((), settings.models)
        for provider in settings.providers:
            try:
                configured._configs[provider.name] = ProviderConfig.of(provider, environ, stored)
            except ConfigError as error:
                configured._unusable[provider.name] = error
        return configured

    def __iter__(self) -> Iterator[ProviderConfig]:
        return iter(self._configs.values())

    def __contains__(self, name: str) -> bool:
        """Whether a provider of this name is configured and usable."""
        return name in self._configs

    def find(self, ref: ModelRef) -> ProviderConfig:
        """The configuration of a provider, as it is for this model. Raises ConfigError naming those there are."""
        if ref.provider in self._unusable:
            raise self._unusable[ref.provider]
        config = self._configs.get(ref.provider)
        if config is None:
            names = ", ".join(self._configs) or "none is configured"
            raise ConfigError("[llm]", "model", str(ref), f"a configured provider ({names})")
        return reduce(ProviderConfig.with_options, reversed(self.entries(ref)), config)

    def entries(self, ref: ModelRef) -> list[ModelSettings]:
        """What the user says of a model, the most particular first."""
        fitting = [entry for entry in self._models if str(ref).startswith(entry.id)]
        return sorted(fitting, key=lambda entry: len(entry.id), reverse=True)
