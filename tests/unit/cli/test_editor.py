"""The editor of `run` and `demo` has to be honest itself: real processes, real limits, real files, no lost message."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import acp
import anyio
import pytest
from anyio.abc import Process

from acp_agent.cli.agent_process import AgentGone, AgentProcess, Direction, RecordedFrame, end_agent, problems
from acp_agent.cli.editor import DemoEditor, Editor, EditorTerminals, ListedSession, read_lines, write_file
from tests.fakes.answers import allowing
from tests.fakes.cancelled_start import left_of_a_cancelled_start
from tests.fakes.held import PATIENCE, processes_ended
from tests.fakes.plain_editor import LiveRecording

pytestmark = pytest.mark.anyio

AGENT = """
import json, sys
def read():
    return json.loads(sys.stdin.readline())
def write(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def answer(request, **result):
    write(id=request["id"], result=result)
def ask(method, **params):
    write(id="q", method=method, params={"sessionId": "s", **params})
    while True:
        message = read()
        if message.get("id") == "q":
            return message
def end():
    sys.stdin.read()
def update(**members):
    write(method="session/update", params={"sessionId": "s", "update": members})
"""
QUESTION = 'ask("session/request_permission", toolCall={"toolCallId": "c", "title": "t", "extra": 1}, options=[])\n'


class Agent(AgentProcess):
    """An agent whose messages a test can wait for."""

    def __init__(
        self, program: str, folder: Path, watch: Callable[[RecordedFrame], None] | None = None, grace: float = 2.0
    ) -> None:
        self.messages = LiveRecording(watch)
        command = [sys.executable, "-c", AGENT + program]
        super().__init__(command, dict(os.environ), str(folder), self.messages, grace)


def quiet(_terminal: str, _text: str) -> None:
    pass


async def run(terminals: EditorTerminals, command: str, limit: int | None = None):
    return await terminals.create(["sh", "-c", command], None, {}, limit)


# ------------------------------------------------------------------------------ terminals and files


async def test_a_terminal_tells_output_and_exit_code():
    async with anyio.create_task_group() as tasks:
        terminals = EditorTerminals(tasks, dict(os.environ), quiet)
        terminal = await run(terminals, "echo out; echo err >&2; exit 3")
        assert await terminal.wait() == {"exitCode": 3, "signal": None}
        assert terminal.output() == {
            "output": "out\nerr\n",
            "truncated": False,
            "exitStatus": {"exitCode": 3, "signal": None},
        }


async def test_a_terminal_over_its_limit_keeps_the_end_and_never_half_a_character():
    async with anyio.create_task_group() as tasks:
        terminals = EditorTerminals(tasks, dict(os.environ), quiet)
        terminal = await run(terminals, "printf 'aaaa\\303\\244bcd'", limit=4)
        await terminal.wait()
        shown = terminal.output()
        assert (shown["output"], shown["truncated"]) == ("bcd", True)


def test_a_command_is_ended_if_the_editor_is_closed_while_it_starts():
    async def open_and_close() -> None:
        async with anyio.create_task_group() as tasks:
            try:
                await run(EditorTerminals(tasks, dict(os.environ), quiet), "sleep 60")
            finally:
                tasks.cancel_scope.cancel()

    assert left_of_a_cancelled_start(open_and_close) == 0


async def test_killing_a_terminal_ends_its_children_and_keeps_its_id():
    printed = anyio.Event()
    pids: list[int] = []

    def note(_terminal: str, text: str) -> None:
        pids.extend(int(word) for word in text.split())
        printed.set()

    async with anyio.create_task_group() as tasks:
        terminals = EditorTerminals(tasks, dict(os.environ), note)
        terminal = await run(terminals, "sleep 60 & echo $$ $!; wait")
        with anyio.fail_after(PATIENCE):
            await printed.wait()
            terminals.find(terminal.id).kill()
            assert await terminal.wait() == {"exitCode": None, "signal": signal.SIGKILL.name}
        assert len(pids) == 2
        await processes_ended(pids)
        terminals.release(terminal.id)
        with pytest.raises(acp.RequestError, match="released"):
            terminals.find(terminal.id)


async def test_a_command_whose_child_keeps_the_pipe_open_ends_all_the_same():
    async with anyio.create_task_group() as tasks:
        terminal = await run(EditorTerminals(tasks, dict(os.environ), quiet), "sleep 60 & echo started")
        with anyio.fail_after(PATIENCE):
            assert await terminal.wait() == {"exitCode": 0, "signal": None}


async def test_a_command_that_does_not_exist_is_an_error_of_the_create_request():
    async with anyio.create_task_group() as tasks:
        with pytest.raises(acp.RequestError, match="cannot start 'echo hello'"):
            await EditorTerminals(tasks, dict(os.environ), quiet).create(["echo hello"], None, {}, None)


async def test_files_are_read_by_line_and_written_with_their_folders(tmp_path):
    path = str(tmp_path / "new" / "a.txt")
    await write_file(path, "one\r\ntwo\nthree")
    assert await read_lines(path, None, None) == "one\r\ntwo\nthree"
    assert await read_lines(path, 2, 1) == "two\n"
    with pytest.raises(acp.RequestError) as missing:
        await read_lines(str(tmp_path / "none"), None, None)
    assert missing.value.code == -32002
    with pytest.raises(acp.RequestError) as relative:
        await read_lines("a.txt", None, None)
    assert relative.value.code == -32602


# ------------------------------------------------------------------------------ the SDK over our transport


async def test_the_agents_requests_reach_files_and_terminals(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    agent = Agent(
        "start = read()\n"
        'said = [ask("fs/read_text_file", path="a.txt")]\n'
        f'said.append(ask("fs/read_text_file", path={str(tmp_path / "a.txt")!r}, line=2))\n'
        'made = ask("terminal/create", command="sh", args=["-c", "echo $X"], env=[{"name": "X", "value": "y"}])\n'
        'one = made["result"]\n'
        'said += [ask("terminal/wait_for_exit", **one), ask("terminal/output", **one), ask("terminal/kill", **one)]\n'
        'said += [ask("terminal/release", **one), ask("terminal/output", **one), ask("nothing")]\n'
        'answer(start, protocolVersion=1, _meta={"said": [m.get("result", m.get("error")) for m in said]})\nend()',
        tmp_path,
    )
    async with anyio.create_task_group() as tasks, agent.running():
        terminals = EditorTerminals(tasks, dict(os.environ), quiet)
        with anyio.fail_after(PATIENCE):
            async with DemoEditor(agent, allowing, terminals) as editor:
                await editor.initialize()
    offered = agent.messages.frames[0].params["clientCapabilities"]
    assert offered | DemoEditor.capabilities == offered
    answers = next(frame for frame in reversed(agent.messages.frames) if frame.direction is Direction.FROM_AGENT)
    relative, lines, exited, output, killed, released, gone, unknown = answers.message["result"]["_meta"]["said"]
    assert (relative["code"], relative["message"]) == (-32602, "path must be absolute: 'a.txt'")
    assert lines == {"content": "two\n"}
    assert exited == {"exitCode": 0, "signal": None}
    assert output == {"output": "y\n", "truncated": False, "exitStatus": exited}
    assert killed == released == {}
    assert "released" in gone["message"]
    assert unknown["code"] == -32601


async def test_what_was_not_offered_is_refused(tmp_path):
    agent = Agent(
        'start = read()\nsaid = ask("fs/read_text_file", path="/a.txt")\n'
        'answer(start, protocolVersion=1, _meta={"code": said["error"]["code"]})\nend()',
        tmp_path,
    )
    with anyio.fail_after(PATIENCE):
        async with agent.running(), Editor(agent, allowing) as editor:
            await editor.initialize()
    assert agent.messages.frames[-1].message["result"]["_meta"] == {"code": -32601}


async def test_a_cancel_answers_the_questions_that_are_still_open(tmp_path):
    asked = []

    async def undecided(params) -> str | None:
        asked.append(params)
        await anyio.sleep_forever()

    agent = Agent(
        f"start = read()\nsaid = {QUESTION}"
        'answer(start, stopReason="cancelled", _meta={"said": said["result"]})\nend()',
        tmp_path,
    )
    with anyio.fail_after(PATIENCE):
        async with agent.running(), Editor(agent, undecided) as editor, anyio.create_task_group() as tasks:
            tasks.start_soon(editor.prompt, "s", "go")
            await agent.messages.until(lambda frame: frame.method == "session/request_permission")
            await editor.cancel("s")
    assert asked == [{"sessionId": "s", "toolCall": {"toolCallId": "c", "title": "t"}, "options": []}]
    assert agent.messages.frames[-1].message["result"]["_meta"] == {"said": {"outcome": {"outcome": "cancelled"}}}


async def test_every_message_is_recorded_as_it_was_sent(tmp_path, capfd):
    """Also what the SDK's models do not know, and a line of any length; none of it is a complaint on stderr."""
    long = 3 << 20
    agent = Agent(
        'start = read()\nupdate(sessionUpdate="new_kind", x=1)\n'
        f'update(sessionUpdate="tool_call", toolCallId="c", title="t" * {long}, name="bash")\n'
        'write(method="_other/thing", params={})\nwrite(method="unknown", params={})\n'
        'answer(start, stopReason="end_turn")\nend()',
        tmp_path,
    )
    with anyio.fail_after(PATIENCE):
        async with agent.running(), Editor(agent, allowing) as editor:
            assert (await editor.prompt("s", "go")).stop_reason == "end_turn"
    unknown, call = agent.messages.updates()
    assert unknown == {"sessionUpdate": "new_kind", "x": 1}
    assert (len(call["title"]), call["name"]) == (long, "bash")
    assert [frame.method for frame in agent.messages.frames[3:]] == ["_other/thing", "unknown", ""]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("line", ["hello", "[]"])
async def test_a_line_that_is_no_message_ends_the_connection_loudly(tmp_path, line, capfd):
    agent = Agent(f"print({line!r}, flush=True); end()", tmp_path)
    with pytest.raises(ExceptionGroup) as raised:
        async with agent.running(), Editor(agent, allowing) as editor:
            await editor.initialize()
    assert raised.group_contains(AgentGone, match="the agent wrote a line that is not")
    assert capfd.readouterr() == ("", "")


async def test_a_screen_that_is_gone_ends_the_turn(tmp_path, capfd):
    def broken(frame) -> None:
        if frame.update:
            raise BrokenPipeError

    agent = Agent('read()\nupdate(sessionUpdate="plan")\nend()', tmp_path, broken)
    with pytest.raises(ExceptionGroup) as raised, anyio.fail_after(PATIENCE):
        async with agent.running(), Editor(agent, allowing) as editor:
            await editor.prompt("s", "go")
    assert raised.group_contains(BrokenPipeError)
    assert capfd.readouterr() == ("", "")


async def test_a_question_that_cannot_be_drawn_ends_the_turn(tmp_path, capfd):
    async def broken(_params) -> str | None:
        raise BrokenPipeError

    agent = Agent(f"read()\n{QUESTION}end()", tmp_path)
    with pytest.raises(ExceptionGroup) as raised, anyio.fail_after(PATIENCE):
        async with agent.running(), Editor(agent, broken) as editor:
            await editor.prompt("s", "go")
    assert raised.group_contains(BrokenPipeError)
    assert capfd.readouterr() == ("", "")


async def test_an_agent_that_ends_before_it_answers_is_gone_and_its_log_is_kept(tmp_path, capfd):
    agent = Agent("sys.stderr.write('no luck'); read()", tmp_path)
    with pytest.raises(ExceptionGroup) as raised:
        async with agent.running(), Editor(agent, allowing) as editor:
            await editor.initialize()
    assert problems(raised.value) == ["no answer to initialize"]
    assert agent.log == "no luck"
    assert capfd.readouterr() == ("", "")


async def test_an_answer_that_is_an_error_is_told_with_its_code(tmp_path):
    problem = {"code": -32000, "message": "no key", "data": {"reason": "none"}}
    agent = Agent(f'write(id=read()["id"], error={json.dumps(problem)})\nend()', tmp_path)
    with pytest.raises(ExceptionGroup) as raised:
        async with agent.running(), Editor(agent, allowing) as editor:
            await editor.new_session("/")
    assert problems(raised.value) == ["no key (-32000): {'reason': 'none'}"]


async def test_the_session_used_last_is_on_the_first_page(tmp_path):
    page = 'answer(read(), sessions=[{"sessionId": "a", "cwd": "/p"}, {"sessionId": "b", "cwd": "/p"}], nextCursor="2")'
    agent = Agent(f"{page}\nend()", tmp_path)
    async with agent.running(), Editor(agent, allowing) as editor:
        assert await editor.last_session("/p") == ListedSession("a", "/p", "")
    assert len(agent.messages.frames) == 2


async def test_an_answer_that_is_not_acp_is_refused(tmp_path):
    agent = Agent("answer(read(), stopReason='bored')\nend()", tmp_path)
    with pytest.raises(ExceptionGroup) as raised:
        async with agent.running(), Editor(agent, allowing) as editor:
            await editor.prompt("s", "go")
    assert raised.group_contains(AgentGone, match="the answer to session/prompt is not ACP")


async def test_an_agent_that_ignores_everything_is_killed(tmp_path):
    stubborn = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('{}', flush=True); time.sleep(99)"
    agent = Agent(stubborn, tmp_path, grace=0.03)
    with anyio.fail_after(PATIENCE):
        async with agent.running(), Editor(agent, allowing):
            await agent.messages.until(lambda _frame: True)
    assert agent.returncode == -signal.SIGKILL


class _Stdin:
    async def aclose(self) -> None:
        """Close nothing."""


class _JustEnded:
    """An agent that ends between the wait for its end and the signal. Nothing has its number any more."""

    stdin = _Stdin()

    def __init__(self) -> None:
        self.pid = os.spawnvp(os.P_NOWAIT, "true", ["true"])
        os.waitpid(self.pid, 0)

    async def wait(self) -> None:
        await anyio.sleep_forever()


async def test_an_agent_that_ends_just_before_it_is_signalled_is_no_error() -> None:
    await end_agent(cast("Process", _JustEnded()), grace=0.0)
