"""diagnostics: the errors and warnings of a project, from its own checkers."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from anyio import to_thread

from acp_agent.core.backends import CommandRequest, FileSystem
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError
from acp_agent.core.ports import Invocation, ToolContext
from acp_agent.core.types import (
    Access,
    CommandSubject,
    JsonObject,
    PathSubject,
    Subject,
    ToolCall,
    ToolKind,
    ToolResult,
)
from acp_agent.shape import Field
from acp_agent.text import title
from acp_agent.tools.tool import WHOLE, Name, Params, Tool, fail

if TYPE_CHECKING:
    from acp_agent.tools.checker_report import CheckerResult
    from acp_agent.tools.checkers import CheckerChoice

_OUTPUT_LIMIT = 10 * 1024 * 1024


class DiagnosticsParams(Params):
    """Find errors and warnings with a project's own checkers: cargo, ruff, pyright or mypy, tsc, go vet."""

    path: Name = Field(default=".", description="Folder of the project")
    kind: Literal["check", "clippy"] = Field(default="check", description="For Rust: cargo check or cargo clippy")
    max_diagnostics: Annotated[int, Field(ge=1, le=1000), WHOLE] | None = None


class Diagnostics(Tool[DiagnosticsParams]):
    """The tool that runs the checkers one after another and returns one list of their findings.

    A check may run code of the project (build scripts, plugins, a checker in .venv or node_modules), so the gates judge
    it as the command it is.

    max_diagnostics   the number of diagnostics that are shown if the model names none
    seconds           the time of one checker. Its output until then is kept
    """

    name = "diagnostics"
    verb = "check"
    kind = ToolKind.READ
    mutates = False
    cacheable = True
    params = DiagnosticsParams

    def __init__(self, *, max_diagnostics: int = 50, seconds: float = 300) -> None:
        self._max_diagnostics = max_diagnostics
        self._seconds = seconds

    def subjects(self, params: DiagnosticsParams) -> tuple[Subject, ...]:
        return (PathSubject(params.path, Access.LIST),)

    async def understand(self, call: ToolCall, arguments: JsonObject, files: FileSystem) -> Invocation:
        """Return the invocation. The commands are chosen here, so that the gates judge exactly what runs."""
        invocation = await super().understand(call, arguments, files)
        params = self.parse(arguments)
        try:
            choice = await self._choose(params, files)
        except (ToolError, Refused) as error:
            # A second choice would run what no gate has judged.
            return replace(invocation, run=partial(fail, error), predicted_failure=self.failed(error))
        except BackendUnavailable as error:
            return replace(invocation, run=partial(fail, error))
        return replace(
            invocation,
            title=title("\n".join(choice.commands)) or invocation.title,
            subjects=(*map(CommandSubject, choice.commands), *invocation.subjects),
            run=partial(self._check, choice, params),
        )

    async def run(self, params: DiagnosticsParams, context: ToolContext) -> ToolResult:
        """Choose and check at once, without gates. An invocation runs what `understand` bound instead."""
        return await self._check(await self._choose(params, context.files), params, context)

    async def _choose(self, params: DiagnosticsParams, files: FileSystem) -> "CheckerChoice":
        from acp_agent.tools.checkers import choose  # noqa: PLC0415 - 15 ms that few sessions need

        return await choose(files, params.path, clippy=params.kind == "clippy")

    async def _check(self, choice: "CheckerChoice", params: DiagnosticsParams, context: ToolContext) -> ToolResult:
        from acp_agent.tools.checker_report import finding, report  # noqa: PLC0415 - see above

        findings: list[CheckerResult] = []
        for check in choice.checks:
            request = CommandRequest(check.line, choice.folder, self._seconds, _OUTPUT_LIMIT)
            command = await context.backends.programs.start(request)
            context.defer(command.release)
            findings.append(await to_thread.run_sync(finding, check, await command.wait(_unseen)))
        reported = await to_thread.run_sync(report, choice, findings, params.max_diagnostics or self._max_diagnostics)
        return replace(reported, place="local" if findings else "")


async def _unseen(output: str) -> None:
    """Do nothing: the output of a checker is not streamed."""
    del output
