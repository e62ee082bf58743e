"""Traffic as the editors of the world send it, replayed against the agent (acp.md 4.1, 4.3, 4.4, 6)."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from acp_agent.cli.agent_process import RecordedFrame
from tests.fakes.answers import Call, never
from tests.fakes.editor import FILES_ONLY, ScriptedEditor, editing, from_agent
from tests.fakes.held import PATIENCE
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

EDIT = {"path": "poem.txt", "old_string": "red", "new_string": "blue"}
SECRET = "obviously-fake-proxy-pw-4711"


def answered(message: dict[str, Any], frames: list[RecordedFrame]) -> list[RecordedFrame]:
    """What the agent said from a request of ours on to its answer."""
    begin = next(index for index, frame in enumerate(frames) if frame.message is message)
    end = next(
        index
        for index, frame in enumerate(frames)
        if index > begin and from_agent(frame) and not frame.method and frame.message["id"] == message["id"]
    )
    return [frame for frame in frames[begin + 1 : end + 1] if from_agent(frame)]


# ------------------------------------------------------------------------------------------------- JetBrains


class JetBrains:
    """Ids count from 1, every message has a further member `type`, and the proxy's password comes with `initialize`."""

    TYPE = "com.agentclientprotocol.rpc.JsonRpc"

    def __init__(self, editor: ScriptedEditor) -> None:
        self.editor = editor
        self.sent = 0
        for method in ("fs/read_text_file", "fs/write_text_file", "session/request_permission"):
            editor.overrides[method] = self._serve

    async def _serve(self, call: Call) -> None:
        result = await self.editor.serve(call.frame.method, call.params)
        await call.send({"result": result, "type": f"{self.TYPE}Response"})

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        return (await self.send(method, **params))["result"]

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request, and `asked`: the request."""
        self.sent += 1
        start = len(self.editor.recording.frames)
        self.asked = {
            "jsonrpc": "2.0",
            "id": self.sent,
            "method": method,
            "params": params,
            "type": f"{self.TYPE}Request",
        }
        await self.editor.agent.send(self.asked)
        return await self.editor.answer_to(self.sent, start)

    async def initialize(self) -> None:
        """Twice, as it does."""
        proxy = {"host": "proxy.example", "port": 3128, "login": "ada", "password": SECRET}
        capabilities = {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": False,
            "auth": {"_meta": {"gateway": True}},
            "_meta": {"terminal-auth": True},
        }
        for _ in range(2):
            told = await self.ask(
                "initialize",
                protocolVersion=1,
                clientCapabilities=capabilities,
                clientInfo={"name": "WebStorm", "version": "2026.1.2"},
                _meta={"proxyConfig": proxy},
            )
            assert told["protocolVersion"] == 1

    async def open(self) -> list[Any]:
        """Two sessions, with the IDE's own MCP server, whose launcher is not there in containers."""
        folder = str(self.editor.workspace)
        launcher = {"name": "idea", "command": "/nowhere/jbr/bin/java", "args": ["stdioMcpServer"], "env": []}
        place = {"cwd": folder, "mcpServers": [launcher], "_meta": {"additionalRoots": [folder]}}
        return [await self.ask("session/new", **place) for _ in range(2)]

    async def assert_options(self, opened: dict[str, Any]) -> list[RecordedFrame]:
        """Set every option to what it is already; all the agent says to it."""
        said: list[RecordedFrame] = []
        for option in opened["configOptions"]:
            value = {"configId": option["id"], "value": option["currentValue"]}
            answer = await self.ask("session/set_config_option", sessionId=opened["sessionId"], **value)
            assert answer == {"configOptions": opened["configOptions"]}
            said += answered(self.asked, self.editor.recording.frames)
        return said

    async def prompt(self, session: str) -> str:
        params = self.editor.prompt_params(session, "mend the poem")
        return (await self.ask("session/prompt", **params))["stopReason"]


def commits(home: Path) -> sqlite3.Connection:
    """Opens the database. `data_version` in it changes with every commit of somebody else."""
    return sqlite3.connect(f"file:{home / 'data' / 'acp-agent.db'}?mode=ro", uri=True)


def version(database: sqlite3.Connection) -> int:
    return database.execute("PRAGMA data_version").fetchone()[0]


