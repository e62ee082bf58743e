"""The extension methods' answers over a real store, with sessions whose engines are real but for the model."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc
import pytest

from acp_agent.config.load import Flags, Loaded, load, options_at_start
from acp_agent.core.errors import RequestError, StoreUnavailable
from acp_agent.core.events import Event, Notice, OfferedCommand, TextDelta, UserMessage
from acp_agent.core.mcp import McpOrigin, McpServer, StdioServer
from acp_agent.core.messages import LinkPart, Message, Role, TextPart, Usage
from acp_agent.core.secrets import verbatim
from acp_agent.core.session_options import AutoApprove, Mode, SessionOptions
from acp_agent.core.sessions import Change, HistoryState, SessionRecord, SessionSnapshot, StoredEvent, UsageTotals
from acp_agent.core.types import Access, PathSubject, Subject
from acp_agent.gates.gate import Gates
from acp_agent.gates.mode import ModeGate
from acp_agent.output.redaction.redactor import Redactor
from acp_agent.output.redaction.rules import KnownSecrets
from acp_agent.protocol.client import Client
from acp_agent.protocol.editor import Connection
from acp_agent.protocol.jsonrpc import RpcError
from acp_agent.protocol.options import set_mode, set_option
from acp_agent.session.engine import SessionEngine
from acp_agent.session.extension_host import ExtensionHost
from acp_agent.session.manager import Opening, SessionLimits, SessionManager
from acp_agent.session.mcp_connections import McpConnections
from acp_agent.session.mcp_servers import SessionMcpServers
from acp_agent.session.model_choices import ModelChoices, ModelLists
from acp_agent.session.session import Session, SessionDependencies, SessionWorkspace
from acp_agent.session.slash.commands import ALWAYS, CommandName, offered
from acp_agent.session.toolset.settings import FolderRules
from acp_agent.store.decisions import McpPins
from acp_agent.store.session_locks import SessionLocks
from acp_agent.store.sessions import SessionStore
from tests.fakes.fake_mcp import FakeConnection, server
from tests.unit.store.databases import opened

pytestmark = pytest.mark.anyio

NOW = 1_000_000
SECRET = "tok-obviously-fake-4711-abcdef"
TOLD = (
    StoredEvent(3, 10, UserMessage((), "u1")),
    StoredEvent(4, NOW * 9, TextDelta("Hi.", "m1")),
    StoredEvent(5, 30, UserMessage((LinkPart("file:///a", "a"),), "u2")),
)
HISTORY = HistoryState((Message(Role.USER, (TextPart("hello"),)),), 0, 7)
FOREIGN = SessionSnapshot(
    SessionRecord("theirs", "/elsewhere", ("/more", "less"), "A \x1b[31mtitle\n", NOW * 9, NOW * 9, 99, "a:b"),
    SessionOptions(Mode.CODE, AutoApprove.FULL_AUTO, model="evil:model"),
    UsageTotals(-1, 2**70, Usage(1, -2), float("nan"), calls=-1000, batches=3),
    HISTORY,
)


class Peer:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def notify(self, method: str, params: Any, *, at_once: bool = True) -> None:
        del at_once
        self.post_notification(method, params)

    def post_notification(self, method: str, params: Any) -> None:
        del method
        self.sent.append(params["update"])


def hidden(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


class Unnamed:
    answered = None

    def close(self) -> None:
        pass


async def _nothing() -> None:
    """There is nothing to release."""


class Kept:
    redact = staticmethod(hidden)

    def state(self) -> Change:
        return Change(usage=UsageTotals(used=1, size=2))

    async def kept(self) -> Change:
        return self.state()


@dataclass
class World:
    """A process with its store. `config` is the user's configuration."""

    root: Path
    tasks: anyio.abc.TaskGroup
    store: SessionStore
    peer: Peer = field(default_factory=Peer)
    connections: dict[str, FakeConnection] = field(default_factory=dict)
    engines: int = 0

    def __post_init__(self) -> None:
        self.secrets = KnownSecrets()
        self.mcp_definitions: dict[str, Any] = {}
        self.limits = SessionLimits()
        locks = SessionLocks(str(self.root / "locks"))
        self.sessions = SessionManager(self.store, locks, self._open, lambda: self.limits, lambda: NOW)
        self.host = ExtensionHost(self.sessions, self.configured, lambda: NOW)

    @property
    def work(self) -> Path:
        return self.root / "work"

    def configured(self, cwd: str) -> Loaded:
        return load(Flags(config=str(self.root / "config.toml")), {}, cwd)

    async def session(self) -> Session:
        peer: Any = self.peer
        return await self.sessions.new(SessionWorkspace(str(self.work)), Connection(peer, Client()))

    def updates(self, kind: str) -> list[Any]:
        return [each for each in self.peer.sent if each["sessionUpdate"] == kind]

    def _open(self, opening: Opening) -> Session:
        loaded, saved = self.configured(opening.workspace.cwd), opening.saved
        conduct = options_at_start(loaded) if saved is None else saved.options
        llm = loaded.settings.llm
        choices = ModelChoices(llm, (), ModelLists({}, lambda: None).of(llm), fetches=False)
        needs = SessionDependencies(self._engine, self.sessions.resume, verbatim, self.tasks.start_soon, lambda: NOW)
        return Session(needs, opening, conduct, choices)

    async def _engine(self, session: Session, saved: SessionSnapshot | None) -> SessionEngine:
        del saved
        self.engines += 1
        loaded = self.configured(session.workspace.cwd)
        approver: Any = None
        shop: Any = self
        mcp = SessionMcpServers(shop, session, approver, session.workspace.cwd, hidden, lambda _: None, None)
        mcp.connections = McpConnections(self.pins, self.background, session.notices.add, self._connect)
        mcp.start(loaded)
        desk = Desk(session, mcp.connections)
        parts: Any = (SimpleNamespace(answer=None, carry_out=None), Kept(), Unnamed(), desk, Tools(loaded), mcp)
        tools: Any = SimpleNamespace(end=_nothing, runs_processes=lambda: False)
        return SessionEngine(*parts, tools)

    # ------------------------------------------------------------------------ as a workshop

    def rules(self, loaded: Loaded, folders: Sequence[str]) -> FolderRules:
        return FolderRules(loaded, folders[0], folders[1:])

    @property
    def pins(self) -> McpPins:
        return McpPins(str(self.root / "pins.toml"), print)

    def background(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks.start_soon(task)

    def _connect(self, named: McpServer, changed: Callable[[], None]) -> FakeConnection:
        self.connections[named.name] = FakeConnection(named, changed)
        return self.connections[named.name]


class Desk:
    """The gate of the mode is the only one. It offers /mcp while there are servers."""

    def __init__(self, session: Session, servers: McpConnections) -> None:
        self._servers = servers
        self._gates = Gates((ModeGate(session.active),))

    def available(self) -> set[str]:
        return ALWAYS | ({CommandName.MCP} if self._servers.status() else set())

    def offered(self) -> tuple[OfferedCommand, ...]:
        return offered(self.available())

    def gates(self) -> Gates:
        return self._gates

    def status(self) -> list[str]:
        return [f"Key: {SECRET}"]

    async def session_ended(self) -> None:
        """No hooks were brought."""


class Tools:
    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def specs(self) -> list[Any]:
        return []


@asynccontextmanager
async def living(root: Path, config: str = "") -> AsyncIterator[World]:
    (root / "work").mkdir()
    (root / "config.toml").write_text(config)
    async with opened(root / "agent.db") as database, anyio.create_task_group() as tasks:
        world = World(root, tasks, SessionStore(database, now=lambda: NOW / 1000))
        yield world
        await world.sessions.flush()
        tasks.cancel_scope.cancel()


@pytest.fixture
async def world(tmp_path) -> AsyncIterator[World]:
    async with living(tmp_path) as made:
        yield made


async def code_of(call: Any) -> int:
    with pytest.raises(RequestError) as caught:
        await call
    return RpcError.of(caught.value).code


# ---------------------------------------------------------------------------------------- the store


async def test_a_session_from_elsewhere_brings_its_words_but_neither_its_leave_nor_its_counts(world):
    taken = await world.host.import_session(FOREIGN, TOLD)

    saved = await world.host.saved(taken)
    assert saved.options == SessionOptions()
    assert saved.history == HISTORY
    assert saved.record == SessionRecord(taken, "/elsewhere", ("/more",), "A title", NOW, NOW, 2, "a:b")
    assert saved.usage == UsageTotals(0, 2**53 - 1, Usage(1, 0), None, calls=0, batches=3)
    told = [each async for each in world.host.events(taken, 0)]
    assert [(each.seq, each.at) for each in told] == [(1, 10), (2, NOW), (3, 30)]
    assert [each.event for each in told] == [each.event for each in TOLD]
    assert await world.host.import_session(FOREIGN, TOLD) != taken


async def test_a_session_from_elsewhere_brings_no_secret_of_this_place(world, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(world.root / "data"))
    (world.root / "data").mkdir()
    (world.root / "data" / "credentials.toml").write_text('[a]\nbase_url = ""\nkey = "stored-fake-4711-abcdef"\n')
    words = f"{SECRET} stored-fake-4711-abcdef"
    history = HistoryState((Message(Role.USER, (TextPart(words),)),), 0, 7)
    foreign = replace(FOREIGN, record=replace(FOREIGN.record, title=words), history=history)
    taken = await world.host.import_session(foreign, [StoredEvent(1, 10, TextDelta(words, "m"))])
    text = repr((await world.host.saved(taken), [each async for each in world.host.events(taken, 0)]))
    assert text.count("[REDACTED") >= 6
    assert "4711" not in text


async def test_a_session_of_no_folder_is_not_taken_in(world):
    spoilt = replace(FOREIGN, record=replace(FOREIGN.record, cwd="relative"))
    assert await code_of(world.host.import_session(spoilt, TOLD)) == -32602
    assert await world.store.page(prompted=False) == ()


async def test_what_an_open_session_has_not_kept_yet_is_told_as_well(world):
    session = await world.session()
    await session.transcript.set_title("A name")
    assert (await world.host.saved(session.id)).record.title == "A name"


async def test_without_a_store_nothing_is_kept():
    def never(asked: object) -> Any:
        raise AssertionError(asked)

    host = ExtensionHost(SessionManager(None, None, never, SessionLimits, lambda: NOW), never, lambda: NOW)
    with pytest.raises(StoreUnavailable):
        await host.saved("s")
    assert await code_of(host.tools("s")) == -32002


async def test_a_session_that_is_kept_but_not_open_says_so(world):
    session = await world.session()
    await world.sessions.close(session.id)
    assert await code_of(world.host.tools(session.id)) == -32600
    assert await world.host.audit(session.id, 5) == ()
    assert await code_of(world.host.audit("nobody", 5)) == -32002
    assert await world.host.delete(session.id)
    assert await code_of(world.host.tools(session.id)) == -32002


# ------------------------------------------------------------------------------------------- open


async def test_what_is_asked_goes_by_what_the_user_has_chosen_just_now(world):
    session = await world.session()
    write: Subject = PathSubject("x", Access.WRITE)
    assert (await world.host.judge(session.id, write)).word == "allow"
    session.options.mode = Mode.ASK
    judged = await world.host.judge(session.id, write)
    assert (judged.word, len(judged.reasons)) == ("deny", 1)


async def test_a_running_turn_keeps_the_leave_it_began_with(world):
    session = await world.session()
    running, over = anyio.Event(), anyio.Event()

    async def settle(_: bool) -> None:
        pass

    async def turn() -> None:
        async with session.turns.turn(settle):
            session.options.mode = Mode.ASK
            running.set()
            await over.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        await running.wait()
        assert (await world.host.judge(session.id, PathSubject("x", Access.WRITE))).word == "allow"
        assert (await world.host.status(session.id)).busy
        assert await code_of(world.host.move(session.id, str(world.root))) == -32600
        over.set()


async def test_a_status_shows_no_secret(world):
    session = await world.session()
    status = await world.host.status(session.id)
    assert status.lines == ("Key: [hidden]",)
    assert (status.options, status.usage, status.busy) == (SessionOptions(), UsageTotals(used=1, size=2), False)


async def test_a_session_that_rests_is_woken_and_stays_awake_for_a_while(world):
    session = await world.session()
    await world.host.tools(session.id)
    await world.sessions.evict_all()
    session.turns.used_at -= 2000
    await world.host.tools(session.id)
    await world.sessions.evict_idle(1000)
    assert (session.resident, world.engines) == (True, 2)


# ------------------------------------------------------------------------------------- MCP servers


async def test_servers_that_were_added_or_removed_stay_so_when_the_session_has_rested(tmp_path):
    config = "[[mcp.servers]]\nname = 'mine'\ncommand = 'x'\n"
    async with living(tmp_path, config) as world:
        session, host = await world.session(), world.host
        assert SECRET in Redactor(world.secrets)(f"it is {SECRET}")
        reach = StdioServer("y", env=(("API_TOKEN", SECRET),))
        await host.add_server(session.id, McpServer("theirs", reach, McpOrigin.EDITOR))
        assert await code_of(host.add_server(session.id, server("mine", McpOrigin.EDITOR))) == -32600
        assert SECRET not in Redactor(world.secrets)(f"it is {SECRET}")
        assert [each.server.name for each in await host.servers(session.id)] == ["mine", "theirs"]
        assert await host.remove_server(session.id, "mine")
        assert not await host.remove_server(session.id, "mine")
        await world.sessions.evict_all()
        assert [each.server.name for each in await host.servers(session.id)] == ["theirs"]
        assert await host.remove_server(session.id, "theirs")
        await world.sessions.evict_all()
        assert await host.servers(session.id) == []


async def test_the_editor_hears_which_commands_there_are_now(world):
    session = await world.session()
    await session.announce()
    before = len(world.updates("available_commands_update"))
    await world.host.add_server(session.id, server("theirs", McpOrigin.EDITOR))
    await world.host.remove_server(session.id, "theirs")
    came, went = world.updates("available_commands_update")[before:]
    assert "mcp" in {each["name"] for each in came["availableCommands"]}
    assert "mcp" not in {each["name"] for each in went["availableCommands"]}


async def test_where_the_user_wants_no_servers_none_is_added(tmp_path):
    async with living(tmp_path, "[mcp]\nenabled = false\n") as world:
        session = await world.session()
        assert await code_of(world.host.add_server(session.id, server("theirs", McpOrigin.EDITOR))) == -32600
        assert world.connections == {}


# -------------------------------------------------------------------------------------- the folder


async def test_a_session_that_moves_is_kept_there_and_made_anew_there(world):
    session, there = await world.session(), world.root / "there"
    there.mkdir()
    await world.host.tools(session.id)
    await world.host.move(session.id, str(there))
    assert (session.workspace.cwd, session.transcript.record.cwd) == (str(there), str(there))
    assert (await world.host.saved(session.id)).record.cwd == str(there)
    assert world.engines == 1
    await world.host.tools(session.id)
    assert world.engines == 2


async def test_a_folder_that_wants_more_care_gets_it_where_the_user_has_not_chosen(tmp_path):
    async with living(tmp_path, "[acp]\nauto_approve = 'full-auto'\n") as world:
        careful = world.root / "careful"
        (careful / ".acp-agent").mkdir(parents=True)
        (careful / ".acp-agent" / "config.toml").write_text("[acp]\nauto_approve = 'suggest'\n")
        untouched, chosen = await world.session(), await world.session()
        set_mode(chosen.options, "ask")
        for session in (untouched, chosen):
            await world.host.move(session.id, str(careful))
        assert untouched.options == SessionOptions(auto_approve=AutoApprove.SUGGEST)
        told: list[Event] = []

        async def tell(event: Event) -> None:
            told.append(event)

        await untouched.notices.tell(tell, str)
        assert any("suggest" in event.text for event in told if isinstance(event, Notice))
        assert chosen.options == SessionOptions(Mode.ASK, AutoApprove.SUGGEST, chosen=("mode",))
        (careful / ".acp-agent" / "config.toml").write_text("[tools]\nautonomy_level = 'readonly'\n")
        await world.host.move(chosen.id, str(world.work))
        set_option(chosen.options, "auto_approve", "auto-edit", chosen.choices)
        await world.host.move(chosen.id, str(careful))
        assert chosen.options == SessionOptions(
            Mode.ASK, AutoApprove.AUTO_EDIT, readonly=True, chosen=("mode", "auto_approve")
        )
        for session in (chosen, untouched):  # only what the user chose is kept, not what the folder wants
            assert (await world.host.saved(session.id)).options == session.options.to_keep(SessionOptions())
        assert os.path.basename(untouched.workspace.cwd) == "careful"


async def test_a_folder_that_wants_more_care_gets_it_before_the_move_ends_also_if_that_is_cancelled(tmp_path):
    async with living(tmp_path, "[acp]\nauto_approve = 'full-auto'\n") as world:
        careful = world.root / "careful"
        (careful / ".acp-agent").mkdir(parents=True)
        (careful / ".acp-agent" / "config.toml").write_text("[acp]\nauto_approve = 'suggest'\n")
        session = await world.session()
        engine: Any = await session.engine()
        with anyio.CancelScope() as scope:

            async def close() -> None:
                scope.cancel()

            engine.close = close
            await world.host.move(session.id, str(careful))
        assert session.workspace.cwd == str(careful)
        assert session.options.auto_approve is AutoApprove.SUGGEST
        assert (await world.host.saved(session.id)).record.cwd == str(careful)
