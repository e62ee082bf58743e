"""One contract for every Terminal that runs real commands. To hold a new one to it, add one line to TERMINALS."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from acp_agent.core.backends import CommandOutcome, CommandRequest, RunningCommand, Terminal
from acp_agent.core.errors import AgentError, BackendUnavailable
from acp_agent.session.toolset.backends import CompositeTerminal
from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import WallRules
from tests.fakes.passing_time import pass_time

pytestmark = pytest.mark.anyio

MakeTerminal = Callable[[Path], AbstractAsyncContextManager[Terminal]]


class Closed:
    """A terminal that starts nothing."""

    async def start(self, request: CommandRequest) -> RunningCommand:
        raise BackendUnavailable("closed", "terminal/create")


@asynccontextmanager
async def local(_: Path) -> AsyncIterator[Terminal]:
    yield LocalTerminal()


@asynccontextmanager
async def composite(_: Path) -> AsyncIterator[Terminal]:
    async def ignore(error: BackendUnavailable) -> None:
        assert str(error).startswith("closed: ")

    yield CompositeTerminal([Closed(), LocalTerminal()], ignore)


@asynccontextmanager
async def contained(tier: SandboxTier, folder: Path) -> AsyncIterator[Terminal]:
    if not tier_works(tier):
        pytest.skip(why_missing(tier))
    rules = WallRules((str(folder),), lambda _: False, lambda *_: None)
    sandbox = SessionSandbox(rules, child_environment(os.environ), tier)
    yield LocalTerminal(sandbox=sandbox)
    sandbox.close()


TERMINALS: dict[str, MakeTerminal] = {
    "local": local,
    "composite": composite,
    "bubblewrap": partial(contained, SandboxTier.BUBBLEWRAP),
    "landlock": partial(contained, SandboxTier.LANDLOCK),
}


@pytest.fixture(params=TERMINALS)
async def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Terminal]:
    async with TERMINALS[request.param](tmp_path) as made:
        yield made


class Heard:
    """What was handed over while the command ran."""

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self.something = anyio.Event()

    async def __call__(self, delta: str) -> None:
        self.deltas.append(delta)
        self.something.set()

    @property
    def text(self) -> str:
        return "".join(self.deltas)


async def run(
    terminal: Terminal, command: str, cwd: Path, heard: Heard | None = None, timeout: float | None = None
) -> CommandOutcome:
    running = await terminal.start(CommandRequest(command, str(cwd), timeout))
    try:
        return await running.wait(heard or Heard())
    finally:
        await running.release()


async def test_a_command_runs_in_its_directory_and_its_output_comes_back(terminal: Terminal, tmp_path: Path):
    outcome = await run(terminal, "pwd; echo done", tmp_path)
    assert outcome.output == f"{os.path.realpath(tmp_path)}\ndone\n"
    assert (outcome.exit_code, outcome.signal, outcome.timed_out, outcome.truncated) == (0, None, False, False)


@pytest.mark.parametrize("code", [0, 1, 42, 127, 255])
async def test_the_exit_code_is_the_commands_own(terminal: Terminal, tmp_path: Path, code: int):
    assert (await run(terminal, f"exit {code}", tmp_path)).exit_code == code


async def test_a_command_killed_by_a_signal_says_which(terminal: Terminal, tmp_path: Path, request):
    outcome = await run(terminal, "kill -TERM $$", tmp_path)
    assert outcome.exit_code in (None, 143)
    assert (
        outcome.signal in ("SIGTERM", "TERM") or request.node.callspec.id == "bubblewrap"
    )  # which tells the code only


async def test_both_streams_are_in_the_output(terminal: Terminal, tmp_path: Path):
    outcome = await run(terminal, "echo out; echo err >&2", tmp_path)
    assert sorted(outcome.output.split()) == ["err", "out"]


async def test_there_is_nothing_to_read(terminal: Terminal, tmp_path: Path):
    outcome = await run(terminal, "cat; read x || echo none", tmp_path)
    assert outcome.output == "none\n"


async def test_the_command_line_is_taken_as_it_is(terminal: Terminal, tmp_path: Path):
    command = """printf '%s|' "a  b" 'c"d' $'e\\nf' \\$HOME é; echo "$((1 + 1))" # comment"""
    assert (await run(terminal, command, tmp_path)).output == 'a  b|c"d|e\nf|$HOME|é|2\n'
    assert (await run(terminal, "--version", tmp_path)).exit_code == 127


