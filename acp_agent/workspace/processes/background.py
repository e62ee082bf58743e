"""Commands that run beside the turns of a session: a pool of at most eight, their output and their end.

A command belongs to its session, not to the turn that started it. It ends by itself, by `stop`, or with the session:
when that is closed, deleted or evicted, and when the agent ends in any way (`processes/tree`).
"""

import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import anyio

from acp_agent.core.backends import CommandOutcome, CommandRequest, OnOutput, ProcessOutput, RunningCommand, Terminal
from acp_agent.core.errors import AgentError, ToolError

MOST_ALIVE = 8
_MOST_ENDED = 8
_FIRST_OUTPUT = 0.5
"""Seconds that a starting call waits for the first output."""
_FIRST_END = 0.1
"""Seconds to wait after the first output, in case the command fails at once."""
_LOOK = 0.2
"""Seconds between two looks at an editor's terminal, which does not report new output."""
_KEPT = 1024 * 1024
_BEFORE = 8 * 1024
"""Characters before a part of the output that are searched for the beginning of a secret."""
_WORD = re.compile(r"(?<![\w+/=-])[\w+/=-]{12,}+\Z")
"""A last word that may be the first half of a secret: a program's buffer may end in the middle of a word."""
_LONGEST_WORD = 4096
_STOP_GRACE = 2.0
_END_GRACE = 0.25
_END_WITHIN = 4.0
"""Seconds that `end` waits for a command that does not end, such as one of an editor that does not answer."""


class OutputLog:
    """The head and the tail of a growing text, `limit` characters or a little more. Positions count from its start.

    A text with a gap is cut between words on both sides of it, because half of a secret would not be recognized.
    """

    def __init__(self, limit: int = _KEPT) -> None:
        self._half = limit // 2
        self._head = ""
        self._tail = ""
        self.end = 0

    def add(self, text: str) -> None:
        """Append a text."""
        self.end += len(text)
        room = self._half - len(self._head) if not self._tail else 0
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > self._half * 5 // 4:  # not at each call, as it copies the tail
            self._tail = self._tail[-self._half :]

    def since(self, position: int) -> str:
        """Return the text from a position on, with a line in place of what is left out."""
        start = self.end - len(self._tail)
        if position >= start:
            return self._tail[position - start :]
        if start == len(self._head):
            return self._head[position:] + self._tail
        head, tail = self._head[position:], self._tail
        head = head[: max(head.rfind("\n"), head.rfind(" ")) + 1]
        tail = tail[min((at for at in (tail.find("\n"), tail.find(" ")) if at >= 0), default=0) :]
        left_out = self.end - position - len(head) - len(tail)
        return f"{head}\n[... {left_out} characters left out ...]\n{tail.lstrip()}"

    def before(self, position: int) -> str:
        """Return up to 8 KiB of what is kept before a position."""
        start = self.end - len(self._tail)
        return (self._head[:position] + self._tail[: max(position - start, 0)])[-_BEFORE:]

    @property
    def last_word(self) -> int:
        """The length of a word at the end that may be the first half of a secret, 0 for any other."""
        found = _WORD.search((self._tail or self._head)[-_LONGEST_WORD:])
        return len(found[0]) if found else 0

    def find(self, text: str, position: int) -> int:
        """Return the position behind the first occurrence of a text from a position on, -1 if there is none."""
        start = self.end - len(self._tail)
        whole = ((0, self._head + self._tail),)
        for begins, part in whole if start == len(self._head) else ((0, self._head), (start, self._tail)):
            at = part.find(text, max(position - begins, 0))
            if at >= 0:
                return begins + at + len(text)
        return -1


