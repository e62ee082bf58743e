"""The sub-agents of a session: their definitions, what they share with it, and the hand-over to one of them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.delegation import BUILT_IN
from acp_agent.core.errors import ConfigError, ToolError, ToolErrorCategory
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.core.types import ToolSpec
from acp_agent.extend.sources import SourceFile, SourceKind
from acp_agent.session.subagents import AgentLibrary, OtherAgents, SessionHandoff, SubAgentSession
from tests.fakes.fake_toolset import spec

pytestmark = pytest.mark.anyio

SCOUT = "---\nname: Scout\ndescription: Looks around.\nmode: ask\nmodel: p:small\n---\nLook around."
BUILDER = (
    "---\nname: builder\ndescription: Builds.\nskills: [lint]\n"
    "hooks:\n  pre_tool_use:\n    - command: check\n---\nBuild it."
)


def file_of(name: str, text: str) -> SourceFile:
    return SourceFile(
        SourceKind.AGENTS,
        name,
        f"/u/agents/{name}.md",
        f"~/agents/{name}.md",
        project=False,
        data=text.encode(),
        digest="",
    )


FILES = (file_of("scout", SCOUT), file_of("builder", BUILDER), file_of("broken", "---\nname: [\n---\nx"))


def configured(folder: Path, text: str = "") -> Loaded:
    (folder / "config.toml").write_text(text)
    loaded = load(Flags(config=str(folder / "config.toml")), {}, str(folder))
    assert loaded.problems == ()
    return loaded


# --------------------------------------------------------------------------------- the definitions


def test_a_library_without_files_has_the_built_in_agents():
    library = AgentLibrary(str)
    assert library.offered() is BUILT_IN
    assert (library.status(), library.users(), library.problems, library.hooks) == ((), (), (), {})
    assert {each.name for each in BUILT_IN} <= set(library.by_name())


def test_definitions_of_users_are_read_once_and_forgotten_with_their_files():
    taken: list[tuple[str, ...]] = [()]
    library = AgentLibrary(str, lambda: taken[-1])
    library.read(FILES)
    names = [each.name for each in library.offered()]
    assert set(names) == {*(each.name for each in BUILT_IN), "Scout", "builder"}
    assert sorted(each.name for each in library.users()) == ["Scout", "builder"]
    assert [str(each).partition(",")[0] for each in library.problems] == ["~/agents/broken.md"]
    assert list(library.hooks) == ["builder"]
    (status,) = library.status()
    assert status.startswith("Agents: ")
    assert status.endswith(f"; built in: {', '.join(each.name for each in BUILT_IN)}")
    read = library.by_name()
    library.read(FILES)
    assert library.by_name() is read
    taken.append(("scout",))
    library.read(FILES)
    assert [each.name for each in library.users()] == ["builder"]
    assert any("an agent of the configuration" in str(each) for each in library.problems)
    library.read(())
    assert library.offered() is BUILT_IN
    assert (library.status(), library.problems, library.hooks) == ((), (), {})


# ----------------------------------------------------------------------------------- the hand-over


class Handed:
    """A session that is handed over."""

    def __init__(self) -> None:
        self.options = SessionOptions()
        self.narrowed: list[tuple[Mode, bool]] = []

    def narrow(self, mode: Mode, selection: object) -> None:
        self.narrowed.append((mode, selection is not None))

    def hand_over(self, name: str) -> None:
        self.options.agent = name


def made(loaded: Loaded, missing: str = "") -> tuple[SessionHandoff, Handed, list[str]]:
    session: Any = Handed()
    library, asked = AgentLibrary(str), list[str]()
    library.read(FILES)

    async def model(definition: Any) -> Any:
        asked.append(definition.name)
        if missing:
            raise ConfigError("config.toml", "llm.model", missing, "a model")

    return SessionHandoff(session, library, lambda: ("x",), lambda: loaded, model), session, asked


def test_nothing_is_handed_over_at_first(tmp_path: Path):
    loaded = configured(tmp_path, "[agents]\nenabled = true\n")
    handoff, session, _ = made(loaded)
    assert handoff.settle() is None
    assert (handoff.name, handoff.status()) == ("", ())
    assert session.narrowed == [(Mode.CODE, False)]


async def test_a_session_goes_on_under_a_definition_until_it_is_handed_back(tmp_path: Path):
    handoff, session, asked = made(configured(tmp_path, "[agents]\nenabled = true\n"))
    assert await handoff.to("back") == "Nothing was handed over."
    told = await handoff.to("SCOUT")
    assert told == "The session goes on as `Scout`: Looks around. `/handoff back` ends it."
    assert asked == ["Scout"]
    assert handoff.name == session.options.agent == "Scout"
    assert session.narrowed[-1] == (Mode.ASK, True)
    assert handoff.status() == ("Agent: Scout (`/handoff back` ends it)",)
    definition = handoff.settle()
    assert definition is not None
    assert definition.name == "Scout"
    await handoff.to("builder")
    assert asked == ["Scout"], "it names no model"
    assert session.narrowed[-1] == (Mode.CODE, True)
    assert await handoff.to("back") == "builder hands back: the session goes on as before."
    assert session.narrowed[-1] == (Mode.CODE, False)
    assert handoff.status() == ()


async def test_nothing_changes_without_the_definition_or_its_model(tmp_path: Path):
    loaded = configured(tmp_path, "[agents]\nenabled = true\n")
    handoff, session, _ = made(loaded, missing="p:small")
    for name, category, told in (
        ("nobody", ToolErrorCategory.INVALID_PARAMETERS, "there is no agent nobody"),
        ("n" * 100, ToolErrorCategory.INVALID_PARAMETERS, f"there is no agent {'n' * 80}"),
        ("scout", ToolErrorCategory.PERMANENT_FAILURE, "its model p:small is not configured"),
    ):
        with pytest.raises(ToolError) as caught:
            await handoff.to(name)
        assert caught.value.failure.category is category
        assert told in caught.value.failure.message
        assert (handoff.name, session.narrowed) == ("", [])
    with pytest.raises(ToolError, match=r"Agents: .*Scout"):
        await handoff.to("nobody")
    off, session, _ = made(configured(tmp_path, "[agents]\nenabled = false\n"))
    with pytest.raises(ToolError, match="Agents: none"):
        await off.to("scout")
    session.options.agent = "scout"
    with pytest.raises(ToolError, match="which does not exist any more") as caught:
        off.settle()
    assert caught.value.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert session.narrowed == [], "it does not get its rights back"


# ------------------------------------------------------------------------------ what agents share


class Models:
    """Notes which model is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.takes = True

    async def for_agents(self, name: str = "") -> str:
        self.asked.append(name)
        return "a provider"

    def take_tools(self) -> bool:
        return self.takes


