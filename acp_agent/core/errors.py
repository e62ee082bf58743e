"""The errors of the agent, each with the part that acts on it, and the categories of tool errors.

    AgentError
    ├── ToolError           the model adapts; carries a ToolErrorCategory
    ├── Refused             a gate or the sandbox said no; never retried, never asked again
    ├── BackendUnavailable  one backend cannot do this; the composite tries the next
    ├── ProviderError       the model API failed; retried, else the turn ends with a message
    ├── StoreUnavailable    nothing can be kept or looked up now; work goes on without
    └── ConfigError         the user corrects a file, a variable or a flag

    category            retryable  quality failure
    tool_not_found      no         yes
    invalid_parameters  no         yes
    type_mismatch       no         yes
    policy_blocked      no         no
    confirmation_required no       no
    permanent_failure   no         no
    cancelled           no         no
    rate_limited        yes        no
    server_error        yes        no
    network_error       yes        no
    timeout             yes        no

`retryable` says whether the system may repeat the call by itself. A quality failure is a mistake of the model; only
these count against it.
"""

from enum import StrEnum

from acp_agent.core.data import frozen


class ToolErrorCategory(StrEnum):
    """The ways in which a tool call fails."""

    TOOL_NOT_FOUND = "tool_not_found"
    INVALID_PARAMETERS = "invalid_parameters"
    TYPE_MISMATCH = "type_mismatch"
    POLICY_BLOCKED = "policy_blocked"
    CONFIRMATION_REQUIRED = "confirmation_required"
    PERMANENT_FAILURE = "permanent_failure"
    CANCELLED = "cancelled"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    NETWORK_ERROR = "network_error"
    TIMEOUT = "timeout"

    @property
    def retryable(self) -> bool:
        """Whether the system itself may repeat the call."""
        return self in _RETRYABLE

    @property
    def quality_failure(self) -> bool:
        """Whether the model made a mistake."""
        return self in _QUALITY


_RETRYABLE = frozenset(
    {
        ToolErrorCategory.RATE_LIMITED,
        ToolErrorCategory.SERVER_ERROR,
        ToolErrorCategory.NETWORK_ERROR,
        ToolErrorCategory.TIMEOUT,
    }
)
_QUALITY = frozenset(
    {
        ToolErrorCategory.TOOL_NOT_FOUND,
        ToolErrorCategory.INVALID_PARAMETERS,
        ToolErrorCategory.TYPE_MISMATCH,
    }
)
_SUGGESTIONS = {
    ToolErrorCategory.TOOL_NOT_FOUND: "Use one of your tools.",
    ToolErrorCategory.INVALID_PARAMETERS: "Correct the arguments to match the tool's schema.",
    ToolErrorCategory.TYPE_MISMATCH: "Correct the argument types to match the tool's schema.",
    ToolErrorCategory.POLICY_BLOCKED: "Do not try to get around this. Choose another approach or ask the user.",
    ToolErrorCategory.CONFIRMATION_REQUIRED: "Ask the user to allow this.",
    ToolErrorCategory.PERMANENT_FAILURE: "Do not repeat the same call. Check the path or the command.",
    ToolErrorCategory.CANCELLED: "Wait for the user.",
    ToolErrorCategory.RATE_LIMITED: "Go on with other work and try it once more later.",
    ToolErrorCategory.SERVER_ERROR: "Go on without it, or try it once more later.",
    ToolErrorCategory.NETWORK_ERROR: "Check that the network is reachable.",
    ToolErrorCategory.TIMEOUT: "Ask for less at once, or go on without it.",
}
"""What the model is told to do if the error has no better advice."""


@frozen
class ToolFailure:
    """The failure of a call. The model reads what happened and what to do; the audit also records the category."""

    category: ToolErrorCategory
    message: str
    suggestion: str = ""

    @property
    def headline(self) -> str:
        """The line that says what happened: `[error] ...`."""
        return f"[error] {' '.join(self.message.splitlines())}"

    def block(self) -> str:
        """Return what the model reads: the headline, and `[advice] ...` with what to do."""
        advice = self.suggestion or _SUGGESTIONS[self.category]
        return f"{self.headline}\n[advice] {' '.join(advice.splitlines())}"


