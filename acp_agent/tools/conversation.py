"""update_plan and compress_context: tools that touch only the conversation itself."""

from typing import Annotated, Literal

from acp_agent.core.errors import ToolError
from acp_agent.core.events import PlanEntry, PlanPriority, PlanStatus
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import ToolKind, ToolResult
from acp_agent.shape import Field
from acp_agent.text import visible
from acp_agent.tools.tool import Name, Params, Part, SessionTool, Text

_LINE = 200  # characters of a step in the result for the model


class PlanStep(Part):
    """One step."""

    content: Annotated[Name, Field(max_length=500)]
    status: Literal["pending", "in_progress", "completed"]
    priority: Literal["high", "medium", "low"] = "medium"

    def entry(self) -> PlanEntry:
        """Return the step, on one line."""
        content = visible(" ".join(self.content.split()))
        return PlanEntry(content, PlanStatus(self.status), PlanPriority(self.priority))


class UpdatePlanParams(Params):
    """Show the user your plan for work of several steps, and update it as you go.

    Send the whole list each time, with one step in progress.
    """

    entries: Annotated[list[PlanStep], Field(max_length=50)]


class UpdatePlan(SessionTool[UpdatePlanParams]):
    """The tool that hands the plan to `Backends.show_plan`. The plan stays until the model changes it."""

    name = "update_plan"
    kind = ToolKind.OTHER  # editors draw "think" as a thought, beside the plan itself
    mutates = False

    def title(self, params: UpdatePlanParams) -> str:
        return f"Plan: {_progress(params)}"

    async def run(self, params: UpdatePlanParams, context: ToolContext) -> ToolResult:
        entries = tuple(step.entry() for step in params.entries)
        if context.backends.show_plan is not None:
            await context.backends.show_plan(entries)
        now = [entry.content for entry in entries if entry.status is PlanStatus.IN_PROGRESS]
        going = f"; in progress: {now[0][:_LINE]}" if now else ""
        advice = f" (and {len(now) - 1} more: better one at a time)" if len(now) > 1 else ""
        return ToolResult(f"Plan: {_progress(params)}{going}{advice}")


def _progress(params: UpdatePlanParams) -> str:
    done = sum(step.status == "completed" for step in params.entries)
    return f"{done} of {len(params.entries)} done" if params.entries else "empty"


class CompressContextParams(Params):
    """Replace the conversation before the current request by a summary, to make room. The current request stays."""

    focus: Annotated[Text, Field(max_length=500)] = Field(default="", description="What the summary must keep")


class CompressContext(SessionTool[CompressContextParams]):
    """The tool that asks `Backends.compressor`. It changes only the conversation."""

    name = "compress_context"
    kind = ToolKind.OTHER
    mutates = False

    async def run(self, params: CompressContextParams, context: ToolContext) -> ToolResult:
        compressor = context.backends.compressor
        if compressor is None:
            raise ToolError.permanent(
                "summaries are switched off, so this conversation cannot be summed up",
            )
        return ToolResult(await compressor.compress(params.focus))
