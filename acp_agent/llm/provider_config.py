"""The configured providers, with their keys and addresses, and the options that a user can choose for a model.

It imports neither the adapters of the APIs nor the HTTP client.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, reduce
from typing import Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from acp_agent.config.llm_settings import (
    Effort,
    LlmSettings,
    ModelOptions,
    ModelSettings,
    OpenAIApi,
    ProviderSettings,
    ProviderType,
)
from acp_agent.config.section import is_http_address
from acp_agent.core.data import frozen
from acp_agent.core.errors import ConfigError, MissingKey
from acp_agent.core.session_options import DEFAULT, OFF, ON, TEMPERATURES, Levels
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import ModelEndpoint
from acp_agent.llm.models import Efforts, ModelLimits, ModelRef, ModelTable, NoThinking, Price
from acp_agent.shape import fields

# The default limit of an answer. Longer ones take minutes and use up the window.
_USUAL_MAX_TOKENS: Final = 32_000
_BASE_URLS: Final = {
    ProviderType.ANTHROPIC: "https://api.anthropic.com",
    ProviderType.OPENAI: "https://api.openai.com/v1",
    ProviderType.OLLAMA: "http://127.0.0.1:11434",
    ProviderType.SCRIPTED: "",
}
_KEY_VARIABLES: Final = {ProviderType.ANTHROPIC: "ANTHROPIC_API_KEY", ProviderType.OPENAI: "OPENAI_API_KEY"}

_T = TypeVar("_T")


class StoredKeys(Protocol):
    """The keys that the user has stored, each for one provider at one address."""

    def has(self, provider: str, base_url: str) -> bool:
        """Return True if there is a key. Quick."""
        ...

    def key(self, provider: str, base_url: str) -> str:
        """Return the key as it is stored now, or an empty string. May block for long. Raises ConfigError."""
        ...


@frozen
class ProviderConfig:
    """One `[[llm.providers]]` entry. The key and the variables in its headers are already read.

    api_key_env     the name of the variable, for messages; the key itself is never shown
    timeout         the seconds of silence allowed between two pieces of an answer
    script          for `scripted`: a packaged name or a path; empty takes the model's id as the name
    context_window  tokens; None takes the known value of the model
    max_tokens      tokens of one answer; None takes the known value
    images          whether its models take pictures; None takes the known value
    tools           False for models that are offered no tools
    thinking        whether its models are asked to think; None takes the known value
    effort          how hard thinking models think
    temperature     0 to 2, for models that do not think
    api             which of OpenAI's two APIs is used
    headers         further HTTP headers of every request; may hold secrets
    extra_body      fields added to every request, such as { top_p = 0.9 }
    keep_alive      how long Ollama keeps a model loaded, such as "30m"
    stored          the keys that are not in a variable; read again for every endpoint, so that a new key counts at once
    key_source      the place of a key that is not in a variable, for messages
    """

    name: str
    type: ProviderType
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    api_key_env: str = ""
    timeout: float = 300.0
    script: str = ""
    context_window: int | None = None
    max_tokens: int | None = None
    images: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    effort: Effort | None = None
    temperature: float | None = None
    api: OpenAIApi = OpenAIApi.AUTO
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    extra_body: JsonObject = field(default_factory=dict[str, Json])
    keep_alive: str = ""
    stored: StoredKeys | None = field(default=None, repr=False, compare=False)
    key_source: str = ""

    @classmethod
    def of(
        cls, settings: ProviderSettings, environ: Mapping[str, str], stored: StoredKeys | None = None
    ) -> "ProviderConfig":
        """Return a provider, key and headers read from their variables. Raises ConfigError for an unset variable."""
        config = cls(
            name=settings.name,
            type=settings.type,
            base_url=settings.base_url or "",
            api_key=settings.api_key(environ),
            api_key_env=settings.api_key_env or "",
            timeout=settings.timeout,
            script=settings.script or "",
            headers=settings.request_headers(environ),
            extra_body=cast("JsonObject", dict(settings.extra_body or {})),
            keep_alive=settings.keep_alive or "",
            stored=stored,
        )
        return config.with_options(settings)

    def with_options(self, options: ModelOptions) -> "ProviderConfig":
        """Return the same provider with these options."""
        values = {name: getattr(options, name) for name in fields(ModelOptions)}
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    @property
    def key_is_stored(self) -> bool:
        """Whether its key has to be read from the store, which may wait for the keyring. Quick."""
        stored = None if self.api_key.strip() or self.type is ProviderType.SCRIPTED else self.stored
        return stored is not None and stored.has(self.name, self.base_url)

    def with_stored_key(self) -> "ProviderConfig":
        """Return the provider with the key that `acp-agent login` stored. A key from a variable has precedence.

        If `key_is_stored`, it may wait for the keyring, so do not call it on the event loop. Raises ConfigError.
        """
        if self.stored is None or self.api_key.strip() or self.type is ProviderType.SCRIPTED:
            return self
        key = self.stored.key(self.name, self.base_url)
        return replace(self, api_key=key, key_source="the key `acp-agent login` stored") if key else self

    @property
    def at_vendor(self) -> bool:
        """Whether the address is the vendor's own. Only there the vendor's prices and newest API can be relied on."""
        return self.type in _KEY_VARIABLES and (
            not self.base_url or _host(self.base_url) == _host(_BASE_URLS[self.type])
        )

    @property
    def speaks_responses(self) -> bool:
        """Whether OpenAI's Responses API is used. Compatible servers often lack it or have only part of it."""
        return self.api is OpenAIApi.RESPONSES or (self.api is OpenAIApi.AUTO and self.at_vendor)


