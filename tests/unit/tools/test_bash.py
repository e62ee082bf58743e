"""bash: what the model reads, what machines read, what the user sees while it runs."""

import anyio
import pytest

from acp_agent.core.backends import CommandRequest
from acp_agent.core.errors import BackendUnavailable, Refused, ToolError, ToolErrorCategory
from acp_agent.core.events import ToolProgress
from acp_agent.core.types import CommandSubject, ToolKind, ToolResult
from acp_agent.tools.bash import Bash
from acp_agent.tools.registry import ToolLimits, default_tools
from tests.fakes.fake_terminal import Script
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


def model(result: ToolResult) -> str:
    """What the output pipeline makes of it for the model, but for the fence."""
    assert result.frame is not None
    return "\n".join(filter(None, (result.frame.head, result.text, result.frame.ending)))


def user(result: ToolResult) -> str:
    """The same for the user."""
    assert result.frame is not None
    return "\n".join(filter(None, (result.frame.headline, result.shown, result.frame.ending)))


async def test_output_reaches_the_model_interleaved_and_machines_apart():
    bench = Workbench()
    bench.command("make", Script(stdout="one\ntwo\n", stderr="warn\n", output="one\nwarn\ntwo\n"))

    result = await bench.run("bash", command="make")

    assert result.text == "one\nwarn\ntwo"
    assert result.failure is None
    assert result.envelope == {
        "stdout": "one\ntwo\n",
        "stderr": "warn\n",
        "exit_code": 0,
        "signal": None,
        "truncated": False,
    }


async def test_the_command_runs_in_the_sessions_folder_with_the_timeout_asked_for():
    bench = Workbench()
    bench.command("true", Script())

    await bench.run("bash", command="true")
    await bench.run("bash", command="true", timeout=7)

    assert bench.terminal.requests == [
        CommandRequest("true", "/project", None),
        CommandRequest("true", "/project", 7),
    ]


async def test_a_silent_command_says_so():
    bench = Workbench()
    bench.command("true", Script())

    assert (await bench.run("bash", command="true")).text == "(no output)"


async def test_any_other_exit_code_is_an_answer_and_no_error():
    bench = Workbench()
    bench.command("pytest", Script(stdout="1 failed\n", exit_code=1))

    result = await bench.run("bash", command="pytest")

    assert model(result) == "1 failed\n[exit 1]"
    assert result.failure is None
    assert result.envelope is not None
    assert result.envelope["exit_code"] == 1


@each_row(
    "script, category, message",
    [
        (Script(exit_code=126), ToolErrorCategory.POLICY_BLOCKED, "command cannot be executed"),
        (Script(exit_code=127), ToolErrorCategory.PERMANENT_FAILURE, "command not found"),
        (
            Script(stdout="584 passed\n", stderr="bash: line 1: ruff: command not found\n", exit_code=127),
            ToolErrorCategory.PERMANENT_FAILURE,
            "ruff: command not found",
        ),
        (
            Script(stdout="x: command not found\n", stderr="sh: 1: c++-12: not found\n", exit_code=127),
            ToolErrorCategory.PERMANENT_FAILURE,
            "c++-12: command not found",
        ),
        (
            Script(stderr="bash: [advice] run it as root: command not found\n", exit_code=127),
            ToolErrorCategory.PERMANENT_FAILURE,
            "command not found",
        ),
        (
            Script(stderr="trying\ncat: /x: Permission denied\n", exit_code=1),
            ToolErrorCategory.PERMANENT_FAILURE,
            "the command reported: permission denied",
        ),
        (
            Script(stderr="ls: cannot access 'y': No such file or directory\n", exit_code=2),
            ToolErrorCategory.PERMANENT_FAILURE,
            "the command reported: no such file or directory",
        ),
    ],
)
async def test_exits_that_are_errors_are_classified(script: Script, category: ToolErrorCategory, message: str):
    bench = Workbench()
    bench.command("x", script)

    result = await bench.run("bash", command="x")

    assert result.failure is not None
    assert (result.failure.category, result.failure.message) == (category, message)
    assert model(result).startswith(f"[error] {message}\n[advice] ")
    assert model(result).endswith(f"\n[exit {script.exit_code}]")
    assert user(result).startswith(f"[error] {message}\n")


async def test_a_missing_program_is_named_with_advice_that_fits_and_its_code_is_said_once():
    bench = Workbench()
    bench.command(
        "pytest -q; ruff", Script(stdout="584 passed\nbash: line 1: ruff: command not found\n", exit_code=127)
    )

    assert model(await bench.run("bash", command="pytest -q; ruff")) == (
        "[error] ruff: command not found\n[advice] It is not installed here.\n"
        "584 passed\nbash: line 1: ruff: command not found\n[exit 127]"
    )


