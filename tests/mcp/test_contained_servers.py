"""What the program of an MCP server can do in its sandbox, on the real kernel."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.settings import Settings
from acp_agent.core.mcp import McpOrigin, McpReply, McpServer, McpState, StdioServer
from acp_agent.core.types import JsonObject, ToolCall
from acp_agent.session.toolset.sandboxing import is_contained, server_sandbox
from acp_agent.tools.mcp_tool import McpTool
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.sandbox import SandboxTier, sandbox_tier
from acp_agent.workspace.sandbox.walls import WallRules
from tests.mcp.stage import Stage, on_stage
from tests.unit.tools.workbench import Workbench

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sandbox_tier() is not SandboxTier.BUBBLEWRAP, reason="bubblewrap is missing"),
]
PROTECTED = ProtectedPaths()
SHELL = """
import json, subprocess, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "shell", "version": "1"}
    elif method == "tools/list":
        result = {"tools": [{"name": "sh", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        done = subprocess.run(["sh", "-c", params["arguments"]["x"]], capture_output=True, text=True)
        result = {"content": [{"type": "text", "text": done.stdout + done.stderr}], "isError": done.returncode != 0}
    else:
        result = {}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def settings(**mcp: Any) -> Settings:
    return Settings.model_validate({"mcp": mcp, "tools": {"sandbox": {"mode": "auto"}}})


class World:
    """A user's home with a session's folder, and a server that runs what it is told.

    home   below the session's folder and beside it lies what no server may touch
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.root, self.data = folder / "user", folder / "user/work", folder / "user/data"
        for made in (self.root / ".git/hooks", self.home / ".ssh", self.data, self.home / "papers", self.home / "tool"):
            made.mkdir(parents=True)
        (self.home / ".ssh/id").write_text("PRIVATE\n")
        (self.data / "audit").write_text("PRIVATE\n")
        (self.home / "papers/a.txt").write_text("PRIVATE\n")
        (self.root / ".env").write_text("PRIVATE\n")
        (self.home / "tool/server.py").write_text(SHELL)
        (self.home / "tool/package.json").write_text("{}")
        (self.home / "tool/beside.txt").write_text("code beside it\n")
        monkeypatch.setenv("HOME", str(self.home))

    def server(self, origin: McpOrigin = McpOrigin.CONFIG, *args: str, **reach: Any) -> McpServer:
        words = ("-I", "-S", str(self.home / "tool/server.py"), *args)
        return McpServer("shell", StdioServer(sys.executable, words, **{"cwd": str(self.home), **reach}), origin)

    def stage(self, server: McpServer):
        def protects(path: str) -> bool:
            found = PROTECTED.find(path)
            return found is not None and not found.everyday

        refuses = WallRules((str(self.root),), protects, lambda path, _: "no" if path.endswith(".env") else None)
        python = (sys.prefix, sys.base_prefix)  # it is in the home of who runs the tests
        walls = replace(refuses, hidden=(str(self.data),), allow_read=python)
        return on_stage(server, contain=partial(server_sandbox, server, walls, settings(), str(self.data / "servers")))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def ran(stage: Stage, command: str) -> McpReply:
    await stage.reach(McpState.READY)
    return await stage.reply({"x": command}, "sh")


async def test_a_server_changes_the_session_folders_and_reads_no_secret(world: World):
    hostile = f"""
        echo made > {world.root}/made; cat {world.home}/tool/beside.txt
        cat {world.home}/.ssh/id {world.data}/audit {world.home}/papers/a.txt {world.root}/.env /etc/shadow
        echo x > {world.root}/.git/hooks/pre-commit; mv {world.root}/.git {world.root}/g
        echo x >> {world.home}/tool/server.py; echo x > {world.home}/.bashrc; echo x > {world.home}/papers/b.txt
        cat /proc/{os.getpid()}/environ; kill -9 {os.getpid()}; ls {world.data}; touch /etc/made-by-a-server
    """
    async with world.stage(world.server()) as stage:
        said = (await ran(stage, hostile)).text
    assert "code beside it" in said
    assert "PRIVATE" not in said
    assert "root:" not in said
    assert (world.root / "made").read_text() == "made\n"
    assert (world.home / "tool/server.py").read_text() == SHELL
    assert [entry.name for entry in (world.home / "papers").iterdir()] == ["a.txt"]
    assert not (world.home / ".bashrc").exists()
    assert not (world.root / ".git/hooks/pre-commit").exists()
    assert not Path("/etc/made-by-a-server").exists()


async def test_a_server_keeps_its_home_and_shares_it_with_no_other(world: World):
    async with world.stage(world.server()) as stage:
        await ran(stage, "mkdir -p ~/.npm/_npx && echo token > ~/.npm/_npx/state && echo gone > /tmp/state")
    async with world.stage(world.server()) as stage:
        assert (await ran(stage, "cat ~/.npm/_npx/state; ls /tmp | grep state")).text == "token\n"
    for other in (replace(world.server(), name="other"), world.server(McpOrigin.PROJECT, cwd=str(world.root))):
        moved = replace(other.reach, args=("-c", SHELL), cwd=str(world.root))  # a project's entry opens nothing by name
        async with world.stage(replace(other, reach=moved)) as stage:
            assert "No such file" in (await ran(stage, "cat ~/.npm/_npx/state")).text


async def test_a_server_changes_what_its_entry_lets_it_and_reads_what_it_names(world: World):
    papers = str(world.home / "papers")
    async with world.stage(world.server(McpOrigin.CONFIG, papers)) as stage:
        assert (await ran(stage, f"cat {papers}/a.txt")).text == "PRIVATE\n"
        arguments: JsonObject = {"x": f"echo x > {papers}/b.txt"}
        tool = McpTool("mcp_shell_sh", stage.definition("sh"), stage.connection)
        invocation = await tool.understand(ToolCall("1", tool.name, arguments))
        failure = (await Workbench().execute(invocation)).failure
        assert failure is not None
        assert "`[mcp] unsandboxed`" in failure.suggestion
    async with world.stage(world.server(McpOrigin.CONFIG, f"--in={papers}", allow_write=(papers,))) as stage:
        assert not (await ran(stage, f"echo x > {papers}/b.txt")).is_error


async def test_a_server_that_fails_in_the_sandbox_says_how_to_let_it_out(world: World):
    broken = StdioServer("sh", ("-c", f"cat {world.home}/papers/a.txt >&2"))
    async with world.stage(McpServer("broken", broken, McpOrigin.EDITOR)) as stage:
        problem = await stage.reach(McpState.WAITING)
    assert "No such file or directory" in problem
    assert '`[mcp] unsandboxed = ["broken"]`' in problem
    async with world.stage(McpServer("broken", broken, McpOrigin.PROJECT)) as stage:
        assert "unsandboxed" not in await stage.reach(McpState.WAITING)


def test_a_user_lets_servers_out_by_name_and_a_project_none(world: World):
    named = settings(unsandboxed=["shell"])
    assert [is_contained(world.server(origin), named) for origin in McpOrigin] == [False, False, True]
    assert all(is_contained(world.server(origin), settings()) for origin in McpOrigin)