async def test_output_is_handed_over_while_the_command_runs_and_amounts_to_the_whole(
    terminal: Terminal, tmp_path: Path
):
    heard = Heard()
    os.mkfifo(tmp_path / "go")
    running = await terminal.start(CommandRequest("echo first; cat go; echo last", str(tmp_path)))
    outcomes: list[CommandOutcome] = []

    async def wait() -> None:
        outcomes.append(await running.wait(heard))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with anyio.fail_after(20):
            await heard.something.wait()
        assert heard.text == "first\n"
        await anyio.to_thread.run_sync((tmp_path / "go").write_text, "middle\n")
    await running.release()
    assert outcomes[0].output == "first\nmiddle\nlast\n"
    assert heard.text == outcomes[0].output


async def test_what_takes_too_long_is_ended_and_what_it_said_is_kept(terminal: Terminal, tmp_path: Path):
    async def hear(output: str) -> None:
        assert output == "early\n"
        pass_time(10)

    with anyio.fail_after(30):
        running = await terminal.start(CommandRequest("echo early; sleep 1000; echo late", str(tmp_path), 10))
        outcome = await running.wait(hear)
        await running.release()
    assert outcome.timed_out
    assert (outcome.exit_code, outcome.timeout) == (124, 10)
    assert outcome.output == "early\n"


ALIVE = "exec 9>phone; echo here >&9; sleep 1000"


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[int]:
    """The reading end of a pipe that ALIVE writes to. It ends when no process of the command is left."""
    os.mkfifo(tmp_path / "phone")
    fd = os.open(tmp_path / "phone", os.O_RDONLY | os.O_NONBLOCK)
    yield fd
    os.close(fd)


async def heard_from(phone: int) -> bytes:
    with anyio.fail_after(20):
        await anyio.wait_readable(phone)
    return os.read(phone, 9)


async def test_a_cancelled_command_is_gone_when_the_cancellation_arrives(
    terminal: Terminal, tmp_path: Path, phone: int
):
    finished = False

    async def work() -> None:
        nonlocal finished
        await run(terminal, ALIVE, tmp_path)
        finished = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        assert await heard_from(phone) == b"here\n"
        tasks.cancel_scope.cancel()
    assert not finished
    assert os.read(phone, 9) == b""


async def test_a_command_that_nobody_waits_for_ends_with_its_release(terminal: Terminal, tmp_path: Path, phone: int):
    running = await terminal.start(CommandRequest(ALIVE, str(tmp_path)))
    assert await heard_from(phone) == b"here\n"
    await running.release()
    await running.release()
    assert os.read(phone, 9) == b""


async def test_commands_run_side_by_side_and_do_not_mix(terminal: Terminal, tmp_path: Path):
    outcomes: dict[int, CommandOutcome] = {}

    async def one(number: int) -> None:
        outcomes[number] = await run(terminal, f"for i in 1 2 3; do echo {number}; done; exit {number}", tmp_path)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    for number, outcome in outcomes.items():
        assert outcome.output == f"{number}\n" * 3
        assert outcome.exit_code == number


async def test_output_over_the_limit_keeps_its_two_ends(terminal: Terminal, tmp_path: Path):
    running = await terminal.start(CommandRequest("seq 1 100000", str(tmp_path), output_limit=10_000))
    outcome = await running.wait(Heard())
    await running.release()
    assert outcome.truncated
    assert len(outcome.output) < 10_200
    assert outcome.output.endswith("99999\n100000\n")


async def test_a_directory_that_is_gone_is_an_error_naming_it(terminal: Terminal, tmp_path: Path):
    with pytest.raises(AgentError, match="nowhere"):
        await run(terminal, "true", tmp_path / "nowhere")