def files_with(secret: str, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


async def test_jetbrains_says_everything_twice_sets_all_options_before_each_prompt_and_comes_back(tmp_path):
    log = tmp_path / "agent.log"
    script = [uses(("edit", EDIT)), says("Mended.")]
    config = f"[logging]\nlevel = 'debug'\nfile = '{log}'\n"
    async with editing(tmp_path, script, config=config, capabilities=FILES_ONLY) as editor:
        (editor.workspace / "poem.txt").write_text("roses are red\n")
        jetbrains = JetBrains(editor)
        await jetbrains.initialize()
        first, second = await jetbrains.open()
        assert first["sessionId"] != second["sessionId"]
        await editor.updated("available_commands_update")
        assert await jetbrains.prompt(second["sessionId"]) == "end_turn"
        await editor.updated("session_info_update")
        assert (editor.workspace / "poem.txt").read_text() == "roses are blue\n"
        assert set(editor.requested_methods) == {
            "fs/read_text_file",
            "session/request_permission",
            "fs/write_text_file",
        }

        database = commits(editor.home.root)
        before = version(database)
        for opened in (first, second):
            said = await jetbrains.assert_options(opened)
            assert [not frame.method for frame in said] == [True] * len(opened["configOptions"]), "nothing but answers"
        assert version(database) == before, "and nothing is written"
        database.close()
        assert await jetbrains.prompt(second["sessionId"]) == "end_turn"
        noise = {"config_option_update", "current_mode_update"}
        assert not [update for update in editor.recording.updates() if update["sessionUpdate"] in noise]
        assert SECRET not in editor.log

    async with editing(tmp_path, script, config=config, capabilities=FILES_ONLY) as editor:
        jetbrains = JetBrains(editor)
        await jetbrains.initialize()
        folder = str(editor.workspace)
        loaded = await jetbrains.ask("session/load", sessionId=second["sessionId"], cwd=folder, mcpServers=[])
        assert loaded["configOptions"] == second["configOptions"]
        assert "Mended." in editor.text
        resumed = await jetbrains.ask("session/resume", sessionId=first["sessionId"], cwd=folder, mcpServers=[])
        assert resumed["modes"] == first["modes"]
        for opened in (first, second):
            await jetbrains.assert_options(opened)
            assert await jetbrains.prompt(opened["sessionId"]) == "end_turn"
        assert SECRET not in editor.log
    assert log.stat().st_size > 0
    assert files_with(SECRET, tmp_path) == []
    assert files_with("Mended.", tmp_path / "home" / "data"), "what is not secret is found there"


# --------------------------------------------------------------------------------------------- CodeCompanion


async def test_codecompanion_authenticates_first_chooses_by_kind_and_answers_writes_with_null(tmp_path):
    kinds: list[dict[str, str]] = []

    async def by_kind(call: Call) -> None:
        """It keeps one option a kind, and wants the diff first and a place with a path."""
        kept = {option["kind"]: option["optionId"] for option in call.params["options"]}
        # For the session only: what it takes for "always" is the narrower of the two.
        assert kept == {kind: kind for kind in kept} | {"allow_always": "allow_session"}
        (diff, *_), (place, *_) = call.params["toolCall"]["content"], call.params["toolCall"]["locations"]
        assert (diff["type"], diff["path"]) == ("diff", place["path"])
        kinds.append(kept)
        await call.reply({"outcome": {"outcome": "selected", "optionId": kept["allow_once"]}})

    async def write(call: Call) -> None:
        Path(call.params["path"]).write_text(call.params["content"])
        await call.reply(None)

    script = {
        "mend": [uses(("edit", EDIT)), says("Mended.")],
        "once more": [uses(("edit", EDIT)), uses(("edit", EDIT)), says("Mended.")],  # the file has changed since
        "list": [uses(("bash", {"command": "cat poem.txt"})), says("Listed.")],
    }
    async with editing(tmp_path, script, capabilities=FILES_ONLY, lawful=False) as editor:
        (editor.workspace / "poem.txt").write_text("roses are red\n")
        hello = await editor.initialize()
        assert await editor.ask("authenticate", {"methodId": hello["authMethods"][0]["id"]}) == {}
        session = await editor.new_session(str(editor.workspace))
        editor.overrides |= {"session/request_permission": by_kind, "fs/write_text_file": write}
        assert await editor.say(session, "mend it") == "end_turn"
        assert len(kinds) == 1
        assert (editor.workspace / "poem.txt").read_text() == "roses are blue\n"
        assert editor.call.status == "completed"

        del editor.overrides["session/request_permission"]
        assert await editor.say(session, "list it") == "end_turn"
        assert "roses are blue" in editor.calls[-1].text, "what ran without a terminal is shown as text"
        assert not [method for method in editor.requested_methods if method.startswith("terminal/")]

        (editor.workspace / "poem.txt").write_text("roses are red\n")
        editor.overrides["session/request_permission"] = never  # as it does once a turn is cancelled
        start = len(editor.recording.frames)
        async with editor.prompting(session, "once more") as turn:
            await editor.requested("session/request_permission", start)
            await editor.agent.notify("session/cancel", {"sessionId": session})
        assert turn.stop_reason == "cancelled"
        assert (editor.workspace / "poem.txt").read_text() == "roses are red\n"


# ------------------------------------------------------------------------------------------------------- Zed

ZED = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "session": {"configOptions": {"boolean": {}}},
    "elicitation": {"form": {}, "url": {}},
    "_meta": {"terminal_output": True, "terminal-auth": True},
}


