"""Whether this connection may work with models (ACP "Authentication"; acp.md 1.4; A3.8-A3.10).

Nothing has to be done to be let in: keys come from the environment, the configuration or `acp-agent login`. Only who
has logged out is asked to authenticate again, and only then does anything answer -32000.
"""

from collections.abc import Callable

import anyio.to_thread

from acp_agent.capabilities import AUTH_METHOD, LOGIN_METHOD
from acp_agent.core.errors import ConfigError
from acp_agent.core.types import JsonObject
from acp_agent.protocol import frames
from acp_agent.protocol.errors import RpcError, invalid_params

_OPEN_TO_ALL = frozenset({"initialize", "authenticate", "logout", "session/cancel", "session/close", "session/delete"})
"""What introduces, ends, frees or forgets may be asked at any time. All else shows or does something."""


class AuthState:
    """Logged in or out, for as long as the connection lasts.

    forget   removes the keys that `acp-agent login` stored, and blocks meanwhile. May raise ConfigError
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._logged_out = False

    def admit(self, method: str) -> None:
        """Let a request pass. Raises RpcError -32000 for most of them after `logout`."""
        if self._logged_out and method not in _OPEN_TO_ALL:
            raise auth_required()

    def authenticate(self, params: JsonObject) -> JsonObject:
        """The answer to `authenticate`; there is nothing to wait for. Raises RpcError -32602 for another method."""
        method = params.get("methodId")
        if method == LOGIN_METHOD:
            raise invalid_params("methodId", f"{LOGIN_METHOD} is run in a terminal: acp-agent login")
        if method != AUTH_METHOD:
            raise invalid_params("methodId", f"unknown method: expected {AUTH_METHOD}")
        self._logged_out = False
        return {}

    async def logout(self) -> JsonObject:
        """The answer to `logout`, also to a second one. Turns that run end as they would have.

        Raises RpcError -32603 when stored keys could not be removed; the connection is logged out all the same.
        """
        self._logged_out = True
        try:
            await anyio.to_thread.run_sync(self._forget, abandon_on_cancel=True)
        except ConfigError as error:
            raise RpcError(frames.INTERNAL_ERROR, f"logged out, but stored keys are still there: {error}") from error
        return {}


def auth_required(why: str = "Logged out: authenticate to go on") -> RpcError:
    """Nothing but this is ever -32000: editors show their login for it."""
    return RpcError(frames.AUTH_REQUIRED, why)
