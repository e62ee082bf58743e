"""bash: run a command line. process: look at the background commands of `bash`, write to them, and stop them."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple, TypeAlias

from acp_agent.core.backends import BackgroundProcess, BackgroundProcesses, CommandOutcome, CommandRequest, FileSystem
from acp_agent.core.errors import ToolError, ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolProgress
from acp_agent.core.ports import ToolContext
from acp_agent.core.types import CommandSubject, Frame, JsonObject, Subject, ToolKind, ToolResult, ToolSpec
from acp_agent.shape import Field
from acp_agent.text import title
from acp_agent.tools.tool import PROCESSES, WHOLE, Name, Params, Text, Tool, quote
from acp_agent.workspace.sandbox.sandbox import wall_named

_MISSING = re.compile(
    r"^(?:\S+: )?(?:(?:line )?\d+: )?([\w.+-]{1,60}): (?:command )?not found$", re.ASCII | re.MULTILINE
)
"""A shell's message about a missing program. Only the name is used in our own text: programs can print anything."""
_LOCAL, _EDITOR = "local", "editor"
_ONLY = "only servers of this session"
_MOST_HOSTS = 10
_TELLING = ("permission denied", "no such file or directory")
_KILLING = re.compile(r"\b(?:pkill|killall|fuser|lsof)\b")
_BACKGROUND = "[`process` lists and stops what runs in the background; other commands may not see it]"
_OTHER_TMP = "What it leaves in /tmp is not seen in the sandbox; what it leaves in this folder is."


