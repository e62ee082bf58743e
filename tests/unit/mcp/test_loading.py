"""What a session without servers pays for this folder."""

import subprocess
import sys


def test_nothing_of_the_package_is_loaded_before_a_connection_runs():
    code = (
        "import sys, acp_agent.mcp.connection as c; from acp_agent.core.mcp import *;"
        "c.ServerConnection(McpServer('s', StdioServer('x'), McpOrigin.CONFIG), changed=print, start=None);"
        "print([name for name in ('mcp', 'mcp_types', 'httpx', 'httpx2', 'httpcore', 'pydantic', 'psutil')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
