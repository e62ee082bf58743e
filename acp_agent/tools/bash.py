"""bash: run a command line."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from acp_agent.core.backends import BackgroundProcess, CommandOutcome, CommandRequest, FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolProgress
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import CommandSubject, Frame, Subject, ToolKind, ToolResult, ToolSpec
from acp_agent.tools.tool import PROCESSES, WHOLE, Name, Params, Tool

_TELLING = ("permission denied", "no such file or directory")


class BashParams(Params):
    """Run a command line with `bash -c` in the session's folder. Returns its output, and the exit code if not 0.

    Each call is a new shell: cd and variables do not last. There is no standard input, so pass flags that
    avoid prompts. For files, prefer read, edit, grep and find_path.
    """

    command: Name
    timeout: Annotated[int, Field(ge=1, le=600), WHOLE] | None = Field(
        default=None, description="Seconds until the command is killed, usually 120"
    )
    background: bool = Field(
        default=False,
        description="For servers and watchers: returns at once with an id for process",
    )


class Bash(Tool[BashParams]):
    """The tool that runs a command in the session's terminal, the editor's or our own, and streams its output.

    longest   the longest timeout in seconds. A call that asks for more gets this
    """

    name = "bash"
    kind = ToolKind.EXECUTE
    mutates = True
    params = BashParams

    def __init__(self, longest: float = 600) -> None:
        self._longest = longest

    def subjects(self, params: BashParams) -> tuple[Subject, ...]:
        return (CommandSubject(params.command),)

    def spec_of(self, params: BashParams) -> ToolSpec:
        return replace(self.spec(), queue=PROCESSES) if params.background else self.spec()

    async def summary(self, params: BashParams, files: FileSystem) -> str:
        del files
        return "goes on in the background until the session ends or it is stopped" if params.background else ""

    async def run(self, params: BashParams, context: ToolContext) -> ToolResult:
        if params.background:
            return await self._beside(params, context)
        asked = None if params.timeout is None else min(params.timeout, self._longest)
        request = CommandRequest(params.command, context.cwd, asked)
        command = await context.backends.terminal.start(request)
        context.defer(command.release)
        if command.terminal_id is not None:
            await context.progress(ToolProgress(context.call_id, terminal_id=command.terminal_id))

        async def stream(output: str) -> None:
            await context.progress(ToolProgress(context.call_id, output=output))

        return _result(await command.wait(stream), self._longest)

    async def _beside(self, params: BashParams, context: ToolContext) -> ToolResult:
        """Start a background command. If it ends at once, its result is that of any other command."""
        processes = context.backends.processes
        if processes is None:
            raise ToolError(ToolErrorCategory.PERMANENT_FAILURE, "nothing can run in the background here")
        process = await processes.start(params.command, context.cwd)

        async def card_closed() -> None:
            processes.shown(process.id)

        context.defer(card_closed)
        if process.terminal_id is not None:
            await context.progress(ToolProgress(context.call_id, terminal_id=process.terminal_id))
        output = await process.new_output()
        if output:
            await context.progress(ToolProgress(context.call_id, output=output))
        return _running(process, output) if process.outcome is None else _result(process.outcome, self._longest)


def _running(process: BackgroundProcess, output: str) -> ToolResult:
    """Return what a background command has printed until now, and its id."""
    frame = Frame(ending=f"[running as {process.id}]")
    return ToolResult(output.removesuffix("\n"), envelope={"process": process.id, "stdout": output}, frame=frame)


def _result(outcome: CommandOutcome, longest: float) -> ToolResult:
    """Return the output for both readers. For the model an error block is added if the exit is an error.

    In the envelope `exit_code` is 128 + n for signal n, and 124 after a timeout.
    """
    code = outcome.exit_code
    failure = _failure(outcome, longest) if code != 0 or outcome.timed_out else None
    ending = ["[output truncated]"] if outcome.truncated else []
    if code != 0:
        killed = f", killed by {outcome.signal}" if outcome.signal else ""
        ending.append(f"[exit {'unknown' if code is None else code}{killed}]")
    return ToolResult(
        text=outcome.output.removesuffix("\n") or "(no output)",
        envelope={
            "stdout": outcome.stdout,
            "stderr": outcome.stderr,
            "exit_code": code,
            "signal": outcome.signal,
            "truncated": outcome.truncated,
        },
        frame=Frame(
            head="" if failure is None else failure.block(),
            headline="" if failure is None else failure.headline,
            ending="\n".join(ending),
        ),
        failure=failure,
    )


def _failure(outcome: CommandOutcome, longest: float) -> ToolFailure | None:
    """Return the failure for exits that are errors of the call itself. Any other code is the command's own answer."""
    if outcome.timed_out:
        after = "" if outcome.timeout is None else f" after {outcome.timeout:g} s"
        more = f"Give a larger `timeout` (up to {longest:g})" if (outcome.timeout or 0) < longest else "Ask for less"
        advice = f"{more}, or `background: true` for what keeps running."
        return ToolFailure(ToolErrorCategory.TIMEOUT, f"timed out{after}", advice)
    if outcome.exit_code == 126:
        return ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "command cannot be executed (exit 126)")
    if outcome.exit_code == 127:
        return ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "command not found (exit 127)")
    # The line that says it stays in the output only: here it would speak in our name.
    said = outcome.stderr.lower()
    words = min((words for words in _TELLING if words in said), key=said.index, default="")
    return ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"the command reported: {words}") if words else None
