"""The list of models that a provider's server offers.

Sources: platform.claude.com "List Models"; developers.openai.com "List models", and what OpenRouter and vLLM add to
it; ollama/ollama docs/api.md "List Local Models", "Show Model Information".
"""

import math
import re
from collections.abc import Iterator
from typing import Final, assert_never
from urllib.parse import quote

from acp_agent.config.llm_settings import Effort, ProviderType
from acp_agent.core.errors import ProviderError, ProviderErrorKind
from acp_agent.core.types import Json, JsonObject
from acp_agent.llm.endpoint import ModelEndpoint, as_count, as_list, as_object, as_text
from acp_agent.llm.exchange import anthropic_headers, ask_json, bearer_header
from acp_agent.llm.models import Price
from acp_agent.llm.ollama import read_card
from acp_agent.llm.provider_config import ModelInfo, ProviderConfig, endpoint_of
from acp_agent.net.client import HttpClient
from acp_agent.output.markdown_images import defused
from acp_agent.output.sanitize import sanitize

_PATIENCE: Final = 15.0
"""The seconds for one page."""
_LIMIT: Final = 8 * 1024 * 1024
"""The largest page in bytes. The longest known page is OpenRouter's, about 1 MB."""
_MOST_PAGES: Final = 10
_MOST: Final = 2000
_WINDOWS: Final = ("context_length", "max_model_len", "max_context_length")
_PRICES: Final = {
    "input": "prompt",
    "output": "completion",
    "cache_read": "input_cache_read",
    "cache_write": "input_cache_write",
}
_LONGEST_NAME: Final = 300  # characters
_LONGEST_TITLE: Final = 120  # characters
_SCANNED: Final = 1000  # characters of a server's title that are read
# OpenAI lists all its models. Those that cannot hold a conversation are left out.
_NO_CHAT: Final = re.compile(
    r"embedding|whisper|tts|dall-e|image|moderation|realtime|audio|transcribe|translate|sora|search|live|voice"
    r"|^(babbage|davinci)|instruct|computer-use|deep-research"
)


async def list_models(config: ProviderConfig, http: HttpClient) -> tuple[ModelInfo, ...]:
    """Return the models of a provider, at most `_MOST`. Raises ConfigError, ProviderError.

    A `scripted` provider has none.
    """
    if config.type is ProviderType.SCRIPTED:
        return ()
    endpoint = endpoint_of(config, "")
    try:
        match config.type:
            case ProviderType.ANTHROPIC:
                found = await _anthropic(endpoint, http)
            case ProviderType.OPENAI:
                found = await _openai(endpoint, http)
                if config.at_vendor:
                    found = [info for info in found if not _NO_CHAT.search(info.model)]
            case ProviderType.OLLAMA:
                found = await _ollama(endpoint, http)
            case _:
                assert_never(config.type)
    except ProviderError as error:
        if error.kind is not ProviderErrorKind.NOT_FOUND:
            raise
        message = f"{config.name} has no list of models at {endpoint.base_url}: check base_url"
        raise ProviderError(message, kind=error.kind, status=error.status) from error
    return tuple(found[:_MOST])


async def describe_ollama_model(config: ProviderConfig, http: HttpClient, info: ModelInfo) -> ModelInfo:
    """Return a model of Ollama with the sizes and abilities that its list leaves out. Raises as `list_models`."""
    endpoint = endpoint_of(config, info.model)
    body: JsonObject = {"model": info.model}
    shown = await ask_json(http, endpoint, "/api/show", bearer_header(endpoint), body, patience=_PATIENCE, limit=_LIMIT)
    card = read_card(shown)
    return ModelInfo(
        info.provider,
        info.model,
        info.title,
        context_window=card.context_length,
        images=card.images,
        tools=card.tools,
        thinking=card.thinking,
    )


