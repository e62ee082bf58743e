"""Which model answers, which does chores, and what all of them cost."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import to_thread

from acp_agent.agent.hooks import Hooks, ToolSelection
from acp_agent.config.load import Loaded
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError, ProviderError
from acp_agent.core.events import Event, Notice
from acp_agent.core.messages import Message, ModelDone, Role, TextPart
from acp_agent.core.ports import ModelRequest, Provider
from acp_agent.core.services import Compaction
from acp_agent.core.session_options import Chosen, SessionOptions
from acp_agent.core.types import ToolKind, ToolSpec
from acp_agent.llm.catalog import Catalog
from acp_agent.llm.models import ModelRef
from acp_agent.session.conversation import Conversation, SessionAgent
from acp_agent.session.models import SessionModels
from tests.fakes.scripted_http import Reply, ScriptedHttp
from tests.unit.llm import streams

pytestmark = pytest.mark.anyio

DOWN = Reply.plain(401, b'{"error": {"message": "no such key"}}')


def says(text: str) -> Reply:
    return Reply.stream(streams.openai(text=[text]))


@dataclass
class Session:
    """The models of a session: those named, each behind a server of its own."""

    models: SessionModels
    settings: Settings
    servers: Sequence[ScriptedHttp]
    told: list[str] = field(default_factory=list)
    chosen: Chosen = field(default_factory=Chosen)
    by_model: dict[str, Chosen] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    async def emit(self, event: Event) -> None:
        self.events.append(event)

    def conversation(self) -> Conversation:
        def toolset() -> Any:
            raise AssertionError("no tool is called")

        class Nowhere:
            async def add(self, summary: Any) -> None:
                del summary

        return Conversation(self.settings, self.models, self.emit, str, Nowhere(), toolset, Hooks(ToolSelection()))

    @property
    def asked(self) -> list[int]:
        return [len(server.requests) for server in self.servers]


@asynccontextmanager
async def session(*replies: list[Reply], llm: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Session]:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedHttp(each)) for each in replies]
        names = [f"p{place}" for place in range(len(servers))]
        fields = {
            "model": "p0:m",
            "fallback": [f"{name}:m" for name in names[1:]],
            "providers": [
                {"name": name, "type": "openai", "base_url": f"{server.url}/v1", "context_window": 50_000 - 10_000 * at}
                for at, (name, server) in enumerate(zip(names, servers, strict=True))
            ],
            **(llm or {}),
        }
        settings = Settings.model_validate({"llm": fields, **more})
        catalogs: list[Catalog] = []

        def catalog(llm_settings: Any) -> Catalog:
            if not catalogs:
                catalogs.append(Catalog.of(llm_settings, {}))
            return catalogs[0]

        told: list[str] = []

        async def tell(text: str) -> None:
            told.append(text)

        loaded = Loaded(settings, (), {}, "config.toml")
        made: list[Session] = []
        models = SessionModels(
            catalog, lambda: loaded, str, tell, lambda model: made[0].by_model.get(model, made[0].chosen)
        )
        made.append(Session(models, settings, servers, told))
        yield made[0]
        for each in catalogs:
            await each.aclose()


async def ask(provider: Provider) -> str:
    request = ModelRequest("", (Message(Role.USER, (TextPart("hi"),)),))
    done = [event async for event in provider.stream(request)][-1]
    assert isinstance(done, ModelDone)
    return done.message.text


# ------------------------------------------------------------------------------------------------- chores


async def test_a_sub_agent_without_a_model_of_its_own_has_the_choices_of_the_session():
    async with session([says("a")], [says("b")]) as s:
        s.chosen = Chosen(temperature="creative")
        await ask(await s.models.for_agents())
        await ask(await s.models.for_agents("p1:m"))
        first, second = (json.loads(server.requests[0].body) for server in s.servers)
        assert first["temperature"] == 1.0
        assert "temperature" not in second


async def test_chores_begin_with_the_model_that_stands_in_and_have_its_window():
    async with session([DOWN], [says("hello"), says("a summary")]) as s:
        assert await ask(await s.models.answering()) == "hello"
        chores = await s.models.for_chores()
        assert (chores.name, chores.context_window) == ("p1", 40_000)
        assert await ask(chores) == "a summary"
        assert s.asked == [1, 2]


async def test_chores_go_to_another_model_too_and_the_user_is_told():
    async with session([DOWN], [DOWN], [says("a summary")]) as s:
        chores = await s.models.for_chores()
        assert await ask(chores) == "a summary"
        assert [text.partition(" did not answer ")[0] for text in s.told] == ["p0:m", "p1:m"]
        assert chores.context_window == 30_000


async def test_a_model_named_for_chores_is_the_only_one_asked():
    async with session([DOWN], [says("no")]) as s:
        with pytest.raises(ProviderError, match="no such key"):
            await ask(await s.models.for_chores("p0:other"))
        assert s.asked == [1, 0]


async def test_a_conversation_is_summed_up_while_the_first_model_is_down_and_the_user_hears_of_it_first():
    async with session([DOWN, DOWN], [says("hello"), says("what was done")]) as s:
        conversation = s.conversation()
        await ask(await s.models.answering())
        for text in ("old " * 2000, "new"):
            conversation.history.begin_turn()
            conversation.history.append(Message(Role.USER, (TextPart(text),)))
            conversation.history.append(Message(Role.ASSISTANT, (TextPart("fine"),)))
            conversation.history.end_turn()
        conversation.history.begin_turn()
        assert "Summed up" in await conversation.compactor.compact(Compaction.MANUAL)
        assert isinstance(s.events[0], Notice)
        assert s.events[0].text == "Summing up the conversation, with p1:m …"
        assert s.asked == [1, 2]


# --------------------------------------------------------------------------------------- another model chosen


async def test_a_model_that_was_chosen_answers_with_the_fallback_behind_it_and_its_own_window():
    async with session([says("first")], [DOWN, DOWN], [says("third")], llm={"fallback": ["p2:m"]}) as s:
        assert s.models.window() == 50_000
        assert await ask(await s.models.answering()) == "first"
        s.chosen = Chosen("p1:other")
        assert (s.models.window(), s.conversation().status()[0].split(" of ")[1][:6]) == (40_000, "40,000")
        provider = await s.models.answering()
        assert (provider.name, provider.model) == ("p1", "other")
        assert await ask(provider) == "third"
        assert s.models.window() == 30_000, "of the one that stands in"
        assert s.told[-1].endswith("asking p2:m")


async def test_what_runs_turns_is_built_again_only_when_something_else_was_chosen():
    async with session([says("a")], [says("b")], [says("c")], llm={"fallback": ["p1:m"]}) as s:
        built = [(await s.models.answering()).wrapped for _ in range(2)]  # type: ignore[attr-defined]
        s.chosen = Chosen("p2:m")
        built.append((await s.models.answering()).wrapped)  # type: ignore[attr-defined]
        s.chosen = Chosen("p2:m", temperature="precise")
        built.append((await s.models.answering()).wrapped)  # type: ignore[attr-defined]
        assert [one is other for one, other in pairwise(built)] == [True, False, False]


async def test_level_and_temperature_go_into_the_requests_of_each_model_that_takes_them():
    effort = {"models": [{"id": "p0:", "thinking": True, "effort": "low"}], "fallback": ["p1:m"]}
    async with session([says("a"), DOWN, DOWN], [says("b")], llm=effort) as s:
        s.by_model = {"p0:m": Chosen(thought_level="high"), "p1:m": Chosen(temperature="precise")}
        await ask(await s.models.answering())
        assert json.loads(s.servers[0].requests[0].body)["reasoning_effort"] == "high"
        await ask(await s.models.answering())
        second = json.loads(s.servers[1].requests[0].body)
        assert "reasoning_effort" not in second
        assert second["temperature"] == 0.2
    async with session([says("a")]) as s:
        s.chosen = Chosen(temperature="creative")
        await ask(await s.models.answering())
        assert json.loads(s.servers[0].requests[0].body)["temperature"] == 1.0


async def test_a_chosen_model_that_cannot_be_asked_says_so_and_another_choice_works():
    async with session([says("a")]) as s:
        s.chosen = Chosen("nobody:m")
        with pytest.raises(ConfigError, match="nobody:m: expected a configured provider"):
            await s.models.answering()
        assert s.models.take_tools()
        s.chosen = Chosen()
        assert await ask(await s.models.answering()) == "a"


async def test_without_a_configured_model_one_can_be_chosen():
    async with session([says("a")], llm={"model": None}) as s:
        with pytest.raises(ProviderError, match="No model is chosen"):
            await s.models.answering()
        s.chosen = Chosen("p0:m")
        assert await ask(await s.models.answering()) == "a"


async def test_a_title_is_asked_for_once_without_thought_and_counted():
    thinking = {"models": [{"id": "p0:", "thinking": True, "effort": "high"}]}
    async with session([DOWN, says("A title")], [says("Another")], llm=thinking) as s:
        provider = await s.models.for_titles()
        assert provider
        with pytest.raises(ProviderError):
            await ask(provider)
        assert s.asked == [1, 0], "nor is it asked again"
        assert await ask(provider) == "A title"
        assert json.loads(s.servers[0].requests[1].body)["reasoning_effort"] == "low"
        assert s.models.usage.tokens.output
        other = await s.models.for_titles("p1:m")
        assert other
        assert await ask(other) == "Another"


async def test_a_script_is_not_asked_for_titles():
    scripted = {"model": "s:hello", "fallback": [], "providers": [{"name": "s", "type": "scripted"}]}
    async with session(llm=scripted) as s:
        assert await s.models.for_titles() is None


# ----------------------------------------------------------------------------------------------- the cost


def priced(*names: str) -> dict[str, Any]:
    return {"models": [{"id": f"{name}:", "price": {"input": 1_000, "output": 0, "cache_read": 0}} for name in names]}


async def test_each_call_costs_what_its_own_model_takes_chores_included():
    llm = {"models": [{"id": "p0:m", "price": {"input": 1_000, "output": 0, "cache_read": 0}}]}
    llm["models"].append({"id": "p0:cheap", "price": {"input": 1, "output": 0, "cache_read": 0}})
    async with session([says("a"), says("b"), says("c")], llm=llm) as s:
        for provider in (
            await s.models.answering(),
            await s.models.for_chores(),
            await s.models.for_chores("p0:cheap"),
        ):
            await ask(provider)
        [line] = s.models.usage.status()
        usage = s.models.usage.tokens
        each = usage.input // 3
        assert line.startswith(f"Tokens: {usage.input + usage.cache_read:,} read")
        assert line.endswith(f"; ${each * 2001 / 1_000_000:.4f}")


async def test_a_call_whose_price_nobody_knows_makes_the_sum_a_least_one_and_all_such_give_none():
    async with session([says("a")], [says("b")], llm=priced("p0")) as s:
        await ask(await s.models.for_chores("p1:m"))
        assert "$" not in s.models.usage.status()[0]
        await ask(await s.models.answering())
        assert "; at least $" in s.models.usage.status()[0]


async def test_before_any_call_there_is_nothing_to_tell():
    async with session([]) as s:
        assert s.models.usage.status() == ()


# ---------------------------------------------------------------------------------- before the first prompt


async def test_status_knows_the_window_before_the_first_prompt():
    async with session([]) as s:
        assert s.conversation().status()[0].startswith("Context: 0 of 50,000 tokens")
    async with session([], agent={"context_budget_tokens": 20_000}) as s:
        assert s.conversation().status()[0].startswith("Context: 0 of 20,000 tokens")


async def test_without_a_model_nothing_is_said_of_its_window():
    async with session([], llm={"model": None, "fallback": []}) as s:
        assert not any("Context" in line for line in s.conversation().status())


async def test_a_model_is_built_in_a_thread_only_while_that_may_read_files(monkeypatch: pytest.MonkeyPatch):
    threads, run_sync = list[Any](), to_thread.run_sync

    async def noting(call: Any, *args: Any, **options: Any) -> Any:
        threads.append(call)
        return await run_sync(call, *args, **options)

    monkeypatch.setattr(to_thread, "run_sync", noting)
    async with session([]) as s:
        for _ in range(2):
            await s.models._asked([ModelRef("p0", "m")])
    assert len(threads) == 1


async def test_a_model_that_knows_no_tools_is_told_of_none_also_when_it_stands_in():
    tool_less = {"models": [{"id": "p1:", "tools": False}]}
    async with session([DOWN], [says("hello")], llm=tool_less) as s:
        assert s.models.take_tools()
        await ask(await s.models.answering())
        assert not s.models.take_tools()
    async with session([], llm={"models": [{"id": "p0:", "tools": False}]}) as s:
        assert not s.models.take_tools()


async def test_the_prompt_of_a_model_that_knows_no_tools_has_no_rules_for_calls():
    spec = ToolSpec("read", "", {}, ToolKind.READ, mutates=False)
    here: Any = SimpleNamespace(
        editor=SimpleNamespace(owns_buffers=False),
        workspace=SimpleNamespace(additional=()),
        active=SessionOptions(),
        transcript=SimpleNamespace(save_soon=None),
    )
    tools: Any = SimpleNamespace(specs=lambda: [spec])

    async def notes() -> str:
        return ""

    for known, listed in (({}, True), ({"models": [{"id": "p0:", "tools": False}]}, False)):
        async with session([], llm=known) as s:
            loop = SessionAgent(here, "/project", s.models, tools, s.conversation(), s.emit, notes)
            assert ("Call tools:" in (await loop.agent()).system_prompt) == listed
