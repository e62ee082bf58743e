"""A session's real tools over real files, in this process, with a user who says yes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from acp_agent.config.files import PERMISSION_FILE, data_dir
from acp_agent.config.load import Flags, Loaded, load, options_at_start
from acp_agent.core.delegation import RunSlots
from acp_agent.core.mcp import McpDefinition
from acp_agent.core.secrets import verbatim
from acp_agent.core.services import Memories
from acp_agent.core.sessions import SessionRecord, SessionSnapshot
from acp_agent.core.types import CallOrigin, ToolCall, ToolResult
from acp_agent.gates.grants import GrantStore
from acp_agent.protocol.client import Client
from acp_agent.protocol.editor import Connection
from acp_agent.session.factory import SessionFactory
from acp_agent.session.model_choices import ModelChoices, ModelLists
from acp_agent.session.session import Opening, Session, SessionDependencies, SessionWorkspace
from acp_agent.session.toolset.gate_factory import GateMemories
from acp_agent.session.toolset.settings import FolderRules, known_secrets
from acp_agent.session.turn_slot import IdleWaiter, TurnSlot
from acp_agent.session.workspace_facts import FolderLook
from acp_agent.store.credentials import CredentialStore
from acp_agent.store.decisions import McpPins, TrustedFolders
from acp_agent.workspace.processes.tree import CommandWatchdog


class YesPeer:
    """An editor that allows whatever it is asked, and remembers what it was sent."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.posted: list[Any] = []

    async def request(self, method: str, params: Any, **_: Any) -> Any:
        self.asked.append(params)
        return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

    async def notify(self, method: str, params: Any, *, at_once: bool = True) -> None:
        del at_once
        self.posted.append(params["update"])

    def post_notification(self, method: str, params: Any) -> None:
        self.posted.append(params["update"])


class Shop:
    """What sessions share: the answers; nothing is recorded."""

    def __init__(self, warnings: list[str], folder: str, notes: Memories | None) -> None:
        self._warnings = warnings
        self._folder = folder
        self._notes = notes
        self.secrets = known_secrets({})
        self.credentials = CredentialStore(os.environ, self.secrets.add)
        self.watchdog = CommandWatchdog()  # starts nothing before a command runs
        self.lists = ModelLists(os.environ, lambda: None)
        self.gate_memories = GateMemories()
        self.look_threads = None
        self.sandboxes = set[Any]()
        self.run_slots = RunSlots()
        self.title_slot = anyio.Semaphore(1)
        self.quiet = IdleWaiter(tuple[TurnSlot, ...])
        self.mcp_definitions: dict[str, tuple[McpDefinition, ...]] = {}

    def choices(self, loaded: Loaded) -> ModelChoices:
        llm = loaded.settings.llm
        return ModelChoices(llm, (), self.lists.of(llm), fetches=False)

    def grants(self, chosen: str | None) -> GrantStore:
        return GrantStore(chosen or os.path.join(data_dir(os.environ), PERMISSION_FILE), self._warnings.append)

    def data_file(self, name: str) -> str:
        return os.path.join(data_dir(os.environ), name)

    def rules(self, loaded: Loaded, folders: Sequence[str]) -> FolderRules:
        return FolderRules(loaded, folders[0], folders[1:])

    def folder_look(self, *_: Any) -> FolderLook:
        return FolderLook(self.background)

    def auditor(self, *_: Any) -> None:
        return None

    def overflow(self, *_: Any) -> None:
        return None

    @property
    def pins(self) -> McpPins:
        return McpPins(os.path.join(self._folder, "pins.toml"), self._warnings.append)

    @property
    def trusted_folders(self) -> TrustedFolders:
        return TrustedFolders(os.path.join(self._folder, "trusted.toml"), self._warnings.append)

    def background(self, task: Any) -> None:
        """Leave a look at the folder undone."""

    def memories(self, *_: Any) -> Memories | None:
        return self._notes

    def past(self, *_: Any) -> None:
        return None

    def summaries(self, *_: Any) -> None:
        return None

    def catalog(self, *_: Any) -> None:
        raise AssertionError("no model is asked")

    def script_folder(self) -> str:
        raise AssertionError("there is no editor's terminal")


@dataclass
class LiveSession:
    """Files below `root`: config.toml is the user's, work/ the session's folder. `notes`: its memory, if any.

    wanted   the only tools that the editor wants
    """

    root: Path
    notes: Memories | None = None
    client: Client = field(default_factory=Client)
    wanted: tuple[str, ...] | None = None
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        self.work.mkdir(exist_ok=True)
        self.peer = YesPeer()
        self.later: list[Any] = []  # what the session would do in the background

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def project(self) -> Path:
        return self.work / ".acp-agent" / "config.toml"

    def write(self, text: str, path: Path | None = None) -> None:
        """Save as editors do: the new file takes the name of the old one."""
        path = path or self.config
        path.parent.mkdir(exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, path)

    def open(self, text: str | None = "", saved: SessionSnapshot | None = None) -> "LiveSession":
        """Begin, with this configuration unless it is None, or go on with what was saved."""
        if text is not None:
            self.write(text)
        reload = partial(load, Flags(), os.environ, str(self.work))
        loaded = reload()

        async def unused(*_: Any) -> Any:
            raise AssertionError("no turn runs here")

        shop: Any = Shop(self.warnings, str(self.root), self.notes)
        peer: Any = self.peer
        editor = Connection(peer, self.client).session("live", str(self.work))
        workspace = SessionWorkspace(str(self.work), tools=self.wanted)
        self.session = Session(
            SessionDependencies(unused, unused, verbatim, self.later.append, lambda: 0),
            Opening(SessionRecord("live", str(self.work)), workspace, editor),
            options_at_start(loaded),
            shop.choices(loaded),
        )
        self.factory = SessionFactory(shop, self.session, loaded, reload, saved)
        self.tools = self.factory.toolset
        return self

    async def call(self, tool: str, **arguments: Any) -> ToolResult:
        return await self.tools.run(ToolCall(str(uuid4()), tool, arguments, origin=CallOrigin.MODEL))

    async def reads(self, name: str = "secret.txt") -> bool:
        """Whether `read` gives a file."""
        return (await self.call("read", path=name)).failure is None

    async def runs(self, command: str) -> bool:
        """Whether `bash` runs a command to a good end."""
        return (await self.call("bash", command=command)).failure is None

    @property
    def offered(self) -> set[str]:
        return {spec.name for spec in self.tools.specs()}
