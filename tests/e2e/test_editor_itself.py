"""The editor of the demo and of these tests has to be honest itself: real processes, real limits, real files."""

import os
import signal
import sys

import anyio
import pytest

from acp_agent.cli.editor.client import EVERYTHING, Editor, ignore_output, read_text_file, write_text_file
from acp_agent.cli.editor.connection import AgentGone
from acp_agent.cli.editor.frames import JsonRpcError
from acp_agent.cli.editor.terminals import EditorTerminals
from tests.fakes.answers import allowing
from tests.fakes.held import PATIENCE, processes_ended

pytestmark = pytest.mark.anyio

ASKS_AND_ENDS = """
import json, sys
line = json.loads(sys.stdin.readline())
ask = {"jsonrpc": "2.0", "id": "q", "method": "session/request_permission", "params": {"sessionId": "s", "options": []}}
print(json.dumps(ask), flush=True)
answer = json.loads(sys.stdin.readline())
while "id" not in answer:
    answer = json.loads(sys.stdin.readline())
print(json.dumps({"jsonrpc": "2.0", "id": line["id"], "result": answer["result"]}), flush=True)
sys.stdin.read()
"""


def editor_of(program: str, folder, **settings) -> Editor:
    command = [sys.executable, "-c", program]
    return Editor(command, dict(os.environ), str(folder), **{"decide": allowing, **settings})


async def run(terminals: EditorTerminals, tasks, command: str, **params) -> str:
    created = await terminals.serve("terminal/create", {"command": "sh", "args": ["-c", command], **params}, tasks)
    return created["terminalId"]


async def test_a_terminal_tells_output_and_exit_code():
    terminals = EditorTerminals(dict(os.environ), ignore_output)
    async with anyio.create_task_group() as tasks:
        target = {"terminalId": await run(terminals, tasks, "echo out; echo err >&2; exit 3")}
        assert await terminals.serve("terminal/wait_for_exit", target, tasks) == {"exitCode": 3, "signal": None}
        shown = await terminals.serve("terminal/output", target, tasks)
        assert shown == {
            "output": "out\nerr\n",
            "truncated": False,
            "exitStatus": {"exitCode": 3, "signal": None},
        }


async def test_a_terminal_over_its_limit_keeps_the_end_and_never_half_a_character():
    terminals = EditorTerminals(dict(os.environ), ignore_output)
    async with anyio.create_task_group() as tasks:
        target = {"terminalId": await run(terminals, tasks, "printf 'aaaa\\303\\244bcd'", outputByteLimit=4)}
        await terminals.serve("terminal/wait_for_exit", target, tasks)
        shown = await terminals.serve("terminal/output", target, tasks)
        assert (shown["output"], shown["truncated"]) == ("bcd", True)


async def test_killing_a_terminal_ends_its_children_and_keeps_its_id():
    terminals = EditorTerminals(dict(os.environ), ignore_output)
    printed = anyio.Event()
    pids: list[int] = []

    def note(_terminal: str, text: str) -> None:
        pids.extend(int(word) for word in text.split())
        printed.set()

    terminals = EditorTerminals(dict(os.environ), note)
    async with anyio.create_task_group() as tasks:
        target = {"terminalId": await run(terminals, tasks, "sleep 60 & echo $$ $!; wait")}
        with anyio.fail_after(PATIENCE):
            await printed.wait()
            await terminals.serve("terminal/kill", target, tasks)
            status = await terminals.serve("terminal/wait_for_exit", target, tasks)
        assert status == {"exitCode": None, "signal": signal.SIGKILL.name}
        assert len(pids) == 2
        await processes_ended(pids)
        await terminals.serve("terminal/release", target, tasks)
        with pytest.raises(JsonRpcError, match="released"):
            await terminals.serve("terminal/output", target, tasks)


async def test_a_command_whose_child_keeps_the_pipe_open_ends_all_the_same():
    terminals = EditorTerminals(dict(os.environ), ignore_output)
    async with anyio.create_task_group() as tasks:
        target = {"terminalId": await run(terminals, tasks, "sleep 60 & echo started")}
        with anyio.fail_after(PATIENCE):
            status = await terminals.serve("terminal/wait_for_exit", target, tasks)
        assert status == {"exitCode": 0, "signal": None}


async def test_a_command_that_does_not_exist_is_an_error_of_the_create_request():
    terminals = EditorTerminals(dict(os.environ), ignore_output)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(JsonRpcError, match="cannot start 'echo hello'"):
            await terminals.serve("terminal/create", {"command": "echo hello"}, tasks)


async def test_files_are_read_by_line_and_written_with_their_folders(tmp_path):
    path = str(tmp_path / "new" / "a.txt")
    assert await write_text_file({"path": path, "content": "one\r\ntwo\nthree"}) == {}
    assert await read_text_file({"path": path}) == {"content": "one\r\ntwo\nthree"}
    assert await read_text_file({"path": path, "line": 2, "limit": 1}) == {"content": "two\n"}
    with pytest.raises(JsonRpcError) as missing:
        await read_text_file({"path": str(tmp_path / "none")})
    assert missing.value.code == -32002
    with pytest.raises(JsonRpcError) as relative:
        await read_text_file({"path": "a.txt"})
    assert relative.value.code == -32602


async def test_a_cancel_answers_the_questions_that_are_still_open(tmp_path):
    async def undecided(_params) -> str | None:
        await anyio.sleep_forever()

    editor = editor_of(ASKS_AND_ENDS, tmp_path, decide=undecided)
    answers = []
    with anyio.fail_after(PATIENCE):
        async with editor.running(), anyio.create_task_group() as tasks:

            async def prompt() -> None:
                answers.append(await editor.agent.request("session/prompt", {}))

            tasks.start_soon(prompt)
            await editor.recording.until(lambda frame: frame.method == "session/request_permission")
            await editor.cancel("s")
    assert answers == [{"outcome": {"outcome": "cancelled"}}]


async def test_a_line_that_is_not_json_ends_the_connection_loudly(tmp_path):
    editor = editor_of("print('hello'); input()", tmp_path)
    with pytest.raises(ExceptionGroup) as raised:
        async with editor.running():
            await editor.agent.request("initialize", {})
    assert raised.group_contains(AgentGone, match="not JSON")


async def test_an_agent_that_ends_before_it_answers_is_gone_and_its_log_is_kept(tmp_path):
    editor = editor_of("import sys; sys.stderr.write('no luck'); input()", tmp_path)
    with pytest.raises(ExceptionGroup) as raised:
        async with editor.running():
            await editor.agent.request("initialize", {})
    assert raised.group_contains(AgentGone, match="no answer to initialize")
    assert "no luck" in editor.log


async def test_an_agent_that_ignores_everything_is_killed(tmp_path):
    stubborn = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('{}', flush=True); time.sleep(99)"
    editor = editor_of(stubborn, tmp_path)
    with anyio.fail_after(PATIENCE):
        async with editor.running():
            await editor.recording.until(lambda _frame: True)
    assert editor.agent.returncode == -signal.SIGKILL


async def test_what_was_not_offered_is_refused():
    editor = Editor([], {}, "", allowing, capabilities={"fs": {"readTextFile": True}})
    assert editor.offers("fs/read_text_file")
    assert not editor.offers("fs/write_text_file")
    assert not editor.offers("terminal/create")
    with pytest.raises(JsonRpcError) as refused:
        await editor.serve("terminal/create", {"command": "true"})
    assert refused.value.code == -32601
    assert EVERYTHING["terminal"] is True
