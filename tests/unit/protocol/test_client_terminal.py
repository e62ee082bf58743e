"""Terminals behind the editor: what is sent, in which order, and what becomes of every odd answer."""

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.core.backends import CommandOutcome, CommandRequest
from acp_agent.core.editor import ContainedCommand, TerminalSettings
from acp_agent.core.errors import BackendUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.secrets import Redact, verbatim
from acp_agent.log import Log
from acp_agent.protocol import client_terminal
from acp_agent.protocol.client import EditorPaths
from acp_agent.protocol.client_terminal import ProxyTerminal, TerminalCommands
from acp_agent.session.toolset.backends import CompositeTerminal
from acp_agent.workspace.processes import table
from acp_agent.workspace.processes.table import MARK
from acp_agent.workspace.processes.terminal import LocalTerminal
from acp_agent.workspace.processes.tree import CommandWatchdog, ProcessTree
from acp_agent.workspace.sandbox.bubblewrap import bubblewrap
from tests.rows import each_row
from tests.unit.protocol.scripted_editor import REFUSALS, Editor, editor, quiet, refuse, tell_nobody
from tests.unit.protocol.wires import connected

pytestmark = pytest.mark.anyio


def terminal(
    editing: Editor,
    folder: Path | Callable[[], str],
    *,
    form: str = "script",
    timeout: float = 5,
    request_timeout: float = 1,
    hidden: Sequence[str] = (),
    redact: Redact = verbatim,
) -> ProxyTerminal:
    scripts = folder if callable(folder) else lambda: str(folder)
    return ProxyTerminal(
        editing.peer,
        "s1",
        EditorPaths("/w"),
        TerminalSettings(form, scripts, "bash", hidden, timeout, request_timeout, CommandWatchdog(), redact),
    )


HAPPY = {
    "terminal_create": {"terminalId": "t1"},
    "terminal_wait_for_exit": {"exitCode": 3, "signal": None},
    "terminal_output": {"output": "x\r\na\r\nb\n", "truncated": True, "exitStatus": {"exitCode": 3}},
}


async def run(
    editing: Editor, folder: Path | Callable[[], str], asked: float | None = None, **more: Any
) -> CommandOutcome:
    command = await terminal(editing, folder, **more).start(CommandRequest("echo 'a b' | cat", "/w", asked))
    try:
        return await command.wait(quiet)
    finally:
        await command.release()


async def test_a_command_goes_as_a_private_script_and_comes_back_whole(tmp_path: Path) -> None:
    scripts: list[tuple[str, str, int]] = []

    def create(params: dict[str, Any]) -> Any:
        path, _title = params["args"]
        scripts.append((path, Path(path).read_text(), os.stat(path).st_mode & 0o777))
        return {"terminalId": "t1"}

    async with editor(**{**HAPPY, "terminal_create": create}) as editing:
        outcome = await run(editing, tmp_path)
        await settled(editing, 4)
    assert (outcome.output, outcome.exit_code) == ("a\nb\n", 3)
    assert (outcome.truncated, outcome.beginning_lost) == (True, True)
    assert editing.methods[:2] == ["terminal/create", "terminal/wait_for_exit"]
    assert editing.methods[2:] == ["terminal/output", "terminal/release"]
    create_params = editing.requests[0][1]
    assert (create_params["command"], create_params["cwd"], create_params["sessionId"]) == ("bash", "/w", "s1")
    assert create_params["outputByteLimit"] > 0
    [(path, text, mode)] = scripts
    assert (text.endswith("; set --; echo 'a b' | cat\n"), text.count("\n"), mode) == (True, 1, 0o600)
    assert not Path(path).exists()


async def settled(editing: Editor, count: int) -> None:
    with anyio.fail_after(20):
        while len(editing.requests) < count:
            await editing.grown.wait()


async def test_a_command_on_another_machine_is_stopped_by_the_editor(tmp_path: Path) -> None:
    async with editor(**HAPPY) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("serve", "/w", background=True))
        await command.stop(0)
        await settled(editing, 2)
        await command.release()
    assert editing.methods[:2] == ["terminal/create", "terminal/kill"]


