"""What sessions can choose: from the configuration at once, from the providers' lists when they have come."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from acp_agent.config.llm_settings import LlmSettings
from acp_agent.core.errors import ProviderError, ProviderErrorKind, ToolError
from acp_agent.core.session_options import Levels, SessionOptions
from acp_agent.llm.catalog import Catalog
from acp_agent.llm.models import Price
from acp_agent.llm.provider_config import ModelInfo
from acp_agent.session.model_choices import ModelChoices, ModelLists
from tests.fakes.scripted_http import Reply, ScriptedHttp
from tests.rows import each_row

pytestmark = pytest.mark.anyio

PROVIDERS = (
    {"name": "cloud", "type": "anthropic", "base_url": "http://127.0.0.1:1"},
    {"name": "router", "type": "openai", "base_url": "http://127.0.0.1:1"},
    {"name": "local", "type": "ollama", "base_url": "http://127.0.0.1:1"},
    {"name": "scripted", "type": "scripted"},
)


def info(name: str, **fields: Any) -> ModelInfo:
    provider, _, model = name.partition(":")
    return ModelInfo(provider, model, fields.pop("title", model), **fields)


@dataclass
class Servers:
    """A catalog whose providers list these models; one that is named in `broken` answers with an error."""

    lists: dict[str, Sequence[ModelInfo]] = field(default_factory=dict)
    broken: Callable[[str], bool] = lambda _: False
    asked: list[str] = field(default_factory=list)

    async def models(self, provider: str) -> tuple[ModelInfo, ...]:
        self.asked.append(provider)
        if self.broken(provider):
            raise ProviderError("cannot be reached", kind=ProviderErrorKind.NETWORK)
        return tuple(self.lists.get(provider, ()))

    async def described(self, known: ModelInfo) -> ModelInfo:
        self.asked.append(str(known))
        return info(str(known), thinking=True, tools=True)


class Rig:
    """One configuration; counts how often its sessions were told of new lists. `now` is the time in seconds."""

    def __init__(self, available: Sequence[str] = (), *, fetches: bool = True, **llm: Any) -> None:
        self.told = 0
        self.now = 0.0
        self.lists = ModelLists({}, self._changed, lambda: self.now)
        self.llm = LlmSettings.model_validate({"providers": PROVIDERS, "model": "cloud:claude-opus-4-6", **llm})
        self.choices = ModelChoices(self.llm, available, self.lists.of(self.llm), fetches=fetches)

    def _changed(self) -> None:
        self.told += 1

    def names(self, current: str = "") -> list[str]:
        return [choice.value for choice in self.choices.models(current or self.choices.initial)]


async def test_the_configuration_alone_says_which_models_there_are() -> None:
    entries = [
        {"id": "local:qwen3:8b", "tools": False},
        {"id": "local:", "images": False},
        {"id": "x:y", "tools": True},
    ]
    rig = Rig(fallback=["router:m", "cloud:claude-haiku-5-5"], models=entries)
    assert rig.names() == ["cloud:claude-opus-4-6", "cloud:claude-haiku-5-5", "router:m", "local:qwen3:8b"]
    assert rig.names("cloud:other")[2] == "cloud:other", "what is in force is always shown"
    assert [rig.choices.has(f"router:{name}") for name in ("new", "new one", "", "a\u202eb")] == [
        True,
        False,
        False,
        False,
    ]
    assert rig.choices.thinking("cloud:claude-opus-4-6") == Levels(("off", "low", "medium", "high", "max"), "high")
    assert rig.choices.temperature("router:m") == Levels(("default", "precise", "balanced", "creative"), "default")
    assert rig.choices.temperature("cloud:claude-opus-4-6") is None
    assert rig.choices.thinking("nobody:m") is rig.choices.temperature("nobody:m") is None


async def test_available_models_are_all_there_is_and_nothing_is_fetched() -> None:
    rig = Rig(["local:a", "router:b"], model=None)
    servers = Servers()
    await rig.choices.fetch(servers)
    assert (rig.choices.initial, rig.names(), servers.asked) == ("local:a", ["local:a", "router:b"], [])
    assert [rig.choices.has(name) for name in ("router:b", "router:c")] == [True, False]
    assert Rig(["local:a"]).names() == ["cloud:claude-opus-4-6", "local:a"], "the configured model besides"
    with pytest.raises(ToolError, match=r"no matching model found\. Available: local:a, router:b"):
        rig.choices.choose(SessionOptions(), "router:c")


async def test_lists_are_fetched_once_for_all_sessions_and_everybody_is_told() -> None:
    rig = Rig()
    servers = Servers({"router": [info("router:m", title="Em", context_window=8000, price=Price(input=1, output=2))]})
    await rig.choices.fetch(servers)
    other = ModelChoices(rig.llm, (), rig.lists.of(rig.llm))
    await other.fetch(servers)
    assert (sorted(servers.asked), rig.told) == (["cloud", "local", "router"], 1)
    shown = other.models("")[-1]
    assert (shown.value, shown.title, shown.description) == ("router:m", "Em", "8,000 tokens, $1 in, $2 out a million")


async def test_what_cannot_be_fetched_is_left_out_and_told_nobody() -> None:
    rig = Rig()
    await rig.choices.fetch(Servers(broken=lambda _: True))
    assert (rig.told, rig.names()) == (0, ["cloud:claude-opus-4-6"])
    silent = Servers()
    await Rig(fetches=False).choices.fetch(silent)
    assert silent.asked == []


async def test_a_later_session_asks_again_for_the_lists_that_did_not_arrive() -> None:
    rig = Rig()
    offline = Servers(broken=lambda _: True)
    await rig.choices.fetch(offline)
    rig.now = 59.0
    await rig.choices.fetch(offline)
    assert sorted(offline.asked) == ["cloud", "local", "router"], "no provider is asked again at once"
    rig.now = 60.0
    servers = Servers({"router": [info("router:m")]}, broken=lambda provider: provider == "local")
    await rig.choices.fetch(servers)
    assert (sorted(servers.asked), rig.told) == (["cloud", "local", "router"], 1)
    rig.now = 120.0
    await rig.choices.fetch(servers)
    assert (sorted(servers.asked), rig.told) == (["cloud", "local", "local", "router"], 1)
    assert rig.names()[-1] == "router:m"


async def test_a_fetch_that_is_broken_off_can_be_made_again() -> None:
    class Hanging(Servers):
        async def models(self, provider: str) -> tuple[ModelInfo, ...]:
            scope.cancel()
            await anyio.sleep_forever()
            return ()

    rig = Rig()
    with anyio.CancelScope() as scope:
        await rig.choices.fetch(Hanging())
    await rig.choices.fetch(Servers({"router": [info("router:m")]}))
    assert rig.told == 1


async def test_models_without_tools_are_left_out_and_long_lists_cut_but_all_can_be_found() -> None:
    rig = Rig()
    many = [info(f"router:m{number}", tools=True) for number in range(500)]
    await rig.choices.fetch(Servers({"router": [info("router:mute", tools=False), *many]}))
    assert len(rig.names()) == 201
    assert "router:mute" not in rig.names()
    assert rig.choices.choose(SessionOptions(), "m499") == "router:m499 answers from the next prompt on."
    assert rig.choices.has("router:m499")
    assert not rig.choices.has("router:m500"), "its provider does not list it"


async def test_an_ollama_model_is_looked_at_closer_when_the_user_has_named_it() -> None:
    rig = Rig(model="local:qwen3:8b")
    servers = Servers({"local": [info("local:qwen3:8b"), info("local:other")]})
    assert rig.choices.thinking("local:qwen3:8b") is None
    await rig.choices.fetch(servers)
    assert rig.choices.thinking("local:qwen3:8b") == Levels(("off", "on"), "on")
    assert "local:other" not in servers.asked


async def test_one_provider_is_asked_again_on_request() -> None:
    rig = Rig()
    servers = Servers({"router": [info("router:m"), info("router:x", tools=False)]})
    assert await rig.choices.refresh(servers, "router") == 1
    assert (servers.asked, rig.told) == (["router"], 1)
    with pytest.raises(ProviderError, match="cannot be reached"):
        await rig.choices.refresh(Servers(broken=lambda _: True), "router")
    assert rig.names()[-1] == "router:m", "what was known stays"
    with pytest.raises(ToolError, match="nothing to refresh"):
        await Rig(["router:m"]).choices.refresh(servers, "router")


async def test_a_real_server_fills_the_list() -> None:
    page = b'{"data": [{"id": "old", "created": 1}, {"id": "new", "created": 2}]}'
    async with ScriptedHttp([Reply.plain(200, page)]) as server:
        providers = [{"name": "router", "type": "openai", "base_url": f"{server.url}/v1"}]
        rig = Rig(providers=providers, model="router:old")
        catalog = Catalog.of(rig.llm, {})
        await rig.choices.fetch(catalog)
        await catalog.aclose()
    assert rig.names("router:old") == ["router:old", "router:new"]


# ------------------------------------------------------------------------------------------------ /model


async def found(rig: Rig, text: str) -> list[str]:
    named = [info("cloud:claude-opus-5-5", title="Claude Opus 5.5"), info("cloud:claude-haiku-5-5", title="Haiku")]
    routed = [info("router:claude-opus-5-5"), info("router:gpt")]
    await rig.choices.fetch(Servers({"cloud": named, "router": routed}, broken=lambda provider: provider == "local"))
    return [choice.value for choice in rig.choices.find(text)]


@each_row(
    "text, models",
    [
        ("router:claude-opus-5-5", ["router:claude-opus-5-5"]),
        ("gpt", ["router:gpt"]),
        ("claude-opus-5-5", ["cloud:claude-opus-5-5", "router:claude-opus-5-5"]),
        ("OPUS 5.5", ["cloud:claude-opus-5-5"]),
        ("cloud haiku", ["cloud:claude-haiku-5-5"]),
        ("nothing", []),
        ("", []),
    ],
)
async def test_a_model_is_found_by_its_name_or_by_words_of_it(text: str, models: list[str]) -> None:
    assert await found(Rig(), text) == models


async def test_what_the_user_is_told_of_a_choice() -> None:
    rig, conduct = Rig(), SessionOptions()
    await found(rig, "")
    assert rig.choices.choose(conduct, " gpt ") == "router:gpt answers from the next prompt on."
    assert conduct.model == "router:gpt"
    assert rig.choices.choose(conduct, "gpt") == "router:gpt answers already."
    for text, problem in (
        ("opus", "ambiguous model, candidates: cloud:claude-opus-4-6, cloud:claude-opus-5-5, router:claude-opus-5-5"),
        ("nothing", "no matching model found. Available: cloud:claude-opus-4-6, cloud:claude-opus-5-5,"),
        ("router:typo", "no matching model found. Available: "),
        ("scripted:typo", "no matching model found. Available: "),
    ):
        with pytest.raises(ToolError) as caught:
            rig.choices.choose(conduct, text)
        assert str(caught.value).startswith(problem)
    assert conduct.model == "router:gpt"
    assert rig.choices.choose(conduct, "local:mine") == "local:mine answers from the next prompt on.", "no list, no say"


async def test_the_list_of_models_marks_the_one_in_use() -> None:
    rig = Rig()
    await rig.choices.fetch(Servers({"router": [info("router:m", context_window=8000)]}))
    assert rig.choices.listed(SessionOptions()) == "- **`cloud:claude-opus-4-6`** (in use)\n- `router:m`: 8,000 tokens"
    with pytest.raises(ToolError, match="model switching not configured"):
        Rig(model=None).choices.listed(SessionOptions())
