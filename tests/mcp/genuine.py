"""A server made with the official package: `python genuine.py stdio`, or `streamable-http PORT`."""

import sys

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("genuine")
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a494441"
    "54789c636800000082008177cd72b60000000049454e44ae426082"
)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def picture() -> Image:
    """Show a picture."""
    return Image(data=PNG, format="png")


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it went wrong")


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
