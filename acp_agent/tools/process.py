"""process: look at the background commands of `bash`, write to them, and stop them."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from acp_agent.core.backends import BackgroundProcess, BackgroundProcesses, FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.events import ToolProgress
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import CommandSubject, Frame, Subject, ToolKind, ToolResult, ToolSpec
from acp_agent.text import title
from acp_agent.tools.tool import PROCESSES, WHOLE, Params, Text, Tool, quote

TypesCommands: TypeAlias = Callable[[str], bool]
"""Returns whether the background process with this id is a shell or the like, which runs what is written to it."""

_PATIENCE = 120
_MOST_TITLE = 60


def no_shell(process: str) -> bool:
    """Return False: where nothing runs in the background, nothing is written to."""
    del process
    return False


class ProcessParams(Params):
    """Follow what bash runs in the background: list, output (new since the last look), wait, write, stop."""

    action: Literal["list", "output", "wait", "write", "stop"]
    id: Text | None = Field(default=None, description='Such as "p1"; not for list')
    text: Text | None = Field(
        default=None, description="wait: for this literal, else for the end; write: input with its newline"
    )
    timeout: Annotated[int, Field(ge=1, le=600), WHOLE] = Field(default=_PATIENCE, description="Seconds, for wait")
    offset: Annotated[int, WHOLE] | None = Field(
        default=None, description="output: from this character on, 0 for all, negative from the end"
    )


class Process(Tool[ProcessParams]):
    """The tool for background processes. Only those of the session can be named.

    Looking, waiting and stopping never ask: the user allowed the command itself. What is written to a shell is judged
    as a command line in an unknown folder, so it always asks.
    """

    name = "process"
    kind = ToolKind.EXECUTE
    mutates = True
    polls = True
    params = ProcessParams

    def __init__(self, types_commands: TypesCommands = no_shell) -> None:
        self._types_commands = types_commands

    def spec_of(self, params: ProcessParams) -> ToolSpec:
        return replace(self.spec(), mutates=params.action == "write", queue=PROCESSES)

    def title(self, params: ProcessParams) -> str:
        text = "" if params.text is None else title(quote(params.text[:_MOST_TITLE]))
        match params.action:
            case "list":
                return "list background processes"
            case "output":
                return title(f"output of {params.id}")
            case "wait":
                return title(f"wait for {text} from {params.id}" if text else f"wait for the end of {params.id}")
            case "write":
                return title(f"write {text} to {params.id}")
            case "stop":
                return title(f"stop {params.id}")

    def subjects(self, params: ProcessParams) -> tuple[Subject, ...]:
        if params.action == "write" and params.text and self._types_commands(params.id or ""):
            return (CommandSubject(params.text, typed=True),)
        return ()

    async def summary(self, params: ProcessParams, files: FileSystem) -> str:
        del files
        if params.action != "write":
            return ""
        return f"writes {json.dumps(params.text, ensure_ascii=False)} to the background process {params.id}"

    async def run(self, params: ProcessParams, context: ToolContext) -> ToolResult:
        processes = context.backends.processes
        if params.action == "list":
            every = () if processes is None else processes.listed()
            return ToolResult("\n".join(map(_line, every)) or "nothing runs in the background")
        process = _named(params.id or "", processes)

        async def stream(output: str) -> None:
            await context.progress(ToolProgress(context.call_id, output=output))

        note = ""
        match params.action:
            case "wait":
                if not await process.until(params.text or None, params.timeout, stream):
                    note = _not_seen(params, process)
            case "write":
                if not params.text:
                    raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, "write needs `text`")
                await process.write(params.text)
                return ToolResult(f"written to {process.id}")
            case "stop":
                await process.stop()
            case _:
                pass
        if params.offset is not None:
            output = await process.output_from(params.offset)
        else:
            output = await process.new_output()
        if output and params.action != "wait":
            await stream(output)
        if params.action == "wait" and not note and (params.text or "") not in output:
            note = f"[{quote(params.text)} was printed before the last look]"
        ending = "\n".join(filter(None, (note, f"[{_line(process)}]")))
        shown = output.removesuffix("\n") or ("" if process.outcome else "(no new output)")
        return ToolResult(shown, frame=Frame(ending=ending), envelope={"process": process.id, "stdout": output})


def _named(id: str, processes: BackgroundProcesses | None) -> BackgroundProcess:  # noqa: A002 - the tool's own word
    """Return the process with an id. Raises ToolError with those that there are."""
    process = None if processes is None else processes.find(id)
    if process is not None:
        return process
    known = ", ".join(each.id for each in processes.listed()) if processes is not None else ""
    told = f"there are {known}" if known else "none runs; start one with `bash` and `background`"
    raise ToolError(ToolErrorCategory.INVALID_PARAMETERS, f"there is no background process {quote(id)}: {told}")


def _not_seen(params: ProcessParams, process: BackgroundProcess) -> str:
    if process.outcome is not None:
        return f"[it ended without printing {quote(params.text)}]"
    return f"[waited {params.timeout} s in vain]"


def _line(process: BackgroundProcess) -> str:
    """Return one line that says what the process is and how it is."""
    outcome, lasted = process.outcome, f"{process.seconds:.0f} s"
    if outcome is None:
        state = f"running for {lasted}"
    elif outcome.signal:
        state = f"ended by {outcome.signal} after {lasted}"
    else:
        state = f"exited {'?' if outcome.exit_code is None else outcome.exit_code} after {lasted}"
    return f"{process.id} {state}: {title(process.command)}"
