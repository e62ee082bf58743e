"""FakeTerminal: a core.ports.Terminal that plays scripts instead of running commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from acp_agent.core.backends import CommandOutcome, CommandRequest, OnOutput
from acp_agent.core.errors import AgentError


@dataclass(frozen=True, slots=True)
class Script:
    """What one command does.

    output       both streams as they come; None means stdout, then stderr
    chunks       the pieces `wait` hands over; None means the output in one piece, if there is any
    terminal_id  the editor's terminal; None is a local command
    hangs        never ends by itself: waits until cancelled, and is then killed
    refuses      raised by `start`
    breaks       raised by `wait`, after the chunks
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = 0
    signal: str | None = None
    output: str | None = None
    chunks: tuple[str, ...] | None = None
    truncated: bool = False
    beginning_lost: bool = False
    timed_out: bool = False
    timeout: float | None = None
    terminal_id: str | None = None
    hangs: bool = False
    refuses: AgentError | None = None
    breaks: AgentError | None = None

    def outcome(self) -> CommandOutcome:
        """What `wait` returns."""
        return CommandOutcome(
            output=self.stdout + self.stderr if self.output is None else self.output,
            stdout=self.stdout,
            stderr=self.stderr,
            exit_code=124 if self.timed_out else self.exit_code,
            signal=self.signal,
            truncated=self.truncated,
            beginning_lost=self.beginning_lost,
            timed_out=self.timed_out,
            timeout=self.timeout,
        )


@dataclass(slots=True)
class FakeCommand:
    """A command under way, and what was done to it.

    stopped    set by `stop`
    written    what was written to its input
    waiting    set once `wait` has handed over its chunks
    killed     whether a hanging command was cancelled, or released before its end
    releases   how often `release` was called; must end up 1
    """

    request: CommandRequest
    script: Script
    waiting: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)
    written: list[str] = field(default_factory=list)
    ended: bool = False
    killed: bool = False
    releases: int = 0

    @property
    def terminal_id(self) -> str | None:
        return self.script.terminal_id

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        outcome = self.script.outcome()
        chunks = self.script.chunks
        if chunks is None:
            chunks = (outcome.output,) if outcome.output else ()
        for chunk in chunks:
            await on_output(chunk)
        self.waiting.set()
        if self.script.hangs:
            try:
                await self.stopped.wait()
            finally:
                self.killed = True
        self.ended = True
        if self.script.breaks is not None:
            raise self.script.breaks
        return outcome

    async def release(self) -> None:
        self.killed = self.killed or not self.ended
        self.releases += 1

    async def refresh(self) -> None:
        """There is nothing that `wait` has not handed over."""

    async def write(self, text: str) -> None:
        self.written.append(text)

    async def stop(self, grace: float) -> None:
        self.killed = True
        self.stopped.set()


class FakeTerminal:
    """Plays the script of each command line; an unknown command is not found, as in a shell.

    started   every command that was started, in order
    """

    def __init__(self, scripts: Mapping[str, Script] | None = None) -> None:
        self.started: list[FakeCommand] = []
        self._scripts = dict(scripts or {})

    def on(self, command: str, script: Script) -> None:
        """From now on this command line plays this script."""
        self._scripts[command] = script

    @property
    def requests(self) -> list[CommandRequest]:
        """What was asked for, in order."""
        return [command.request for command in self.started]

    async def start(self, request: CommandRequest) -> FakeCommand:
        not_found = Script(stderr=f"bash: line 1: {request.command}: command not found\n", exit_code=127)
        script = self._scripts.get(request.command, not_found)
        if script.refuses is not None:
            raise script.refuses
        self.started.append(FakeCommand(request, script))
        return self.started[-1]