async def test_a_background_command_has_no_time_limit(tmp_path: Path) -> None:
    async with editor(**HAPPY) as editing:
        editing.answers["terminal/wait_for_exit"] = Editor.NEVER
        request = CommandRequest("serve", "/w", background=True)
        command = await terminal(editing, tmp_path, timeout=0.02).start(request)
        async with anyio.create_task_group() as tasks:
            outcomes: list[CommandOutcome] = []

            async def wait() -> None:
                outcomes.append(await command.wait(quiet))

            tasks.start_soon(wait)
            await settled(editing, 2)
            await anyio.sleep(0.1)
            editing.settle("terminal/wait_for_exit", {"exitCode": 0})
        await command.release()
    assert "terminal/kill" not in editing.methods
    assert not outcomes[0].timed_out


async def test_a_background_command_looks_at_no_process_that_was_there_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with editor(**HAPPY) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("serve", "/w", background=True))
        monkeypatch.setattr(table, "_SOON", -1.0)  # long after
        assert command._tree.new is not None
        assert os.getpid() not in command._tree.new.pids()
        await command.release()


async def test_a_folder_with_special_characters_makes_the_command_an_argument(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    async with editor(**HAPPY) as editing:
        await run(editing, folder)
    assert editing.requests[0][1]["args"] == ["-c", "echo 'a b' | cat"]


async def test_the_line_form_is_one_quoted_command(tmp_path: Path) -> None:
    async with editor(**HAPPY) as editing:
        await run(editing, tmp_path, form="line")
    assert editing.requests[0][1]["command"] == """bash -c 'echo '"'"'a b'"'"' | cat'"""
    assert "args" not in editing.requests[0][1]


def commands(folder: Path, redact: Redact = verbatim) -> TerminalCommands:
    settings = TerminalSettings("script", lambda: str(folder), "bash", (), 5, 1, CommandWatchdog(), redact)
    return TerminalCommands(settings)


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("git status --short", "# git status --short"),
        ("cd sub &&\n  make 'a b' 2>&1", "# cd sub ＆＆ make ＇a b＇ 2＞＆1"),
        ("curl -H 'X: hidden-thing'", "# curl -H ＇X: ［REDACTED］＇"),
        ("echo \x1b[31m\u202e", "# echo ＼u001b［31m＼u202e"),
        ("x" * 1000, f"# {'x' * 199}…"),
    ],
)
async def test_clients_that_show_program_and_arguments_show_the_command_without_secrets(
    tmp_path: Path, command: str, title: str
) -> None:
    """Zed, Toad and ACP Client show these words as the title of the terminal."""
    terminals = commands(tmp_path, lambda text: text.replace("hidden-thing", "[REDACTED]"))
    members, script, _ = await terminals.prepare(CommandRequest(command, "/w"), "the.mark")
    assert (members["command"], members["args"]) == ("bash", [script, title])


@pytest.mark.parametrize("command", ["pkill -f server.py; python server.py", "kill $(pgrep -f x)", "ps aux | grep x"])
async def test_a_command_that_looks_for_processes_does_not_find_its_own_title(tmp_path: Path, command: str) -> None:
    members, script, _ = await commands(tmp_path).prepare(CommandRequest(command, "/w"), "the.mark")
    assert members["args"] == [script]


@pytest.mark.parametrize(
    "joining",
    [
        ["sh", "-c"],
        ["bash", "--norc", "-c"],
        ["bash", "--norc", "+O", "interactive_comments", "-ic"],  # as a client that types into an interactive zsh
    ],
    ids=["sh", "bash", "a shell without comments"],
)
async def test_a_title_runs_nothing_in_clients_that_join_the_words_unquoted(
    tmp_path: Path, joining: Sequence[str]
) -> None:
    (scripts := tmp_path / "scripts").mkdir()
    (work := tmp_path / "work").mkdir()
    command = "echo $# >> ran; true 'a b' \"c\" $(echo `echo $HOME`) && cat <<E | cat > out\nx\nE\n(true); true & wait"
    members, *_ = await commands(scripts).prepare(CommandRequest(command, str(work)), "the.mark")
    for line in (" ".join([members["command"], *members["args"]]), shlex.join([members["command"], *members["args"]])):
        done = await anyio.run_process([*joining, line], cwd=work, check=False, start_new_session=True)
        assert (done.returncode, done.stdout) == (0, b"")
    assert (work / "ran").read_text() == "0\n0\n", "it ran once each, and without arguments"
    assert sorted(each.name for each in work.iterdir()) == ["out", "ran"]


