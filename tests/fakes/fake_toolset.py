"""A Toolset whose tools are functions of the test."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence

from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.types import ToolCall, ToolKind, ToolResult, ToolSpec, Touches

Outcome = str | ToolResult
Tool = Callable[[ToolCall], Outcome | Awaitable[Outcome]]


def spec(name: str, *, mutates: bool = False, kind: ToolKind | None = None, polls: bool = False) -> ToolSpec:
    """What the model is told about a fake tool."""
    default = ToolKind.EXECUTE if mutates else ToolKind.READ
    return ToolSpec(name, f"The {name} tool.", {"type": "object"}, kind or default, mutates, polls=polls)


class FakeToolset:
    """Answers calls with the functions it is given; the names in `mutating` change things, those in `polling` poll.

    announced   the names of the calls whose start was shown before any of them ran
    calls   what was run, in the order it started
    log     ("start", name) and ("end", name) as they happened; no "end" for a call that was cancelled
    """

    def __init__(self, tools: Mapping[str, Tool], mutating: Sequence[str] = (), polling: Sequence[str] = ()) -> None:
        self._tools = dict(tools)
        self._mutating = mutating
        self.announced: list[str] = []
        self._specs = [spec(name, mutates=name in mutating, polls=name in polling) for name in tools]
        self.calls: list[ToolCall] = []
        self.log: list[tuple[str, str]] = []

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    async def announce(self, call: ToolCall) -> Touches:
        self.announced.append(call.name)
        return Touches(alone=call.name in self._mutating)

    async def run(self, call: ToolCall, *, announced: bool = False) -> ToolResult:
        self.calls.append(call)
        self.log.append(("start", call.name))
        result = await self._outcome(call)
        self.log.append(("end", call.name))
        return result

    async def refuse(self, call: ToolCall, result: ToolResult, *, announced: bool = False) -> None:
        self.log.append(("refused", call.name))

    async def _outcome(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.TOOL_NOT_FOUND, f"no tool named {call.name!r}"))
        if call.arguments is None:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.INVALID_PARAMETERS, "arguments: expected an object"))
        outcome = tool(call)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        return ToolResult(outcome) if isinstance(outcome, str) else outcome
