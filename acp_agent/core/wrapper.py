"""The two bases the chain is built from: a wrapper that changes nothing, and a gate."""

from typing import ClassVar, assert_never

from acp_agent.core.ports import Invocation, ToolExecutor
from acp_agent.core.types import Allow, Ask, Deny, Ruling, ToolResult, ToolSpec, Verdict


class WrapperExecutor:
    """Delegates everything. A concern overrides the one method it is about."""

    def __init__(self, wrapped: ToolExecutor) -> None:
        self.wrapped = wrapped

    async def execute(self, invocation: Invocation) -> ToolResult:
        return await self.wrapped.execute(invocation)

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        return await self.wrapped.execute_confirmed(invocation)

    def requires_confirmation(self, invocation: Invocation) -> bool:
        return self.wrapped.requires_confirmation(invocation)

    def is_retryable(self, invocation: Invocation) -> bool:
        return self.wrapped.is_retryable(invocation)


class Gate(WrapperExecutor):
    """Judges a call before it goes on. Subclasses implement `check`; it must not touch the world.

    Deny ends the call on both paths. Ask travels on with the invocation and is settled by the permission
    gate, the last one; on the confirmed path it was settled before.

    name   what the audit calls it
    """

    name: ClassVar[str] = "gate"

    def allows(self, spec: ToolSpec) -> bool:
        """Whether a tool belongs in the catalogue; not when every call of it would be refused."""
        del spec
        return True

    def check(self, invocation: Invocation) -> Verdict:
        """Allow (no objection), Ask or Deny. Judge `spec` and `subjects`, never argument names."""
        raise NotImplementedError

    async def execute(self, invocation: Invocation) -> ToolResult:
        verdict = self.check(invocation)
        match verdict:
            case Deny() as denial:
                return self.refusal(denial)
            case Ask() as ask:
                return await self.wrapped.execute(invocation.asking(ask))
            case Allow():
                return await self.wrapped.execute(invocation)
            case _:
                assert_never(verdict)

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        verdict = self.check(invocation)
        if isinstance(verdict, Deny):
            return self.refusal(verdict)
        return await self.wrapped.execute_confirmed(invocation)

    def refusal(self, denial: Deny) -> ToolResult:
        """The result of a call that this gate ends."""
        return ToolResult.refused(denial.reason, denial.category, Ruling(self.name, denial.rule))

    def requires_confirmation(self, invocation: Invocation) -> bool:
        verdict = self.check(invocation)
        match verdict:
            case Deny():
                return False
            case Ask() as ask:
                return self.wrapped.requires_confirmation(invocation.asking(ask))
            case Allow():
                return self.wrapped.requires_confirmation(invocation)
            case _:
                assert_never(verdict)
