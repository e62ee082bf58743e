"""The order of the gates, whatever the names say."""

from collections.abc import Callable

import pytest

from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import ToolCall, ToolKind, ToolResult, ToolSpec
from acp_agent.core.wrapper import WrapperExecutor
from acp_agent.execution.chain import Place, absent, build_chain

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


async def test_every_link_stands_at_its_place_whatever_the_order_they_are_given_in() -> None:
    seen: list[str] = []
    links = {place: noting(seen, place) for place in reversed(Place)}
    chain = build_chain(Innermost(seen), links)
    spec = ToolSpec("t", "", {}, ToolKind.OTHER, mutates=False)

    async def unused(_context: object) -> ToolResult:
        raise AssertionError

    await chain.execute(Invocation(ToolCall("1", "t", {}), spec, "t", unused))
    assert seen == [*Place, "tool"]


def test_the_audit_sees_everything_the_blocklist_is_the_first_gate_and_the_question_the_last() -> None:
    assert [*Place][:2] == [Place.AUDIT, Place.BLOCKLIST]
    assert [*Place][-4:] == [Place.PERMISSION, Place.CACHE, Place.OUTPUT, Place.RETRY]


def test_a_place_nobody_stands_at_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="quota"):
        build_chain(Innermost([]), {place: absent for place in Place if place is not Place.QUOTA})
