"""Commands in the editor's own terminal, through `terminal/*`.

The order is: create, wait for the exit and look at the output now and then, kill after a timeout or a cancellation,
read the output (not after a cancellation), release after the caller's final update. See
https://agentclientprotocol.com/protocol/terminals.
"""

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import anyio
from anyio import to_thread

from acp_agent.core.backends import CommandOutcome, CommandRequest, OnOutput
from acp_agent.core.editor import TerminalSettings
from acp_agent.core.errors import BackendUnavailable, ToolError
from acp_agent.core.process_limits import tag_of
from acp_agent.core.types import Json, JsonObject
from acp_agent.log import Log
from acp_agent.protocol import wire
from acp_agent.protocol.client import EditorPaths
from acp_agent.protocol.jsonrpc import ClientTimeout, ConnectionLost, RpcError
from acp_agent.protocol.peer import Peer
from acp_agent.text import title, visible
from acp_agent.workspace.processes.environment import GIT_SETTING
from acp_agent.workspace.processes.table import MARK
from acp_agent.workspace.processes.tree import ProcessTree

_log = Log(__name__)
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
_UNSET = "ACP_AGENT_UNSET"
_ENVIRONMENT = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    # As for local commands. What the editor itself sets in these variables is not known here, and is lost.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": GIT_SETTING[0],
    "GIT_CONFIG_VALUE_0": GIT_SETTING[1],
}
"""Nobody types into the terminal, so programs must neither page nor ask, nor open an editor."""


_LONGEST_TITLE = 200
"""Characters of a command in the title of its terminal."""
_ACTED_ON = str.maketrans({character: chr(ord(character) + 0xFEE0) for character in "!\"#$%&'()*;<=>?[\\]^`{|}~"})
"""The characters that a shell acts on, each with its full-width form (U+FF01 to U+FF5E)."""
_LONGEST_SHOWN = 16 * 1024
"""Characters of a command that are redacted for the title."""
_SEES_PROCESSES = re.compile(r"\b(?:ps|pgrep|pidof|pkill|killall)\b")


class PreparedCommand(NamedTuple):
    """A command as `terminal/create` gets it.

    members      the members of the request
    script       the path of its script, if it has one
    afterwards   called when nothing of it is left; returns a text to add to its output. It blocks
    """

    members: JsonObject
    script: str | None
    afterwards: Callable[[], str] | None


