"""One command on this machine, from its start to its last process (T2.2-T2.9, A13.7)."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable

import anyio
from anyio import to_thread

from acp_agent.core.backends import CommandOutcome, OnOutput
from acp_agent.execution.capture import HeadTail, Stream, Transcript
from acp_agent.execution.process_tree import ProcessTree

_READ = 64 * 1024
_DELTA_LIMIT = 4 * 1024  # bytes; nobody reads faster than ten of them a second
_DELTA_PAUSE = 0.1
_TIMED_OUT = 124
_LEFT_OVER_GRACE = 0.25  # seconds for what still runs when the shell is gone
_DRAIN = 0.1  # seconds for the last output of what was ended


class LocalCommand:
    """A shell under way: what it writes is read, and its whole tree ended, by `wait`; by `release` if nobody waits.

    pidfd   of the shell, ours to close; None = a thread waits for its end
    over    told when nothing of it is left, before the shell is reaped if there is a pidfd
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: dict[Stream, int],
        tree: ProcessTree,
        transcript: Transcript,
        timeout: float | None,
        pidfd: int | None,
        over: Callable[[], None],
    ) -> None:
        self._process = process
        self._pipes = pipes
        self._tree = tree
        self._transcript = transcript
        self._timeout = timeout
        self._deadline = None if timeout is None else anyio.current_time() + timeout
        self._pidfd = pidfd
        self._over = over
        self._unsent = HeadTail(_DELTA_LIMIT)
        self._spoke = anyio.Event()
        self._drained = anyio.Event()
        self._finished = anyio.Event()
        self._timed_out = False
        self._note = ""

    @property
    def terminal_id(self) -> str | None:
        return None

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._hand_over, on_output)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(self._read_all)
                    await self._end()
                    readers.cancel_scope.cancel()
                self._finished.set()
                self._spoke.set()
            return self._outcome()
        finally:
            await self.release()

    async def release(self) -> None:
        if not self._finished.is_set():
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._tree.end)
                await self._exited()
            self._reap()
            self._finished.set()
        self._tree.tidy_up_later(asyncio.get_running_loop().call_later)
        for fd in (*self._pipes.values(), *(() if self._pidfd is None else (self._pidfd,))):
            os.close(fd)
        self._pipes, self._pidfd = {}, None

    async def _end(self) -> None:
        """Wait until nothing of the command is left and all output is read."""
        with anyio.CancelScope(deadline=float("inf") if self._deadline is None else self._deadline) as scope:
            await self._exited()
        if scope.cancelled_caught:
            self._timed_out = True
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._tree.end)
                await self._exited()
        elif self._tree.living():
            await self._end_left_overs()
        self._reap()
        with anyio.move_on_after(_DRAIN):
            await self._drained.wait()

    async def _exited(self) -> None:
        """Wait for the shell's end."""
        if self._pidfd is not None:
            await anyio.wait_readable(self._pidfd)
        elif self._process.returncode is None:
            await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    def _reap(self) -> None:
        """Nothing is left. Until now nobody else could be given the shell's number."""
        self._over()
        self._process.poll()
        self._tree.reaped()

    async def _end_left_overs(self) -> None:
        """The shell is gone, something it started is not: a moment to finish, then the end."""
        await to_thread.run_sync(self._tree.wait, _LEFT_OVER_GRACE)
        ended = await to_thread.run_sync(self._tree.end)
        if ended:
            self._note = f"\n[{ended} background process{'' if ended == 1 else 'es'} ended with the command]\n"

    async def _read_all(self) -> None:
        async with anyio.create_task_group() as tasks:
            for stream, fd in self._pipes.items():
                tasks.start_soon(self._read, stream, fd)
        self._drained.set()

    async def _read(self, stream: Stream, fd: int) -> None:
        data = b"more"
        while data:
            await anyio.wait_readable(fd)
            try:
                data = os.read(fd, _READ)
            except BlockingIOError:
                continue
            text = self._transcript.add(stream, data, final=not data)
            if text:
                self._unsent.add(text)
                self._spoke.set()

    async def _hand_over(self, on_output: OnOutput) -> None:
        """Send new output in intervals, so that a chatty command costs ten updates a second; the last bit at once."""
        while not self._finished.is_set():
            await self._spoke.wait()
            with anyio.move_on_after(_DELTA_PAUSE):
                await self._finished.wait()
            await self._send(on_output)
        await self._send(on_output)

    async def _send(self, on_output: OnOutput) -> None:
        delta, self._unsent, self._spoke = self._unsent.text(), HeadTail(_DELTA_LIMIT), anyio.Event()
        if delta:
            await on_output(delta)

    def _outcome(self) -> CommandOutcome:
        code, timed_out = self._process.returncode, self._timed_out
        killed = code < 0 and not timed_out
        transcript, self._transcript = self._transcript, Transcript(0)  # it is of no more use, and may be large
        output, stdout, stderr = transcript.texts()
        return CommandOutcome(
            output=output + self._note,
            stdout=stdout,
            stderr=stderr,
            exit_code=_TIMED_OUT if timed_out else 128 - code if killed else code,
            signal=_signal_name(-code) if killed else None,
            truncated=transcript.truncated,
            timed_out=timed_out,
            timeout=self._timeout,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
