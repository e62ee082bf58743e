"""Which MCP servers of a session start, when, in which folder, and what the user is asked before."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.config.mcp_settings import MOST_OF_A_PROJECT
from acp_agent.core.errors import ConfigError, ToolError, ToolErrorCategory
from acp_agent.core.mcp import HttpServer, McpOrigin, McpServer, StdioServer
from acp_agent.core.ports import Decision, Question
from acp_agent.core.session_options import AutoApprove
from acp_agent.gates.rules.policy_rules import TrustLevel
from acp_agent.session.mcp_servers import SessionMcpServers
from acp_agent.store.decisions import TrustedFolders

pytestmark = pytest.mark.anyio


class Connections:
    """Notes which servers are started and ended."""

    def __init__(self) -> None:
        self.started: list[McpServer] = []
        self.settles = 0
        self.known: set[str] = set()
        self.objection = ""

    def start(self, servers: Iterable[McpServer]) -> None:
        self.started += servers

    def add(self, server: McpServer) -> str:
        self.started += () if self.objection else (server,)
        return self.objection

    def remove(self, name: str) -> bool:
        return name in self.known

    async def settled(self) -> None:
        self.settles += 1


class User:
    """A user with one answer, or none in time."""

    def __init__(self, answer: Decision | None) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Decision:
        self.asked.append(question)
        if self.answer is None:
            raise ToolError(ToolErrorCategory.CONFIRMATION_REQUIRED, "no answer in time")
        return self.answer


class World:
    """The servers of one session in a folder with a configuration of its own."""

    def __init__(self, root: Path, project: str = "", user: str = "", answer: Decision | None = Decision.ALLOW_ONCE):
        self.work = root / "work"
        (self.work / ".acp-agent").mkdir(parents=True)
        (root / "config.toml").write_text(user)
        (self.work / ".acp-agent" / "config.toml").write_text(project)
        self.loaded = load(Flags(config=str(root / "config.toml")), {}, str(self.work))
        self.secrets: list[str] = []
        self.warned: list[str] = []
        self.levels: list[TrustLevel] = []
        self.walls: Any = None
        self.user = User(answer)
        self.workspace = SimpleNamespace(
            ended=frozenset[str](), servers=tuple[McpServer, ...](), folders=(str(self.work),)
        )
        self.active = SimpleNamespace(auto_approve=AutoApprove.SUGGEST)
        notices = SimpleNamespace(warn=self.warned.append, add=len)
        session: Any = SimpleNamespace(workspace=self.workspace, active=self.active, notices=notices)
        process: Any = SimpleNamespace(
            secrets=SimpleNamespace(add=self.secrets.extend),
            trusted_folders=TrustedFolders(str(root / "trusted.toml"), self.warned.append),
            rules=self._rules,
            pins=None,
            background=None,
            mcp_definitions=lambda *_: None,
        )
        self.servers = SessionMcpServers(
            process, session, self.user, str(self.work), self._redacted, self.levels.append, None
        )
        self.connections: Any = Connections()
        self.servers.connections = self.connections

    @staticmethod
    def _redacted(text: str) -> str:
        return text.replace("hunter2", "[REDACTED]")

    def _rules(self, loaded: Loaded, folders: tuple[str, ...]) -> Any:
        assert folders == self.workspace.folders
        if isinstance(self.walls, ConfigError):
            raise self.walls
        return SimpleNamespace(walls=lambda: self.walls)

    @property
    def started(self) -> list[tuple[str, McpOrigin]]:
        return [(each.name, each.origin) for each in self.connections.started]

    def folder_of(self, name: str) -> str:
        (reach,) = (each.reach for each in self.connections.started if each.name == name)
        assert isinstance(reach, StdioServer)
        return reach.cwd


def entry(name: str, more: str = "", command: str = "tool") -> str:
    return f"[[mcp.servers]]\nname = '{name}'\ncommand = '{command}'\n{more}\n"


HOME = "/home/of-the-user"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("A_TOKEN", "Bearer xyzzy-4711")


async def test_the_users_servers_start_at_once_and_those_of_the_folder_after_a_yes(tmp_path: Path):
    world = World(
        tmp_path,
        entry("theirs") + entry("gone") + entry("off", "enabled = false"),
        entry("mine") + entry("ended") + entry("not", "enabled = false"),
    )
    world.workspace.ended = frozenset(("ended", "gone"))
    world.workspace.servers = (McpServer("editors", StdioServer("tool"), McpOrigin.EDITOR),)
    world.servers.start(world.loaded)
    assert world.started == [("mine", McpOrigin.CONFIG), ("editors", McpOrigin.EDITOR)]
    assert {world.folder_of(name) for name in ("mine", "editors")} == {HOME}
    world.servers.start(world.loaded)
    assert len(world.started) == 2
    assert world.user.asked == []
    await world.servers.ready()
    assert world.started[2:] == [("theirs", McpOrigin.PROJECT)]
    assert world.folder_of("theirs") == str(world.work)
    assert world.levels == [TrustLevel.PROVISIONAL]
    assert world.connections.settles == 1
    await world.servers.ready()
    assert (len(world.started), len(world.user.asked), world.connections.settles) == (3, 1, 2)
    assert world.warned == []


async def test_nothing_starts_where_the_configuration_cannot_be_read_or_servers_are_off(tmp_path: Path):
    for number, change in enumerate(("off", "fault", "walls")):
        world = World(
            tmp_path / str(number), entry("theirs"), entry("mine") + "[mcp]\nenabled = false\n" * (change == "off")
        )
        loaded = world.loaded
        if change == "fault":
            loaded = replace(loaded, fault=ConfigError("config.toml", "a", "b", "c"))
        if change == "walls":
            world.walls = ConfigError("config.toml", "tools.file.deny_read", "x", "a pattern")
        world.servers.start(loaded)
        await world.servers.ready()
        assert (world.started, world.user.asked) == ([], []), change
        told = world.servers.add(McpServer("more", StdioServer("tool"), McpOrigin.EDITOR), loaded)
        assert told == (str(world.walls) if change == "walls" else "MCP servers are switched off: [mcp] enabled")
        if change == "walls":  # they start once the rules can be read
            world.walls = None
            world.servers.start(loaded)
            assert world.started == [("mine", McpOrigin.CONFIG)]


async def test_without_a_yes_none_of_the_folders_servers_starts_and_the_user_hears_why(tmp_path: Path):
    began = "the MCP servers of this folder (one, two) are not started: "
    for number, (answer, level, why, levels) in enumerate(
        (
            (Decision.REJECT_ONCE, AutoApprove.SUGGEST, "you have not agreed to them", [TrustLevel.UNTRUSTED]),
            (None, AutoApprove.SUGGEST, "no answer in time", []),
            (Decision.ALLOW_ONCE, AutoApprove.FULL_AUTO, "nobody is asked at this approval level", []),
        )
    ):
        world = World(tmp_path / str(number), entry("one") + entry("two"), answer=answer)
        world.active.auto_approve = level
        world.servers.start(world.loaded)
        await world.servers.ready()
        assert world.started == []
        assert world.warned == [f"{began}{why}"]
        assert world.levels == levels
        assert world.connections.settles == 1
        await world.servers.ready()
        assert len(world.warned) == 1, "they are asked about once"


async def test_what_cannot_be_shown_whole_is_not_asked_about(tmp_path: Path):
    many = "".join(entry(f"s{number}") for number in range(MOST_OF_A_PROJECT + 1))
    for number, (project, warned, asked) in enumerate(
        (
            (entry("long", command="x" * 1001) + entry("short"), "too much for one question", 1),
            (entry("secret", "args = ['hunter2']") + entry("short"), "it holds what looks like a secret", 1),
            (entry("long", command="x" * 1001), "too much for one question", 0),
        )
    ):
        world = World(tmp_path / str(number), project)
        world.servers.start(world.loaded)
        await world.servers.ready()
        (told,) = world.warned
        assert told.startswith(
            f"the MCP server '{'secret' if 'secret' in project else 'long'}' of this folder is not started"
        )
        assert warned in told
        assert len(world.user.asked) == asked
        assert world.started == [("short", McpOrigin.PROJECT)] * asked
    world = World(tmp_path / "many", many)
    world.servers.start(world.loaded)
    await world.servers.ready()
    assert len(world.started) == MOST_OF_A_PROJECT


async def test_secrets_of_servers_are_known_as_soon_as_they_may_be_used(tmp_path: Path):
    world = World(
        tmp_path,
        entry("theirs", "env = { X = '${A_TOKEN}' }"),
        entry("mine", "env = { API_KEY = 'Basic own-4711', MODE = 'fast', Y = '${A_TOKEN}' }"),
    )
    world.servers.start(world.loaded)
    assert {"Basic own-4711", "own-4711", "Bearer xyzzy-4711", "xyzzy-4711"} <= set(world.secrets)
    assert "fast" not in world.secrets
    world.secrets.clear()
    await world.servers.ready()
    assert set(world.secrets) == {"Bearer xyzzy-4711", "xyzzy-4711"}
    world.secrets.clear()
    pairs = (("Authorization", "Bearer abc-4711"), ("Accept", "text/plain-4711"))
    more = McpServer("more", HttpServer("https://x.org/", pairs), McpOrigin.EDITOR)
    assert world.servers.add(more, world.loaded) == ""
    assert world.secrets == ["Bearer abc-4711", "abc-4711"]
    world.secrets.clear()
    local = McpServer("local", StdioServer("tool", env=(("A_KEY", "k-4711"),), cwd="/there"), McpOrigin.EDITOR)
    world.connections.objection = "there is one already"
    assert world.servers.add(local, world.loaded) == "there is one already"
    assert world.secrets == ["k-4711"]
    world.connections.objection = ""
    world.servers.add(local, world.loaded)
    assert world.folder_of("local") == "/there"


async def test_a_server_without_its_variable_is_not_started_and_the_others_are(tmp_path: Path):
    world = World(tmp_path, user=entry("mine", "env = { X = '${NO_SUCH_VARIABLE}' }") + entry("other"))
    world.servers.start(world.loaded)
    assert world.started == [("other", McpOrigin.CONFIG)]
    (told,) = world.warned
    assert "NO_SUCH_VARIABLE" in told
    assert told.endswith("; the server is not started")


async def test_a_server_is_removed_while_it_runs_or_while_it_waits_for_a_yes(tmp_path: Path):
    world = World(tmp_path, entry("one") + entry("two"))
    world.connections.known = {"running"}
    world.servers.start(world.loaded)
    assert [world.servers.remove(name) for name in ("running", "one", "one", "nobody")] == [True, True, False, False]
    await world.servers.ready()
    assert world.started == [("two", McpOrigin.PROJECT)]


async def test_a_server_that_is_removed_while_the_user_is_asked_does_not_start(tmp_path: Path):
    world = World(tmp_path, entry("one") + entry("two"))
    answer = world.user.ask

    async def ask(question: Question) -> Decision:
        assert world.servers.remove("one")
        return await answer(question)

    world.user.ask = ask
    world.servers.start(world.loaded)
    await world.servers.ready()
    assert world.started == [("two", McpOrigin.PROJECT)]
    assert not world.servers.remove("two")