class TerminalCommands:
    """A maker of the `terminal/create` members of a session's commands.

    A terminal starts with the editor's environment. ACP can set variables there, but not remove them. So variables that
    a command must not see are set to "", and the shell unsets them before the command runs. It reads their names from
    another variable, because users read the command. A sandbox gives its command an environment of its own.

    The form "script" hands over a private script file, which every client runs correctly. A further argument has the
    command for people, because clients show the program and its arguments as the terminal's title. "exec" passes the
    command as an argument of the shell, and "line" is one command line. "bare" is the command alone, for another agent,
    which makes the environment of commands and ends their processes by itself.
    """

    def __init__(self, settings: TerminalSettings) -> None:
        self._form = settings.form
        self._folder = settings.script_folder
        self._shell = settings.shell
        self._contain, self._contain_now = settings.contain, settings.contain_now
        self._redact = settings.redact
        hidden = settings.hidden
        self._opening = f"unset -v ${_UNSET} {_UNSET}; " if hidden else ""
        variables = _ENVIRONMENT | dict.fromkeys(hidden, "")
        if settings.path is not None:
            variables["PATH"] = settings.path
        self._contained_environment = _listed(variables)
        self._environment = _listed(variables | ({_UNSET: " ".join(hidden)} if hidden else {}))

    async def prepare(self, request: CommandRequest, mark: str) -> PreparedCommand:
        """Return a command as `terminal/create` gets it.

        `mark` is the value of MARK in its environment, by which everything that it starts is found again. Raises
        ToolError if the sandbox cannot be built.
        """
        if self._form == "bare":
            return PreparedCommand({"command": request.command}, None, None)
        shell, opening, command, afterwards = self._shell, "", self._opening + request.command, None
        environment = self._environment
        if self._contain is not None and not request.unsandboxed:
            try:
                contained = None if self._contain_now is None else self._contain_now(request, {MARK: mark})
                contained = contained or await to_thread.run_sync(self._contain, request, {MARK: mark})
            except OSError as error:
                raise ToolError.permanent(f"the sandbox cannot be built: {error}") from error
            command, afterwards, environment = contained.line, contained.afterwards, self._contained_environment
            shell = "sh"  # it starts sooner, and the namespace of the command ends all of its processes without a tag
        elif self._form == "script":
            # The tag (`core.process_limits`) is set where the shell can do that; the title is dropped.
            opening = f"ulimit -SR {tag_of(mark)} 2>/dev/null; set --; "
        script = self._write_script(opening + command) if self._form == "script" else None
        args: list[Json] = ["-c", command] if script is None else [script, *self._title(request.command)]
        members: JsonObject = {"command": shell, "args": args}
        if self._form == "line":
            members = {"command": f"{shell} -c {shlex.quote(command)}"}
        members["env"] = [*environment, {"name": MARK, "value": mark}]
        # While a command runs in the background, the user works in the same folders: what is new may be theirs.
        return PreparedCommand(members, script, None if request.background else afterwards)

    def _title(self, command: str) -> tuple[str, ...]:
        """Return the argument that shows a command, as a comment. It is empty for a command that looks for processes.

        Such a command would find the title too. Some clients join the arguments unquoted into a line for a shell,
        which may not know comments, so the title has nothing that a shell acts on.
        """
        if _SEES_PROCESSES.search(command):
            return ()
        shown = visible(" ".join(self._redact(command[:_LONGEST_SHOWN]).split()))
        shown = shown if len(shown) <= _LONGEST_TITLE else shown[: _LONGEST_TITLE - 1] + "…"
        return (f"# {shown.translate(_ACTED_ON)}",)

    def _write_script(self, command: str) -> str | None:
        """Return the path of a new private script; None if there is no path without special characters."""
        for _ in range(2):  # the name may be taken; a cleaner may have removed the folder, which then is a new one
            with contextlib.suppress(OSError):
                path = os.path.join(self._folder(), f"{os.urandom(3).hex()}.sh")
                return _written(path, command) if _PLAIN_PATH.fullmatch(path) else None
        return None


def _listed(variables: Mapping[str, str]) -> list[Json]:
    """Return variables as `terminal/create` gets them."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def remove(script: str | None) -> None:
    """Delete a script, if there is one."""
    if script is not None:
        with contextlib.suppress(OSError):  # removed already, or its folder was
            os.unlink(script)


def _written(path: str, command: str) -> str:
    """Write a private script and return its path. Raises OSError, without a file left behind."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(command + "\n")
    except BaseException:
        remove(path)
        raise
    return path


_BACKEND = "editor terminal"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
"""Seconds before the first look at the output of a command (most end sooner), and at most between two later ones."""
_KILL_GRACE = 5.0
"""Seconds that the editor gets to end a killed command and to send its output."""
_LAST_UPDATES = 5.0
"""Seconds that the last update of a call may take to go out before its terminal is released."""
_DELTA_LIMIT = 24 * 1024
"""Characters of new output in one update: more than anybody reads until the next one. The result has the output."""
_OUTPUT_LIMIT = 1024 * 1024
"""Bytes that the editor is asked to keep. Every look carries all of them. TypeScript clients close the connection on a
line over 32 MiB, which escaped output reaches at a sixth of that."""
_OVERLAP = 4096
"""Characters by which two readings are matched after the terminal dropped its oldest output."""
_BLANK = re.compile(r"\s+")
_LONGEST_WORD = 8 * 1024
"""Characters in which a blank is looked for."""
_LOOK_AFTER = 5.0
"""Seconds between two looks for what a background command has left running."""
_LOOK_FIRST = "Look at what the command has done before running it again."


