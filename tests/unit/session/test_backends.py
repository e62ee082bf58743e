"""What no session may touch, wherever it works, and which walls are around its commands."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from acp_agent.config.call_settings import SandboxMode, SandboxSettings
from acp_agent.config.load import Flags, load
from acp_agent.config.settings import Settings
from acp_agent.config.tool_settings import ShellSettings, ToolSettings
from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.mcp import StdioServer
from acp_agent.core.types import Access
from acp_agent.session.toolset.backends import CleanUps, SessionBackends, seen_variables
from acp_agent.session.toolset.sandboxing import _named_paths, session_sandbox
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, sandbox_tier, tier_works
from acp_agent.workspace.sandbox.walls import WallRules
from tests.fakes.passing_time import all_tasks_blocked


@pytest.mark.parametrize("for_shell", [False, True])
def test_stored_keys_are_read_by_nobody_even_where_the_session_covers_them(tmp_path, monkeypatch, for_shell):
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "credentials.toml").touch()
    (tmp_path / "config.toml").touch()
    loaded = load(Flags(config=str(tmp_path / "config.toml")), {})
    with FolderRules(loaded, str(tmp_path)).roots(for_shell=for_shell) as roots:
        for name in ("credentials.toml", "credentials.toml.damaged-1", "acp-agent.db-wal", "sessions.lock"):
            with pytest.raises(Refused, match="the agent's own keys"):
                roots.resolve(f"data/{name}", Access.READ)
        assert roots.resolve("data/acp-permissions.toml", Access.READ)


def made_sandbox(**fields) -> tuple[SessionSandbox | None, list[str]]:
    told: list[str] = []
    walls = WallRules(("/",), lambda _: False, lambda *_: None)
    settings = Settings(tools=ToolSettings(sandbox=SandboxSettings(**fields)))
    return session_sandbox(walls, settings, told.append, lambda _: None), told


def test_the_best_walls_of_this_machine_are_taken_without_a_word():
    if sandbox_tier() is SandboxTier.NONE:
        pytest.skip("no walls can be built on this machine")
    made, told = made_sandbox(mode=SandboxMode.AUTO)
    assert made is not None
    assert made.tier is sandbox_tier()
    assert not told


def test_walls_that_are_wanted_by_name_and_missing_are_announced_and_commands_run_without():
    if tier_works(SandboxTier.SEATBELT):
        pytest.skip("they work on this machine")
    made, told = made_sandbox(mode=SandboxMode.SEATBELT)
    assert made is None
    assert len(told) == 1
    assert "no sandbox-exec" in told[0]
    assert "Commands run without a sandbox, and are asked about" in told[0]


def test_with_a_program_comes_its_project_or_else_its_virtual_environment(tmp_path):
    for folder in ("app/src", "env/bin", "alone"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "app/go.mod").touch()
    (tmp_path / "env/pyvenv.cfg").touch()
    programs = [tmp_path / name for name in ("app/src/a.sh", "env/bin/b", "alone/c")]
    for program in programs:
        program.touch(0o755)
    named = {each.name: list(_named_paths(StdioServer(str(each)))) for each in programs}
    assert named == {"a.sh": [str(tmp_path / "app")], "b": [str(tmp_path / "env")], "c": [str(programs[2])]}


def test_an_entry_that_names_folders_of_the_system_opens_none_of_them():
    named = ("/dev", "/proc", "/run", "/sys", "/var/run")
    opened = set(_named_paths(StdioServer("no-such-program", named)))
    assert opened.isdisjoint(named)


@pytest.mark.anyio
async def test_where_walls_are_demanded_and_missing_no_command_runs():
    if tier_works(SandboxTier.SEATBELT):
        pytest.skip("they work on this machine")
    made, told = made_sandbox(mode=SandboxMode.SEATBELT, strict=True)
    assert "Commands are refused" in told[0]
    with pytest.raises(ToolError, match="strict"):
        await LocalTerminal(sandbox=made).start(CommandRequest("true", "/"))


def test_a_variable_that_no_command_may_see_is_named_and_the_others_are_seen(monkeypatch):
    monkeypatch.setenv("LANG", "C")
    settings = Settings(tools=ToolSettings(shell=ShellSettings(env_allow=("OPENAI_API_KEY",))))
    told: list[str] = []
    session: Any = SimpleNamespace(_settings=settings, _watchdog=None, sandbox=None)
    assert SessionBackends._local_terminal(session, told.append) is not None
    (problem,) = told
    assert "OPENAI_API_KEY" in problem
    seen = seen_variables(settings)
    assert "LANG" in seen
    assert "OPENAI_API_KEY" not in seen


class Walls:
    """A sandbox that is only passed on, and notes that it was closed."""

    tier = SandboxTier.BUBBLEWRAP
    hosts = ("example.com:443",)
    closed = False

    def __init__(self, *, reaches: bool = False) -> None:
        self.reaches_other_terminals = reaches
        self.adopted: list[WallRules] = []

    def adopt(self, walls: WallRules) -> None:
        self.adopted.append(walls)

    def close(self) -> None:
        self.closed = True

    def shell_text(self, text: str) -> str:
        return f"walls {text}"

    def shell_text_now(self, text: str) -> str:
        return f"walls now {text}"


class Terminals:
    """An editor that offers terminals, or none, and notes how they are to be."""

    def __init__(self, *, offered: bool) -> None:
        self.offered = offered
        self.asked: list[Any] = []

    def terminal(self, settings: Any) -> Any:
        self.asked.append(settings)
        return object() if self.offered else None


def backends_of(
    walls: Walls | None, *, offered: bool = False, allow: tuple[str, ...] = (), strict: bool = False
) -> tuple[SessionBackends, Terminals]:
    tools = ToolSettings(shell=ShellSettings(env_allow=allow), sandbox=SandboxSettings(strict=strict))
    editor: Any = Terminals(offered=offered)
    session: Any = SimpleNamespace(editor=editor, redact=str, turns=SimpleNamespace(cancelled_over=None))
    process: Any = SimpleNamespace(script_folder=lambda: "/scripts", watchdog=None, background=None)
    needs: Any = (walls, None, lambda _: None, lambda: 0)
    return SessionBackends(process, session, Settings(tools=tools), *needs), editor


def test_commands_are_contained_on_this_machine_even_if_a_setting_is_no_good():
    for allow in ((), ("OPENAI_API_KEY",)):
        walls = Walls()
        made, _ = backends_of(walls, allow=allow)
        assert made.programs._sandbox is walls
        assert made.terminal is made.programs
        assert made.contained


def test_walls_go_into_the_editors_terminal_where_they_can():
    for walls, offered, strict, around, contain, reached in (
        (None, True, False, ("", ""), False, None),
        (Walls(), False, False, ("", "bwrap"), False, ("example.com:443",)),
        (Walls(), True, False, ("", "bwrap"), False, None),
        (Walls(), True, True, ("", "bwrap"), False, ("example.com:443",)),
        (Walls(reaches=True), True, False, ("bwrap", "bwrap"), True, ("example.com:443",)),
        (Walls(reaches=True), True, True, ("bwrap", "bwrap"), True, ("example.com:443",)),
    ):
        made, editor = backends_of(walls, offered=offered, strict=strict)
        assert tuple(made.sandbox_around(editor=each) for each in (True, False)) == around
        (settings,) = editor.asked
        assert (settings.contain is not None, settings.contain_now is not None) == (contain, contain)
        assert made.reached == reached
        assert (made.terminal is made.programs) is (not offered or (strict and not contain))


@pytest.mark.anyio
async def test_the_walls_are_renewed_and_end_with_the_session():
    walls, rules = Walls(), WallRules(("/",), lambda _: False, lambda *_: None)
    made, _ = backends_of(walls)
    made.adopt(None)
    made.adopt(rules)
    assert walls.adopted == [rules]
    await made.end()
    assert walls.closed
    none, _ = backends_of(None)
    none.adopt(rules)
    await none.end()
    assert none.sandbox is None


@pytest.mark.anyio
async def test_a_clean_up_that_fails_is_over_and_ends_nothing_else():
    async def broken() -> None:
        raise OSError(5, "Input/output error")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            clean_ups = CleanUps(tasks.start_soon)
            clean_ups.start(broken)
            await clean_ups.over()


@pytest.mark.anyio
async def test_clean_ups_begin_when_the_turn_is_answered_and_looks_when_no_command_is_left():
    order, answered, ended = list[str](), anyio.Event(), anyio.Event()

    async def end() -> None:
        order.append("ending")
        await ended.wait()
        order.append("ended")

    async def look() -> None:
        order.append("looked")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            clean_ups = CleanUps(tasks.start_soon, answered.wait)
            for start, clean_up in ((clean_ups.start_last, look), (clean_ups.start, end), (clean_ups.start_last, look)):
                start(clean_up)
            await all_tasks_blocked()
            assert order == []
            answered.set()
            await all_tasks_blocked()
            assert order == ["ending"]
            ended.set()
            await clean_ups.over()
    assert order == ["ending", "ended", "looked", "looked"]