@pytest.mark.parametrize("form", ["script", "exec", "line"])
@pytest.mark.parametrize("shell", ["bash", "sh"])
async def test_a_command_sees_no_hidden_variable_however_the_editor_runs_it(
    tmp_path: Path, form: str, shell: str
) -> None:
    terminals = TerminalCommands(
        TerminalSettings(form, lambda: str(tmp_path), shell, ("A_KEY", "B_TOKEN"), 5, 1, CommandWatchdog(), verbatim)
    )
    environ_at_start = "tr '\\0' '\\n' < /proc/$$/environ"
    line = f'echo "${{A_KEY-unset}} ${{B_TOKEN-unset}} $C"; env | grep -c A_KEY; {environ_at_start} | grep -c canary'
    members, *_ = await terminals.prepare(CommandRequest(line, str(tmp_path)), "the.mark")
    environ = {"PATH": os.environ["PATH"], "A_KEY": "canary", "B_TOKEN": "canary", "C": "kept"}
    environ.update((each["name"], each["value"]) for each in members["env"])
    words = [members["command"], *members["args"]] if form != "line" else ["sh", "-c", members["command"]]
    done = await anyio.run_process(words, env=environ, check=False)
    assert done.stdout == b"unset unset kept\n0\n0\n"
    assert done.stderr == b""


async def test_the_names_of_hidden_variables_do_not_stand_in_the_command(tmp_path: Path) -> None:
    async with editor(**HAPPY) as editing:
        await run(editing, tmp_path, form="exec", hidden=("A_KEY",))
    assert editing.requests[0][1]["args"] == ["-c", "unset -v $ACP_AGENT_UNSET ACP_AGENT_UNSET; echo 'a b' | cat"]


async def test_the_sandbox_of_a_command_hides_variables_without_a_list_of_their_names(tmp_path: Path) -> None:
    def contain(request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand:
        return ContainedCommand(request.command)

    settings = TerminalSettings("exec", str, "bash", ("A_KEY",), 5, 1, CommandWatchdog(), verbatim, contain=contain)
    terminals, listed = TerminalCommands(settings), list[set[str]]()
    for free in (False, True):
        members, *_ = await terminals.prepare(CommandRequest("x", str(tmp_path), unsandboxed=free), "the.mark")
        listed.append({each["name"] for each in members["env"]})
    assert listed[1] - listed[0] == {"ACP_AGENT_UNSET"}
    assert "A_KEY" in listed[0]


async def test_an_editor_without_terminals_is_not_asked_again(tmp_path: Path) -> None:
    async with editor(terminal_create=refuse(-32601)) as editing:
        with pytest.raises(BackendUnavailable) as caught:
            await run(editing, tmp_path)
    assert caught.value.permanent
    assert list(tmp_path.iterdir()) == []


async def twice_started(editing: Editor, scripts: Path, runs: Path) -> ToolError:
    """The error of a command that the editor got, and this machine must not run."""
    both = CompositeTerminal([terminal(editing, scripts), LocalTerminal()], tell_nobody)
    with pytest.raises(ToolError) as caught:
        await both.start(CommandRequest(f"echo ran >> {runs}", str(scripts)))
    assert not runs.exists()
    assert list(scripts.iterdir()) == []
    return caught.value


@each_row("code", [*REFUSALS, -32002])
async def test_any_other_refusal_of_a_terminal_is_final(tmp_path: Path, code: int) -> None:
    (scripts := tmp_path / "scripts").mkdir()
    async with editor(terminal_create=refuse(code, "Permission denied")) as editing:
        error = await twice_started(editing, scripts, tmp_path / "runs")
    assert str(error) == "the editor did not do terminal/create: Permission denied"
    assert error.failure.category is ToolErrorCategory.POLICY_BLOCKED


@each_row("answer", [None, {}, {"terminalId": 7}, {"terminalId": None}, [], "term-1", 7, True])
async def test_a_command_whose_start_is_answered_with_rubbish_is_not_run_a_second_time(
    tmp_path: Path, answer: Any
) -> None:
    (scripts := tmp_path / "scripts").mkdir()
    async with editor(terminal_create=answer) as editing:
        error = await twice_started(editing, scripts, tmp_path / "runs")
    assert "the command may have been started there" in str(error)


async def test_output_comes_as_deltas_while_the_command_runs(tmp_path: Path) -> None:
    texts = iter(["one\n", "one\ntwo\n", "wo\nthree\n"])
    released = anyio.Event()
    seen: list[str] = []

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output=lambda _p: {"output": next(texts), "truncated": False},
    ) as editing:

        async def collect(output: str) -> None:
            seen.append(output)
            if len(seen) == 3:
                released.set()

        async def wait(command: Any) -> None:
            await command.wait(collect)

        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, command)
            with anyio.fail_after(20):
                await released.wait()
            tasks.cancel_scope.cancel()
        await command.release()
        await settled(editing, 7)
    assert seen == ["one\n", "two\n", "three\n"]
    assert editing.methods[-2:] == ["terminal/kill", "terminal/release"]


