"""The `_acp_agent/...` methods (requirements A26; ACP "Extensibility"). Nothing of them is loaded before the first."""

import importlib
from typing import TYPE_CHECKING, Protocol, cast

import anyio.to_thread

from acp_agent.capabilities import EXT_METHODS
from acp_agent.core.errors import AgentError
from acp_agent.core.types import JsonObject
from acp_agent.protocol import frames
from acp_agent.protocol.errors import RpcError

if TYPE_CHECKING:
    from acp_agent.protocol.extension_host import ExtensionHost
    from acp_agent.protocol.extension_methods import Bound

__all__ = ["EXT_METHODS", "Extensions"]

_METHODS = "acp_agent.protocol.extension_methods"


class _Methods(Protocol):
    async def bound(self, method: str, params: JsonObject) -> "Bound": ...


class Extensions:
    """Answers them over a host."""

    def __init__(self, host: "ExtensionHost") -> None:
        self._host = host
        self._methods: _Methods | None = None

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """The answer to a request. Raises RpcError; what else it raises is a bug, and the Peer's to answer."""
        if self._methods is None:
            # In a thread: jsonrpcserver takes 0.1 s, during which others want to be served.
            module = await anyio.to_thread.run_sync(importlib.import_module, _METHODS, abandon_on_cancel=True)
            self._methods = cast("_Methods", module)
        call = await self._methods.bound(method, params)
        try:
            return await call(self._host)
        except AgentError as error:
            raise RpcError(frames.INTERNAL_ERROR, str(error)) from error