class ProxyTerminal:
    """A Terminal that runs commands in the editor, through `terminal/*`."""

    def __init__(self, peer: Peer, session_id: str, paths: EditorPaths, settings: TerminalSettings) -> None:
        self._peer = peer
        self._session_id = session_id
        self._paths = paths
        self._commands = TerminalCommands(settings)
        self._timeout = settings.timeout
        self._request_timeout = settings.request_timeout
        self._settings = settings
        self._silent = False

    async def start(self, request: CommandRequest) -> "EditorCommand":
        """See Terminal. Raises ToolError if it is unknown whether the command started: it must not start twice."""
        if self._silent:
            raise BackendUnavailable(_BACKEND, "terminal/create was not answered before", permanent=True)
        tree = ProcessTree(elsewhere=True, long=request.background)
        prepared = await self._commands.prepare(request, tree.mark)
        params: JsonObject = {
            "sessionId": self._session_id,
            **prepared.members,
            "cwd": self._paths.spell(request.cwd),
            "outputByteLimit": min(request.output_limit, _OUTPUT_LIMIT),
        }
        self._settings.watchdog.watch(tree.mark)
        try:
            terminal_id = await self._create(params)
        except BaseException:
            self._settings.watchdog.dismiss(tree.mark)
            remove(prepared.script)
            raise
        # A request's timeout is never longer than the user's limit; 0 is no limit.
        timeout = (self._timeout if request.timeout is None else request.timeout) or None
        timeout = None if request.background else timeout
        return EditorCommand(
            self._peer,
            self._session_id,
            terminal_id,
            timeout,
            prepared,
            tree,
            self._settings,
            request,
        )

    async def _create(self, params: JsonObject) -> str:
        try:
            timeout = self._request_timeout
            answer = await self._peer.request("terminal/create", params, timeout=timeout, on_late=self._give_back)
        except (ClientTimeout, ConnectionLost) as error:
            self._silent = True
            unknown = "the command may still start there"
            raise wire.unanswered("terminal/create", error, self._request_timeout, unknown, _LOOK_FIRST) from None
        except RpcError as error:
            raise wire.backend_error(_BACKEND, "terminal/create", error) from None
        try:
            return wire.terminal_id(answer)
        except RpcError as error:
            message = f"{error.message}; the command may have been started there"
            raise ToolError.permanent(message, _LOOK_FIRST) from None

    def _give_back(self, answer: Json) -> None:
        """End a terminal whose id came after the timeout, because no call owns it."""
        with contextlib.suppress(RpcError):
            target: JsonObject = {"sessionId": self._session_id, "terminalId": wire.terminal_id(answer)}
            self._peer.tell("terminal/kill", target)
            self._peer.tell("terminal/release", target)


