"""compress_context: replace the conversation before the current request by a summary."""

from typing import Annotated

from pydantic import Field

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import Subject, ToolKind, ToolResult
from acp_agent.tools.tool import Params, Text, Tool


class CompressContextParams(Params):
    """Replace the conversation before the current request by a summary, to make room. The current request stays."""

    focus: Annotated[Text, Field(max_length=500)] = Field(default="", description="What the summary must keep")


class CompressContext(Tool[CompressContextParams]):
    """Asks `Backends.compressor`. It changes only the conversation."""

    name = "compress_context"
    kind = ToolKind.OTHER
    mutates = False
    params = CompressContextParams

    def subjects(self, params: CompressContextParams) -> tuple[Subject, ...]:
        """Return no subject: nothing outside of the conversation is touched."""
        del params
        return ()

    async def run(self, params: CompressContextParams, context: ToolContext) -> ToolResult:
        compressor = context.backends.compressor
        if compressor is None:
            raise ToolError(
                ToolErrorCategory.PERMANENT_FAILURE,
                "summaries are switched off, so this conversation cannot be summed up",
            )
        return ToolResult(await compressor.compress(params.focus))
