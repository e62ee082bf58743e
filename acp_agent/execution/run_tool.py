"""The innermost executor: runs the tool and turns its errors into results."""

from collections.abc import Callable

from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import ToolResult


class RunTool:
    """Ends every chain. `context_for` makes what one call may use."""

    def __init__(self, context_for: Callable[[Invocation], ToolContext]) -> None:
        self._context_for = context_for

    async def execute(self, invocation: Invocation) -> ToolResult:
        """Raises what is a bug in the tool; the front door tells it."""
        try:
            return await invocation.run(self._context_for(invocation))
        except (ToolError, Refused) as error:
            return ToolResult.failed(error.failure)
        except BackendUnavailable as error:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, str(error)))

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        """The same: whoever asks stands further out."""
        return await self.execute(invocation)

    def requires_confirmation(self, invocation: Invocation) -> bool:
        """A tool asks nobody itself; gates do."""
        del invocation
        return False

    def is_retryable(self, invocation: Invocation) -> bool:
        """Only what changes nothing may be repeated (L6.6)."""
        return not invocation.spec.mutates