class EditorCommand:
    """One terminal of the editor.

    tree   the processes of the command, as far as this machine runs them. What its shell leaves running ends with it
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        terminal_id: str,
        timeout: float | None,
        prepared: PreparedCommand,
        tree: ProcessTree,
        settings: TerminalSettings,
        request: CommandRequest,
    ) -> None:
        self._peer = peer
        self._target: JsonObject = {"sessionId": session_id, "terminalId": terminal_id}
        self._terminal_id = terminal_id
        self._timeout = timeout
        self._script, self._afterwards = prepared.script, prepared.afterwards
        self._tree = tree
        self._watchdog, self._start_task = settings.watchdog, settings.background
        self._background = request.background
        # Then its processes are in a namespace of their own.
        self._contained = settings.contain is not None and not request.unsandboxed
        self._on_output: OnOutput | None = None
        self._reading = anyio.Lock()
        self._seen, self._seen_is_cut = "", False
        self._note = ""
        self._finishing = False  # whether what is left is being ended, although the editor still waits
        self._alone = False  # whether nothing of the command is left
        self._released = self._cancelled = False

    @property
    def terminal_id(self) -> str | None:
        return self._terminal_id

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        self._on_output = on_output
        try:
            try:
                status = await (self._wait_for_exit() if self._background else self._watch())
            except ClientTimeout:
                return await self._timed_out()
            await self._end_left_overs()
            return await self._outcome(status.exit_code, status.signal)
        except anyio.get_cancelled_exc_class():
            self._cancelled = True
            self._peer.tell("terminal/kill", self._target)
            raise
        except RpcError as error:
            message = f"the editor did not do terminal/wait_for_exit: {error.message}; the command may have run there"
            raise ToolError.permanent(message, _LOOK_FIRST) from None

    async def release(self) -> None:
        if self._released:
            return
        self._released = True
        if self._start_task is not None and (self._alone or self._cancelled):  # neither the model nor the user waits
            self._start_task(self._clean_up)
        else:
            await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            if not self._alone:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(self._tree.end)
            await self._look_after()
        finally:
            self._watchdog.dismiss(self._tree.mark)
            remove(self._script)
            with anyio.CancelScope(shield=True):
                await self._peer.tell_behind("terminal/release", self._target, _LAST_UPDATES)

    async def refresh(self) -> None:
        with contextlib.suppress(RpcError):  # the end of `wait` reports it
            await self._read()

    async def write(self, text: str) -> None:
        del text
        message = "the process runs in the editor's terminal, where only the user can type"
        raise ToolError.permanent(message, "Give it its input in the command line.")

    async def stop(self, grace: float) -> None:
        if not await to_thread.run_sync(self._tree.end, grace):  # another machine runs it, or it was ending
            self._peer.tell("terminal/kill", self._target)

    async def _end_left_overs(self) -> None:
        """End what the shell has left running. Of a background command, wait for its end and take the last output."""
        brief = self._afterwards is None and not self._background
        quiet = brief and self._tree.surely_ended(nested=self._contained)
        living = [] if quiet else await to_thread.run_sync(self._left_over)
        while living and self._background:
            await to_thread.run_sync(self._tree.wait, _LOOK_AFTER, abandon_on_cancel=True)
            living = await to_thread.run_sync(self._left_over)
        if living:
            await to_thread.run_sync(self._finish)
        self._alone = True
        await self._look_after()
        if self._background:
            await self.refresh()

    def _finish(self) -> None:
        """End what is left, and note how many processes that were. It blocks."""
        if ended := self._tree.finish():
            self._note = f"\n[{ended} background process{'' if ended == 1 else 'es'} ended with the command]\n"

    def _left_over(self) -> list[int]:
        """Return the processes that the shell has left running. If there are none, call `afterwards`. It blocks."""
        living = self._tree.living()
        if not living:
            self._looked_after()
        return living

    def _looked_after(self) -> None:
        look, self._afterwards = self._afterwards, None
        if look is not None:
            self._note += look()

    async def _look_after(self) -> None:
        if self._afterwards is not None:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._looked_after)

    async def _watch(self) -> wire.ExitStatus:
        """Wait for the exit and return its status. Meanwhile, pass on the output. Raises RpcError."""
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()

        def begin() -> None:
            tasks.extend(map(loop.create_task, (self._pass_on(), self._end_left_behind())))
            tasks[0].add_done_callback(self._passed_on)
            tasks[1].add_done_callback(partial(_log_failure, "no look for what a command has left running"))

        timer = loop.call_later(_FIRST_PAUSE, begin)
        try:
            return await self._wait_for_exit(self._timeout)
        finally:
            timer.cancel()
            for task in tasks[: 1 if self._finishing else 2]:
                task.cancel()
            for task in tasks:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([task])

    async def _wait_for_exit(self, timeout: float | None = None) -> wire.ExitStatus:
        return wire.exit_status(await self._peer.request("terminal/wait_for_exit", self._target, timeout=timeout))

    async def _pass_on(self) -> None:
        """Pass on new output until this task is cancelled."""
        pause = _FIRST_PAUSE
        while True:
            with contextlib.suppress(RpcError):  # the final reading reports it
                await self._read()
            pause = min(2 * pause, _LONGEST_PAUSE)
            await anyio.sleep(pause)

    def _passed_on(self, task: "asyncio.Task[None]") -> None:
        if _log_failure("output of a command not passed on", task):
            self._on_output = None

    async def _end_left_behind(self) -> None:
        """End what a command in a sandbox leaves running, as soon as the command itself has ended.

        Some editors wait for the end of the command's output, which bubblewrap holds open for what is left.
        """
        if self._tree.new is not None:
            await to_thread.run_sync(self._tree.new.note_others)
        pause = _FIRST_PAUSE
        while self._contained and not await to_thread.run_sync(self._tree.left_behind):
            pause = min(2 * pause, _LONGEST_PAUSE)
            await anyio.sleep(pause)
        if self._contained:
            self._finishing = True
            await to_thread.run_sync(self._finish)

    async def _read(self) -> None:
        """Hand over the output that is new. Raises RpcError."""
        if self._on_output is None:  # nobody waits yet
            return
        async with self._reading:
            answer = wire.terminal_output(await self._peer.request("terminal/output", self._target))
            is_cut = answer.truncated and not self._seen
            delta = _whole_words(answer.output) if is_cut else _delta(self._seen, answer.output)
            self._seen, self._seen_is_cut = answer.output, answer.truncated
        await self._hand_over(delta)

    async def _hand_over(self, delta: str) -> None:
        if delta and self._on_output is not None:
            await self._on_output(delta.replace("\r\n", "\n") if self._background else _end(delta))

    async def _timed_out(self) -> CommandOutcome:
        self._peer.tell("terminal/kill", self._target)
        with anyio.CancelScope(shield=True):  # some clients end only the shell, or nothing
            await to_thread.run_sync(self._tree.end)
        with anyio.move_on_after(_KILL_GRACE), contextlib.suppress(RpcError):
            await self._wait_for_exit()  # the command has timed out in any case
        self._alone = True
        await self._look_after()
        return replace(await self._outcome(124, None), timed_out=True, timeout=self._timeout)

    async def _outcome(self, exit_code: int | None, signal_name: str | None) -> CommandOutcome:
        """Return the outcome with the whole output, or with what was seen of it if the editor does not answer.

        An editor that did not say how the command ended may say it with the output.
        """
        try:
            read = await self._peer.request("terminal/output", self._target, timeout=_KILL_GRACE)
            answer = wire.terminal_output(read)
            truncated = beginning_lost = answer.truncated
            text = _whole_words(answer.output) if truncated else answer.output
            if exit_code is None and signal_name is None and answer.exit_status is not None:
                exit_code, signal_name = answer.exit_status.exit_code, answer.exit_status.signal
            if self._seen:  # the end of a secret may be missing, and nobody would recognise its beginning
                await self._hand_over(_delta(self._seen, answer.output))
        except RpcError as error:
            truncated, beginning_lost = True, self._seen_is_cut
            text = _ended_words(_whole_words(self._seen) if beginning_lost else self._seen)
            self._note += f"\n[the editor did not give the output: {visible(error.message)}]\n"
        output = text.replace("\r\n", "\n") + self._note  # some editors run terminals on a pty
        return CommandOutcome(
            output=output,
            stdout=output,
            stderr="",
            exit_code=exit_code if signal_name is None else _signalled(signal_name),
            signal=signal_name and title(signal_name),
            truncated=truncated,
            beginning_lost=beginning_lost,
        )


def _log_failure(message: str, task: "asyncio.Task[None]") -> bool:
    """Log the exception with which a task has ended. Return whether there is one. The command goes on."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error(message, exc_info=error)
    return error is not None