def _first(said: _T | None, otherwise: _T | None) -> _T | None:
    return otherwise if said is None else said


_NO_LIMITS: Final = ModelLimits(context_window=1, max_output=1)


def endpoint_of(
    config: ProviderConfig, model: str, limits: ModelLimits = _NO_LIMITS, efforts: Efforts | None = None
) -> ModelEndpoint:
    """Return a model's endpoint, with a stored key if no variable holds one. Conversations need the model's limits.

    If `config.key_is_stored`, it may wait for the keyring, so do not call it on the event loop.

    Raises:
        MissingKey: a ConfigError; no variable and no store has a key.
        ConfigError: the key or the address is impossible.

    """
    config = config.with_stored_key()
    where = f"provider {config.name!r}"
    variable = config.api_key_env or _KEY_VARIABLES.get(config.type, "")
    key = config.api_key.strip()
    if not key and not config.base_url and config.type in _KEY_VARIABLES:
        login = f"`acp-agent login --provider {config.name}`"
        raise MissingKey(where, variable, "", f"an API key in this environment variable, or run {login} in a terminal")
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ConfigError(where, variable or "api_key", "(not shown)", "a key of printable ASCII without spaces")
    max_tokens = config.max_tokens
    if max_tokens is None and config.type is ProviderType.ANTHROPIC:
        max_tokens = min(limits.max_output, _USUAL_MAX_TOKENS)
    thinking, chosen = _chosen(config, limits, efforts or Efforts())
    return ModelEndpoint(
        provider=config.name,
        model=model,
        base_url=_base_url(config, where),
        api_key=key,
        key_source=config.key_source or variable or f"the API key of {where}",
        timeout=config.timeout,
        context_window=config.context_window or limits.context_window,
        max_tokens=max_tokens,
        thinking=thinking,
        images=limits.images if config.images is None else config.images,
        extra_body={**chosen, **config.extra_body},
    )


def _chosen(config: ProviderConfig, limits: ModelLimits, efforts: Efforts) -> tuple[bool, JsonObject]:
    """Return whether the model is asked to think, and the fields for its other options in the provider's API.

    The options, such as temperature and effort, are the same in every request of a session, because a change loses the
    prompt cache. At Anthropic and OpenAI a thinking model takes no temperature, and a model that does not think takes
    no effort. Newer models of Anthropic think unless they are asked not to, and some always think.
    """
    thinking = limits.thinking if config.thinking is None else config.thinking
    fields: JsonObject = {}
    local = config.type is ProviderType.OLLAMA  # its models take both; the adapter asks the server which models think
    if config.temperature is not None and (local or not thinking):
        fields["temperature"] = config.temperature
    if config.keep_alive:  # the server refuses a string without a unit
        fields["keep_alive"] = int(config.keep_alive) if config.keep_alive in ("-1", "0") else config.keep_alive
    if local:
        return thinking, fields
    effort = config.effort
    if config.type is ProviderType.ANTHROPIC and (not thinking or effort is Effort.NONE):
        if efforts.no_thinking is None:  # the model always thinks
            return thinking, fields
        if efforts.no_thinking is not NoThinking.OMITTED:
            fields["thinking"] = {"type": efforts.no_thinking.value}
        return False, fields
    if effort is not None and thinking:
        if config.type is ProviderType.ANTHROPIC:
            fields["output_config"] = {"effort": effort.value}
        elif config.speaks_responses:
            fields["reasoning"] = {"effort": effort.value}
        else:
            fields["reasoning_effort"] = effort.value
    return thinking, fields


