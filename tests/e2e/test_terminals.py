"""Commands: in the editor's terminal where there is one, in a process of the agent's where there is none."""

import os
import re
from functools import partial

import anyio
import pytest

from acp_agent.cli.agent_process import objects_at, text_at
from tests.fakes import editor as editors
from tests.fakes.answers import Call, Holding, answering, never, refusing
from tests.fakes.editor import FILES_ONLY, NOTHING, TERMINAL_ONLY, from_agent
from tests.fakes.held import Held, processes_ended
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)


def output_of(call) -> str:
    """What a client that shows only `rawOutput` shows."""
    raw = call.final["rawOutput"]
    return raw if isinstance(raw, str) else raw["stdout"] + raw["stderr"]


async def test_a_command_runs_in_the_editors_terminal_and_keeps_the_order_of_its_life(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "echo one; echo two >&2"})), says("ok")]) as editor:
        assert await editor.say(await editor.open(), "run") == "end_turn"
    call = editor.call
    (terminal,) = call.terminals
    assert (call.kind, call.status) == ("execute", "completed")
    assert output_of(call) == "one\ntwo\n"
    assert call.final["rawOutput"]["exit_code"] == 0

    def first(method: str) -> int:
        return editor.index(lambda f: from_agent(f) and f.method == method)

    embedded = editor.index(lambda f: any(c.get("type") == "terminal" for c in objects_at(f.update, "content")))
    last_output = max(i for i, f in enumerate(editor.recording.frames) if f.method == "terminal/output")
    order = [call.start, first("terminal/create"), embedded, last_output, call.end, first("terminal/release")]
    assert order == sorted(order)
    assert embedded < first("terminal/wait_for_exit") or embedded < last_output
    assert not editor.terminals.open, terminal


async def test_the_command_reaches_the_terminal_as_one_program_one_plain_path_and_a_title(tmp_path):
    command = "printf '%s\\n' \"a  b\" $HOME | cat; echo 'it''s'"
    async with editing(tmp_path, [uses(("bash", {"command": command})), says("ok")]) as editor:
        await editor.say(await editor.open(), "run")
    (create,) = editor.requests("terminal/create")
    assert re.fullmatch(r"[A-Za-z0-9_./-]+", create["command"])
    script, title = create["args"]
    assert re.fullmatch(r"/[A-Za-z0-9_./-]+", script)
    assert title == "# printf ＇％s＼n＇ ＂a b＂ ＄HOME ｜ cat； echo ＇it＇＇s＇"
    assert create["cwd"] == str(editor.workspace)
    assert create["outputByteLimit"] > 0
    assert not await anyio.Path(script).exists(), "the script is taken away again"
    assert output_of(editor.call) == f"a  b\n{editor.home.root}\nits\n"


async def test_the_terminal_is_embedded_while_the_command_runs(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "head -n 1 gate; echo through"})), says("ok")]) as editor:
        gate = editor.fifo("gate")
        async with editor.prompting(await editor.open()):
            shown = await editor.seen(
                lambda f: any(c.get("type") == "terminal" for c in objects_at(f.update, "content"))
            )
            assert "status" not in shown.update or shown.update["status"] == "in_progress"
            assert editor.call.status == "in_progress"
            gate.write_line()
    assert editor.call.status == "completed"


async def test_a_failing_command_is_a_failed_call_with_its_exit_code(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "echo no >&2; exit 3"})), says("ok")]) as editor:
        assert await editor.say(await editor.open(), "run") == "end_turn"
    assert editor.call.status == "failed"
    assert editor.call.final["rawOutput"]["exit_code"] == 3
    assert output_of(editor.call) == "no\n"


@pytest.mark.parametrize("capabilities", [NOTHING, FILES_ONLY], ids=["nothing", "files only"])
async def test_without_a_terminal_the_command_runs_locally_and_its_output_is_the_content(tmp_path, capabilities):
    script = [uses(("bash", {"command": "echo one; echo two >&2; exit 4"})), says("ok")]
    async with editing(tmp_path, script, capabilities=capabilities) as editor:
        assert await editor.say(await editor.open(), "run") == "end_turn"
    call = editor.call
    assert not editor.requests("terminal/create")
    assert call.status == "failed"
    assert "one\ntwo" in call.text
    raw = call.final["rawOutput"]
    assert (raw["stdout"], raw["stderr"], raw["exit_code"]) == ("one\n", "two\n", 4)


async def test_a_local_command_has_no_stdin_and_none_of_the_agents_keys(tmp_path):
    keys = {"ANTHROPIC_API_KEY": "sk-ant-obviously-fake", "ACP_AGENT_SECRET": "obviously-fake"}
    script = [uses(("bash", {"command": "cat; env; echo end"})), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING, environment=keys) as editor:
        await editor.say(await editor.open(), "run")
    assert output_of(editor.call).endswith("end\n")
    assert "obviously-fake" not in str(editor.recording.frames)
    assert "ACP_AGENT" not in output_of(editor.call)