def _delta(seen: str, now: str) -> str:
    """Return the new output. Lengths do not tell, because editors drop the head of a long output."""
    if now.startswith(seen):
        return now[len(seen) :]
    tail = seen[-_OVERLAP:]
    at = now.rfind(tail)
    if at >= 0:
        return now[at + len(tail) :]
    kept = next((size for size in range(min(len(tail), len(now)), 0, -1) if tail.endswith(now[:size])), 0)
    return now[kept:] if kept else _whole_words(now)


def _end(delta: str) -> str:
    """Return as much of new output as fits into one update: the rest of a line that was begun before, and the end."""
    if len(delta) <= _DELTA_LIMIT:
        return delta
    line = delta[: delta.find("\n", 0, _LONGEST_WORD) + 1]
    return line + _whole_words(delta[len(line) - _DELTA_LIMIT :])


def _whole_words(text: str) -> str:
    """Return a text without its cut first word: the redactor would not recognise half a secret.

    Of a longer word only the first `_LONGEST_WORD` characters are left out. A short text of one word stays.
    """
    if blank := _BLANK.search(text, 0, _LONGEST_WORD):
        return text[blank.end() :]
    return text[_LONGEST_WORD:] or text


def _ended_words(text: str) -> str:
    """Return a text without its last word, of which the command may have written half. A blank ends a word."""
    last = text[-_LONGEST_WORD:].split()[-1:]
    return text.removesuffix(last[0]) if last else text


def _signalled(name: str) -> int | None:
    try:
        return 128 + signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    except KeyError:
        return None