class BashParams(Params):
    """Run a command line with `bash -c` in the session's folder. Returns its output, and the exit code if not 0.

    Each call is a new shell: cd and variables do not last. No standard input: pass flags that
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


class ContainedBashParams(BashParams):
    """Run a command line with `bash -c` in the session's folder. Returns its output, and the exit code if not 0.

    Each call is a new shell: cd and variables do not last. No standard input: pass flags that
    avoid prompts. Its sandbox changes only this folder and its own /tmp, and reaches only servers of this session.
    For files, prefer read, edit, grep and find_path.
    """

    unsandboxed: bool = Field(
        default=False, description="Ask the user to run it outside the sandbox, where /tmp differs"
    )
    reason: Text | None = Field(default=None, description="Why")


class Bash(Tool[BashParams]):
    """The tool that runs a command in the session's terminal, the editor's or our own, and streams its output.

    longest     the longest timeout in seconds. A call that asks for more gets this
    reached     the hosts that commands reach in their sandbox, unless they ask to leave it; None without a sandbox
    for_custom  whether it runs the commands of custom tools, whose calls cannot ask to leave it
    """

    name = "bash"
    kind = ToolKind.EXECUTE
    mutates = True
    commands = True

    def __init__(self, longest: float = 600, *, reached: Sequence[str] | None = None, for_custom: bool = False) -> None:
        self._longest = longest
        self._for_custom = for_custom
        self._contained = reached is not None
        self._hosts = tuple(reached or ())
        if self._contained:
            self.params = ContainedBashParams

    def spec(self) -> ToolSpec:
        spec = super().spec()
        if not self._hosts:
            return spec
        more = f" and {len(self._hosts) - _MOST_HOSTS} more" if len(self._hosts) > _MOST_HOSTS else ""
        hosts = f"{_ONLY} and, through HTTPS_PROXY, {', '.join(self._hosts[:_MOST_HOSTS])}{more}"
        return replace(spec, description=spec.description.replace(_ONLY, hosts))

    def subjects(self, params: BashParams) -> tuple[Subject, ...]:
        return (CommandSubject(params.command, stays=params.background, unsandboxed=_is_free(params)),)

    def spec_of(self, params: BashParams) -> ToolSpec:
        return replace(self.spec(), queue=PROCESSES, commands=False) if params.background else self.spec()

    async def summary(self, params: BashParams, files: FileSystem) -> str:
        del files
        said = ["goes on in the background until the session ends or it is stopped"] if params.background else []
        if isinstance(params, ContainedBashParams) and params.unsandboxed:
            said.append(f"to run without the sandbox: {title(params.reason or '') or 'no reason is given'}")
        return "; ".join(said)

    async def run(self, params: BashParams, context: ToolContext) -> ToolResult:
        if params.background:
            return await self._beside(params, context)
        asked = None if params.timeout is None else min(params.timeout, self._longest)
        free = context.by_user or _is_free(params)
        request = CommandRequest(params.command, context.cwd, asked, unsandboxed=free, read_only=context.read_only)
        command = await context.backends.terminal.start(request)
        context.defer(command.release)
        if command.terminal_id is not None:
            await context.progress(ToolProgress(context.call_id, terminal_id=command.terminal_id))

        async def stream(output: str) -> None:
            await context.progress(ToolProgress(context.call_id, output=output))

        return self._result(params, await command.wait(stream), command.terminal_id, free=free)

    async def _beside(self, params: BashParams, context: ToolContext) -> ToolResult:
        """Start a background command. If it ends at once, its result is that of any other command."""
        processes = context.backends.processes
        if processes is None:
            raise ToolError.permanent("nothing can run in the background here")
        free = context.by_user or _is_free(params)
        process = await processes.start(params.command, context.cwd, unsandboxed=free)

        async def card_closed() -> None:
            processes.card_closed(process.id)

        context.defer(card_closed)
        if process.terminal_id is not None:
            await context.progress(ToolProgress(context.call_id, terminal_id=process.terminal_id))
        output, _ = await process.new_output()
        if output:
            await context.progress(ToolProgress(context.call_id, output=output))
        if process.outcome is None:
            return _running(process, output)
        return self._result(params, process.outcome, process.terminal_id, free=free)

    def _result(
        self, params: BashParams, outcome: CommandOutcome, terminal_id: str | None, *, free: bool
    ) -> ToolResult:
        """Return the result of a command that has ended."""
        wall = wall_named(outcome.output, outcome.exit_code) if self._contained and not free else ""
        stopped = wall and StoppedBySandbox(wall, params.command if self._for_custom else "")
        result = _result(outcome, self._longest, stopped or None, _LOCAL if terminal_id is None else _EDITOR)
        in_vain = self._contained and not free and outcome.exit_code and _KILLING.search(params.command)
        if in_vain and result.frame is not None:
            return replace(result, frame=replace(result.frame, ending=f"{result.frame.ending}\n{_BACKGROUND}"))
        return result


class StoppedBySandbox(NamedTuple):
    """The wall of the sandbox that stopped a command.

    wall      which wall it was, in words
    command   the command to run with `bash` outside the sandbox; empty if the call was one of `bash` itself
    """

    wall: str
    command: str

    @property
    def ending(self) -> str:
        """The line behind an output in which the wall was named, though the command did not fail."""
        call = f"`{self.command}` with `bash` and `unsandboxed: true`" if self.command else "`unsandboxed: true`"
        return f"[in the sandbox {self.wall}; {call} asks the user. {_OTHER_TMP}]"

    @property
    def failure(self) -> ToolFailure:
        """The failure of a command that the wall ended."""
        again = f"run `{self.command}` with `bash`," if self.command else "call again with"
        again = f"{again} `unsandboxed: true` and a `reason`: the user is asked."
        if "reached" in self.wall:
            advice = f"{again[0].upper()}{again[1:]} {_OTHER_TMP}"
        else:
            advice = f"Do it within the session's folder, or {again}"
        return ToolFailure(ToolErrorCategory.POLICY_BLOCKED, f"in the sandbox {self.wall}", advice)


def _is_free(params: BashParams) -> bool:
    """Return whether a call asks to run without the sandbox."""
    return isinstance(params, ContainedBashParams) and params.unsandboxed


def _running(process: BackgroundProcess, output: str) -> ToolResult:
    """Return what a background command has printed until now, and its id."""
    frame = Frame(ending=f"[running as {process.id}]")
    envelope: JsonObject = {"process": process.id, "stdout": output}
    place = _LOCAL if process.terminal_id is None else _EDITOR
    return ToolResult(output.removesuffix("\n"), envelope=envelope, frame=frame, place=place)


def _result(outcome: CommandOutcome, longest: float, stopped: StoppedBySandbox | None, place: str) -> ToolResult:
    """Return the output for the user and the model. The model also gets an error block if the exit is an error.

    stopped  what stopped the command; None if no wall of the sandbox did
    place    where it ran, for the audit
    In the envelope `exit_code` is 128 + n for signal n, and 124 after a timeout.
    """
    code = outcome.exit_code
    failure = _failure(outcome, longest, stopped) if code != 0 or outcome.timed_out else None
    lost = ": the editor kept only its end" if outcome.beginning_lost else ""
    ending = [f"[output truncated{lost}]"] if outcome.truncated else []
    if code != 0:
        killed = f", killed by {outcome.signal}" if outcome.signal else ""
        ending.append(f"[exit {'unknown' if code is None else code}{killed}]")
    elif stopped is not None:  # the last program of a pipe may hide it
        ending.append(stopped.ending)
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
        place=place,
        wall="" if stopped is None else stopped.wall,
    )


def _failure(outcome: CommandOutcome, longest: float, stopped: StoppedBySandbox | None) -> ToolFailure | None:
    """Return the failure for exits that are errors of the call itself. Any other code is the command's own answer."""
    if outcome.timed_out:
        after = "" if outcome.timeout is None else f" after {outcome.timeout:g} s"
        more = f"Give a larger `timeout` (up to {longest:g})" if (outcome.timeout or 0) < longest else "Ask for less"
        advice = f"{more}, or `background: true` for what keeps running."
        return ToolFailure(ToolErrorCategory.TIMEOUT, f"timed out{after}", advice)
    if stopped is not None:
        return stopped.failure
    if outcome.exit_code == 126:
        return ToolFailure(ToolErrorCategory.POLICY_BLOCKED, "command cannot be executed")
    if outcome.exit_code == 127:
        missing = _MISSING.findall(outcome.output)
        what = f"{missing[-1]}: command not found" if missing else "command not found"
        advice = "It is not installed here." if missing else "It is not installed here, or its path is wrong."
        return ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, what, advice)
    # The program's own line stays in the output. In the failure it would look like a text of ours.
    said = outcome.stderr.lower()
    words = min((words for words in _TELLING if words in said), key=said.index, default="")
    return ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, f"the command reported: {words}") if words else None


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

        before = process.seen

        async def stream(output: str) -> None:
            await context.progress(ToolProgress(context.call_id, output=output, before=before))

        note = ""
        match params.action:
            case "wait":
                if not await process.until(params.text or None, params.timeout, stream):
                    note = _not_seen(params, process)
            case "write":
                if not params.text:
                    raise ToolError.invalid("write needs `text`")
                await process.write(params.text)
                unended = "" if params.text.endswith("\n") else ", without a newline at its end"
                return ToolResult(f"written to {process.id}{unended}")
            case "stop":
                await process.stop()
            case _:
                pass
        if params.offset is not None:
            output, before = await process.output_from(params.offset)
        else:
            output, before = await process.new_output()
        if output and params.action != "wait":
            await stream(output)
        if params.action == "wait" and not note and (params.text or "") not in output:
            note = f"[{quote(params.text)} was printed before the last look]"
        ending = "\n".join(filter(None, (note, f"[{_line(process)}]")))
        shown = output.removesuffix("\n") or ("" if process.outcome else "(no new output)")
        envelope: JsonObject = {"process": process.id, "stdout": shown if output else ""}
        return ToolResult(shown, frame=Frame(ending=ending), envelope=envelope, before=before if output else "")


def _named(id: str, processes: BackgroundProcesses | None) -> BackgroundProcess:  # noqa: A002 - the tool's own word
    """Return the process with an id. Raises ToolError with those that there are."""
    process = None if processes is None else processes.find(id)
    if process is not None:
        return process
    known = ", ".join(each.id for each in processes.listed()) if processes is not None else ""
    told = f"there are {known}" if known else "none runs; start one with `bash` and `background`"
    raise ToolError.invalid(f"there is no background process {quote(id)}: {told}")


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