def shared(loaded: Loaded, *, mode: Mode = Mode.CODE) -> tuple[SubAgentSession, Models]:
    models: Any = Models()
    session: Any = SimpleNamespace(
        workspace=SimpleNamespace(additional=("/more",)),
        active=SimpleNamespace(mode=mode),
        editor=SimpleNamespace(owns_buffers=False),
    )

    async def notes(_: Loaded) -> str:
        return "a note of the project"

    unused: dict[str, Any] = dict.fromkeys(
        ("toolset", "limits", "compactor", "servers", "changes", "files", "seen", "learn", "highest_id")
    )
    skills = lambda names: f"skills {' '.join(names)}" if names else ""  # noqa: E731 - as a session's
    return (
        SubAgentSession(
            session, "/work", lambda: loaded, models, notes=notes, skills=skills, redact=str, homes="", **unused
        ),
        models,
    )


async def test_a_definition_has_its_own_model_or_the_cheap_one_of_explorers(tmp_path: Path):
    library = AgentLibrary(str)
    library.read(FILES)
    given, models = shared(configured(tmp_path, "[agents]\nexplore_model = 'ollama:tiny'\n"))
    for name in ("scout", "builder", "explore", "general"):
        await given.provider(library.by_name()[name])
    assert models.asked == ["p:small", "", "ollama:tiny", ""]


async def test_a_prompt_has_the_words_the_skills_and_for_those_who_write_the_notes(tmp_path: Path):
    library = AgentLibrary(str)
    library.read(FILES)
    given, models = shared(configured(tmp_path))
    tools: Sequence[ToolSpec] = (spec("grep"),)
    scout, builder = [await given.prompt(library.by_name()[name], tools) for name in ("scout", "builder")]
    assert "Look around." in scout
    assert "a note of the project" not in scout
    for words in ("Build it.", "skills lint", "a note of the project", "/work", "/more"):
        assert words in builder
    assert "skills" not in scout
    models.takes = False
    assert await given.prompt(library.by_name()["builder"], tools) != builder
    reading, _ = shared(configured(tmp_path), mode=Mode.ASK)
    assert await reading.prompt(library.by_name()["builder"], tools) != builder


def test_the_user_is_told_of_another_agent_that_gets_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.session.subagents.is_contained", lambda *_: True)
    entry = "[[agents.external]]\nname = '{}'\ncommand = 'prog'\ndescription = 'x'\nsandbox = {}\n"
    given, _ = shared(configured(tmp_path, entry.format("within", "true") + entry.format("free", "false")))
    risks = [
        each.risk.removeprefix("prog may read and change this folder by itself, ")
        for each in OtherAgents(given).offered()
    ]
    assert risks == ["in a sandbox", "with no sandbox around it"]


def test_other_agents_are_offered_with_what_their_program_may_do(tmp_path: Path):
    entry = "[[agents.external]]\nname = '{}'\ncommand = 'prog'\ndescription = 'Does it.'\n{}\n"
    text = entry.format("codex", "max_running = 2") + entry.format("off", "enabled = false")
    given, _ = shared(configured(tmp_path, text + "[tools.sandbox]\nmode = 'off'\n"))
    others = OtherAgents(given)
    (offered,) = others.offered()
    assert (offered.name, offered.description, offered.source) == ("codex", "Does it.", "configuration")
    assert offered.identity
    assert offered.risk == "prog may read and change this folder by itself, with no sandbox around it"
    assert others.offered() is others.offered()
    assert others.find("off") is None
    assert others.find("codex") is not None
    definition = others.definitions()["codex"]
    assert (definition.name, definition.max_running, definition.identity) == ("codex", 2, offered.identity)
    assert list(others.definitions()) == ["codex"]
