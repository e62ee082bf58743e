"""The official package's own server, over both transports."""

import contextlib
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from acp_agent.core.mcp import HttpServer, McpOrigin, McpServer, McpState, StdioServer
from tests.mcp.stage import Stage, on_stage

pytestmark = pytest.mark.anyio
GENUINE = str(Path(__file__).with_name("genuine.py"))


async def used(stage: Stage) -> None:
    assert await stage.reach(McpState.READY) == ""
    assert stage.names() == ["add", "picture", "fail"]
    assert stage.connection.definitions()[0].description == "Add two numbers."
    reply = await stage.reply({"a": 2, "b": 3}, "add")
    assert (reply.text, reply.structured, reply.is_error) == ("5", {"result": 5}, False)
    (image,) = (await stage.reply({}, "picture")).images
    assert image.mime_type == "image/png"
    failed = await stage.reply({}, "fail")
    assert (failed.is_error, bool(failed.text)) == (True, True)
    assert (await stage.reply({"a": "no"}, "add")).is_error
    await stage.naps.lap()
    await stage.naps.lap()
    assert stage.connection.state is McpState.READY


async def test_a_genuine_server_over_stdio():
    server = McpServer("genuine", StdioServer(sys.executable, (GENUINE, "stdio")), McpOrigin.CONFIG)
    async with on_stage(server) as stage:
        await used(stage)


async def test_a_genuine_server_over_streamable_http():
    async with _served() as port:
        reach = HttpServer(f"http://127.0.0.1:{port}/mcp", allow_private=True)
        async with on_stage(McpServer("genuine", reach, McpOrigin.CONFIG)) as stage:
            await used(stage)


@asynccontextmanager
async def _served() -> AsyncGenerator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, GENUINE, "streamable-http", str(port)]
    async with await anyio.open_process(command, stdin=None, stdout=None) as process:
        assert process.stderr is not None
        try:
            with anyio.fail_after(20):
                said = b""
                while b"running on" not in said:  # what uvicorn says once it listens
                    said += await process.stderr.receive()
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
