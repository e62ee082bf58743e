"""What a server's error means for a call (L6.11)."""

from typing import Final

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.tools.visible import visible

_CLOSED: Final = -32000
"""What the `mcp` package says when a connection ended; servers of their own say all kinds of things by it."""
_CATEGORIES: Final = {
    _CLOSED: ToolErrorCategory.NETWORK_ERROR,
    -32001: ToolErrorCategory.TIMEOUT,
    -32002: ToolErrorCategory.PERMANENT_FAILURE,  # no such resource
    -32042: ToolErrorCategory.POLICY_BLOCKED,  # wants the user to visit a page first
    -32600: ToolErrorCategory.PERMANENT_FAILURE,
    -32601: ToolErrorCategory.PERMANENT_FAILURE,  # no such method
    -32602: ToolErrorCategory.INVALID_PARAMETERS,
    -32603: ToolErrorCategory.SERVER_ERROR,
    -32700: ToolErrorCategory.PERMANENT_FAILURE,
    # Servers behind HTTP APIs hand on statuses.
    400: ToolErrorCategory.INVALID_PARAMETERS,
    401: ToolErrorCategory.POLICY_BLOCKED,
    403: ToolErrorCategory.POLICY_BLOCKED,
    429: ToolErrorCategory.RATE_LIMITED,
}
_MESSAGE: Final = 1000


def server_said(server: str, code: int, message: str) -> ToolError:
    """The error for a JSON-RPC error of a server."""
    category = _CATEGORIES.get(code, ToolErrorCategory.PERMANENT_FAILURE)
    if 500 <= code <= 599 or (-32099 <= code < _CLOSED and code not in _CATEGORIES):
        category = ToolErrorCategory.SERVER_ERROR
    said = visible(message[:_MESSAGE]).strip() or "nothing"
    return ToolError(category, f"MCP server {server} answered with error {_code(code)}: {said}")


def connection_lost(server: str, reason: str) -> ToolError:
    """The error for a call whose server is gone, or was never there."""
    message = f"MCP server {server} is not connected" + (f": {reason}" if reason else "")
    return ToolError(ToolErrorCategory.NETWORK_ERROR, message, "Do without its tools for now.")


def no_answer(server: str, tool: str, seconds: float) -> ToolError:
    """The error for a call that took too long."""
    return ToolError(ToolErrorCategory.TIMEOUT, f"MCP server {server} did not finish {tool} within {seconds:g} s")


def no_reply(server: str, why: str) -> ToolError:
    """The error for a result that is none."""
    message = f"MCP server {server} gave a result that cannot be read: {why}"
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)


def _code(code: int) -> str:
    return str(code) if abs(code) < 10**9 else "of a number nobody knows"
