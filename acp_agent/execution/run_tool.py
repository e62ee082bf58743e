"""The innermost executor: runs the tool and turns whatever happens into a ToolResult."""

from collections.abc import Callable

from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import ToolResult
from acp_agent.log import Log

_log = Log(__name__)


class RunTool:
    """Ends every chain. `context_for` makes what one call may use."""

    def __init__(self, context_for: Callable[[Invocation], ToolContext]) -> None:
        self._context_for = context_for

    async def execute(self, invocation: Invocation) -> ToolResult:
        """Never raises but for cancellation."""
        try:
            return await invocation.run(self._context_for(invocation))
        except (ToolError, Refused) as error:
            return ToolResult.failed(error.failure)
        except BackendUnavailable as error:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, str(error)))
        except Exception as error:  # noqa: BLE001 - a bug in a tool costs the call, not the turn
            _log.error("tool crashed", exc_info=True, tool=invocation.spec.name)
            return ToolResult.failed(
                ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"internal error in {invocation.spec.name}: {error!r}")
            )

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