def _base_url(config: ProviderConfig, where: str) -> str:
    """Return the address to append paths to. Accepts the forms of OLLAMA_HOST, and a trailing /v1 or slash."""
    url = config.base_url.strip().rstrip("/") or _BASE_URLS[config.type]
    if config.type is ProviderType.OLLAMA:
        url = _ollama_url(url)
    if not is_http_address(url, query=False) or not url.isascii():
        expected = "an address such as https://host/v1, without user, password, query or fragment"
        raise ConfigError(where, "base_url", re.sub(r"//[^/]*@", "//…@", url), expected)
    return url.removesuffix("/v1") if config.type is ProviderType.ANTHROPIC else url


def _ollama_url(host: str) -> str:
    """Return the address for an OLLAMA_HOST value, read as Ollama reads it, without the path of an API.

    The value is a host, host:port, :port or a URL.
    """
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    name, _, port = netloc.rpartition(":") if re.search(r":\d*$", netloc) else (netloc, "", "")
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name  # noqa: S104 - the address that Ollama listens on
    port = port or ("443" if scheme == "https" else "11434")
    url = f"{scheme}://{name}:{port}{slash}{path}"
    return url.removesuffix("/v1").removesuffix("/api").rstrip("/")


def _host(url: str) -> str | None:
    try:
        return urlsplit(url.strip()).hostname
    except ValueError:  # unbalanced brackets; reported when the model is built
        return None


class ConfiguredProviders:
    """The providers of a configuration, found by a model's name.

    models   the user's settings for single models, `[[llm.models]]`
    """

    def __init__(self, configs: Iterable[ProviderConfig], models: Sequence[ModelSettings] = ()) -> None:
        self._configs = {config.name: config for config in configs}
        self._unusable: dict[str, ConfigError] = {}
        self._models = tuple(models)

    @classmethod
    def of(
        cls, settings: LlmSettings, environ: Mapping[str, str], stored: StoredKeys | None = None
    ) -> "ConfiguredProviders":
        """Return all providers of a configuration, with keys from their variables or from `stored`.

        A provider whose headers name an unset variable is left out. `find` raises the reason.
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
        """Return True if a provider of this name is configured and usable."""
        return name in self._configs

    def find(self, ref: ModelRef) -> ProviderConfig:
        """Return the configuration of a model's provider, adapted to this model.

        Raises ConfigError naming the known providers.
        """
        if ref.provider in self._unusable:
            raise self._unusable[ref.provider]
        config = self._configs.get(ref.provider)
        if config is None:
            names = ", ".join(self._configs) or "none is configured"
            raise ConfigError("[llm]", "model", str(ref), f"a configured provider ({names})")
        return reduce(ProviderConfig.with_options, reversed(self.entries(ref)), config) if self._models else config

    def entries(self, ref: ModelRef) -> list[ModelSettings]:
        """Return the user's settings for a model, the most specific first."""
        fitting = [entry for entry in self._models if str(ref).startswith(entry.id)]
        return sorted(fitting, key=lambda entry: len(entry.id), reverse=True)


@frozen
class ModelInfo:
    """One model of a provider. A value is None if it is unknown.

    provider        the configured name
    model           its own id; `PROVIDER:MODEL` chooses it
    title           the name that users see; the id if there is no other
    context_window  tokens, input and output together
    max_output      tokens of one answer
    thinking        whether it thinks before it answers
    efforts         the levels of effort that it takes; empty if unknown
    """

    provider: str
    model: str
    title: str
    context_window: int | None = None
    max_output: int | None = None
    images: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    price: Price | None = None
    efforts: tuple[Effort, ...] = ()

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"

    def completed(self, config: ProviderConfig, known: ModelLimits | None, price: Price | None) -> "ModelInfo":
        """Return the model with the user's settings, else its server's values, else the packaged ones."""
        return replace(
            self,
            context_window=config.context_window or self.context_window or (known.context_window if known else None),
            max_output=config.max_tokens or self.max_output or (known.max_output if known else None),
            images=_first(config.images, _first(self.images, known.images if known else None)),
            tools=_first(config.tools, self.tools),
            thinking=_first(config.thinking, _first(self.thinking, known.thinking if known else None)),
            price=price or self.price,
        )


_LOCAL_EFFORTS = (Effort.LOW, Effort.MEDIUM, Effort.HIGH)
"""The levels of those models of Ollama that have levels (ollama/ollama docs, "Thinking")."""