class RunningProcess:
    """One background command: see BackgroundProcess. A background task must run `run`."""

    def __init__(self, id: str, command: str, running: RunningCommand) -> None:  # noqa: A002 - the tool's own word
        self.id = id
        self.command = command
        self.outcome: CommandOutcome | None = None
        self.ended = anyio.Event()
        self.card_closed = anyio.Event()
        self.spoke = anyio.Event()
        self._running = running
        self._log = OutputLog()
        self._seen = 0  # the position up to which the model has seen the output
        self._found = 0  # the position up to which `until` has found its texts
        self._began = anyio.current_time()
        self._lasted = 0.0

    @property
    def terminal_id(self) -> str | None:
        return self._running.terminal_id

    @property
    def seconds(self) -> float:
        return self._lasted if self.outcome else anyio.current_time() - self._began

    async def run(self) -> None:
        """Read the output until the command has ended.

        The terminal is released when the call that started the command is over as well.
        """
        try:
            self.outcome = await self._running.wait(self._heard)
        except AgentError as error:  # the editor's terminal broke
            self.outcome = CommandOutcome(f"{error}", "", "", None)
        finally:
            self._lasted = anyio.current_time() - self._began
            self._wake()
            with anyio.CancelScope(shield=True):
                if self.outcome is None:  # the agent ends
                    await self._running.release()
            self.ended.set()
        await self.card_closed.wait()
        await self._running.release()

    async def refresh(self) -> None:
        """Take what the command has printed until now."""
        if self.outcome is None:
            await self._running.refresh()

    @property
    def seen(self) -> str:
        return self._log.before(self._seen)

    async def new_output(self) -> ProcessOutput:
        return await self.output_from(self._seen)

    async def output_from(self, position: int) -> ProcessOutput:
        await self.refresh()
        log = self._log
        start = max(position + log.end, 0) if position < 0 else position
        # The model has seen the output that it was shown before, and the output up to the text that `until` found.
        self._seen = max(self._seen, self._found, log.end if self.outcome else log.end - log.last_word)
        text = log.since(start)
        return ProcessOutput(text[: max(len(text) - (log.end - self._seen), 0)], log.before(start))

    async def until(self, text: str | None, seconds: float, on_output: OnOutput) -> bool:
        told = self._seen
        with anyio.move_on_after(seconds):
            while True:
                spoke = self.spoke
                await self.refresh()
                if told < self._log.end:
                    news, told = self._log.since(told), self._log.end
                    await on_output(news)
                if text is not None and (found := self._log.find(text, self._found)) >= 0:
                    self._found = found
                    return True
                if self.outcome is not None:
                    return text is None
                with anyio.move_on_after(_LOOK):
                    await spoke.wait()
        return False

    async def write(self, text: str) -> None:
        if self.outcome is not None:
            advice = "Read its output. To run it again, start it with bash, its input in the command line."
            raise ToolError.permanent(f"{self.id} has ended", advice)
        await self._running.write(text)

    async def stop(self) -> None:
        await self.end(_STOP_GRACE)

    async def end(self, grace: float) -> None:
        """End the command and wait for its end; `grace` is the time in seconds between SIGTERM and SIGKILL."""
        if self.outcome is None:
            await self._running.stop(grace)
            with anyio.move_on_after(_END_WITHIN):
                await self.ended.wait()

    async def first_moment(self) -> None:
        """Wait for the first output, at most half a second, and then a moment more for the end."""
        with anyio.move_on_after(_FIRST_OUTPUT):
            while self.outcome is None and not self._log.end:
                spoke = self.spoke
                await self.refresh()
                if self.outcome is None and not self._log.end:
                    with anyio.move_on_after(_LOOK):
                        await spoke.wait()
        with anyio.move_on_after(_FIRST_END):
            await self.ended.wait()

    async def _heard(self, output: str) -> None:
        self._log.add(output)
        self._wake()

    def _wake(self) -> None:
        spoke, self.spoke = self.spoke, anyio.Event()
        spoke.set()


class ProcessPool:
    """The background commands of one session: see BackgroundProcesses.

    terminal     runs them
    background   starts a task that lives as long as this process, not as long as a turn
    highest_id   returns the highest N of the ids `pN` in a restored conversation, since it may name processes that are
                 gone. It is called when the first command starts
    """

    def __init__(
        self,
        terminal: Terminal,
        background: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
        highest_id: Callable[[], int],
    ) -> None:
        self._terminal = terminal
        self._background = background
        self._highest_id = highest_id
        self._processes: dict[str, RunningProcess] = {}
        self._last_id: int | None = None
        self._starting = 0

    def listed(self) -> Sequence[RunningProcess]:
        return tuple(self._processes.values())

    def find(self, id: str) -> RunningProcess | None:  # noqa: A002 - as above
        return self._processes.get(id)

    @property
    def alive(self) -> list[RunningProcess]:
        """The commands that still run."""
        return [each for each in self._processes.values() if each.outcome is None]

    async def start(self, command: str, cwd: str, *, unsandboxed: bool = False) -> RunningProcess:
        if len(self.alive) + self._starting >= MOST_ALIVE:
            running = "; ".join(f"{each.id}: {each.command}" for each in self.alive)
            message = f"{MOST_ALIVE} background processes run already ({running})"
            raise ToolError.permanent(message, "Stop one with `process` first.")
        self._starting += 1
        try:
            running = await self._terminal.start(CommandRequest(command, cwd, background=True, unsandboxed=unsandboxed))
        finally:
            self._starting -= 1
        self._last_id = (self._highest_id() if self._last_id is None else self._last_id) + 1
        process = RunningProcess(f"p{self._last_id}", command, running)
        self._processes[process.id] = process
        self._background(process.run)
        try:
            await process.first_moment()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await process.end(_END_GRACE)
            process.card_closed.set()
            raise
        self._forget_oldest()
        return process

    def card_closed(self, id: str) -> None:  # noqa: A002 - as above
        if process := self._processes.get(id):
            process.card_closed.set()

    async def close(self) -> None:
        """End all commands, at once and together."""
        async with anyio.create_task_group() as tasks:
            for process in self.alive:
                tasks.start_soon(partial(process.end, _END_GRACE))
        for process in self._processes.values():
            process.card_closed.set()
        self._processes.clear()

    def _forget_oldest(self) -> None:
        ended = [each.id for each in self._processes.values() if each.outcome is not None]
        for gone in ended[:-_MOST_ENDED]:
            self.card_closed(gone)
            del self._processes[gone]