async def test_half_a_secret_with_which_a_cut_output_begins_is_not_handed_over(tmp_path: Path) -> None:
    seen, handed_over = list[str](), anyio.Event()

    async def collect(output: str) -> None:
        seen.append(output)
        handed_over.set()

    async def wait(command: Any) -> None:
        await command.wait(collect)

    output = {"output": "Xy7wYr4Ue6 the rest\n", "truncated": True}
    async with editor(**{**HAPPY, "terminal_wait_for_exit": Editor.NEVER, "terminal_output": output}) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, command)
            with anyio.fail_after(20):
                await handed_over.wait()
            tasks.cancel_scope.cancel()
        await command.release()
    assert seen == ["the rest\n"]


async def test_what_a_command_printed_last_is_handed_over_if_its_beginning_was(tmp_path: Path) -> None:
    texts, seen = ["one\n", "one\ntwo\n"], list[str]()

    async def collect(output: str) -> None:
        seen.append(output)
        if len(seen) == 1:
            editing.settle("terminal/wait_for_exit", {"exitCode": 0})

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output=lambda _p: {"output": texts[min(len(seen), 1)], "truncated": False},
    ) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        outcome = await command.wait(collect)
        await command.release()
    assert (seen, outcome.output) == (["one\n", "two\n"], "one\ntwo\n")


