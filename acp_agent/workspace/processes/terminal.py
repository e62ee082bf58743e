"""LocalTerminal: shell commands on this machine, their output and their end."""

import codecs
import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from enum import Enum
from functools import partial
from typing import NamedTuple

import anyio
from anyio import to_thread

from acp_agent.core.backends import CommandOutcome, CommandRequest, OnOutput
from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.process_limits import limits_for_child
from acp_agent.workspace.processes.environment import child_environment, input_file
from acp_agent.workspace.processes.table import MARK, CommandLimits
from acp_agent.workspace.processes.tree import CommandWatchdog, ProcessTree, pidfd_works
from acp_agent.workspace.sandbox.sandbox import SessionSandbox
from acp_agent.workspace.sandbox.walls import Launch
from acp_agent.workspace.text_files import WINDOWS_BYTES

_BLOCK = 64 * 1024
_SPARE = 64
"""A 64th of the limit stays free: placeholders can be longer than the characters and secrets that they replace."""
_LONGEST_WORD = 8 * 1024
_SPACES = (b"\n", b" ", b"\t")
_CONTINUES = range(0x80, 0xC0)  # bytes that cannot begin a UTF-8 character


class Stream(Enum):
    """A stream of output."""

    STDOUT = 1
    STDERR = 2


class HeadTail:
    """The head and the tail of a text, each half of `limit` bytes. The bytes between them are only counted.

    The tail is kept in blocks, so that neither many single bytes nor a gigabyte at once takes more than the limit.
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head = bytearray()
        self._blocks: deque[bytes | bytearray] = deque()
        self._tail_size = 0
        self._dropped = 0

    @property
    def truncated(self) -> bool:
        """Whether anything was left out."""
        return self._dropped > 0 or self._tail_size > self._tail_limit

    def add(self, text: bytes) -> None:
        """Append whole characters of UTF-8."""
        if not self._blocks and len(self._head) < self._head_limit:
            cut = self._head_limit - len(self._head)
            while 0 < cut < len(text) and text[cut] in _CONTINUES:
                cut -= 1
            self._head += text[:cut]
            text = text[cut:]
        if text:
            self._grow_tail(text)

    def text(self) -> str:
        """Return head and tail, with a line between them that says how many bytes were left out.

        Only whole words stand beside that line, because half of a secret would not be recognized.
        """
        if not self.truncated:
            return b"".join((self._head, *self._blocks)).decode()
        head, tail = self._head, b"".join(self._blocks)
        start = max(len(tail) - self._tail_limit, 0)
        while start < len(tail) and tail[start] in _CONTINUES:
            start += 1
        kept, start = _last_gap(head), _first_gap(tail, start)
        dropped = self._dropped + len(head) - kept + start
        shown = str(memoryview(head)[:kept], "utf-8"), str(memoryview(tail)[start:], "utf-8")  # megabytes, not copied
        del tail
        return f"\n[... {dropped} bytes left out ...]\n".join(shown)

    def _grow_tail(self, text: bytes) -> None:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, bytearray) and len(last) + len(text) <= _BLOCK:
            last += text
        else:
            self._blocks.append(bytearray(text) if len(text) < _BLOCK else text)
        self._tail_size += len(text)
        while len(self._blocks) > 1 and self._tail_size - len(self._blocks[0]) >= self._tail_limit:
            gone = len(self._blocks.popleft())
            self._tail_size -= gone
            self._dropped += gone


class CommandOutput:
    """The output of a command: `both` streams as they came, within `limit` bytes, and each within `apart` bytes.

    The model reads both together. The single streams are for programs, most of which are shown a few KiB.
    """

    def __init__(self, limit: int, apart: int) -> None:
        decoder, apart = codecs.getincrementaldecoder("utf-8"), min(limit, apart)
        self.both = HeadTail(limit - limit // _SPARE)
        self.apart = {Stream.STDOUT: HeadTail(apart), Stream.STDERR: HeadTail(apart)}
        self._decoders = {Stream.STDOUT: decoder("surrogateescape"), Stream.STDERR: decoder("surrogateescape")}

    def add(self, stream: Stream, data: bytes, *, final: bool = False) -> bytes:
        """Add bytes of a stream. Return them as whole characters of valid UTF-8.

        An incomplete character waits for its rest, or for `final`. A byte that is not UTF-8 is read as Windows-1252, as
        in files, so that the printed line of a file equals the line that `read` shows.
        """
        decoded = self._decoders[stream].decode(data, final)
        try:
            text = decoded.encode()
        except UnicodeEncodeError:
            text = decoded.translate(WINDOWS_BYTES).encode()
        if text:
            self.both.add(text)
            self.apart[stream].add(text)
        return text


def _last_gap(head: bytearray) -> int:
    """Return the position behind the last white space, or the end if the last word is too long."""
    found = max(head.rfind(space, -_LONGEST_WORD) for space in _SPACES)
    return found + 1 or len(head)


def _first_gap(tail: bytes, start: int) -> int:
    """Return the position of the first white space from `start` on, or `start` if the first word is too long."""
    end = start + _LONGEST_WORD
    return min((at for space in _SPACES if (at := tail.find(space, start, end)) >= 0), default=start)


_READ = 256 * 1024
_DELTA_LIMIT = 4 * 1024  # bytes of one update; there are at most ten a second
_DELTA_PAUSE = 0.1
_TIMED_OUT = 124
_GRACE = 0.25
_DRAIN = 0.1  # seconds for the last output of an ended command
_KEPT_APART = 64 * 1024  # bytes of output that a background command keeps, since all of it is handed over
_HANDED_OVER = 1024 * 1024  # bytes of one update of a background command
_HELD = 2.0  # seconds in which a debugger must let go of a command that has ended
_LOOK_AFTER = 5.0  # seconds between two looks for what a background command has left running
_LIMITS_EVERY = 0.05  # seconds between two looks at what a contained command takes
_UNREAD = 5.0  # seconds in which a command must read what is written to it


class CommandEnd(NamedTuple):
    """The functions that are called when nothing of a command is left.

    over        with a pidfd, called before the shell is reaped
    afterwards  called once, before `over`; what it returns is added to the output. It may block
    """

    over: Callable[[], None]
    afterwards: Callable[[], str] | None


class LocalCommand:
    """A running shell. `wait` reads its output and ends its whole tree; `release` does so without `wait`.

    pidfd   the shell's pidfd, which this object closes; None if a thread waits for the shell
    ends    what is called at its end
    input   the writing end of its standard input, which makes it a background command; None for a command without input
    """

    terminal_id = None

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: dict[Stream, int],
        tree: ProcessTree,
        transcript: CommandOutput,
        timeout: float | None,
        pidfd: int | None,
        ends: CommandEnd,
        input: int | None = None,  # noqa: A002 - the name of the thing
    ) -> None:
        self._process = process
        self._input = input
        self._background = input is not None
        self._on_output: OnOutput | None = None
        self._most = _HANDED_OVER if self._background else _DELTA_LIMIT
        self._pipes = pipes
        self._tree = tree
        self._transcript = transcript
        self._timeout = timeout
        self._deadline = None if timeout is None else anyio.current_time() + timeout
        self._pidfd = pidfd
        self._over, self._afterwards = ends
        self._unsent = HeadTail(self._most)
        self._spoke = anyio.Event()
        self._unread = len(pipes)
        self._drained = anyio.Event()
        self._finished = anyio.Event()
        self._timed_out = False
        self._note = ""

    async def wait(self, on_output: OnOutput) -> CommandOutcome:
        self._on_output = on_output
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._hand_over)
                async with anyio.create_task_group() as readers:
                    for stream, fd in self._pipes.items():
                        readers.start_soon(self._read, stream, fd)
                    if self._tree.contained:
                        readers.start_soon(self._hold_limits)
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
                await self._look_after()
            await self._reap()
            self._finished.set()
        while self._pipes:
            os.close(self._pipes.popitem()[1])
        self._close_input()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    async def refresh(self) -> None:
        for stream, fd in self._pipes.items():
            with contextlib.suppress(BlockingIOError):
                while data := os.read(fd, _READ):
                    self._take(stream, data)
        await self._hand_over_now()

    async def write(self, text: str) -> None:
        data = memoryview(text.encode())
        try:
            with anyio.fail_after(_UNREAD):
                while data and self._input is not None:
                    try:
                        data = data[os.write(self._input, data) :]
                    except BlockingIOError:
                        await anyio.wait_writable(self._input)
        except TimeoutError:
            whole = len(text.encode())
            what = f"the process does not read its input; it has got {whole - len(data)} of {whole} bytes"
            advice = "Do not write these again. Wait until it reads, or stop it."
            raise ToolError(ToolErrorCategory.TIMEOUT, what, advice) from None
        except (OSError, anyio.ClosedResourceError):
            self._close_input()
        if data:
            raise ToolError.permanent("the input of the process is closed")

    async def stop(self, grace: float) -> None:
        await to_thread.run_sync(self._tree.end, grace)

    def _close_input(self) -> None:
        if self._input is not None:
            anyio.notify_closing(self._input)
            os.close(self._input)
            self._input = None

    async def _end(self) -> None:
        """Wait until nothing of the command is left and all output is read."""
        with anyio.CancelScope(deadline=float("inf") if self._deadline is None else self._deadline) as scope:
            await self._exited()
        if scope.cancelled_caught:
            self._timed_out = True
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._tree.end)
                await self._exited()
        elif self._background:
            while self._tree.living():
                await to_thread.run_sync(self._tree.wait, _LOOK_AFTER, abandon_on_cancel=True)
        elif self._tree.living() and (ended := await to_thread.run_sync(self._tree.finish)):
            self._note += f"\n[{ended} background process{'' if ended == 1 else 'es'} ended with the command]\n"
        await self._look_after()
        await self._reap()
        with anyio.move_on_after(_DRAIN):
            await self._drained.wait()

    async def _hold_limits(self) -> None:
        """Watch the processes and the memory of a contained command, and end it if it exceeds its limits."""
        reached = ""
        while not reached:
            await anyio.sleep(_LIMITS_EVERY)
            reached = self._tree.limit_reached()  # not in a thread: a fork bomb may leave none to start
        self._note += f"\n[the sandbox ended the command: {reached}]\n"

    async def _look_after(self) -> None:
        look, self._afterwards = self._afterwards, None
        if look is not None:
            with anyio.CancelScope(shield=True):
                self._note += await to_thread.run_sync(look)

    async def _exited(self) -> None:
        """Wait for the shell's end."""
        if self._pidfd is not None:
            await anyio.wait_readable(self._pidfd)
        elif self._process.returncode is None:
            await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    async def _reap(self) -> None:
        """Reap the shell after everything has ended. Until now no other process could get its number."""
        self._over()
        if self._process.poll() is None:  # a debugger, such as strace, has not let go of it yet
            with anyio.CancelScope(shield=True), contextlib.suppress(subprocess.TimeoutExpired):
                await to_thread.run_sync(self._process.wait, _HELD)
        self._tree.reaped()

    async def _read(self, stream: Stream, fd: int) -> None:
        data = b"more"
        while data:
            await anyio.wait_readable(fd)
            try:
                data = os.read(fd, _READ)
            except BlockingIOError:
                continue
            self._take(stream, data, final=not data)
        self._unread -= 1
        if not self._unread:
            self._drained.set()

    def _take(self, stream: Stream, data: bytes, *, final: bool = False) -> None:
        text = self._transcript.add(stream, data, final=final)
        if text:
            self._unsent.add(text)
            self._spoke.set()

    async def _hand_over(self) -> None:
        """Send new output in intervals, at most ten updates a second, and the last output at once."""
        over = False
        while not over:
            await self._spoke.wait()
            with anyio.move_on_after(_DELTA_PAUSE):
                await self._finished.wait()
            over = self._finished.is_set()
            await self._hand_over_now()

    async def _hand_over_now(self) -> None:
        if self._on_output is None:  # nobody waits yet
            return
        delta, self._unsent = self._unsent.text(), HeadTail(self._most)
        if not self._finished.is_set():  # then the last event must stay set, which ends `_hand_over`
            self._spoke = anyio.Event() if self._spoke.is_set() else self._spoke
        if delta:
            await self._on_output(delta)

    def _outcome(self) -> CommandOutcome:
        code, timed_out = self._process.returncode, self._timed_out
        if code is None:
            raise ToolError.permanent("the command has ended, but a debugger holds it: detach that, then run it again")
        killed = code < 0 and not timed_out
        transcript, self._transcript = self._transcript, CommandOutput(0, 0)  # frees the memory: it may be large
        return CommandOutcome(
            output=transcript.both.text() + self._note,
            stdout=transcript.apart[Stream.STDOUT].text(),
            stderr=transcript.apart[Stream.STDERR].text(),
            exit_code=_TIMED_OUT if timed_out else 128 - code if killed else code,
            signal=_signal_name(-code) if killed else None,
            truncated=transcript.both.truncated,
            timed_out=timed_out,
            timeout=self._timeout,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def check(request: CommandRequest) -> None:
    """Raise ToolError (invalid_parameters) if the request cannot be run."""
    command = request.command
    try:
        fault = "has a NUL character in it" if "\0" in command.encode().decode() else ""
    except UnicodeEncodeError:
        fault = "has half of a surrogate pair in it"
    if fault:
        raise ToolError.invalid(f"the command {fault}")
    if not os.path.isabs(request.cwd) or "\0" in request.cwd:
        raise ToolError.invalid(f"cwd {request.cwd!r} is not an absolute path")


def _wide_pipe() -> tuple[int, int]:
    """Return a pipe that holds as much as is read at once, if the system allows it. Long outputs then wait less."""
    reads, writes = os.pipe()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(reads, fcntl.F_SETPIPE_SZ, _READ)
    return reads, writes


def spawn(
    launch: Launch, request: CommandRequest, environment: dict[str, str], tag: int
) -> tuple["subprocess.Popen[bytes]", dict[Stream, int], int | None]:
    """Start a shell as `launch` says, in its own session. Return it, and the non-blocking ends of its pipes.

    The last one writes to the input of a background command. `tag` is explained in `process_limits`. Raises ToolError.
    """
    with contextlib.ExitStack() as on_failure, contextlib.ExitStack() as writing_ends:
        reads, writes = dict[Stream, int](), dict[Stream, int]()
        try:
            for stream in Stream:
                reads[stream], writes[stream] = _wide_pipe()
                on_failure.callback(os.close, reads[stream])
                writing_ends.callback(os.close, writes[stream])
                os.set_blocking(reads[stream], False)
            typed, writing = subprocess.DEVNULL, None
            if request.background:
                typed, writing = os.pipe()
                writing_ends.callback(os.close, typed)
                on_failure.callback(os.close, writing)
                os.set_blocking(writing, False)
            elif request.stdin is not None:
                typed = writing_ends.enter_context(input_file(request.stdin)).fileno()
            popen = partial(
                subprocess.Popen[bytes],
                launch.arguments,
                stdin=typed,
                stdout=writes[Stream.STDOUT],
                stderr=writes[Stream.STDERR],
                cwd=request.cwd,
                env={**environment, **launch.variables},
                start_new_session=True,
                pass_fds=launch.descriptors,
            )
            with limits_for_child(tag):
                process = launch.start(popen)
        except OSError as error:
            raise _spawn_error(error, request) from error
        on_failure.pop_all()
    return process, reads, writing


def _spawn_error(error: OSError, request: CommandRequest) -> ToolError:
    if error.errno == errno.E2BIG:
        return ToolError.invalid(
            f"the command is too long for the system ({len(request.command.encode())} bytes)",
            "Write it into a file and run that.",
        )
    about = f"cannot use the directory {request.cwd}" if error.filename == request.cwd else "cannot start a shell"
    return ToolError.permanent(f"{about}: {os.strerror(error.errno or 0).lower()}")


class LocalTerminal:
    """The Terminal on this machine: each command runs in a new shell, in its own session.

    default_timeout   the seconds that a command may take if its request has no timeout; 0 for no limit
    env_allow         names of variables that commands may see beside the usual ones (`child_environment`); raises
                      ConfigError for one that may not be passed on
    pidfds            whether to wait for ends by pidfd, for tests
    watchdog          ends the commands if this process is killed; None makes one
    sandbox           contains the commands that do not ask to leave it; None contains no command
    grace             seconds for processes that still run when the shell has ended, and again after SIGTERM
    limits            what a contained command may take of the machine
    """

    def __init__(
        self,
        env_allow: Iterable[str] = (),
        *,
        default_timeout: float = 120.0,
        pidfds: bool | None = None,
        watchdog: CommandWatchdog | None = None,
        sandbox: SessionSandbox | None = None,
        grace: float = _GRACE,
        limits: CommandLimits | None = None,
    ) -> None:
        self._grace = grace
        self._limits = limits
        self._sandbox = sandbox
        self._environment = child_environment(os.environ, env_allow)
        self._default_timeout = default_timeout
        self._pidfds = pidfd_works() if pidfds is None else pidfds
        self._shell = shutil.which("bash") or shutil.which("sh")
        self._watchdog = watchdog or CommandWatchdog()

    async def start(self, request: CommandRequest) -> LocalCommand:
        if self._shell is None:
            raise ToolError.permanent("neither bash nor sh is on PATH")
        check(request)
        tree = ProcessTree(grace=self._grace, limits=self._limits)
        over = partial(self._watchdog.dismiss, tree.mark)
        with ExitStack() as on_failure:
            on_failure.callback(over)
            self._watchdog.watch(tree.mark)
            with ExitStack() as held:
                launch = await self._launch(held, (self._shell, "-c", "--", request.command), request)
                # Not in a thread: it takes less than a millisecond, and a cancellation could lose the process.
                process, pipes, typing = spawn(launch, request, {**self._environment, MARK: tree.mark}, tree.tag)
            on_failure.pop_all()
        self._watchdog.watch(tree.mark, process.pid)
        own_pipes = frozenset({os.fstat(pipe).st_ino for pipe in pipes.values()})
        tree.started(process.pid, own_pipes, launch.keepers)
        # For both timeouts, 0 means none.
        timeout = (self._default_timeout if request.timeout is None else request.timeout) or None
        if request.background:
            timeout = None
        try:
            pidfd = os.pidfd_open(process.pid) if self._pidfds else None
        except OSError:  # too many files are open: a thread waits for the shell
            pidfd = None
        limit = _KEPT_APART if request.background else request.output_limit
        transcript = CommandOutput(limit, request.stream_limit)
        # While a command runs in the background, the user works in the same folders: what is new may be theirs.
        afterwards = None if request.background else launch.afterwards
        return LocalCommand(process, pipes, tree, transcript, timeout, pidfd, CommandEnd(over, afterwards), typing)

    async def _launch(self, held: ExitStack, words: Sequence[str], request: CommandRequest) -> Launch:
        """Return how to start a command: within the sandbox, or free. Raises ToolError.

        held   is closed when the command has started
        """
        if self._sandbox is None or request.unsandboxed:
            return Launch(tuple(words))
        made = self._sandbox.launch(words, request.cwd, read_only=request.read_only)
        try:
            return await to_thread.run_sync(held.enter_context, made)
        except OSError as error:
            raise ToolError.permanent(f"the sandbox cannot be built: {error}") from error
