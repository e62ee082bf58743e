"""Our errors -> JSON-RPC errors, the one place (acp.md 1.7).

-32700 parse error        -32600 invalid request     -32601 method not found
-32602 invalid params     -32603 internal error      -32800 request cancelled
-32000 authentication required (never anything else)
-32002 resource not found (unknown session)
"""

from acp_agent.core.errors import BackendUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.types import Json, JsonObject
from acp_agent.protocol import frames

TELL_THE_USER = "Do not do it another way. Tell the user what the editor answered."
"""What the model is told to do where the editor did not do what it was asked."""


class RpcError(Exception):
    """An error answer, sent or received. `data` never repeats what the peer sent."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_wire(self) -> JsonObject:
        """The JSON-RPC error object."""
        error: JsonObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class ConnectionLost(RpcError):
    """The editor is gone; nothing will be answered any more."""

    def __init__(self) -> None:
        super().__init__(frames.INTERNAL_ERROR, "the client closed the connection")


class NoAnswer(RpcError):
    """The editor did not answer in time."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(frames.INTERNAL_ERROR, f"the client did not answer {method} within {seconds:g} s")


def refused(backend: str, method: str, error: RpcError) -> BackendUnavailable | ToolError:
    """Return what an error answer of the editor means: that it cannot do this at all, or that it will not.

    Another backend may do what the editor cannot. Nothing may do what the editor would not: the call ends.
    """
    if error.code == frames.METHOD_NOT_FOUND:
        return BackendUnavailable(backend, f"{method}: {error.message}", permanent=True)
    return ToolError(
        ToolErrorCategory.POLICY_BLOCKED,
        f"the editor did not do {method}: {error.message}",
        TELL_THE_USER,
    )


def invalid_request(message: str) -> RpcError:
    """The request cannot be served in this state."""
    return RpcError(frames.INVALID_REQUEST, message)


def invalid_params(key: str, problem: str) -> RpcError:
    """A parameter is wrong; `problem` says what was expected."""
    return RpcError(frames.INVALID_PARAMS, f"Invalid params: {key}: {problem}", {"key": key})


def session_not_found(session_id: str) -> RpcError:
    """No such session, or not any more."""
    return RpcError(frames.RESOURCE_NOT_FOUND, "session not found", {"sessionId": session_id})


def method_not_found(method: str) -> RpcError:
    """Nobody serves this method."""
    return RpcError(frames.METHOD_NOT_FOUND, "Method not found", {"method": method})


def internal_error() -> RpcError:
    """A bug of ours; the log has it, the wire does not (A5.6)."""
    return RpcError(frames.INTERNAL_ERROR, "Internal error")


def result_of(response: frames.Response) -> Json:
    """Return the result of a response. Raises RpcError for its error."""
    if response.error is None:
        return response.result
    code, message = response.error.get("code"), response.error.get("message")
    text = message if isinstance(message, str) else "error without a message"
    match response.error.get("data"):
        case {"details": str() as details}:  # where SDKs put what a handler said
            text = f"{text}: {details}"
        case _:
            pass
    raise RpcError(code if isinstance(code, int) else frames.INTERNAL_ERROR, text)
