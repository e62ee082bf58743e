"""The errors of a call to an MCP server. The server's own words are kept apart from ours."""

from typing import Final, cast

from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
from acp_agent.text import visible

_CLOSED: Final = -32000
"""The code that the `mcp` package uses for a closed connection. Servers use it for many other errors."""
_CATEGORIES: Final = {
    _CLOSED: ToolErrorCategory.NETWORK_ERROR,
    -32001: ToolErrorCategory.TIMEOUT,
    -32002: ToolErrorCategory.PERMANENT_FAILURE,  # the resource does not exist
    -32042: ToolErrorCategory.POLICY_BLOCKED,  # the user must visit a page first
    -32600: ToolErrorCategory.PERMANENT_FAILURE,
    -32601: ToolErrorCategory.PERMANENT_FAILURE,  # the method does not exist
    -32602: ToolErrorCategory.INVALID_PARAMETERS,
    -32603: ToolErrorCategory.SERVER_ERROR,
    -32700: ToolErrorCategory.PERMANENT_FAILURE,
    # Servers in front of HTTP APIs pass on their statuses.
    400: ToolErrorCategory.INVALID_PARAMETERS,
    401: ToolErrorCategory.POLICY_BLOCKED,
    403: ToolErrorCategory.POLICY_BLOCKED,
    429: ToolErrorCategory.RATE_LIMITED,
}
_MESSAGE: Final = 1000


class AnsweredError(ToolError):
    """An error that the server answered. `said` holds its own words, bounded and visible; the message does not."""

    def __init__(self, category: ToolErrorCategory, message: str, said: str) -> None:
        super().__init__(category, message)
        self.said = said


def server_said(server: str, code: int, message: str) -> AnsweredError:
    """Return the error for a JSON-RPC error of the server."""
    category = _CATEGORIES.get(code, ToolErrorCategory.PERMANENT_FAILURE)
    if 500 <= code <= 599 or (-32099 <= code < _CLOSED and code not in _CATEGORIES):
        category = ToolErrorCategory.SERVER_ERROR
    said = visible(message[:_MESSAGE]).strip()
    return AnsweredError(category, f"MCP server {server} answered with error {_code(code)}", said)


def tool_changed(server: str, tool: str) -> ToolError:
    """Return the error for a call of a tool that is no longer what the user approved."""
    message = f"MCP server {server} has changed the definition of the tool {tool}, so it was not called"
    again = "Read the new definition, and call the tool again if it still fits. The user will be asked."
    return ToolError(ToolErrorCategory.POLICY_BLOCKED, message, again)


def tools_keep_changing(server: str) -> ToolError:
    """Return the error for a call to a server that keeps changing its list of tools."""
    message = f"MCP server {server} keeps saying that its tools have changed, so none of them was called"
    return ToolError(ToolErrorCategory.POLICY_BLOCKED, message, "Try again later, or do without its tools.")


def connection_lost(server: str, reason: str) -> ToolError:
    """Return the error for a call to a server that is not connected. `reason` is in our own words."""
    message = f"MCP server {server} is not connected" + (f": {reason}" if reason else "")
    return ToolError(ToolErrorCategory.NETWORK_ERROR, message, "Do without its tools for now.")


def call_timed_out(server: str, tool: str, seconds: float) -> ToolError:
    """Return the error for a call that took too long."""
    return ToolError(ToolErrorCategory.TIMEOUT, f"MCP server {server} did not finish {tool} within {seconds:g} s")


def unreadable_result(server: str, why: str) -> ToolError:
    """Return the error for a result that cannot be read."""
    message = f"MCP server {server} gave a result that cannot be read: {why}"
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)


def user_text(failure: ToolFailure) -> str:
    """Return the text of a failure for the user. The advice on a refusal is for the user, not for the model."""
    blocked = failure.category is ToolErrorCategory.POLICY_BLOCKED
    return f"{failure.message}. {failure.suggestion}" if blocked and failure.suggestion else failure.message


def server_words(error: ToolError) -> str:
    """Return the server's own words of an error, or an empty string."""
    return error.said if isinstance(error, AnsweredError) else ""


def exception_name(error: BaseException) -> str:
    """Return the name of the innermost exception type. The message is left out because it may hold a secret."""
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions[0] if _is_group(error) else None
    return type(error).__name__ if inner is None else exception_name(inner)


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


def _code(code: int) -> str:
    return str(code) if abs(code) < 10**9 else "with an impossible code"
