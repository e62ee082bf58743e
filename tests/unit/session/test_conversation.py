"""A session's conversation: its agent, what is forgotten with it, and the selection of tools that it makes."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.agent.aids.selection import INDISPENSABLE, AidedToolSelection
from acp_agent.agent.hooks import Hooks, ToolSelection
from acp_agent.agent.turn import Limits
from acp_agent.config.settings import Settings
from acp_agent.core.errors import ConfigError, LoginRequired, MissingKey
from acp_agent.core.events import Event, Notice
from acp_agent.core.messages import Message, Role, TextPart
from acp_agent.core.ports import ModelRequest
from acp_agent.core.session_options import Mode
from acp_agent.core.types import ToolSpec
from acp_agent.session.conversation import Conversation, DefinedAgent, SessionAgent, tool_selection
from tests.fakes.fake_toolset import FakeToolset, spec
from tests.fakes.scripted_provider import ScriptedProvider, Step, say

pytestmark = pytest.mark.anyio
OFF = Settings()


def settings(**tables: Any) -> Settings:
    return Settings.model_validate(tables)


class Models:
    """The models of a session: one, or the error for want of it."""

    def __init__(self, *, window: int = 0) -> None:
        self.provider = ScriptedProvider([], name="a", model="m")
        self.chores: list[str | None] = []
        self.size = window
        self.missing: Exception | None = None
        self.takes_tools = True

    def window(self) -> int:
        return self.size

    async def for_chores(self, name: str | None) -> ScriptedProvider:
        self.chores.append(name)
        return self.provider

    async def answering(self) -> ScriptedProvider:
        if self.missing is not None:
            raise self.missing
        return self.provider

    def take_tools(self, _answers: object) -> bool:
        return self.takes_tools


def test_the_limits_of_a_turn_are_those_of_the_configuration():
    agent = {
        "max_tool_iterations": 7,
        "context_budget_tokens": 50_000,
        "max_parallel_tools": 3,
        "max_tool_calls_per_answer": 5,
    }
    limits = Made(settings(agent=agent)).conversation.limits
    assert limits == Limits(7, 50_000, max_parallel_tools=3, max_calls=5)


class Made:
    """A conversation, and what its user is shown."""

    def __init__(self, chosen: Settings = OFF, *, window: int = 0, offer: Any = None) -> None:
        self.events: list[Event] = []
        self.models: Any = Models(window=window)
        self.toolset: Any = FakeToolset({"read": lambda _: ""})
        hooks = Hooks() if offer is None else Hooks(selection=offer)
        summaries: Any = None
        self.conversation = Conversation(
            chosen, self.models, self.emit, str, summaries, lambda: self.toolset, hooks, None
        )

    async def emit(self, event: Event) -> None:
        self.events.append(event)

    def prepared(self, provider: Any, prompt: str = "p", specs: Sequence[ToolSpec] | None = None) -> Any:
        return self.conversation.prepare(
            provider, prompt, self.toolset, self.emit, specs, began=lambda: None, session_ended=lambda: False
        )


def said(text: str) -> Message:
    return Message(Role.USER, (TextPart(text),))


def test_the_agent_is_made_once_and_asks_another_model_from_the_next_turn_on():
    made = Made()
    assert made.conversation._model() == "no model"
    first, second = (ScriptedProvider([], name="p", model=name) for name in ("one", "two"))
    agent = made.prepared(first)
    assert made.conversation.agent is agent
    assert made.conversation._model() == "p:one"
    assert made.prepared(second, "other", (spec("grep"),)) is agent
    assert (agent.provider, agent.system_prompt) == (second, "other")
    assert [each.name for each in agent.take_specs()] == ["grep"]
    assert [each.name for each in agent.take_specs()] == ["read"]
    assert made.conversation._model() == "p:two"


class Noting(ToolSelection):
    """A selection that notes when it is cleared."""

    cleared = 0

    def clear(self) -> None:
        self.cleared += 1

    def status(self) -> Sequence[str]:
        return ("Selection: all",)


async def test_what_is_forgotten_takes_all_that_was_derived_from_it_along():
    noting = Noting()
    made = Made(settings(tools={"phases": {"enabled": True}}), window=1000, offer=noting)
    conversation = made.conversation
    conversation.history.append(said("one"))
    conversation.compactor._count = 3
    told = list[str]()
    conversation._reflection.clear = lambda: told.append("reflection")  # type: ignore[method-assign]
    assert conversation._phases is not None
    conversation._phases.clear = lambda: told.append("phases")  # type: ignore[method-assign]
    conversation.clear()
    assert not conversation.history.messages()
    assert conversation.compactor._count == 0
    assert noting.cleared == 1
    assert told == ["reflection", "phases"]
    without = Made().conversation
    assert without._phases is None
    without.clear()


def test_the_status_tells_of_the_window_only_where_its_size_is_known():
    known, unknown = (Made(window=size, offer=Noting()).conversation for size in (1000, 0))
    assert unknown.status() == ("Selection: all", *unknown._reflection.status())
    assert known.status() == (*known.compactor.status(), *unknown.status())
    assert known.compactor.status()


async def test_the_user_hears_which_model_sums_up():
    made = Made(settings(agent={"compress_provider": "b:small"}))
    assert await made.conversation._summarizer(made.emit) is made.models.provider
    assert made.models.chores == ["b:small"]
    (told,) = made.events
    assert isinstance(told, Notice)
    assert told.text == "Summing up the conversation, with a:m …"


# ------------------------------------------------------------------------------------- its agent


class Session:
    """A session in a folder with another one, whose editor may offer a login."""

    def __init__(self, *, login: bool) -> None:
        self.editor = SimpleNamespace(offers_login=login, owns_buffers=False)
        self.workspace = SimpleNamespace(additional=("/more",))
        self.active = SimpleNamespace(mode=Mode.ASK)
        self.notes = "a note of the project"
        self.saved = 0
        self.transcript = SimpleNamespace(save_soon=self._save_soon)
        self.turns = SimpleNamespace(session_ended=False)

    def _save_soon(self) -> None:
        self.saved += 1


def agent_of(
    made: Made, *, login: bool = False, defined: DefinedAgent | None = None, session: Any = None
) -> SessionAgent:
    session = session or Session(login=login)

    async def notes() -> str:
        return session.notes

    return SessionAgent(
        session, "/work", made.models, made.toolset, made.conversation, made.emit, notes, lambda: defined
    )


async def test_the_prompt_of_the_agent_names_the_folders_the_tools_and_the_notes():
    made = Made()
    agent = await agent_of(made).agent()
    for words in ("/work", "/more", "read", "a note of the project"):
        assert words in agent.system_prompt
    assert [each.name for each in agent.take_specs()] == ["read"]
    made.models.takes_tools = False
    bare = await agent_of(made).agent()
    assert bare is agent
    assert len(bare.system_prompt) > 0
    assert [each.name for each in bare.take_specs()] == ["read"]


async def test_the_prompt_of_the_agent_is_the_same_object_until_what_it_is_made_of_changes():
    made, session = Made(), Session(login=False)
    part = agent_of(made, session=session)
    first = (await part.agent()).system_prompt
    assert (await part.agent()).system_prompt is first
    session.active.mode = Mode.CODE
    assert "Mode: code" in (await part.agent()).system_prompt
    session.workspace.additional = ("/other",)
    assert "/other" in (await part.agent()).system_prompt
    session.editor.owns_buffers = True
    assert "editor" in (await part.agent()).system_prompt
    session.notes = "another note"
    assert "another note" in (await part.agent()).system_prompt
    made.models.takes_tools = False
    assert "Answer without tools" in (second := (await part.agent()).system_prompt)
    assert (await part.agent()).system_prompt is second


async def test_a_prompt_is_stored_soon_since_the_model_may_be_silent_for_long():
    made, session, saved = Made(), Session(login=False), list[int]()

    def answer(_: ModelRequest) -> Step:
        saved.append(session.saved)
        return say("Hello.")

    made.models.provider = ScriptedProvider([answer])
    await (await agent_of(made, session=session).agent()).run(said("hello"))
    assert saved == [1]


async def test_for_want_of_a_key_the_user_logs_in_where_the_editor_can():
    made = Made()
    made.models.missing = MissingKey("anthropic", "api_key", "nothing", "a key")
    with pytest.raises(LoginRequired, match="a key"):
        await agent_of(made, login=True).agent()
    with pytest.raises(MissingKey):
        await agent_of(made).agent()
    made.models.missing = ConfigError("config.toml", "llm.model", "nothing", "a model")
    with pytest.raises(ConfigError, match="a model"):
        await agent_of(made, login=True).agent()


async def test_under_another_definition_its_prompt_and_its_model_hold():
    other = ScriptedProvider([], name="b", model="n")
    for own, expected in ((other, "b:n"), (None, "a:m")):
        made, seen = Made(), list[Sequence[ToolSpec]]()

        async def provider(own: Any = own) -> Any:
            return own

        async def prompt(tools: Sequence[ToolSpec], seen: Any = seen) -> str:
            seen.append(tools)
            return "you are scout"

        agent = await agent_of(made, defined=DefinedAgent(provider, prompt)).agent()
        assert agent.system_prompt == "you are scout"
        assert made.conversation._model() == expected
        assert [[each.name for each in tools] for tools in seen] == [["read"]]
        made.models.takes_tools = False
        await agent_of(made, defined=DefinedAgent(provider, prompt)).agent()
        assert seen[1] == ()


# ---------------------------------------------------------------------------- the selection of tools


class Embedder:
    """Compares nothing, and notes what it is given."""

    model = "e"

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.texts += texts
        return [[1.0, float(number)] for number in range(len(texts))]


def selection(embedder: Any = None, **tables: Any) -> Any:
    warned: Any = len
    return tool_selection(settings(**tables), embedder, lambda: True, warned, lambda text: text.replace("hunter2", "*"))


async def test_each_part_of_the_selection_is_made_only_where_it_is_switched_on():
    assert type(selection()) is ToolSelection
    tafc = selection(tools={"tafc": {"enabled": True, "complexity_threshold": 0.4}})
    assert isinstance(tafc, AidedToolSelection)
    assert (tafc._filter, tafc._dependencies) == (None, None)
    assert tafc._tafc is not None
    assert tafc._tafc.threshold == 0.4
    chosen = {"enabled": True, "top_k": 7, "min_description_words": 5, "always_on": ["grep"]}
    filtered = selection(agent={"tool_filter": chosen})
    assert (filtered._tafc, filtered._dependencies) == (None, None)
    assert (filtered._filter._top_k, filtered._filter._min_words) == (7, 5)
    assert filtered._filter.always_on == INDISPENSABLE | {"grep"}
    rules = {"edit": {"requires": ["read"], "prefers": ["grep"]}}
    needs = {"enabled": True, "boost_per_dep": 0.1, "max_total_boost": 0.3, "rules": rules}
    needing = selection(tools={"dependencies": needs})
    assert (needing._tafc, needing._filter) == (None, None)
    made = needing._dependencies
    assert (made._boost, made._most_boost, made._always_on) == (0.1, 0.3, INDISPENSABLE)
    assert made._joining() is True
    both = selection(tools={"dependencies": needs}, agent={"tool_filter": chosen})
    assert both._dependencies._always_on == INDISPENSABLE | {"grep"}


async def test_prompts_are_compared_without_their_secrets():
    embedder = Embedder()
    chosen = {"enabled": True, "top_k": 1, "always_on": []}
    made = selection(embedder, agent={"tool_filter": chosen})
    specs = [
        ToolSpec(f"tool_{number}", "does this and that with it", {}, spec("x").kind, mutates=False)
        for number in range(4)
    ]
    await made.begin(said("the key is hunter2"), specs)
    assert embedder.texts[0] == "the key is *"
