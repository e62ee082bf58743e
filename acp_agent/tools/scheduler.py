"""scheduler: let the session run a prompt later, once or repeatedly. It is off by default (`[scheduler] tool`).

A prompt that fires later acts without the user, so the user is asked about each new one, at every approval level. The
calls of its turn are judged like any others.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from acp_agent.core.backends import FileSystem
from acp_agent.core.errors import ToolError
from acp_agent.core.ports import ToolContext
from acp_agent.core.services import Scheduler
from acp_agent.core.types import ToolKind, ToolResult, ToolSpec
from acp_agent.shape import Field
from acp_agent.text import title
from acp_agent.tools.tool import Params, SessionTool, Text


class SchedulerParams(Params):
    """Run a prompt of yours later in this session, once or again and again. The user is asked before."""

    op: Literal["add", "list", "cancel"] = "add"
    when: Annotated[Text, Field(max_length=200)] = Field(
        default="", description="in 20 minutes, tomorrow 14:30, every 2 hours, every weekday at 9, or cron"
    )
    prompt: Annotated[Text, Field(max_length=100_000)] = ""
    number: Annotated[Text, Field(max_length=20)] = Field(default="", description="For cancel, also all")


class SchedulerTool(SessionTool[SchedulerParams]):
    """The tool that hands prompts to the session's scheduler, which `found` returns; None if nothing is stored."""

    name = "scheduler"
    kind = ToolKind.OTHER
    mutates = True

    def __init__(self, found: Callable[[], Scheduler | None] = lambda: None) -> None:
        self._found = found

    def spec_of(self, params: SchedulerParams) -> ToolSpec:
        """Return the definition for one call: to list changes nothing, and only to add acts later."""
        return replace(self.spec(), mutates=params.op != "list", acts_later=params.op == "add")

    def title(self, params: SchedulerParams) -> str:
        match params.op:
            case "add":
                return title(f"Schedule {params.when}: {params.prompt}")
            case "list":
                return "List the scheduled prompts"
            case "cancel":
                return title(f"Cancel the scheduled prompt {params.number}")

    async def summary(self, params: SchedulerParams, files: FileSystem) -> str:
        """Return what would be added. Raises ToolError if it cannot be."""
        del files
        return await self._scheduler().preview(params.when, params.prompt) if params.op == "add" else ""

    async def run(self, params: SchedulerParams, context: ToolContext) -> ToolResult:
        if context.agent is not None:
            raise ToolError.permanent("sub-agents schedule nothing")
        match params.op:
            case "add":
                return ToolResult(await self._scheduler().add(params.when, params.prompt, by_model=True))
            case "list":
                return ToolResult(await self._scheduler().listed())
            case "cancel":
                return ToolResult(await self._scheduler().cancel(params.number))

    def _scheduler(self) -> Scheduler:
        scheduler = self._found()
        if scheduler is None:
            raise ToolError.permanent("nothing can be scheduled: this session is not stored")
        return scheduler
