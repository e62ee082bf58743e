"""Providers that need no configuration file: those of each vendor's usual variables, and the scripted one."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

from acp_agent.config.layers import PROVIDERS, Layer, Reader
from acp_agent.config.llm_settings import ProviderSettings, ProviderType
from acp_agent.shape import ValidationError

_FALLBACK = "llm.fallback"
_AVAILABLE = "acp.available_models"
_ONE_MODEL = ("llm.model", "llm.embedding_model")
SCRIPTED = ProviderSettings(name="scripted", type=ProviderType.SCRIPTED)


class Vendor(NamedTuple):
    """The environment variables that a vendor's own tools read for the address and the key."""

    address: str
    key: str | None = None


VENDORS: Mapping[ProviderType, Vendor] = {
    ProviderType.ANTHROPIC: Vendor("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    ProviderType.OPENAI: Vendor("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ProviderType.OLLAMA: Vendor("OLLAMA_HOST"),
}


def add_vendors(reader: Reader, layer: Layer, environ: Mapping[str, str], stored: Collection[str] = ()) -> None:
    """Complete the configured providers with their vendors' variables, and add the vendors' own providers.

    A vendor's provider is added if its variables are set, if its key is `stored` by `acp-agent login`, or if a model
    names it: a request to that model then reports the missing key and how to log in. It is not added if a configured
    provider has its name. Each provider gets its own origin, `llm.providers.NAME`.
    """
    named: dict[str, str] = {}
    for key in (*_ONE_MODEL, _FALLBACK, _AVAILABLE):
        value = layer.values.get(key) or ()
        for model in (value,) if isinstance(value, str) else cast("tuple[str, ...]", value):
            named.setdefault(model.partition(":")[0], layer.origins[key])
    usual = {kind: _usual(reader, kind, environ, stored, named.get(kind.value)) for kind in VENDORS}
    providers: dict[str, ProviderSettings] = {}
    origin = layer.origins.get(PROVIDERS, "")
    for provider in layer.providers():
        if provider.name in providers:
            reader.report(origin, PROVIDERS, provider.name, "every provider to have a name of its own")
            continue
        vendor = VENDORS.get(provider.type)
        if vendor and not provider.base_url and not provider.api_key_env:  # a key is for one address
            found = usual[provider.type]
            address = found[0].base_url if found else None
            provider = provider.model_copy(update={"base_url": address, "api_key_env": vendor.key})  # noqa: PLW2901
        providers[provider.name] = provider
        layer.origins[f"{PROVIDERS}.{provider.name}"] = origin
    for provider, variables in (*filter(None, usual.values()), (SCRIPTED, "default")):
        if provider.name not in providers:
            providers[provider.name] = provider
            layer.origins[f"{PROVIDERS}.{provider.name}"] = variables
    layer.values[PROVIDERS] = tuple(providers.values())


def _usual(
    reader: Reader, kind: ProviderType, environ: Mapping[str, str], stored: Collection[str], named: str | None
) -> tuple[ProviderSettings, str] | None:
    """Return a vendor's provider and its origin, or None if nothing calls for it or its address is unusable.

    named   the origin of a setting that names a model of this vendor, or None
    """
    vendor = VENDORS[kind]
    origins = [name for name in (vendor.address, vendor.key) if name and environ.get(name)]
    if kind.value in stored:
        origins.append("acp-agent login")
    if not origins and named is not None:
        origins.append(named)
    if not origins:
        return None
    address = environ.get(vendor.address) or None
    if address and kind is ProviderType.OLLAMA and "://" not in address:
        # Ollama's own tools accept `host`, `:port` and `host:port`.
        address = f"http://127.0.0.1{address}" if address.startswith(":") else f"http://{address}"
    try:
        provider = ProviderSettings(name=kind.value, type=kind, base_url=address, api_key_env=vendor.key)
    except ValidationError:
        reader.report("environment", vendor.address, address, "an http:// or https:// address without password")
        return None
    return provider, ", ".join(origins)


def check_models(reader: Reader, layer: Layer) -> None:
    """Report the models of unknown providers, and drop them except those in `acp.available_models`.

    If `llm.model` is not set, the first of `acp.available_models` becomes it unless its provider is unknown. Call this
    after `add_vendors`.
    """
    available = cast("tuple[str, ...]", layer.values.get(_AVAILABLE, ()))
    is_unset = "llm.model" not in layer.values
    names = {provider.name for provider in layer.providers()}

    def unknown(key: str, model: str) -> bool:
        provider = model.partition(":")[0]
        if provider in names:
            return False
        # A vendor with a bad address is not among the names.
        usable = ", ".join(sorted(names.union(VENDORS) - {provider}))
        expected = f"a provider before the colon: {usable}, or one of your own under [[llm.providers]]"
        reader.report(layer.origins[key], key, model, expected)
        return True

    for key in _ONE_MODEL:
        model = layer.values.get(key)
        if isinstance(model, str) and unknown(key, model):
            del layer.values[key], layer.origins[key]
    unusable = {model for model in available if unknown(_AVAILABLE, model)}
    if is_unset and available and available[0] not in unusable:
        layer.put("llm.model", available[0], layer.origins[_AVAILABLE])
    models = cast("tuple[str, ...]", layer.values.get(_FALLBACK, ()))
    known = tuple(model for model in models if not unknown(_FALLBACK, model))
    if known != models:
        layer.values[_FALLBACK] = known


def model_advice(providers: Sequence[ProviderSettings], file: str) -> str:
    """Return advice in Markdown on how to choose a model, one step per line.

    The agent never chooses a model by itself, since an answer may cost money.
    """
    ready = [provider.name for provider in providers if provider.type is not ProviderType.SCRIPTED]
    if ready:
        return (
            "No model is chosen. `/model` lists the models, and `/model NAME` chooses one.\n\n"
            f'For all sessions, set `ACP_AGENT_MODEL={ready[0]}:MODEL`, or `model = "{ready[0]}:MODEL"` under `[llm]` '
            f"in `{file}`. Configured providers: {', '.join(ready)}."
        )
    return (
        "No model is configured.\n\n"
        "1. Store a key with `acp-agent login`, or set `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `OPENAI_BASE_URL` (any "
        "compatible server) or `OLLAMA_HOST`.\n"
        f"2. Choose a model with `ACP_AGENT_MODEL=PROVIDER:MODEL`, or write it into `{file}` (`acp-agent config init` "
        "starts it)."
    )