async def _anthropic(endpoint: ModelEndpoint, http: HttpClient) -> list[ModelInfo]:
    headers = anthropic_headers(endpoint)
    found: list[ModelInfo] = []
    path = "/v1/models?limit=1000"
    for _ in range(_MOST_PAGES):
        page = await ask_json(http, endpoint, path, headers, patience=_PATIENCE, limit=_LIMIT)
        found += [
            ModelInfo(
                endpoint.provider,
                name,
                _title(entry.get("display_name"), name),
                context_window=as_count(entry.get("max_input_tokens")) or None,
                max_output=as_count(entry.get("max_tokens")) or None,
                images=_supported(entry, "image_input"),
                thinking=_supported(entry, "thinking", "types", "adaptive"),
                efforts=tuple(effort for effort in Effort if _supported(entry, "effort", effort.value)),
            )
            for name, entry in _named(page.get("data"), "id")
            if entry.get("lifecycle") != "retired"
        ]
        last = as_text(page.get("last_id"))
        if page.get("has_more") is not True or not last:
            break
        path = f"/v1/models?limit=1000&after_id={quote(last, safe='')}"
    return found


def _supported(entry: JsonObject, *path: str) -> bool | None:
    """Return whether an Anthropic model has a capability, or None if its entry does not say."""
    node: Json = entry.get("capabilities")
    for step in path:
        node = as_object(node).get(step)
    said = as_object(node).get("supported")
    return said if isinstance(said, bool) else None


async def _openai(endpoint: ModelEndpoint, http: HttpClient) -> list[ModelInfo]:
    page = await ask_json(http, endpoint, "/models", bearer_header(endpoint), patience=_PATIENCE, limit=_LIMIT)
    return [
        ModelInfo(
            endpoint.provider,
            name,
            _title(entry.get("name"), name),
            # OpenRouter and others | vLLM | Mistral
            context_window=next(filter(None, (as_count(entry.get(key)) for key in _WINDOWS)), None),
            max_output=as_count(as_object(entry.get("top_provider")).get("max_completion_tokens")) or None,
            images=_listed(as_object(entry.get("architecture")).get("input_modalities"), "image"),
            tools=_listed(entry.get("supported_parameters"), "tools"),
            thinking=_listed(entry.get("supported_parameters"), "reasoning"),
            price=_router_price(as_object(entry.get("pricing"))),
        )
        # newest first if the server gives dates: OpenAI's list has no order
        for name, entry in sorted(_named(page.get("data"), "id"), key=lambda named: -as_count(named[1].get("created")))
    ]


def _listed(value: Json, word: str) -> bool | None:
    return word in value if isinstance(value, list) else None


def _router_price(pricing: JsonObject) -> Price | None:
    """Return OpenRouter's prices. They are sent as strings in US dollars a token; -1 means that they vary by call."""
    prices = {ours: _million(pricing.get(theirs)) for ours, theirs in _PRICES.items()}
    if prices["input"] is None or prices["output"] is None:
        return None
    return Price.model_validate(prices)


def _million(value: Json) -> float | None:
    try:
        price = float(as_text(value)) * 1e6
    except ValueError:
        return None
    return round(price, 6) if math.isfinite(price) and price >= 0 else None


async def _ollama(endpoint: ModelEndpoint, http: HttpClient) -> list[ModelInfo]:
    page = await ask_json(http, endpoint, "/api/tags", bearer_header(endpoint), patience=_PATIENCE, limit=_LIMIT)
    return [
        ModelInfo(
            endpoint.provider,
            name,
            defused(name),
            images=_listed(entry.get("capabilities"), "vision"),  # newer servers give it here, older ones in /api/show
            tools=_listed(entry.get("capabilities"), "tools"),
            thinking=_listed(entry.get("capabilities"), "thinking"),
        )
        for name, entry in _named(page.get("models"), "name")
        if _listed(entry.get("capabilities"), "completion") is not False
    ]


def _title(said: Json, name: str) -> str:
    """Return a server's title for a model, or its id, in one line. Images are escaped: an editor might fetch them."""
    words = sanitize(as_text(said)[:_SCANNED], terminal=False).split()
    return defused(" ".join(words)[:_LONGEST_TITLE] or name)


def _named(entries: Json, key: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the entries that have a name fit to be shown and sent back."""
    for entry in map(as_object, as_list(entries)):
        name = as_text(entry.get(key))
        if 0 < len(name) <= _LONGEST_NAME and name.isprintable() and " " not in name:
            yield name, entry
