"""From a configured provider and a model's id to a Provider: the place that knows every adapter.

An adapter, and with it httpx, is imported when the first model of its type is built (design rule 6).
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never
from urllib.parse import urlsplit

from acp_agent.config.provider_settings import ProviderSettings, ProviderType
from acp_agent.core.errors import ConfigError
from acp_agent.core.ports import Provider
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import Endpoint
from acp_agent.llm.limits import ModelLimits, load_table
from acp_agent.llm.script import load_script
from acp_agent.llm.scripted import ScriptedProvider

if TYPE_CHECKING:
    from acp_agent.net.client import HttpClient

MODEL_FORM: Final = "PROVIDER:MODEL, such as anthropic:claude-sonnet-5-5 or ollama:qwen3:8b"
# The most an answer is asked to be when nobody said: longer ones take minutes and eat into the window.
_USUAL_MAX_TOKENS: Final = 32_000


_BASE_URLS: Final = {
    ProviderType.ANTHROPIC: "https://api.anthropic.com",
    ProviderType.OPENAI: "https://api.openai.com/v1",
    ProviderType.OLLAMA: "http://127.0.0.1:11434",
    ProviderType.SCRIPTED: "",
}
_KEY_VARIABLES: Final = {ProviderType.ANTHROPIC: "ANTHROPIC_API_KEY", ProviderType.OPENAI: "OPENAI_API_KEY"}


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """One `[[llm.providers]]` entry, the key already read from its variable.

    api_key_env     names the variable in messages; the key itself never shows
    timeout         seconds of silence between two pieces of an answer
    script          for `scripted`: a packaged name or a path; empty = the model's id is the name
    context_window  tokens; None takes what is known about the model
    max_tokens      tokens of one answer, likewise
    images          whether its models take pictures, likewise
    extra_body      fields added to every request, such as { temperature = 0.2 }
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
    extra_body: JsonObject = field(default_factory=dict[str, Json])

    @classmethod
    def of(cls, settings: ProviderSettings, environ: Mapping[str, str]) -> "ProviderConfig":
        """A provider as configured, its key read from its variable."""
        return cls(
            name=settings.name,
            type=settings.type,
            base_url=settings.base_url or "",
            api_key=settings.api_key(environ),
            api_key_env=settings.api_key_env or "",
            timeout=settings.timeout,
            script=settings.script or "",
            context_window=settings.context_window,
            max_tokens=settings.max_tokens,
            images=settings.images,
        )


@dataclass(frozen=True, slots=True)
class ModelRef:
    """`PROVIDER:MODEL`, taken apart. The model's id may hold colons of its own."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model(text: str, *, where: str = "[llm]", key: str = "model") -> ModelRef:
    """Take `PROVIDER:MODEL` apart at the first colon. Raises ConfigError."""
    provider, colon, model = (part.strip() for part in text.partition(":"))
    if not (provider and colon and model) or "/" in provider or model.startswith("//"):
        raise ConfigError(where, key, text, MODEL_FORM)
    return ModelRef(provider, model)


class Catalog:
    """The configured providers. Holds the one HTTP client its models share."""

    def __init__(self, configs: Iterable[ProviderConfig]) -> None:
        self._configs = {config.name: config for config in configs}
        self._http: HttpClient | None = None

    def find(self, ref: ModelRef) -> ProviderConfig:
        """The configuration of a provider. Raises ConfigError naming those there are."""
        config = self._configs.get(ref.provider)
        if config is None:
            names = ", ".join(self._configs) or "none is configured"
            raise ConfigError("[llm]", "model", str(ref), f"a configured provider ({names})")
        return config

    def build(self, ref: ModelRef) -> Provider:
        """The model, ready to stream. Reads packaged files and imports: call it off the event loop.

        Raises ConfigError: unknown provider, bad base_url, missing or impossible key, bad script.
        """
        config = self.find(ref)
        limits = load_table().limits(config.type, ref.model)
        match config.type:
            case ProviderType.SCRIPTED:
                script = load_script(config.script or ref.model)
                window = config.context_window or limits.context_window
                return ScriptedProvider(config.name, ref.model, script, window)
            case ProviderType.ANTHROPIC:
                return self._adapter("anthropic", "AnthropicProvider")(_endpoint(config, ref, limits), self._client())
            case ProviderType.OPENAI:
                return self._adapter("openai", "OpenAIProvider")(_endpoint(config, ref, limits), self._client())
            case ProviderType.OLLAMA:
                return self._adapter("ollama", "OllamaProvider")(
                    _endpoint(config, ref, limits), self._client(), window=config.context_window, images=config.images
                )
            case _:
                assert_never(config.type)

    async def aclose(self) -> None:
        """Close the connections of every model built here."""
        if self._http is not None:
            await self._http.aclose()

    def _client(self) -> "HttpClient":
        if self._http is None:
            make: Callable[[], HttpClient] = importlib.import_module("acp_agent.net.client").HttpClient
            self._http = make()
        return self._http

    @staticmethod
    def _adapter(module: str, name: str) -> "Callable[..., Provider]":
        return getattr(importlib.import_module(f"acp_agent.llm.{module}"), name)


def _endpoint(config: ProviderConfig, ref: ModelRef, limits: ModelLimits) -> Endpoint:
    where = f"provider {config.name!r}"
    variable = config.api_key_env or _KEY_VARIABLES.get(config.type, "")
    key = config.api_key.strip()
    if not key and not config.base_url and config.type in _KEY_VARIABLES:
        raise ConfigError(where, variable, "", "an API key in this environment variable")
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ConfigError(where, variable or "api_key", "(not shown)", "a key of printable ASCII without spaces")
    max_tokens = config.max_tokens
    if max_tokens is None and config.type is ProviderType.ANTHROPIC:
        max_tokens = min(limits.max_output, _USUAL_MAX_TOKENS)
    return Endpoint(
        provider=config.name,
        model=ref.model,
        base_url=_base_url(config, where),
        api_key=key,
        key_source=variable or f"the API key of {where}",
        timeout=config.timeout,
        context_window=config.context_window or limits.context_window,
        max_tokens=max_tokens,
        thinking=limits.thinking,
        images=limits.images if config.images is None else config.images,
        extra_body=config.extra_body,
    )


def _base_url(config: ProviderConfig, where: str) -> str:
    """The address requests are appended to. Takes what users write: OLLAMA_HOST forms, a trailing /v1 or slash."""
    url = config.base_url.strip().rstrip("/") or _BASE_URLS[config.type]
    if config.type is ProviderType.OLLAMA:
        url = _ollama_url(url)
    expected = "an address such as https://host/v1, without user, password, query or fragment"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise ConfigError(where, "base_url", _shown(url), expected) from error
    if not usable or "@" in parts.netloc or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", url):
        raise ConfigError(where, "base_url", _shown(url), expected)
    return url.removesuffix("/v1") if config.type is ProviderType.ANTHROPIC else url


def _ollama_url(host: str) -> str:
    """OLLAMA_HOST as Ollama reads it (host, host:port, :port, URL), without the path of one of its APIs."""
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    name, _, port = netloc.rpartition(":") if re.search(r":\d*$", netloc) else (netloc, "", "")
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name  # noqa: S104 - where it listens, not where we do
    port = port or ("443" if scheme == "https" else "11434")
    url = f"{scheme}://{name}:{port}{slash}{path}"
    return url.removesuffix("/v1").removesuffix("/api").rstrip("/")


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    return re.sub(r"//[^/]*@", "//…@", url)