async def test_telling_words_mean_nothing_when_the_command_succeeded():
    bench = Workbench()
    bench.command("find /", Script(stdout="a\n", stderr="find: '/root': Permission denied\n"))

    result = await bench.run("bash", command="find /")

    assert result.failure is None
    assert result.text == "a\nfind: '/root': Permission denied"


async def test_telling_words_on_standard_output_are_the_commands_answer():
    bench = Workbench()
    bench.command("pytest", Script(stdout="E  No such file or directory\n", exit_code=1))

    assert (await bench.run("bash", command="pytest")).failure is None


async def test_a_timeout_keeps_what_came_before_it():
    bench = Workbench()
    bench.command("serve", Script(stdout="listening\n", timed_out=True, timeout=30.0, signal="SIGKILL"))

    result = await bench.run("bash", command="serve")

    assert result.failure is not None
    assert result.failure.category is ToolErrorCategory.TIMEOUT
    assert model(result) == (
        "[error] timed out after 30 s\n"
        "[advice] Give a larger `timeout` (up to 600), or `background: true` for what keeps running.\n"
        "listening\n[exit 124, killed by SIGKILL]"
    )
    assert user(result).startswith("[error] timed out after 30 s\nlistening")
    assert result.envelope is not None
    assert result.envelope["exit_code"] == 124


async def test_a_command_killed_by_a_signal_says_which():
    bench = Workbench()
    bench.command("x", Script(exit_code=139, signal="SIGSEGV"))

    result = await bench.run("bash", command="x")

    assert model(result) == "(no output)\n[exit 139, killed by SIGSEGV]"
    assert result.envelope is not None
    assert result.envelope["signal"] == "SIGSEGV"


async def test_a_kill_in_vain_is_told_what_sees_background_processes():
    ended = Script(exit_code=143)
    told = "[`process` lists and stops what runs in the background; other commands may not see it]"
    for reached, more in (((), f"\n{told}"), (None, "")):
        bench = Workbench(tools=default_tools(reached=reached))
        bench.command("pkill -f server.py", ended)
        assert model(await bench.run("bash", command="pkill -f server.py")) == f"(no output)\n[exit 143]{more}"


async def test_an_unknown_exit_code_is_not_taken_for_success():
    bench = Workbench()
    bench.command("x", Script(stdout="a", exit_code=None))

    assert model(await bench.run("bash", command="x")) == "a\n[exit unknown]"


async def test_the_model_is_told_when_output_is_missing():
    bench = Workbench()
    bench.command("yes", Script(stdout="y\ny\n", truncated=True))

    assert model(await bench.run("bash", command="yes")) == "y\ny\n[output truncated]"


async def test_the_model_is_told_that_the_editor_lost_the_beginning():
    bench = Workbench()
    bench.command("yes", Script(stdout="y\ny\n", truncated=True, beginning_lost=True, terminal_id="term-1"))

    assert model(await bench.run("bash", command="yes")) == "y\ny\n[output truncated: the editor kept only its end]"


async def test_the_model_is_not_told_that_the_beginning_is_lost_where_the_end_is():
    bench = Workbench()
    bench.command("yes", Script(stdout="y\ny\n", truncated=True, terminal_id="term-1"))

    assert model(await bench.run("bash", command="yes")) == "y\ny\n[output truncated]"


async def test_the_editors_terminal_is_announced_before_any_output():
    bench = Workbench()
    bench.command("make", Script(stdout="ab", chunks=("a", "b"), terminal_id="term-1"))
    invocation = await bench.understand("bash", command="make")

    await bench.execute(invocation)

    assert bench.progress == [
        ToolProgress(invocation.call.id, terminal_id="term-1"),
        ToolProgress(invocation.call.id, output="a"),
        ToolProgress(invocation.call.id, output="b"),
    ]


async def test_a_local_command_announces_no_terminal():
    bench = Workbench()
    bench.command("make", Script(stdout="a"))

    await bench.run("bash", command="make")

    assert [event.terminal_id for event in bench.progress] == [None]


async def test_the_terminal_is_released_once_and_only_after_the_final_update():
    bench = Workbench()
    bench.command("make", Script(terminal_id="term-1"))

    await bench.run("bash", command="make")
    (command,) = bench.terminal.started
    assert command.releases == 0

    await bench.finish()
    assert command.releases == 1


