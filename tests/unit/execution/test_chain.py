"""The order of the gates, whatever the names say."""

from collections.abc import Callable

import pytest

from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import ToolCall, ToolKind, ToolResult, ToolSpec
from acp_agent.core.wrapper import WrapperExecutor
from acp_agent.execution.chain import build_chain

pytestmark = pytest.mark.anyio


class Innermost(WrapperExecutor):
    """The tool."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    async def execute(self, invocation: Invocation) -> ToolResult:
        self.seen.append("tool")
        return ToolResult("ran")


def noting(seen: list[str], name: str) -> Callable[[ToolExecutor], ToolExecutor]:
    class Noting(WrapperExecutor):
        async def execute(self, invocation: Invocation) -> ToolResult:
            seen.append(name)
            return await self.wrapped.execute(invocation)

    return Noting


async def test_the_blocklist_is_first_the_question_last_and_output_next_to_the_tool() -> None:
    seen: list[str] = []
    names = ("output", "permission", "sandbox", "mode", "blocklist")
    chain = build_chain(Innermost(seen), **{name: noting(seen, name) for name in names})
    spec = ToolSpec("t", "", {}, ToolKind.OTHER, mutates=False)

    async def unused(_context: object) -> ToolResult:
        raise AssertionError

    await chain.execute(Invocation(ToolCall("1", "t", {}), spec, "t", unused))
    assert seen == ["blocklist", "mode", "sandbox", "permission", "output", "tool"]
