"""Commands in the background: they outlive their turn, never their session, in the editor's terminal as without one."""

import json
import os
import signal
from functools import partial

import anyio
import pytest

from acp_agent.cli.agent_process import objects_at
from tests.e2e.test_endings import HOW, WITHIN, leaves
from tests.fakes import editor as editors
from tests.fakes.editor import EVERYTHING, NOTHING, ScriptedEditor
from tests.fakes.held import PATIENCE, processes_ended
from tests.fakes.model_script import Step, says, uses
from tests.fakes.short_waits import SILENT

pytestmark = pytest.mark.anyio

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from the server\\n")
    def log_message(self, form, *args):
        print("log:", form % args, flush=True)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open("port", "w").write(str(server.server_port))
open("up", "w").write(f"{os.getpid()}\\n")
print("serving", flush=True)
server.serve_forever()
"""
CLIENT = """
import urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{open('port').read()}/page").read().decode())
"""
DAEMON = """
import os, time
print("up", flush=True)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2): os.dup2(null, fd)
open("up", "w").write(f"{os.getpid()}\\n")
time.sleep(60)
"""
FULL_AUTO = '[acp]\nauto_approve = "full-auto"\n'
editing = partial(editors.editing, short_waits=True, serves=__name__)
EVERYWHERE = pytest.mark.parametrize("capabilities", [NOTHING, EVERYTHING], ids=["local", "in the editor"])


def start(command: str = "python3 server.py") -> Step:
    return uses(("bash", {"command": command, "background": True}))


def process(action: str, name: str = "p1", **more: object) -> Step:
    return uses(("process", {"action": action, **({"id": name} if action != "list" else {}), **more}))


def output_of(call) -> str:
    return call.final["rawOutput"]["output"]


async def serving(editor: ScriptedEditor) -> list[int]:
    """The process of the server (or of the daemon), once it serves."""
    return [int(word) for word in (await editor.fifos["up"].line()).split()]


async def opened(editor: ScriptedEditor) -> str:
    for name, text in (("server.py", SERVER), ("client.py", CLIENT), ("daemon.py", DAEMON)):
        (editor.workspace / name).write_text(text)
    editor.fifos = {"up": editor.fifo("up")}
    return await editor.open()


@EVERYWHERE
async def test_a_server_is_started_asked_read_and_stopped(tmp_path, capabilities):
    script = [
        start(),
        process("wait", text="serving"),
        uses(("bash", {"command": "python3 client.py"})),
        process("wait", text="GET /page"),
        process("list"),
        process("stop"),
        process("list"),
        says("done"),
    ]
    async with editing(tmp_path, script, capabilities=capabilities) as editor:
        session = await opened(editor)
        assert await editor.say(session, "go") == "end_turn"
        pids = await serving(editor)
        await processes_ended(pids)
        started, waited, asked, logged, listed, stopped, after = map(output_of, editor.calls)
        assert "\n[running as p1]" in f"\n{started}"
        assert "serving\n" in started or "serving\n" in waited
        assert "serving\n" in waited or '["serving" was printed before the last look]' in waited
        assert "hello from the server" in asked
        assert 'log: "GET /page HTTP/1.1" 200' in logged
        assert "running for" in logged
        assert "python3 server.py" in logged
        assert listed.startswith("p1 running for ")
        assert "p1 ended by SIGTERM" in stopped
        assert after.startswith("p1 ended by SIGTERM after ")
        assert [call.status for call in editor.calls] == ["completed"] * 7
        assert len(editor.requests("session/request_permission")) == 2, "only the two commands ask"
        await editor.ask("session/close", {"sessionId": session})
    assert not editor.terminals.open


async def test_the_question_says_that_the_command_goes_on(tmp_path):
    script = [start("bash"), process("write", text="ls\n"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, short_waits=SILENT) as editor:
        await editor.say(await editor.open(), "go")
        began, written = (json.dumps(each["toolCall"]) for each in editor.requests("session/request_permission"))
        assert "goes on in the background until the session ends" in began
        assert "to the background process p1" in written


async def test_a_command_that_only_reads_asks_since_its_files_may_change_while_it_runs(tmp_path):
    script = [
        start("sleep 0.2; cat note"),
        uses(("move_path", {"source": "link", "destination": "note"})),
        says("ok"),
    ]
    config = '[acp]\nauto_approve = "auto-edit"\n'
    async with editing(tmp_path, script, config=config, capabilities=NOTHING) as editor:
        (editor.workspace / "link").symlink_to("/etc/hostname")
        await editor.say(await editor.open(), "go")
        (question,) = editor.requests("session/request_permission")
        assert question["toolCall"]["title"] == "sleep 0.2; cat note"


async def test_the_terminal_of_the_editor_is_embedded_and_lives_as_long_as_the_command(tmp_path):
    async with editing(tmp_path, [start(), says("runs")]) as editor:
        session = await opened(editor)
        await editor.say(session, "go")
        pids = await serving(editor)
        (terminal,) = editor.call.terminals
        assert objects_at(editor.call.final, "content")[0] == {"type": "terminal", "terminalId": terminal}
        assert list(editor.terminals.open) == [terminal]
        assert not editor.requests("terminal/release")
        await editor.ask("session/close", {"sessionId": session})
        await processes_ended(pids)
        await editor.requested("terminal/release")


@EVERYWHERE
async def test_the_cancel_of_a_turn_leaves_it_running(tmp_path, capabilities):
    script = {
        "first": [start(), process("wait", timeout=600)],
        "second": [uses(("bash", {"command": "python3 client.py"})), process("list"), says("done")],
    }
    async with editing(tmp_path, script, capabilities=capabilities) as editor:
        session = await opened(editor)
        async with editor.prompting(session, "first") as turn:
            pids = await serving(editor)
            with anyio.fail_after(PATIENCE):
                while len(editor.calls) < 2:
                    await editor.recording.until(lambda _: True, len(editor.recording.frames))
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        assert await editor.say(session, "second") == "end_turn"
        assert "hello from the server" in output_of(editor.calls[-2])
        assert output_of(editor.calls[-1]).startswith("p1 running for ")
        await editor.ask("session/close", {"sessionId": session})
        await processes_ended(pids)


async def test_a_command_that_ends_at_once_is_like_any_other_and_takes_no_place(tmp_path):
    script = [start("echo no such thing >&2; exit 3"), process("list"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        await editor.say(await editor.open(), "go")
        failed, listed = editor.calls
        assert failed.status == "failed"
        assert failed.final["rawOutput"]["exit_code"] == 3
        assert "exited 3" in output_of(listed)


@EVERYWHERE
async def test_the_ninth_is_refused_with_the_list_of_those_that_run(tmp_path, capabilities):
    script = [uses(*[("bash", {"command": f"echo up; sleep 6{n}", "background": True}) for n in range(9)]), says("ok")]
    async with editing(tmp_path, script, capabilities=capabilities, config=FULL_AUTO) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        assert [call.status for call in editor.calls] == ["completed"] * 8 + ["failed"]
        refusal = output_of(editor.calls[-1])
        assert "8 background processes run already" in refusal
        assert "p1: echo up; sleep 60" in refusal
        assert "p8: echo up; sleep 67" in refusal
        await editor.ask("session/close", {"sessionId": session})
        if capabilities:
            assert not editor.terminals.open


@EVERYWHERE
@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_the_end_of_the_session_ends_it_even_a_daemon(tmp_path, capabilities, method):
    script = [start("python3 daemon.py"), process("list"), says("ok")]
    async with editing(tmp_path, script, capabilities=capabilities) as editor:
        session = await opened(editor)
        await editor.say(session, "go")
        pids = await serving(editor)
        assert output_of(editor.calls[-1]).startswith("p1 running for "), "its last process counts, not its shell"
        await editor.ask(method, {"sessionId": session})
        await processes_ended(pids)


async def test_a_loaded_session_gives_a_process_no_id_that_its_conversation_knows(tmp_path):
    begun = start("echo up; sleep 100")
    script = {"again": [begun, process("stop", "p1"), process("stop", "p2"), says("ok")], "": [begun, says("ok")]}
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.ask("session/close", {"sessionId": session})
        await editor.ask("session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []})
        await editor.say(session, "again")
        started, wrong, right = map(output_of, editor.calls[-3:])
    assert started.endswith("[running as p2]")
    assert 'there is no background process "p1": there are p2' in wrong
    assert "p2 " in right


@EVERYWHERE
@HOW
async def test_the_end_of_the_agent_ends_it(tmp_path, capabilities, how):
    async with editing(tmp_path, [start(), says("ok")], capabilities=capabilities, lawful=False, serves="") as editor:
        session = await opened(editor)
        await editor.say(session, "go")
        pids = await serving(editor)
        await leaves(editor, how)
        await processes_ended(pids, within=WITHIN)


@EVERYWHERE
@pytest.mark.parametrize("command", ["python3 server.py", "python3 daemon.py"])
async def test_a_killed_agent_leaves_nothing_running(tmp_path, capabilities, command):
    async with editing(
        tmp_path, [start(command), says("ok")], capabilities=capabilities, lawful=False, serves=""
    ) as editor:
        session = await opened(editor)
        await editor.say(session, "go")
        pids = await serving(editor)
        os.kill(editor.agent.pid, signal.SIGKILL)
        await processes_ended(pids, within=WITHIN)


@pytest.mark.parametrize("command", ["python3 server.py & head -n 1 gate", "python3 daemon.py; head -n 1 gate"])
async def test_what_a_command_leaves_in_the_editors_terminal_ends_with_the_command(tmp_path, command):
    async with editing(tmp_path, [uses(("bash", {"command": command})), says("ok")]) as editor:
        session = await opened(editor)
        gate = editor.fifo("gate")
        async with editor.prompting(session):
            pids = await serving(editor)
            gate.write_line("through")
        assert "[1 background process ended with the command]" in output_of(editor.call)
        await processes_ended(pids)


async def test_a_killed_agent_leaves_no_server_of_a_command_in_the_editors_terminal(tmp_path):
    command = "python3 server.py & wait"
    async with editing(tmp_path, [uses(("bash", {"command": command})), says("ok")], lawful=False, serves="") as editor:
        session = await opened(editor)
        request = {
            "jsonrpc": "2.0",
            "id": "p",
            "method": "session/prompt",
            "params": editor.prompt_params(session, "go"),
        }
        await editor.send_line(request)
        pids = await serving(editor)
        os.kill(editor.agent.pid, signal.SIGKILL)
        await processes_ended(pids, within=WITHIN)


async def test_what_is_written_reaches_the_program(tmp_path):
    script = [start("head -n 1; echo bye"), process("write", text="some words\n"), process("wait"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, short_waits=SILENT) as editor:
        await editor.say(await editor.open(), "go")
        ended = output_of(editor.calls[-1])
        assert ended.startswith("some words\nbye")
        assert "p1 exited 0 after" in ended
        assert len(editor.requests("session/request_permission")) == 2, "the command, and what is written to it"


async def test_what_is_written_without_a_newline_is_told(tmp_path):
    written = [process("write", text="half a"), process("write", text=" line\n")]
    script = [start("head -n 1"), *written, process("wait"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, short_waits=SILENT) as editor:
        await editor.say(await editor.open(), "go")
        told = [output_of(call) for call in editor.calls[1:]]
    assert told[:2] == ["written to p1, without a newline at its end", "written to p1"]
    assert told[2].startswith("half a line")


async def test_what_is_written_to_a_shell_asks_and_full_auto_refuses_it(tmp_path):
    script = [start("bash"), process("write", text="touch written\n"), process("stop"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, config=FULL_AUTO, short_waits=SILENT) as editor:
        await editor.say(await editor.open(), "go")
        assert editor.calls[1].status == "failed"
        assert not (editor.workspace / "written").exists()


async def test_even_what_only_reads_asks_if_it_is_written_to_a_shell(tmp_path):
    script = [start("bash"), process("write", text="ls\n"), process("stop"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, short_waits=SILENT) as editor:
        await editor.say(await editor.open(), "go")
        questions = [each["toolCall"]["toolCallId"] for each in editor.requests("session/request_permission")]
        assert questions == [editor.calls[0].id, editor.calls[1].id]


async def test_the_output_since_the_last_look_is_shown_once_and_all_of_it_with_an_offset(tmp_path):
    command = "echo one; head -n 1 gate; echo two; sleep 60"
    script = {
        "first": [start(command), process("output"), says("ok")],
        "second": [
            process("wait", text="two"),
            process("output"),
            process("output", offset=0),
            process("wait", text="middle", timeout=1),
            says("ok"),
        ],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        gate = editor.fifo("gate")
        session = await editor.open()
        await editor.say(session, "first")
        gate.write_line("middle")
        async with editor.prompting(session, "second") as turn:
            await editor.seen(lambda f: "'text': 'middle'" in str(f.update))
            await editor.pass_time_until_the_end_of(turn)
        began, nothing, news, again, whole, passed = map(output_of, editor.calls)
        assert began.startswith("one\n[running as p1]")
        assert nothing.startswith("(no new output)\n[p1 running")
        assert news.startswith("middle\ntwo\n[p1 ")
        assert again.startswith("(no new output)")
        assert whole.startswith("one\nmiddle\ntwo\n[p1 ")
        assert "[waited 1 s in vain]" in passed, "what comes before the text that was found is not waited for"


async def test_a_secret_in_the_output_is_redacted(tmp_path):
    token = "ghp_" + "a1B2" * 9
    script = [start(f"echo key {token}; sleep 60"), process("output", offset=0), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        await editor.say(await editor.open(), "go")
        assert token not in output_of(editor.calls[0])
        assert "[REDACTED" in output_of(editor.calls[1])


async def test_a_secret_that_two_looks_split_is_shown_in_neither(tmp_path):
    first, second = "ghp_" + "a1B2" * 4, "c3D4" * 5
    script = {
        "first": [start("sh split.sh"), process("output"), says("ok")],
        "second": [process("wait", text="end"), process("output", offset=10), says("ok")],
    }
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        (editor.workspace / "split.sh").write_text(
            f"printf 'the key {first}'; head -n 1 gate >/dev/null\nprintf '{second}\\nend\\n'; sleep 60\n"
        )
        gate = editor.fifo("gate")
        session = await editor.open()
        await editor.say(session, "first")
        gate.write_line("")
        await editor.say(session, "second")
        shown = json.dumps([frame.message for frame in editor.recording.frames])
        began, _, waited, again = map(output_of, editor.calls)
    assert began.startswith("the key \n[running")
    assert "[REDACTED" in waited
    assert "end\n[p1" in again
    assert first[4:] not in shown
    assert second not in shown


async def test_what_bash_may_not_run_is_not_written_to_a_shell_either(tmp_path):
    denied = '[[tools.permissions.bash]]\npattern = "rm *"\naction = "deny"\n'
    script = [start("bash"), process("write", text="rm written\n"), process("stop"), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, config=denied, short_waits=SILENT) as editor:
        await editor.say(await editor.open(), "go")
        assert editor.calls[1].status == "failed"
        assert len(editor.requests("session/request_permission")) == 1, "a question cannot lift a denial"


async def test_an_unknown_process_is_an_error_that_says_how_to_start_one(tmp_path):
    async with editing(tmp_path, [process("output", "p7"), says("ok")], capabilities=NOTHING) as editor:
        await editor.say(await editor.open(), "go")
        assert "none runs; start one with `bash`" in output_of(editor.call)
