"""docs/models.md: each of its examples is a configuration that works, tried against a server on this machine."""

import re
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from acp_agent.config.llm_settings import LlmSettings, OpenAIApi, ProviderSettings, ProviderType
from acp_agent.config.load import Flags, load
from acp_agent.core.messages import Message, ModelDone, Role, TextPart
from acp_agent.core.ports import ModelRequest
from acp_agent.llm.catalog import Catalog, parse_model
from acp_agent.llm.models import load_table
from acp_agent.llm.retry import FallbackProvider
from tests.fakes.scripted_http import Reply, Request, ScriptedHttp
from tests.unit.llm import streams
from tests.unit.llm.responses_streams import responses

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
ASK = ModelRequest("Be brief.", (Message(Role.USER, (TextPart("hi"),)),))
CARD = b'{"capabilities": ["completion", "tools"], "model_info": {"a.context_length": 40960}}'


TEXT = PAGE.read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
EACH = pytest.mark.parametrize("example", EXAMPLES, ids=[re.findall(r'"(.*?)"', text)[0] for text in EXAMPLES])
NAMED = re.findall(r"\b([A-Z]+_(?:API_)?(?:KEY|TOKEN))\b", TEXT)
ENVIRON = {name: f"fake-value-of-{name}" for name in NAMED}


def loaded(example: str, folder: Path) -> LlmSettings:
    """The settings of an example, with every variable the page names set."""
    file = folder / "config.toml"
    file.write_text(example)
    found = load(Flags(), {"ACP_AGENT_CONFIG": str(file), **ENVIRON})
    assert found.problems == ()
    assert found.settings.llm.model
    return found.settings.llm


def replies(provider: ProviderSettings, *, at_vendor: bool) -> Sequence[Reply]:
    """What a server of this type answers: on Ollama, first what its model can."""
    match provider.type:
        case ProviderType.ANTHROPIC:
            return [Reply.stream(streams.anthropic(text=["ok"]))]
        case ProviderType.OPENAI if at_vendor:
            return [Reply.stream(responses(text=["ok"]))]
        case ProviderType.OPENAI:
            return [Reply.stream(streams.openai(text=["ok"]))]
        case _:
            return [Reply.plain(200, CARD), Reply.stream(streams.ollama(text=["ok"]))]


def moved(llm: LlmSettings, name: str, url: str) -> LlmSettings:
    """The same settings with one provider at another address; OpenAI's keeps the API it has at its own."""

    def there(provider: ProviderSettings) -> ProviderSettings:
        api = OpenAIApi.RESPONSES if own_openai(provider) else provider.api
        return provider.model_copy(update={"base_url": url, "api": api}) if provider.name == name else provider

    return llm.model_copy(update={"providers": tuple(map(there, llm.providers))})


def own_openai(provider: ProviderSettings) -> bool:
    return provider.type is ProviderType.OPENAI and provider.base_url is None


async def ask(llm: LlmSettings, *names: str | None) -> str:
    catalog = Catalog.of(llm, ENVIRON)
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    try:
        chain = FallbackProvider(catalog.chain([parse_model(name) for name in names if name]), tell)
        with anyio.fail_after(10):
            *_, done = [event async for event in chain.stream(ASK)]
    finally:
        await catalog.aclose()
    assert isinstance(done, ModelDone)
    assert told == []
    return done.message.text


@EACH
async def test_every_example_loads_and_its_model_answers(example: str, tmp_path: Path) -> None:
    llm = loaded(example, tmp_path)
    for name in (llm.model, *llm.fallback):
        assert name is not None
        provider = next(each for each in llm.providers if each.name == name.partition(":")[0])
        async with ScriptedHttp(replies(provider, at_vendor=own_openai(provider))) as server:
            assert await ask(moved(llm, provider.name, server.url), name) == "ok"
            last = server.requests[-1]
        assert_said(provider, name, last)


def assert_said(provider: ProviderSettings, name: str, request: Request) -> None:
    """What the example promises is in the request."""
    body = request.body.decode()
    assert f'"model":"{name.partition(":")[2]}"' in body
    for header in provider.request_headers(ENVIRON).items():
        assert (header[0].lower(), header[1]) in request.headers.items()
    if provider.effort:
        assert f'"effort":"{provider.effort.value}"' in body
    if provider.keep_alive:
        assert f'"keep_alive":"{provider.keep_alive}"' in body
    for field in provider.extra_body or {}:
        assert f'"{field}":' in body
    if provider.type is ProviderType.OLLAMA and provider.context_window:
        assert f'"num_ctx":{provider.context_window}' in body


@EACH
async def test_every_embedding_model_places_a_text(example: str, tmp_path: Path) -> None:
    llm = loaded(example, tmp_path)
    if llm.embedding_model is None:
        return
    async with ScriptedHttp([Reply.plain(200, b'{"embeddings": [[3, 4]]}')]) as server:
        reference = parse_model(llm.embedding_model)
        catalog = Catalog.of(moved(llm, reference.provider, server.url), ENVIRON)
        assert await catalog.embedder(reference).embed(["note"]) == ((0.6, 0.8),)
        await catalog.aclose()


def test_the_page_has_an_example_for_each_kind_of_server() -> None:
    assert len(EXAMPLES) >= 10
    for word in ("anthropic", "openai", "ollama", "llamacpp", "vllm", "lmstudio", "openrouter", "fallback", "price"):
        assert any(word in example for example in EXAMPLES), word


def test_the_models_the_page_names_are_known() -> None:
    names = re.findall(r"(?:anthropic|openai):((?:claude|gpt)[\w.-]+\w)", TEXT)
    assert names
    assert all(map(load_table().known, names))
