"""Runs one connection as the agent does, tells when its server is up, and goes on: `python agent_like.py SERVER...`."""

import os
import sys

import anyio

from acp_agent.core.mcp import McpOrigin, McpServer, McpState, StdioServer
from acp_agent.mcp.connection import ServerConnection
from acp_agent.workspace.processes.program import ProgramStart


def prepare() -> None:
    """Be that instead of an agent, where a fork server calls this (fork_server.py)."""

    def changed() -> None:
        if connection.state is McpState.READY:
            sys.stdout.write("ready\n")
            sys.stdout.flush()

    server = McpServer("hostile", StdioServer(sys.argv[1], tuple(sys.argv[2:])), McpOrigin.CONFIG)
    connection = ServerConnection(server, changed=changed, start=ProgramStart(os.environ))
    anyio.run(connection.run)


if __name__ == "__main__":
    prepare()
