"""What a server's error means for a call (L6.11). The server's own words are kept apart from ours."""

from typing import Final, cast

from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
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


class AnsweredError(ToolError):
    """A server answered with an error. `said`: its own words, bounded and visible; they are not in the message."""

    def __init__(self, category: ToolErrorCategory, message: str, said: str) -> None:
        super().__init__(category, message)
        self.said = said


def server_said(server: str, code: int, message: str) -> AnsweredError:
    """The error for a JSON-RPC error of a server."""
    category = _CATEGORIES.get(code, ToolErrorCategory.PERMANENT_FAILURE)
    if 500 <= code <= 599 or (-32099 <= code < _CLOSED and code not in _CATEGORIES):
        category = ToolErrorCategory.SERVER_ERROR
    said = visible(message[:_MESSAGE]).strip()
    return AnsweredError(category, f"MCP server {server} answered with error {_code(code)}", said)


def changed(server: str, tool: str) -> ToolError:
    """The error for a call of a tool that is no longer what was agreed to."""
    message = f"MCP server {server} has changed what it says of this tool ({tool}), so it was not called"
    again = "Look at the tools you have now, and call it again if it still fits: the user will be asked."
    return ToolError(ToolErrorCategory.POLICY_BLOCKED, message, again)


def unsettled(server: str) -> ToolError:
    """The error for a call while nobody knows what a server's tools are: it says that they change, and how not."""
    message = f"MCP server {server} keeps saying that its tools have changed, so none of them was called"
    return ToolError(ToolErrorCategory.POLICY_BLOCKED, message, "Try again later, or do without its tools.")


def connection_lost(server: str, reason: str) -> ToolError:
    """The error for a call whose server is gone, or was never there. `reason` is in our own words."""
    message = f"MCP server {server} is not connected" + (f": {reason}" if reason else "")
    return ToolError(ToolErrorCategory.NETWORK_ERROR, message, "Do without its tools for now.")


def no_answer(server: str, tool: str, seconds: float) -> ToolError:
    """The error for a call that took too long."""
    return ToolError(ToolErrorCategory.TIMEOUT, f"MCP server {server} did not finish {tool} within {seconds:g} s")


def no_reply(server: str, why: str) -> ToolError:
    """The error for a result that is none."""
    message = f"MCP server {server} gave a result that cannot be read: {why}"
    return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message)


def told(failure: ToolFailure) -> str:
    """A failure in the user's words; what they may do about a refusal is for them, not for the model."""
    blocked = failure.category is ToolErrorCategory.POLICY_BLOCKED
    return f"{failure.message}. {failure.suggestion}" if blocked and failure.suggestion else failure.message


def words_of(error: ToolError) -> str:
    """The server's own words, where there are any."""
    return error.said if isinstance(error, AnsweredError) else ""


def kind_of(error: BaseException) -> str:
    """The innermost type of an exception; words may hold anything, a secret too."""
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions[0] if _is_group(error) else None
    return type(error).__name__ if inner is None else kind_of(inner)


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


def _code(code: int) -> str:
    return str(code) if abs(code) < 10**9 else "of a number nobody knows"