def thinking_levels(
    config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None = None
) -> Levels | None:
    """Return the levels of thinking of a model, or None if it cannot think or its levels are unknown.

    config   its provider, adapted to this model
    said     its description by the server; None if that is unknown
    """
    match config.type:
        case ProviderType.SCRIPTED:
            return None
        case ProviderType.OLLAMA:
            return _local(config, model, said)
        case ProviderType.ANTHROPIC | ProviderType.OPENAI:
            return _remote(config, model, table, said)


def temperature_levels(
    config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None = None
) -> Levels | None:
    """Return the temperature presets of a model, or None if it takes none, as a thinking model outside Ollama."""
    match config.type:
        case ProviderType.SCRIPTED:
            return None
        case ProviderType.ANTHROPIC | ProviderType.OPENAI:
            thinks = table.limits(config.type, model).thinking or (said is not None and said.thinking is True)
            if thinks or config.thinking:
                return None
        case ProviderType.OLLAMA:
            pass
    presets = tuple(TEMPERATURES)
    usual = next((name for name, value in TEMPERATURES.items() if value == config.temperature), None)
    return Levels((DEFAULT, *presets), DEFAULT) if usual is None else Levels(presets, usual)


def options_for(config: ProviderConfig, level: str, preset: str) -> ModelOptions:
    """Return the request options for a level of thinking and a temperature preset.

    Empty names and DEFAULT change nothing.
    """
    return _options(config.type, level, preset)


@lru_cache(64)
def _options(kind: ProviderType, level: str, preset: str) -> ModelOptions:
    temperature = TEMPERATURES.get(preset)
    match level:
        case "" | "default":
            return ModelOptions(temperature=temperature)
        case "off" if kind is not ProviderType.OLLAMA:
            return ModelOptions(effort=Effort.NONE, temperature=temperature)
        case "on" | "off":
            return ModelOptions(thinking=level == ON, temperature=temperature)
        case _:
            return ModelOptions(thinking=True, effort=Effort(level), temperature=temperature)


def least_thinking(config: ProviderConfig, model: str, table: ModelTable) -> ModelOptions:
    """Return the options under which a model thinks as little as it can."""
    levels = thinking_levels(config, model, table)
    if levels is None:  # a thinking model of Ollama thinks unless the request says otherwise
        return ModelOptions(thinking=False if config.type is ProviderType.OLLAMA else None)
    return options_for(config, next(level for level in levels.values if level != DEFAULT), "")


def _local(config: ProviderConfig, model: str, said: ModelInfo | None) -> Levels | None:
    """Return the levels of a model on Ollama, or None before its server has described it.

    A model that cannot think refuses requests to think, so an unknown model has no levels.
    """
    if "gpt-oss" in model:  # these models always think
        return _levels(_LOCAL_EFFORTS, config.effort or Effort.MEDIUM)
    if config.effort is not None:
        return _levels((Effort.NONE, *_LOCAL_EFFORTS), Effort.NONE if config.thinking is False else config.effort)
    thinks = config.thinking if config.thinking is not None else said is not None and said.thinking
    return Levels((OFF, ON), ON) if thinks else None


def _remote(config: ProviderConfig, model: str, table: ModelTable, said: ModelInfo | None) -> Levels | None:
    """Return the levels in the packaged table; for an unknown model, those of the server and of the user's settings."""
    limits, efforts = table.limits(config.type, model), table.efforts_of(model)
    takes = efforts.levels if limits.thinking else said.efforts if said else ()
    anthropic = config.type is ProviderType.ANTHROPIC
    if anthropic and takes and efforts.no_thinking is not None:
        takes = (Effort.NONE, *takes)
    off = config.effort is Effort.NONE or (anthropic and config.thinking is False)
    usual = Effort.NONE if off else config.effort
    if usual is not None and not takes and (limits.thinking or config.thinking):
        takes = _LOCAL_EFFORTS  # every server that has levels knows these
    if not takes:
        return None
    return _levels(takes, usual or efforts.default)


def _levels(takes: Sequence[Effort], usual: Effort | None) -> Levels:
    """Return the levels, weakest first, with the default among them. DEFAULT stands for an unknown default."""
    known = {*takes, *([usual] if usual else [])}
    words = tuple(_word(effort) for effort in Effort if effort in known)
    return Levels((DEFAULT, *words), DEFAULT) if usual is None else Levels(words, _word(usual))


def _word(effort: Effort) -> str:
    return OFF if effort is Effort.NONE else effort.value
