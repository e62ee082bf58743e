"""What a session says of itself, and what its user may change by a word."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.tool_settings import ToolSettings
from acp_agent.core.errors import StoreUnavailable, ToolErrorCategory, ToolFailure
from acp_agent.core.events import Event, UsageChanged
from acp_agent.core.messages import Role, Usage
from acp_agent.core.secrets import verbatim
from acp_agent.core.session_options import Mode, SessionOptions
from acp_agent.core.types import ToolCall, ToolResult
from acp_agent.extend.sources import ExtensionSources
from acp_agent.gates.limits import Outcome
from acp_agent.session.models import spent
from acp_agent.session.session import SessionWorkspace
from acp_agent.session.slash.commands import ALWAYS, CommandName
from acp_agent.session.slash.handler import CommandDependencies, SlashCommandHandler, _listed, run_memory
from acp_agent.session.subagents import AgentLibrary
from acp_agent.session.toolset.extensions import SessionExtensions, no_looks
from acp_agent.session.toolset.gate_factory import GateMemory
from acp_agent.store.decisions import TrustedFolders
from acp_agent.store.memories import MemoryStore
from tests.fakes.fake_toolset import FakeToolset
from tests.unit.store.databases import opened

pytestmark = pytest.mark.anyio


@dataclass
class Fixed:
    """A session, a conversation and models that are what the desk needs of them."""

    loaded: Loaded
    options: SessionOptions = field(default_factory=SessionOptions)
    active: SessionOptions = field(default_factory=SessionOptions)
    workspace: SessionWorkspace = field(default_factory=lambda: SessionWorkspace("/work"))
    chosen: list[SessionOptions] = field(default_factory=list)
    cleared: int = 0
    servers: tuple[str, ...] = ()

    def options_chosen(self) -> None:
        self.chosen.append(replace(self.options))

    def clear(self) -> None:
        self.cleared += 1

    def redact(self, text: str) -> str:
        return text

    def window(self) -> int:
        return 1000


Configured = Callable[..., tuple[SlashCommandHandler, Fixed, list[Event], GateMemory]]


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    """A desk by a configuration."""

    def made(text: str = "", **more: Any) -> tuple[SlashCommandHandler, Fixed, list[Event], GateMemory]:
        file = tmp_path / "config.toml"
        file.write_text(text)
        fixed: Any = Fixed(load(Flags(config=str(file)), {}, str(tmp_path)))
        events: list[Event] = []

        async def emit(event: Event) -> None:
            events.append(event)

        gates = GateMemory.new(ToolSettings())
        unused: dict[str, Any] = dict.fromkeys(("forget", "refresh_models", "notes", "gates", "restore"))
        unused |= {"agents": None, "handoff": None, "hooks": lambda: None, "look_early": no_looks}
        unused |= {"forget_results": tuple, "models": lambda: None, "more": tuple, "servers": lambda: fixed.servers}
        sources = ExtensionSources("", str(tmp_path), TrustedFolders(str(tmp_path / "trusted.toml"), print))
        unused["extensions"] = SessionExtensions(
            sources, lambda: None, None, fixed.options, str, print, AgentLibrary(str)
        )
        needs = CommandDependencies(**(unused | more))
        desk = SlashCommandHandler(fixed, lambda: fixed.loaded, fixed, fixed, gates, emit, FakeToolset({}), needs)
        return desk, fixed, events, gates

    return made


# --------------------------------------------------------------------------------------- available


def test_commands_that_make_no_sense_are_not_available(configured: Configured):
    desk, fixed, _, _ = configured("[memory]\nenabled = false\n")
    assert desk.available() == ALWAYS | {CommandName.SCHEDULE}
    fixed.servers = ("one (client) ready",)
    assert desk.available() == ALWAYS | {CommandName.MCP, CommandName.SCHEDULE}


@pytest.mark.parametrize(
    "setting",
    ["[tools.policy]\nenabled = true", "[[tools.permissions.bash]]\npattern = 'git *'\naction = 'allow'"],
)
def test_a_policy_or_rules_make_the_policy_worth_asking_about(configured: Configured, setting: str):
    desk, *_ = configured(f"[memory]\nenabled = true\n{setting}\n")
    assert desk.available() == ALWAYS | {CommandName.MEMORY, CommandName.POLICY, CommandName.SCHEDULE}


async def test_skills_that_are_switched_off_are_told_so(configured: Configured):
    files: Any = None
    desk, *_ = configured()
    assert "There are no skills." in str(await desk.run(CommandName.SKILLS, "", files))
    desk, *_ = configured("[skills]\nenabled = false\n")
    assert await desk.run(CommandName.SKILLS, "", files) == "Skills are switched off (`skills.enabled`)."


# -------------------------------------------------------------------------------------- /mode, /model


async def test_a_mode_is_switched_for_the_next_prompt_and_told_when_it_is_another(configured: Configured):
    desk, fixed, *_ = configured()
    assert "`suggest` (Ask first): Asks before it edits files and runs commands ← now" in desk.mode("")
    assert "from the next prompt on" in desk.mode(" Ask ")
    assert "`/mode code` ends" in desk.mode("")
    desk.mode("ask")
    assert "expected one of suggest, auto-edit, full-auto, architect, ask" in desk.mode("nonsense")
    assert [each.mode for each in fixed.chosen] == [Mode.ASK]
    assert fixed.options.chosen == ("mode",)
    assert fixed.active.mode is Mode.CODE


class OneModel:
    """Models of which there is one at first."""

    initial = "fake:first"
    offered = 1

    def listed(self, conduct: SessionOptions) -> str:
        return f"{conduct.model or self.initial} of {self.offered}"

    def choose(self, conduct: SessionOptions, text: str) -> str:
        conduct.model = f"fake:{text}"
        return f"model {text}"

    async def refresh(self, provider: str) -> int:
        assert provider == "fake"
        self.offered = 7
        return 7


async def test_models_are_listed_and_chosen_and_asked_for_again(configured: Configured):
    assert await configured()[0].model("x") == "Model switching is not configured."
    models = cast("Any", OneModel())
    desk, fixed, *_ = configured(models=lambda: models, refresh_models=models.refresh)
    assert (await desk.model("")).startswith("fake:first of 1\n")
    assert fixed.chosen == []
    assert await desk.model("x") == await desk.model("x") == "model x"
    assert [each.model for each in fixed.chosen] == ["fake:x"]
    assert await desk.model("refresh") == "fake offers 7 models.\n\nfake:x of 7"
    assert [each.model for each in fixed.chosen] == ["fake:x", "fake:x"]


def test_lines_are_listed_and_where_there_are_none_that_is_said():
    assert _listed(("one", "two"), "none") == "- one\n- two"
    assert _listed((), "none") == "none"


# ------------------------------------------------------------------------------------- /run, /clear


async def test_what_the_user_ran_and_nothing_came_of_it_says_why(configured: Configured):
    desk, *_ = configured()
    desk._conversation = cast("Any", SimpleNamespace(history=[]))
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "blocked by a rule"))
    desk._toolset = FakeToolset({"bash": lambda call: failed})
    assert await desk._run_command("sudo ls") == "`sudo ls`: blocked by a rule"
    desk._toolset = FakeToolset({"bash": lambda call: ToolResult("", envelope={"exit_code": 3})})
    assert await desk._run_command("false") == "`false` exited with code 3."
    assert ["sudo ls" in each.text for each in desk._conversation.history] == [True, False]
    assert desk._conversation.history[1].role is Role.USER
    desk._toolset = FakeToolset({"bash": lambda call: ToolResult("some words", envelope={"exit_code": 0})})
    assert await desk._run_command("make") == "`make` finished."
    assert "some words" in desk._conversation.history[2].text


async def test_what_was_said_and_counted_is_forgotten_and_what_was_chosen_stays(configured: Configured):
    forgotten = list[str]()

    async def forget() -> None:
        forgotten.append("rows")

    desk, fixed, events, gates = configured(forget=forget, forget_results=lambda: forgotten.append("results"))
    fixed.options.mode = Mode.ARCHITECT
    gates.quota.take(ToolCall("1", "read", {}))
    gates.turn.measured(900, 1000)
    gates.urls.learn("https://example.com/")
    gates.mentioned.learn("kept.py")
    for _ in range(20):
        gates.anomalies.record("bash", Outcome.BROKEN)
    assert "is forgotten" in await desk.clear()
    assert forgotten == ["results", "rows"]
    assert fixed.cleared == 1
    assert gates.quota.use.batches == 0
    assert gates.turn.cost == 0
    assert not gates.urls.knows("https://example.com/")
    assert not gates.mentioned.has("kept.py")
    assert gates.anomalies.alarms == ()
    assert fixed.options.mode is Mode.ARCHITECT
    assert events == [UsageChanged(0, 1000)]


async def test_a_conversation_that_is_still_stored_is_said_to_be(configured: Configured):
    async def forget() -> None:
        raise StoreUnavailable("the disk is full")

    desk, fixed, *_ = configured(forget=forget)
    assert await desk.clear() == "The model has forgotten the conversation, but it is still stored: the disk is full"
    assert fixed.cleared == 1


# -------------------------------------------------------------------------------------------- /cost


def test_tokens_are_told_by_kind_and_an_unknown_price_is_never_a_guess():
    usage = Usage(input=12_000, output=300, cache_read=5_000)
    assert spent(usage, 0.125, complete=True) == (
        "12,000 tokens sent",
        "5,000 tokens read from the cache",
        "300 tokens written by the model",
        "Price: $0.1250",
    )
    assert spent(usage, 0.125, complete=False)[-1] == "Price: at least $0.1250; that of some calls is not known"
    assert spent(usage, None, complete=False)[-1] == "Price: not known for this model"
    assert spent(Usage(), None, complete=True) == ()
    assert spent(Usage(), None, complete=False) == (
        "The model's server does not report how many tokens its answers take.",
    )


# ------------------------------------------------------------------------------------------ /memory


@asynccontextmanager
async def notes(folder: Path) -> AsyncGenerator[MemoryStore]:
    async with opened(folder / "agent.db") as database:
        yield MemoryStore(database, max_notes=10, max_bytes=8192, now=lambda: 0)


async def test_notes_are_listed_found_and_deleted_one_by_one(tmp_path: Path):
    async with notes(tmp_path) as store:
        assert await run_memory("", store, verbatim) == "There are no notes yet."
        await store.save("tabs, not\nspaces")
        await store.save("deploys on Friday")
        listed = await run_memory("", store, verbatim)
        assert listed.index("`2` (1970-01-01) deploys") < listed.index("`1` (1970-01-01) tabs, not spaces")
        for asked in ("search tabs", "tabs"):
            found = await run_memory(asked, store, verbatim)
            assert "tabs, not" in found
            assert "deploys" not in found
        assert await run_memory("delete 1", store, verbatim) == "Deleted:\n\n- `1` (1970-01-01) tabs, not spaces"
        assert await run_memory("delete #1", store, verbatim) == "There is no note `1`."
        assert (await run_memory("search tabs", store, verbatim)).startswith("No note fits")


async def test_the_memory_that_is_off_and_half_a_command_are_told(tmp_path: Path):
    assert "switched off" in await run_memory("", None, verbatim)
    async with notes(tmp_path) as store:
        assert (await run_memory("delete", store, verbatim)).startswith("Usage")
        assert (await run_memory("search  ", store, verbatim)).startswith("Usage")
