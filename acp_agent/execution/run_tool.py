"""The innermost executor: runs the tool and turns its errors into results."""

from collections.abc import Callable

import anyio.lowlevel

from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import CommandSubject, ToolResult
from acp_agent.log import Log
from acp_agent.workspace.paths import category_of, in_words

_log = Log(__name__)


class RunTool:
    """Ends every chain. `context_for` makes what one call may use."""

    def __init__(self, context_for: Callable[[Invocation], ToolContext]) -> None:
        self._context_for = context_for

    async def execute(self, invocation: Invocation) -> ToolResult:
        """Raises what is a bug in the tool; the front door tells it.

        An operating system's error that met no seam on its way has its category all the same (L6.3), and names no path.
        A call of a cancelled turn does not begin: a tool may start something before it waits for the first time.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            return await invocation.run(self._context_for(invocation))
        except (ToolError, Refused) as error:
            return ToolResult.failed(error.failure)
        except BackendUnavailable as error:
            return ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, str(error)))
        except OSError as error:
            _log.warning("tool call met an unmapped error", exc_info=True, tool=invocation.spec.name)
            return ToolResult.failed(ToolFailure(category_of(error), f"{invocation.spec.name}: {in_words(error)}"))

    async def execute_confirmed(self, invocation: Invocation) -> ToolResult:
        """The same: whoever asks stands further out."""
        return await self.execute(invocation)

    def requires_confirmation(self, invocation: Invocation) -> bool:
        """A tool asks nobody itself; gates do."""
        del invocation
        return False

    def is_retryable(self, invocation: Invocation) -> bool:
        """Only what changes nothing may be repeated, and a command may change anything (L6.6)."""
        return not (invocation.spec.mutates or any(isinstance(each, CommandSubject) for each in invocation.subjects))
