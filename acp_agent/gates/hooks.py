"""The gates that run the user's hooks. A hook can forbid a call or make it ask the user. It can never allow a call.

There are two gates because they have different places in the order. HookGate runs hooks before a call. It comes right
before the permission gate, so that no hook runs for a call that another gate refuses. HookWatchGate runs hooks after a
call. It is the first gate, so that it sees every refusal.
"""

from typing import ClassVar, Protocol

from acp_agent.core.types import Allow, ToolResult, Verdict
from acp_agent.gates.gate import CallFacts, Gate


class ToolHooks(Protocol):
    """The hooks of a session that run before and after calls."""

    async def before(self, facts: CallFacts) -> Verdict:
        """Run the hooks before a call, which takes a bounded time. Return their verdict."""
        ...

    async def after(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        """Run the hooks after a call or its refusal. Return the result, with notes of the hooks if they gave any."""
        ...


class HookGate(Gate):
    """The gate that runs hooks before a call."""

    name: ClassVar[str] = "hooks"

    def __init__(self, hooks: ToolHooks) -> None:
        self._hooks = hooks

    def judge(self, facts: CallFacts) -> Verdict:
        """Return Allow: hooks run only for a call that is about to run."""
        del facts
        return Allow()

    async def examine(self, facts: CallFacts) -> Verdict:
        return await self._hooks.before(facts)


class HookWatchGate(Gate):
    """The gate that runs hooks after a call. It allows every call."""

    name: ClassVar[str] = "hook-watch"

    def __init__(self, hooks: ToolHooks) -> None:
        self._hooks = hooks

    def judge(self, facts: CallFacts) -> Verdict:
        del facts
        return Allow()

    async def conclude(self, facts: CallFacts, result: ToolResult) -> ToolResult:
        return await self._hooks.after(facts, result)