class Zed:
    """Ids are UUIDs, and much is asked at once."""

    def __init__(self, editor: ScriptedEditor) -> None:
        self.editor = editor

    async def ask(self, method: str, **params: Any) -> Any:
        number = str(uuid4())
        await self.editor.agent.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        answer = await self.editor.answer_to(number)
        assert "error" not in answer, answer
        return answer["result"]

    async def open_with_defaults(self) -> str:
        """A session; the user's own settings follow on its heels."""
        opened = await self.ask("session/new", cwd=str(self.editor.workspace), mcpServers=[])
        session = opened["sessionId"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: self.ask("session/set_mode", sessionId=session, modeId="code"))
            option = {"configId": "auto_approve", "value": "full-auto"}
            tasks.start_soon(lambda: self.ask("session/set_config_option", sessionId=session, **option))
        return session

    @asynccontextmanager
    async def prompting(self, session: str, text: str) -> AsyncIterator[list[str]]:
        """A turn that runs while the body does; its stop reason is there afterwards."""
        ended: list[str] = []

        async def run() -> None:
            prompt = [{"type": "text", "text": text}]
            ended.append((await self.ask("session/prompt", sessionId=session, prompt=prompt))["stopReason"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield ended


async def test_zed_opens_several_at_once_with_uuids_sets_defaults_cancels_waits_and_closes(tmp_path):
    script = {
        "held": [uses(("bash", {"command": "echo begun > begun; cat held"})), says("never said")],
        "quick": [uses(("bash", {"command": "echo quick"})), says("Quick.")],
    }
    async with editing(tmp_path, script, capabilities=ZED) as editor:
        begun, _ = editor.fifo("begun"), editor.fifo("held")
        zed = Zed(editor)
        info = {"name": "zed", "version": "1.5.4"}
        hello = await zed.ask("initialize", protocolVersion=1, clientCapabilities=ZED, clientInfo=info)
        login = hello["authMethods"][1]
        assert (login["type"], login["args"], set(login["_meta"])) == ("terminal", ["login"], {"terminal-auth"})

        sessions: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def open_one() -> None:
                sessions.append(await zed.open_with_defaults())

            for _ in range(4):
                tasks.start_soon(open_one)
        assert len({UUID(session) for session in sessions}) == 4
        for session in sessions:
            told = [
                frame.update["availableCommands"]
                for frame in await _commands(editor, session, 2)
                if frame.params["sessionId"] == session
            ]
            assert told[0] == told[1], "said again, for a session that was not known yet when it was said first"

        one, other, *rest = sessions
        async with zed.prompting(one, "held") as ended:
            await begun.line()
            async with zed.prompting(other, "quick") as others:
                pass
            assert (others, ended) == (["end_turn"], []), "sessions do not wait for each other"
            await editor.agent.notify("session/cancel", {"sessionId": one})
        assert ended == ["cancelled"]
        (call,) = editor.calls_of(one)
        assert (call.status, len(call.terminals)) == ("failed", 1)
        await _after_cancel(editor, one)

        for session in (one, other, *rest):
            assert await zed.ask("session/close", sessionId=session) == {}
        listed = await zed.ask("session/list", cwd=str(editor.workspace))
        assert {each["sessionId"] for each in listed["sessions"]} == {one, other}, "the others were never used"
        assert [UUID(frame.message["id"]) for frame in editor.recording.frames if _is_ours(frame)]
    assert len(editor.requests("terminal/create")) == len(editor.requests("terminal/release")) == 2


async def _commands(editor: ScriptedEditor, session: str, many: int) -> list[RecordedFrame]:
    """Updates of the commands of a session, when there are so many."""

    def found() -> list[RecordedFrame]:
        frames = editor.recording.frames
        return [
            frame
            for frame in frames
            if frame.update.get("sessionUpdate") == "available_commands_update" and frame.params["sessionId"] == session
        ]

    with anyio.fail_after(PATIENCE):
        while len(found()) < many:
            await editor.recording.until(lambda _: True, len(editor.recording.frames))
    return found()


async def _after_cancel(editor: ScriptedEditor, session: str) -> None:
    """After the answer to a cancelled prompt no update of its turn comes any more, and no request but to clean up."""
    frames = editor.recording.frames
    end = max(index for index, frame in enumerate(frames) if "cancelled" in json.dumps(frame.message.get("result")))
    later = [
        frame.update.get("sessionUpdate") or frame.method
        for frame in frames[end + 1 :]
        if from_agent(frame) and frame.params.get("sessionId") == session
    ]
    cleaning_up = {"terminal/kill", "terminal/output", "terminal/release"}
    assert set(later) <= {"session_info_update", "available_commands_update", *cleaning_up}, later


def _is_ours(frame: RecordedFrame) -> bool:
    return not from_agent(frame) and frame.is_request
