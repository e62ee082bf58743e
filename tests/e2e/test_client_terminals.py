"""Commands in the terminals of clients that others wrote, as their code starts and ends them, cancelled and timed out.

Toad 0.6, ACP Client 0.2 (VS Code) and Qt Creator 17 end only the process that they started themselves.
"""

import contextlib
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import anyio
import pytest
from anyio.abc import Process

from acp_agent.workspace.sandbox.sandbox import SandboxTier, sandbox_tier
from tests.fakes import editor as editors
from tests.fakes.answers import Call, Override, answering, never, refusing
from tests.fakes.editor import TERMINAL_ONLY, ScriptedEditor
from tests.fakes.held import processes_ended
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio


def quoted(words: Sequence[str]) -> list[str]:
    return ["sh", "-c", shlex.join(["sh", "-c", shlex.join(words)])]


def unquoted(words: Sequence[str]) -> list[str]:
    return ["sh", "-c", " ".join(words)]


class Habits(NamedTuple):
    """How a client starts a command, and what it does to the process that it started, at a kill and at a release.

    kill   a signal, or how the request is answered instead
    """

    starts: Callable[[Sequence[str]], list[str]]
    kill: int | Override
    release: int | None = None


CLIENTS = {
    "Toad": Habits(quoted, refusing(-32602, "missing parameter 'sessionID'")),
    "ACP Client": Habits(unquoted, signal.SIGTERM, signal.SIGTERM),
    "Qt Creator": Habits(list, signal.SIGKILL, signal.SIGKILL),
    "a client that never answers terminal slash kill": Habits(list, never),
    "a client that answers terminal slash kill and does nothing": Habits(list, answering({})),
}


class ClientTerminals:
    """The terminals of a client with these habits; at most one at a time."""

    def __init__(self, editor: ScriptedEditor, habits: Habits) -> None:
        self._editor = editor
        self._habits = habits
        self._process: Process | None = None
        kill = habits.kill
        editor.overrides |= {
            "terminal/create": self._create,
            "terminal/output": answering({"output": "", "truncated": False}),
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._signalling(kill) if isinstance(kill, int) else kill,
            "terminal/release": self._signalling(habits.release),
        }

    async def _create(self, call: Call) -> None:
        words = self._habits.starts([call.params["command"], *call.params["args"]])
        variables = {each["name"]: each["value"] for each in call.params["env"]}
        environment = {**self._editor.environment, **variables}
        quiet = subprocess.DEVNULL
        self._process = await anyio.open_process(
            words, cwd=call.params["cwd"], env=environment, stdin=quiet, stdout=quiet, stderr=quiet
        )
        await call.reply({"terminalId": "t"})

    async def _wait(self, call: Call) -> None:
        assert self._process is not None
        code = await self._process.wait()
        await call.reply({"exitCode": code})

    def _signalling(self, number: int | None) -> Override:
        async def answer(call: Call) -> None:
            if number is not None and self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(number)
            await call.reply({})

        return answer

    async def end(self) -> None:
        """End the process that it started, and wait for its end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.aclose()


COMMAND = ". ./start.sh"


class Stubborn:
    """A command whose processes ignore signals, and leave their parent, their session and their environment."""

    def __init__(self, editor: ScriptedEditor) -> None:
        self._alive, _ = editor.fifo("alive"), editor.fifo("held")
        self._name = f"name-{uuid4()}"
        child = f"sh hold.sh {self._name}"
        (editor.workspace / "hold.sh").write_text("trap '' TERM HUP INT\necho on > alive\nread rest < held\n")
        (editor.workspace / "start.sh").write_text(
            f"trap '' TERM HUP INT\nsetsid {child} &\n({child} &)\nenv -i {child} &\nenv -i setsid {child} &\n{child}\n"
        )

    async def pids(self) -> list[int]:
        """Its processes as this machine numbers them, once they run."""
        told = ""
        while told.count("on") < 5:
            told += await self._alive.line()
        found = self.running()
        assert len(found) >= 5, found
        return found

    def running(self) -> list[int]:
        return [int(each.parent.name) for each in Path("/proc").glob("[0-9]*/cmdline") if self._is_ours(each)]

    def _is_ours(self, file: Path) -> bool:
        with contextlib.suppress(OSError):
            return self._name.encode() in file.read_bytes()
        return False


@contextlib.asynccontextmanager
async def editing(
    folder: Path, client: str, *answers: dict[str, Any], contained: bool = False
) -> AsyncIterator[ScriptedEditor]:
    """An editor with the terminals of a client, and a model that gives these answers."""
    if contained and sandbox_tier() is not SandboxTier.BUBBLEWRAP:
        pytest.skip("bubblewrap builds no sandbox on this machine")
    mode = {"ACP_AGENT_TOOLS__SANDBOX__MODE": "auto"} if contained else {}
    options: dict[str, Any] = {"capabilities": TERMINAL_ONLY, "environment": mode, "short_waits": True}
    async with editors.editing(folder, [*answers], serves=__name__, **options) as editor:
        terminals = ClientTerminals(editor, CLIENTS[client])
        try:
            yield editor
        finally:
            await terminals.end()


@pytest.mark.parametrize("contained", [False, True], ids=["uncontained", "contained"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_cancelled_command_ends_with_all_it_started_in(tmp_path: Path, client: str, contained: bool) -> None:
    async with editing(tmp_path, client, uses(("bash", {"command": COMMAND})), contained=contained) as editor:
        command = Stubborn(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await command.pids()
            await editor.requested("terminal/wait_for_exit")
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        await editor.requested("terminal/release")
        assert editor.call.status == "failed"


async def test_no_prompt_after_a_cancel_is_read_before_the_cancelled_command_has_ended(tmp_path: Path) -> None:
    client = "a client that answers terminal slash kill and does nothing"
    async with editing(tmp_path, client, uses(("bash", {"command": COMMAND}))) as editor:
        command = Stubborn(editor)
        session = await editor.open()
        async with editor.prompting(session):
            await command.pids()
            await editor.requested("terminal/wait_for_exit")
            await editor.cancel(session)
        assert await editor.say(session, "/help") == "end_turn"
        assert not command.running()


async def test_a_session_is_closed_after_its_cancelled_command_has_ended(tmp_path: Path) -> None:
    client = "a client that answers terminal slash kill and does nothing"
    async with editing(tmp_path, client, uses(("bash", {"command": COMMAND}))) as editor:
        command = Stubborn(editor)
        session = await editor.open()
        async with editor.prompting(session):
            await command.pids()
            await editor.requested("terminal/wait_for_exit")
            await editor.ask("session/close", {"sessionId": session})
            assert not command.running()


async def test_a_command_over_its_time_ends_with_all_it_started_where_the_client_does_nothing(tmp_path: Path) -> None:
    client = "a client that never answers terminal slash kill"
    async with editing(tmp_path, client, uses(("bash", {"command": COMMAND, "timeout": 1})), says("on")) as editor:
        command = Stubborn(editor)
        async with editor.prompting(await editor.open()) as turn:
            pids = await command.pids()
            await editor.pass_time_until_the_end_of(turn)
        assert turn.stop_reason == "end_turn"
        await processes_ended(pids)
        assert editor.call.final["rawOutput"]["exit_code"] == 124
