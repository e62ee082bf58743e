"""OutputExecutor: what a tool says, made fit for its readers (requirements 1.D)."""

from collections.abc import Callable

import anyio.to_thread

from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import ToolResult, ToolSpec
from acp_agent.core.wrapper import WrapperExecutor

_INLINE_LIMIT = 256 * 1024
"""Characters up to which a thread would cost more than the work."""


class OutputExecutor(WrapperExecutor):
    """Passes every result through the output pipeline, on both paths."""

    def __init__(self, wrapped: ToolExecutor, apply: Callable[[ToolResult, ToolSpec], ToolResult]) -> None:
        super().__init__(wrapped)
        self._apply = apply

    async def execute(self, invocation: Invocation) -> ToolResult:
        return await self._fit(await self.wrapped.execute(invocation), invocation)

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        return await self._fit(await self.wrapped.execute_confirmed(invocation), invocation)

    async def _fit(self, result: ToolResult, invocation: Invocation) -> ToolResult:
        if _size(result) < _INLINE_LIMIT:
            return self._apply(result, invocation.spec)
        return await anyio.to_thread.run_sync(self._apply, result, invocation.spec)


def _size(result: ToolResult) -> int:
    strings = [value for value in (result.envelope or {}).values() if isinstance(value, str)]
    return sum(map(len, (result.text, result.display or "", *strings)))