async def test_a_terminal_of_the_editor_gets_none_of_the_agents_keys_from_us(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "true"})), says("ok")]) as editor:
        await editor.say(await editor.open(), "run")
    (create,) = editor.requests("terminal/create")
    given = {pair["name"]: pair["value"] for pair in create["env"]}
    keys = {name: value for name, value in given.items() if "ACP_AGENT" in name or name.endswith("KEY")}
    assert keys.pop("ACP_AGENT_UNSET").split() == sorted(name for name, value in given.items() if not value)
    assert set(keys.values()) == {""}


@pytest.mark.parametrize("relative", ["", "node_modules/.bin:"])
async def test_a_terminal_of_the_editor_gets_a_path_only_where_ours_had_relative_folders(tmp_path, relative):
    path = os.pathsep.join(filter(os.path.isabs, os.environ["PATH"].split(os.pathsep)))
    script, environment = [uses(("bash", {"command": "true"})), says("ok")], {"PATH": relative + path}
    async with editing(tmp_path, script, environment=environment) as editor:
        await editor.say(await editor.open(), "run")
    (create,) = editor.requests("terminal/create")
    assert [each["value"] for each in create["env"] if each["name"] == "PATH"] == ([path] if relative else [])


async def test_a_client_that_has_no_terminals_after_all_is_fallen_back_from_once_with_a_notice(tmp_path):
    script = [uses(("bash", {"command": "echo one"})), uses(("bash", {"command": "echo two"})), says("ok")]
    async with editing(tmp_path, script) as editor:
        editor.overrides["terminal/create"] = refusing(-32601, "no terminals here")
        assert await editor.say(await editor.open(), "run") == "end_turn"
    assert [call.status for call in editor.calls] == ["completed", "completed"]
    assert ["one" in editor.calls[0].text, "two" in editor.calls[1].text] == [True, True]
    assert len(editor.requests("terminal/create")) == 1
    assert "no terminals here" in editor.told


@pytest.mark.parametrize("code", [-32603, -32000, -32602])
async def test_a_client_that_refuses_a_terminal_is_obeyed(tmp_path, code):
    script = [uses(("bash", {"command": "touch ran"})), says("ok")]
    async with editing(tmp_path, script, config='[acp]\nauto_approve = "full-auto"\n') as editor:
        editor.overrides["terminal/create"] = refusing(code, "Permission denied")
        assert await editor.say(await editor.open(), "run") == "end_turn"
        assert editor.call.status == "failed"
        assert "Permission denied" in editor.call.text
        assert not (editor.workspace / "ran").exists()


async def test_a_command_whose_start_is_answered_with_nonsense_is_not_run_a_second_time(tmp_path):
    async def starts_and_answers(call: Call) -> None:
        await anyio.run_process([call.params["command"], *call.params["args"]], cwd=call.params["cwd"])
        await call.reply(nonsense)

    async with editing(tmp_path, [uses(("bash", {"command": "echo ran >> runs"})), says("ok")]) as editor:
        for runs, nonsense in enumerate((None, {}, {"terminalId": 7}, [], "term-1"), 1):
            editor.overrides["terminal/create"] = starts_and_answers
            assert await editor.say(await editor.open(), "run") == "end_turn"
            assert editor.calls[-1].status == "failed", nonsense
            assert "may have been started" in editor.calls[-1].text, nonsense
            assert (editor.workspace / "runs").read_text() == "ran\n" * runs, nonsense


async def test_a_terminal_that_is_never_made_is_an_error_and_the_command_is_not_run_twice(tmp_path):
    script = [uses(("bash", {"command": "echo here"})), says("ok")]
    async with editing(tmp_path, script, config="[acp]\nrequest_timeout_secs = 0.2\n") as editor:
        editor.overrides["terminal/create"] = never
        assert await editor.say(await editor.open(), "run") == "end_turn"
    assert editor.call.status == "failed"
    assert "may still start there" in editor.call.text


async def test_a_terminal_that_comes_too_late_is_given_back(tmp_path):
    script = [uses(("bash", {"command": "echo here"})), says("ok")]
    async with editing(tmp_path, script, config="[acp]\nrequest_timeout_secs = 0.2\n") as editor:
        create = editor.overrides["terminal/create"] = Holding()
        session = await editor.open()
        async with editor.prompting(session):
            late = await create.next()
        await late.serve()
        await editor.requested("terminal/release")
        assert editor.call.status == "failed"