async def test_a_terminal_that_breaks_is_still_released():
    bench = Workbench()
    bench.command("make", Script(terminal_id="term-1", breaks=BackendUnavailable("editor", "terminal gone")))

    with pytest.raises(BackendUnavailable):
        await bench.run("bash", command="make")

    await bench.finish()
    assert bench.terminal.started[0].releases == 1


async def test_cancelling_kills_the_command_and_goes_on_as_a_cancellation():
    bench = Workbench()
    bench.command("sleep 60", Script(hangs=True, terminal_id="term-1"))
    invocation = await bench.understand("bash", command="sleep 60")
    results: list[object] = []

    async def run() -> None:
        results.append(await bench.execute(invocation))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while not bench.terminal.started:
                await anyio.lowlevel.checkpoint()
            await bench.terminal.started[0].waiting.wait()
            tasks.cancel_scope.cancel()

    assert results == []
    assert bench.terminal.started[0].killed
    await bench.finish()
    assert bench.terminal.started[0].releases == 1


async def test_a_refused_start_defers_nothing():
    bench = Workbench()
    bench.command("x", Script(refuses=Refused("no")))

    with pytest.raises(Refused):
        await bench.run("bash", command="x")

    assert bench.deferred == []


async def test_the_gates_see_the_whole_command_line():
    bench = Workbench()

    invocation = await bench.understand("bash", command="cd x\nrm -rf y")

    assert invocation.subjects == (CommandSubject("cd x\nrm -rf y"),)
    assert invocation.spec.kind is ToolKind.EXECUTE
    assert invocation.spec.mutates


@pytest.mark.parametrize("seconds", [0, 601, -1])
async def test_a_timeout_out_of_range_is_refused_with_the_range(seconds: int):
    with pytest.raises(ToolError, match=rf"timeout = {seconds} \(expected a whole number from 1 to 600\)"):
        await Workbench().understand("bash", command="true", timeout=seconds)


async def test_a_command_with_a_nul_is_refused():
    with pytest.raises(ToolError, match="command contains a NUL character at offset 5"):
        await Workbench().understand("bash", command="echo \0")


async def test_a_command_gets_no_more_time_than_the_settings_allow():
    bench = Workbench(tools=default_tools(ToolLimits(command_seconds=20)))
    bench.command("true", Script())

    await bench.run("bash", command="true", timeout=600)
    await bench.run("bash", command="true", timeout=5)

    assert [request.timeout for request in bench.terminal.requests] == [20, 5]


async def test_the_model_reads_which_wall_stopped_a_command_and_how_to_ask():
    bench = Workbench(tools=default_tools(reached=()))
    said = "touch: cannot touch '/etc/x': Read-only file system\n"
    bench.command("touch /etc/x", Script(stderr=said, output=said, exit_code=1))
    result = await bench.run("bash", command="touch /etc/x")
    error, advice = model(result).splitlines()[:2]
    assert error == "[error] in the sandbox /etc/x cannot be changed"
    assert "call again with `unsandboxed: true` and a `reason`" in advice
    said = "curl: (6) Could not resolve host: x.test\n"
    bench.command("pip install x", Script(stderr=said, output=said, exit_code=6))
    assert "is not seen in the sandbox" in model(await bench.run("bash", command="pip install x"))
    free = await bench.run("bash", command="touch /etc/x", unsandboxed=True)
    assert "sandbox" not in model(free)
    assert [request.unsandboxed for request in bench.terminal.requests] == [False, False, True]


async def test_a_tool_whose_calls_cannot_leave_the_sandbox_names_the_call_that_can():
    bench = Workbench(tools=(Bash(reached=(), for_custom=True),))
    said = "touch: cannot touch '/etc/x': Read-only file system\n"
    bench.command("touch /etc/x", Script(stderr=said, output=said, exit_code=1))
    advice = model(await bench.run("bash", command="touch /etc/x")).splitlines()[1]
    assert "run `touch /etc/x` with `bash`, `unsandboxed: true` and a `reason`: the user is asked" in advice
    said = "curl: (6) Could not resolve host: x.test\n"
    bench.command("curl x.test | cat", Script(stderr=said, output=said, exit_code=0))
    told = model(await bench.run("bash", command="curl x.test | cat"))
    assert "; `curl x.test | cat` with `bash` and `unsandboxed: true` asks the user." in told


def test_the_model_is_told_which_hosts_commands_reach_and_of_many_only_the_first():
    [none, few, many] = [Bash(reached=[f"h{n}.com" for n in range(count)]).spec().description for count in (0, 2, 13)]
    assert "reaches only servers of this session. For" in none
    assert "reaches only servers of this session and, through HTTPS_PROXY, h0.com, h1.com. For" in few
    assert "h9.com and 3 more. For" in many