async def test_a_cancelled_command_is_killed_at_once_and_cleaned_up_in_a_task_of_its_own(tmp_path: Path) -> None:
    jobs: list[Callable[[], Awaitable[None]]] = []
    settings = TerminalSettings(
        "script", lambda: str(tmp_path), "bash", (), 5, 1, CommandWatchdog(), verbatim, background=jobs.append
    )
    async with editor(**HAPPY, terminal_kill={}) as editing:
        editing.answers["terminal/wait_for_exit"] = Editor.NEVER
        command = await ProxyTerminal(editing.peer, "s1", EditorPaths("/w"), settings).start(CommandRequest("x", "/w"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(command.wait, quiet)
            await settled(editing, 2)
            tasks.cancel_scope.cancel()
        await command.release()
        await command.release()
        await settled(editing, 3)
        assert (editing.methods[-1], len(list(tmp_path.iterdir())), len(jobs)) == ("terminal/kill", 1, 1)
        await jobs[0]()
        await settled(editing, 4)
    assert (editing.methods[-1], list(tmp_path.iterdir())) == ("terminal/release", [])


async def test_a_command_is_looked_after_once_when_nothing_of_it_is_left(tmp_path: Path) -> None:
    left: list[subprocess.Popen[bytes]] = []
    looks: list[tuple[bool, str]] = []
    jobs: list[Callable[[], Awaitable[None]]] = []

    def contain(request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand:
        left.append(subprocess.Popen(["sleep", "60"], env=dict(variables)))
        return ContainedCommand("x", lambda: looks.append((left[-1].poll() is None, editing.methods[-1])) or "[looked]")

    settings = TerminalSettings(
        "exec", str, "bash", (), 5, 1, CommandWatchdog(), verbatim, contain=contain, background=jobs.append
    )
    shells: list[str] = []

    def create(params: dict[str, Any]) -> Any:
        shells.append(params["command"])
        return {"terminalId": "t1"}

    async with editor(**{**HAPPY, "terminal_create": create}, terminal_kill={}) as editing:
        terminal = ProxyTerminal(editing.peer, "s1", EditorPaths("/w"), settings)
        command = await terminal.start(CommandRequest("x", "/w"))
        output = (await command.wait(quiet)).output
        await command.release()
        assert (len(editing.methods), len(jobs)) == (3, 1)  # the call does not wait for its release
        await jobs.pop()()
        await settled(editing, 4)
        assert output.endswith("\n[1 background process ended with the command]\n[looked]")
        assert looks == [(False, "terminal/wait_for_exit")]
        assert shells == ["sh"]  # it only starts what builds the walls

        editing.answers["terminal/wait_for_exit"] = Editor.NEVER
        cancelled = await terminal.start(CommandRequest("x", "/w"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled.wait, quiet)
            await settled(editing, 6)
            tasks.cancel_scope.cancel()
        await cancelled.release()
        await settled(editing, 7)
        assert len(looks) == 1
        await jobs[0]()
    assert looks[1:] == [(False, "terminal/kill")]


@pytest.mark.skipif(not bubblewrap(), reason="needs bubblewrap")
async def test_an_editor_that_waits_for_the_end_of_a_pipe_sees_the_end_of_a_command_with_left_overs(
    tmp_path: Path,
) -> None:
    outer = list[subprocess.Popen[bytes]]()
    walls = [bubblewrap(), "--unshare-pid", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "sh", "-c"]

    def contain(request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand:
        return ContainedCommand(f"exec {shlex.join([*walls, request.command])}")

    def create(params: dict[str, Any]) -> Any:
        environment = {**os.environ, **{each["name"]: each["value"] for each in params["env"]}}
        words = [params["command"], *params["args"]]
        outer.append(subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
        return {"terminalId": "t1"}

    async def until_the_pipe_ends(editing: Editor) -> None:
        await settled(editing, 2)
        with outer[0] as process:
            assert process.stdout is not None
            printed.append(await anyio.to_thread.run_sync(process.stdout.read))
        editing.settle("terminal/wait_for_exit", {"exitCode": process.returncode})

    settings = TerminalSettings("exec", str, "bash", (), 20, 1, CommandWatchdog(), verbatim, contain=contain)
    printed = list[bytes]()
    async with editor(**{**HAPPY, "terminal_create": create}, terminal_kill={}) as editing:
        editing.answers["terminal/wait_for_exit"] = Editor.NEVER
        terminal = ProxyTerminal(editing.peer, "s1", EditorPaths("/w"), settings)
        command = await terminal.start(CommandRequest("nohup sleep 1000 >/dev/null 2>&1 & echo hi; exit 3", "/w"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_the_pipe_ends, editing)
            outcome = await command.wait(quiet)
        await command.release()
    assert (outcome.exit_code, outcome.timed_out, printed) == (3, False, [b"hi\n"])
    assert "ended with the command]" in outcome.output


async def test_a_thread_builds_the_walls_only_where_they_are_not_built_at_once(tmp_path: Path) -> None:
    loop_thread, made, lines = threading.get_ident(), list[str](), list[str]()

    def contain(request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand:
        made.append("here" if threading.get_ident() == loop_thread else "thread")
        return ContainedCommand(f"contained {request.command} {list(variables)}")

    def contain_now(request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand | None:
        if request.command == "broken":
            raise OSError("no walls")
        return contain(request, variables) if request.command == "quick" else None

    def create(params: dict[str, Any]) -> Any:
        lines.append(params["args"][1])
        return {"terminalId": "t1"}

    settings = TerminalSettings(
        "exec", str, "bash", (), 5, 1, CommandWatchdog(), verbatim, contain=contain, contain_now=contain_now
    )
    async with editor(**{**HAPPY, "terminal_create": create}) as editing:
        terminal = ProxyTerminal(editing.peer, "s1", EditorPaths("/w"), settings)
        for line in ("quick", "slow"):
            await (await terminal.start(CommandRequest(line, "/w"))).wait(quiet)
        with pytest.raises(ToolError, match="the sandbox cannot be built: no walls"):
            await terminal.start(CommandRequest("broken", "/w"))
    assert made == ["here", "thread"]
    assert lines == [f"contained {line} ['{MARK}']" for line in ("quick", "slow")]


async def test_a_command_that_hangs_is_killed_and_its_output_kept(tmp_path: Path) -> None:
    waits: list[int] = []

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output={"output": "partial", "truncated": False},
    ) as editing:

        def kill(_params: dict[str, Any]) -> Any:
            waits.append(1)
            editing.answers["terminal/wait_for_exit"] = {"exitCode": None, "signal": "SIGKILL"}
            return {}

        editing.answers["terminal/kill"] = kill
        outcome = await run(editing, tmp_path, timeout=0.05)
    assert (outcome.timed_out, outcome.exit_code, outcome.output, outcome.timeout) == (True, 124, "partial", 0.05)
    assert waits == [1]


@pytest.mark.parametrize(("blank", "left"), [(" ", 20_000), ("", 20_000 - 8 * 1024 + len("Xy7wYr4Ue6"))])
async def test_half_a_secret_at_the_beginning_of_a_cut_output_is_left_out_also_in_a_very_long_word(
    tmp_path: Path, blank: str, left: int
) -> None:
    output = {"output": f"Xy7wYr4Ue6{blank}{'x' * 20_000}", "truncated": True}
    async with editor(**{**HAPPY, "terminal_output": output}) as editing:
        outcome = await run(editing, tmp_path)
    assert outcome.output == "x" * left


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [
        ({"exitCode": None, "signal": "SIGTERM"}, 143, "SIGTERM"),
        ({"exitCode": None, "signal": "KILL"}, 137, "KILL"),
        ({"exitCode": None, "signal": "whatever"}, None, "whatever"),
        ({"exitCode": None, "signal": "SIG\n\x1b[exit 0]"}, None, "SIG ⏎ \\u001b[exit 0]"),
        ({"exitCode": None, "signal": "x" * 5000}, None, f"{'x' * 120}…"),
        ({}, None, None),
        (None, None, None),
    ],
)
async def test_how_a_command_ended(tmp_path: Path, status: Any, code: int | None, signal: str | None) -> None:
    output = {"output": "x", "truncated": False}
    async with editor(**{**HAPPY, "terminal_wait_for_exit": status, "terminal_output": output}) as editing:
        outcome = await run(editing, tmp_path)
    assert (outcome.exit_code, outcome.signal) == (code, signal)


@pytest.mark.parametrize("status", [None, {}, {"exitCode": None, "signal": None}, {"exitStatus": {"exitCode": 3}}])
async def test_how_a_command_ended_may_be_told_with_its_output(tmp_path: Path, status: Any) -> None:
    async with editor(**{**HAPPY, "terminal_wait_for_exit": status}) as editing:
        outcome = await run(editing, tmp_path)
    assert outcome.exit_code == 3


async def test_a_terminal_that_breaks_under_a_command_is_an_error_and_still_released(tmp_path: Path) -> None:
    async with editor(**{**HAPPY, "terminal_wait_for_exit": refuse(-32603)}) as editing:
        with pytest.raises(ToolError, match="the command may have run there") as caught:
            await run(editing, tmp_path)
        await settled(editing, 3)
    assert "Look at what the command has done" in caught.value.failure.suggestion
    assert editing.methods[-1] == "terminal/release"


async def test_a_terminal_that_comes_too_late_is_given_back(tmp_path: Path) -> None:
    async with connected() as (peer, other):
        starting = ProxyTerminal(
            peer,
            "s1",
            EditorPaths("/w"),
            TerminalSettings("exec", lambda: str(tmp_path), "sh", (), 5, 0.01, CommandWatchdog(), verbatim),
        )
        with pytest.raises(ToolError, match="may still start there"):
            await starting.start(CommandRequest("x", "/w"))
        request = await other.receive()
        other.send(id=request["id"], result={"terminalId": "late"})
        assert [(await other.receive())["method"] for _ in range(2)] == ["terminal/kill", "terminal/release"]


async def test_a_terminal_that_is_slow_to_come_never_makes_a_command_run_twice(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    request = CommandRequest(f"echo ran >> {tmp_path / 'runs'}", str(tmp_path))
    async with editor(terminal_create=Editor.NEVER) as editing:
        both = CompositeTerminal([terminal(editing, scripts, request_timeout=0.05), LocalTerminal()], tell_nobody)
        with pytest.raises(ToolError) as caught:
            await both.start(request)
        assert not (tmp_path / "runs").exists()
        again = await both.start(request)
        await again.wait(quiet)
        await again.release()
    assert caught.value.failure.category is ToolErrorCategory.TIMEOUT
    assert caught.value.failure.message == (
        "the editor did not answer terminal/create within 0.05 s; the command may still start there"
    )
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert editing.methods == ["terminal/create"]
    assert list(scripts.iterdir()) == []


async def test_a_script_folder_that_was_swept_away_is_made_again(tmp_path: Path) -> None:
    made = iter([tmp_path / "swept", tmp_path])
    async with editor(**HAPPY) as editing:
        await run(editing, lambda: str(next(made)))
    script, _title = editing.requests[0][1]["args"]
    assert Path(script).parent == tmp_path


async def test_without_any_script_folder_the_command_is_an_argument(tmp_path: Path) -> None:
    async with editor(**HAPPY) as editing:
        await run(editing, tmp_path / "swept")
    assert editing.requests[0][1]["args"] == ["-c", "echo 'a b' | cat"]


SWEPT = """
import os, shutil, anyio
from acp_agent.session.processes import ProcessServices
from acp_agent.config.load import Flags, load
workshop = ProcessServices(load(Flags(), {}), lambda task: None, lambda loaded: None)
first = workshop.script_folder()
assert workshop.script_folder() == first
shutil.rmtree(first)
second = workshop.script_folder()
assert os.stat(second).st_mode & 0o777 == 0o700
anyio.run(workshop.aclose)
assert not os.path.exists(second)
print("good")
"""


async def test_the_workshop_makes_its_script_folder_anew_when_it_is_gone() -> None:
    # In a process of its own: a workshop changes the one it is in (log, signals, who inherits orphans).
    done = await anyio.run_process([sys.executable, "-W", "error", "-c", SWEPT], check=False)
    assert (done.stdout, done.stderr) == (b"good\n", b"")


def test_an_update_that_cannot_carry_all_that_is_new_begins_with_a_whole_word() -> None:
    """Half of a secret is one nobody recognises."""
    words = "".join(f"word{number:06} " for number in range(10_000))
    carried = client_terminal._end(words)
    assert set(carried.split()) <= set(words.split())
    assert 20_000 < len(carried) <= client_terminal._DELTA_LIMIT
    assert client_terminal._end("as it is") == "as it is"


def test_an_update_that_cannot_carry_all_that_is_new_ends_the_line_that_was_begun() -> None:
    """Its beginning was handed over before, and may be that of a secret."""
    carried = client_terminal._end("rest of the line\n" + "word " * 20_000)
    assert carried.startswith("rest of the line\nword ")
    assert 20_000 < len(carried) <= client_terminal._DELTA_LIMIT


@pytest.mark.parametrize("last", [refuse(-32603), "nonsense"])
async def test_an_exit_is_remembered_when_the_last_output_fails(tmp_path: Path, last: Any) -> None:
    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output={"output": "seen\r\n", "truncated": False},
    ) as editing:

        async def seen(_output: str) -> None:
            editing.answers["terminal/output"] = last
            editing.settle("terminal/wait_for_exit", {"exitCode": 3})

        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        outcome = await command.wait(seen)
        await command.release()
    assert (outcome.exit_code, outcome.timed_out, outcome.truncated, outcome.beginning_lost) == (3, False, True, False)
    assert outcome.output.startswith("seen\n\n[the editor did not give the output: ")


async def test_half_a_secret_with_which_a_cut_output_began_is_left_out_when_the_last_output_fails(
    tmp_path: Path,
) -> None:
    for earlier in ([], [{"output": "sk-Xy7wYr4Ue6", "truncated": False}]):
        cut = {"output": "Xy7wYr4Ue6 the rest\n", "truncated": True}
        readings = iter([*earlier, cut])

        async def seen(output: str) -> None:
            if output.endswith("the rest\n"):
                editing.answers["terminal/output"] = refuse(-32603)
                editing.settle("terminal/wait_for_exit", {"exitCode": 3})

        async with editor(
            terminal_create={"terminalId": "t1"},
            terminal_wait_for_exit=Editor.NEVER,
            terminal_output=lambda _p, readings=readings: next(readings),
        ) as editing:
            command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
            outcome = await command.wait(seen)
            await command.release()
        assert outcome.output == "the rest\n\n[the editor did not give the output: no]\n"
        assert outcome.beginning_lost


async def test_output_that_nobody_takes_does_not_replace_how_the_command_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged, taken = list[str](), list[str]()

    class Logged(Log):
        def error(self, event: str, **fields: object) -> None:
            logged.append(f"{event}: {fields['exc_info']}")

    monkeypatch.setattr(client_terminal, "_log", Logged(""))

    async def take(output: str) -> None:
        taken.append(output)
        editing.settle("terminal/wait_for_exit", {"exitCode": 3})
        raise OSError("no room")

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output=lambda _p: {"output": "one\ntwo\n" if taken else "one\n", "truncated": False},
    ) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        outcome = await command.wait(take)
        await command.release()
    assert (outcome.exit_code, outcome.output, taken) == (3, "one\ntwo\n", ["one\n"])
    assert logged == ["output of a command not passed on: no room"]


@pytest.mark.parametrize("fault", ["refused", "not taken", "not found"])
async def test_no_fault_of_the_output_ends_the_look_for_what_a_contained_command_leaves_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    logged, looks = list[str](), list[str]()

    class Logged(Log):
        def error(self, event: str, **fields: object) -> None:
            logged.append(f"{event}: {fields['exc_info']}")
            if fault == "not found":
                editing.settle("terminal/wait_for_exit", {"exitCode": 0})

    class Tree(ProcessTree):
        def left_behind(self) -> bool:
            looks.append(editing.methods[-1])
            if fault == "not found":
                raise OSError("no table")
            return len(looks) > 1

        def finish(self) -> int:
            anyio.from_thread.run_sync(editing.settle, "terminal/wait_for_exit", {"exitCode": 0})
            return 1

    async def take(_output: str) -> None:
        if fault == "not taken":
            raise OSError("no room")

    monkeypatch.setattr(client_terminal, "_log", Logged(""))
    monkeypatch.setattr(client_terminal, "ProcessTree", Tree)

    def contain(request: CommandRequest, variables: Mapping[str, str]) -> ContainedCommand:
        return ContainedCommand(request.command)

    settings = TerminalSettings("exec", str, "bash", (), 20, 1, CommandWatchdog(), verbatim, contain=contain)
    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output=refuse(-32603) if fault == "refused" else {"output": "one\n", "truncated": False},
    ) as editing:
        terminal = ProxyTerminal(editing.peer, "s1", EditorPaths("/w"), settings)
        command = await terminal.start(CommandRequest("x", "/w"))
        with anyio.fail_after(20):
            outcome = await command.wait(take)
        await command.release()
    assert outcome.exit_code == 0
    told = {
        "not taken": ["output of a command not passed on: no room"],
        "not found": ["no look for what a command has left running: no table"],
    }
    assert logged == told.get(fault, [])
    assert ("1 background process ended with the command" in outcome.output) is (fault != "not found")


@pytest.mark.parametrize(
    ("seen_before", "told"),
    [("first line\nkey sk-Xy7wYr4Ue6", "first line\nkey "), ("first line\n", "first line\n"), ("sk-Xy7", "")],
)
async def test_half_a_secret_that_was_seen_last_is_left_out_when_the_last_output_fails(
    tmp_path: Path, seen_before: str, told: str
) -> None:
    async def seen(output: str) -> None:
        editing.answers["terminal/output"] = refuse(-32603)
        editing.settle("terminal/wait_for_exit", {"exitCode": 3})

    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output={"output": seen_before, "truncated": False},
    ) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w"))
        outcome = await command.wait(seen)
        await command.release()
    assert outcome.output == f"{told}\n[the editor did not give the output: no]\n"


@pytest.mark.parametrize("exit_answer", [refuse(-32603), {"exitCode": 0}])
async def test_a_timeout_is_remembered_when_the_editor_tells_nothing_any_more(tmp_path: Path, exit_answer: Any) -> None:
    async with editor(
        terminal_create={"terminalId": "t1"},
        terminal_wait_for_exit=Editor.NEVER,
        terminal_output={"output": "seen\n", "truncated": False},
    ) as editing:

        def kill(_params: dict[str, Any]) -> Any:
            editing.answers |= {"terminal/wait_for_exit": exit_answer, "terminal/output": refuse(-32603)}
            return {}

        editing.answers["terminal/kill"] = kill
        outcome = await run(editing, tmp_path, timeout=0.15)
    assert (outcome.timed_out, outcome.exit_code, outcome.timeout) == (True, 124, 0.15)
    assert (outcome.output, outcome.truncated) == ("seen\n\n[the editor did not give the output: no]\n", True)


@pytest.mark.parametrize(("asked", "sent"), [(10 * 1024 * 1024, 1024 * 1024), (1000, 1000)])
async def test_the_editor_is_asked_to_keep_a_mebibyte_at_most(tmp_path: Path, asked: int, sent: int) -> None:
    async with editor(**HAPPY) as editing:
        command = await terminal(editing, tmp_path).start(CommandRequest("x", "/w", output_limit=asked))
        await command.release()
    assert editing.requests[0][1]["outputByteLimit"] == sent


@pytest.mark.parametrize(
    ("configured", "asked", "taken"),
    [(0.1, None, 0.1), (0.1, 0.05, 0.05), (0.05, 0.1, 0.1), (0, 0.1, 0.1)],
)
async def test_a_command_has_the_time_its_request_names_else_the_configured_one(
    tmp_path: Path, configured: float, asked: float | None, taken: float
) -> None:
    async with editor(**{**HAPPY, "terminal_wait_for_exit": Editor.NEVER}) as editing:

        def kill(_params: dict[str, Any]) -> Any:
            editing.answers["terminal/wait_for_exit"] = {}
            return {}

        editing.answers["terminal/kill"] = kill
        with anyio.fail_after(20):
            outcome = await run(editing, tmp_path, asked, timeout=configured)
    assert (outcome.timed_out, outcome.timeout) == (True, taken)