class AgentError(Exception):
    """The base of all our errors. `str(error)` may be shown to the user."""


class ToolError(AgentError):
    """A tool could not do what it was asked. The model reads why and adapts."""

    def __init__(self, category: ToolErrorCategory, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.failure = ToolFailure(category, message, suggestion)

    @staticmethod
    def permanent(message: str, suggestion: str = "") -> "ToolError":
        """Return the error of a call that fails in the same way when it is repeated (permanent_failure)."""
        return ToolError(ToolErrorCategory.PERMANENT_FAILURE, message, suggestion)

    @staticmethod
    def invalid(message: str, suggestion: str = "") -> "ToolError":
        """Return the error of a call whose arguments are wrong (invalid_parameters)."""
        return ToolError(ToolErrorCategory.INVALID_PARAMETERS, message, suggestion)


class Refused(AgentError):
    """The sandbox or a gate refused. The model is told `policy_blocked`, and the call is never retried."""

    def __init__(self, reason: str, suggestion: str = "") -> None:
        super().__init__(reason)
        self.failure = ToolFailure(ToolErrorCategory.POLICY_BLOCKED, reason, suggestion)


class BackendUnavailable(AgentError):
    """A backend cannot perform an operation. The composite tries its next backend.

    permanent   whether this backend cannot do it for the rest of the session
    quiet       whether the user need not be told
    """

    def __init__(self, backend: str, reason: str, *, permanent: bool = False, quiet: bool = False) -> None:
        super().__init__(f"{backend}: {reason}")
        self.reason = reason
        self.permanent = permanent
        self.quiet = quiet


class ProviderErrorKind(StrEnum):
    """The kind of a failure between us and a model API."""

    AUTH = "auth"
    NOT_FOUND = "not_found"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_TOO_LONG = "context_too_long"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER = "server"
    NETWORK = "network"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    NOT_CONFIGURED = "not_configured"


class ProviderError(AgentError):
    """A model API call failed. The message names provider and model, says what to do, and never holds a key.

    status        the HTTP status, if there was a response
    retry_after   seconds, if the server gave them
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.kind in _RETRYABLE_PROVIDER


_RETRYABLE_PROVIDER = frozenset(
    {
        ProviderErrorKind.RATE_LIMITED,
        ProviderErrorKind.OVERLOADED,
        ProviderErrorKind.SERVER,
        ProviderErrorKind.NETWORK,
        ProviderErrorKind.TIMEOUT,
    }
)


class StoreUnavailable(AgentError):
    """The database cannot be used: locked, full, read-only, damaged. The message names the cause."""


class ConfigError(AgentError):
    """A mistake in the configuration. It names the place, the key, the value and what was expected."""

    def __init__(self, where: str, key: str, value: str, expected: str) -> None:
        what = f"{key} = {value}" if value else key
        super().__init__(f"{where}: {what}: expected {expected}" if key else f"{where}: {expected}")
        self.where = where
        self.key = key
        self.value = value
        self.expected = expected


class MissingKey(ConfigError):
    """A model's server requires a key, and there is none. The user must log in."""


class RequestError(Exception):
    """A request of the editor that cannot be served. `str(error)` is the reason, for the editor's user.

    It is not an AgentError, because a turn would catch that and show it as a message instead of failing the request.
    """


class SessionNotFound(RequestError):
    """No session has this id now."""

    def __init__(self, session_id: str) -> None:
        super().__init__("session not found")
        self.session_id = session_id


class InvalidState(RequestError):
    """The request cannot be served in the present state."""


class InvalidField(RequestError):
    """A field of the request is wrong. `problem` says what was expected."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class RequestFailed(RequestError):
    """The request was valid but failed."""


class LoginRequired(RequestError):
    """The user must log in first. Editors show their login for it."""