async def test_a_command_over_its_time_is_killed_in_the_editor_and_reported_with_what_it_printed(tmp_path):
    script = [uses(("bash", {"command": "echo begun; echo > told; sleep 60"})), says("ok")]
    config = "[acp]\nterminal_timeout_secs = 1\n"
    async with editing(tmp_path, script, config=config, short_waits=True) as editor:
        told = editor.fifo("told")
        async with editor.prompting(await editor.open()) as turn:
            await editor.requested("terminal/wait_for_exit")
            await told.line()
            await editor.pass_time_until_the_end_of(turn)
        assert turn.stop_reason == "end_turn"
    assert editor.call.status == "failed"
    assert editor.call.final["rawOutput"]["exit_code"] == 124
    assert "begun" in output_of(editor.call)
    assert len(editor.requests("terminal/kill")) == 1
    assert not editor.terminals.open


async def test_a_local_command_over_its_time_is_killed_with_its_children(tmp_path):
    script = [uses(("bash", {"command": Held.COMMAND})), says("ok")]
    config = "[tools.shell]\ntimeout = 1\n"
    async with editing(tmp_path, script, capabilities=NOTHING, config=config, short_waits=True) as editor:
        held = Held(editor)
        async with editor.prompting(await editor.open()) as turn:
            pids = await held.pids()
            await editor.pass_time_until_the_end_of(turn)
        assert turn.stop_reason == "end_turn"
        await processes_ended(pids)
    assert editor.call.status == "failed"
    assert editor.call.final["rawOutput"]["exit_code"] == 124


async def test_a_terminal_whose_wait_breaks_ends_the_call_and_is_released(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "echo hi"})), says("ok")]) as editor:
        editor.overrides["terminal/wait_for_exit"] = refusing(-32603, "the pane was closed")
        assert await editor.say(await editor.open(), "run") == "end_turn"
    assert editor.call.end >= 0
    assert not editor.terminals.open


async def test_output_over_the_editors_limit_is_marked_truncated(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "echo a long line"})), says("ok")]) as editor:
        editor.overrides["terminal/output"] = answering({"output": "line\n", "truncated": True})
        await editor.say(await editor.open(), "run")
    assert editor.call.final["rawOutput"]["truncated"] is True


async def test_a_secret_that_was_half_printed_when_the_output_was_last_looked_at_is_not_shown(tmp_path):
    secret = "canary-obviously-fake-0Qz7Lk3Vw9Xr5Tb1Nm8Hs4Jd6"
    script = [uses(("bash", {"command": "true"})), says("ok")]
    async with editing(tmp_path, script, environment={"OPENAI_API_KEY": secret}) as editor:
        exits = editor.overrides["terminal/wait_for_exit"] = Holding()
        looks = editor.overrides["terminal/output"] = Holding()
        async with editor.prompting(await editor.open()):
            await (await looks.next()).reply({"output": f"all is well\nsaid: {secret[:-16]}", "truncated": False})
            await editor.seen(lambda f: "outputDelta" in str(f.update))
            editor.overrides["terminal/output"] = answering(
                {"output": f"all is well\nsaid: {secret}\n", "truncated": False}
            )
            await (await exits.next()).reply({"exitCode": 0})
    deltas = [
        text_at(update, "_meta", "acp_agent", "outputDelta") for update in editor.recording.updates("tool_call_update")
    ]
    assert "".join(deltas).startswith("all is well\nsaid: [REDACTED"), deltas
    assert secret[:-16] not in str([frame.message for frame in editor.recording.frames if from_agent(frame)])


async def test_two_commands_of_one_message_run_in_two_terminals(tmp_path):
    script = [uses(("bash", {"command": "echo one"}), ("bash", {"command": "echo two"})), says("ok")]
    async with editing(tmp_path, script, capabilities=TERMINAL_ONLY) as editor:
        assert await editor.say(await editor.open(), "run") == "end_turn"
    assert [output_of(call) for call in editor.calls] == ["one\n", "two\n"]
    assert len({call.terminals[0] for call in editor.calls}) == 2
    assert not editor.terminals.open


async def test_a_command_of_the_user_runs_through_the_same_terminal(tmp_path):
    async with editing(tmp_path, None) as editor:
        assert await editor.say(await editor.open(), "/run echo by hand") == "end_turn"
    assert output_of(editor.call) == "by hand\n"
    assert editor.call.terminals


async def test_a_blocked_command_shows_as_failed_and_never_reaches_a_terminal(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "sudo reboot"})), says("ok")]) as editor:
        assert await editor.say(await editor.open(), "run") == "end_turn"
    assert editor.call.status == "failed"
    assert not editor.requests("terminal/create")
    assert not editor.requests("session/request_permission"), "nobody is asked about what will not happen"


async def test_a_held_question_does_not_hold_up_other_requests(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "touch hi"})), says("ok")]) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        session = await editor.open()
        async with editor.prompting(session):
            question = await asked.next()
            with anyio.fail_after(20):
                await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": []})
            await question.serve()
    assert editor.call.status == "completed"
