"""session/cancel, wherever the turn happens to be: answered `cancelled`, nothing left running, the session usable."""

import re
import sqlite3
from contextlib import closing
from functools import partial
from typing import Any

import anyio
import pytest

from acp_agent.cli.agent_process import objects_at, text_at
from tests.e2e.model_servers import listening_model, stalling_model
from tests.e2e.test_taken_up import place
from tests.fakes import editor as editors
from tests.fakes.answers import Holding, never
from tests.fakes.editor import NOTHING, from_agent
from tests.fakes.held import Held, processes_ended
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

HOLD = [uses(("bash", {"command": Held.COMMAND})), says("never said")]


async def still_works(editor, session) -> None:
    assert await editor.say(session, "/help") == "end_turn"


async def test_a_cancel_while_the_model_streams_closes_its_connection(tmp_path):
    async with stalling_model("Thinking about") as model, editing(tmp_path, None, **model.options) as editor:
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.updated("agent_message_chunk")
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        assert "Thinking about" in editor.text
        with anyio.fail_after(20):
            await model.hung_up.wait()
        await still_works(editor, session)


async def test_a_prompt_is_stored_before_the_model_is_asked_and_a_cancel_before_its_first_word_is_answered(tmp_path):
    async with stalling_model("") as model, editing(tmp_path, None, **model.options) as editor:
        session = await editor.open()
        async with editor.prompting(session) as turn:
            with anyio.fail_after(20):
                await model.asked.wait()
            with closing(sqlite3.connect(editor.home.data / "acp-agent.db")) as database:
                stored = database.execute("SELECT prompts FROM conversations WHERE id = ?", (session,))
                assert stored.fetchall() == [(1,)]
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await still_works(editor, session)


@pytest.mark.parametrize("answers", [True, False], ids=["answered cancelled", "never answered"])
async def test_a_cancel_in_a_question_ends_the_turn_and_the_call(tmp_path, answers):
    async def undecided(_params) -> str | None:
        await anyio.sleep_forever()

    async with editing(tmp_path, HOLD, decide=undecided) as editor:
        if not answers:
            editor.overrides["session/request_permission"] = never
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.requested("session/request_permission")
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        assert editor.call.status == "failed"
        assert not editor.requests("terminal/create")
        await still_works(editor, session)


async def test_a_late_allowance_after_a_cancel_runs_nothing(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "touch touched"})), says("no")]) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        session = await editor.open()
        async with editor.prompting(session) as turn:
            question = await asked.next()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await question.serve()
        await still_works(editor, session)
        assert not (editor.workspace / "touched").exists()


async def test_a_cancel_while_the_editors_terminal_runs_kills_and_releases_it(tmp_path):
    async with editing(tmp_path, HOLD) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            await editor.requested("terminal/wait_for_exit")
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        assert editor.call.status == "failed"
        await editor.requested("terminal/release")
        await processes_ended(pids)
        await still_works(editor, session)
        assert not editor.terminals.open


async def test_a_cancel_kills_even_where_the_editor_does_not_answer_its_terminal_requests(tmp_path):
    async with editing(tmp_path, HOLD) as editor:
        held = Held(editor)
        editor.overrides["terminal/wait_for_exit"] = never
        editor.overrides["terminal/output"] = never
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            await editor.requested("terminal/wait_for_exit")
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        await still_works(editor, session)


async def test_a_cancel_while_the_terminal_is_being_made_gives_it_back(tmp_path):
    async with editing(tmp_path, HOLD) as editor:
        Held(editor)
        create = editor.overrides["terminal/create"] = Holding()
        session = await editor.open()
        async with editor.prompting(session) as turn:
            late = await create.next()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await late.serve()
        await editor.requested("terminal/release")
        await still_works(editor, session)
        assert not editor.terminals.open


async def test_what_a_cancelled_command_had_printed_stays_in_its_card_and_is_told_again(tmp_path):
    script = [uses(("bash", {"command": "echo one; echo two; sleep 1000"}))]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.seen(lambda frame: "two" in str(frame.update.get("content")))
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        start = len(editor.recording.frames)
        await editor.ask("session/close", {"sessionId": session})
        await editor.ask("session/load", place(editor, session))
        ends = [each for each in editor.recording.frames if each.update.get("status") == "failed"]
        live, again = (text_at(objects_at(end.update, "content")[0], "content", "text") for end in ends)
        assert editor.recording.frames.index(ends[1]) >= start
        assert live == again == "```\none\ntwo\n\n[cancelled] operation aborted\n```"


@pytest.mark.parametrize("capabilities", [NOTHING, None], ids=["here", "in the editor's terminal"])
async def test_the_model_knows_what_a_cancelled_command_had_printed(tmp_path, capabilities):
    offers = {} if capabilities is None else {"capabilities": capabilities}
    call = ("bash", {"command": "echo one; echo two; sleep 1000"})
    async with (
        listening_model(call) as model,
        editing(tmp_path, None, **offers, **model.options) as editor,
    ):
        session = await editor.open()
        async with editor.prompting(session):
            await editor.seen(lambda frame: "two" in str(frame.update.get("content") or frame.message.get("result")))
            if editor.requests("terminal/output"):  # the next one is sent when the answer to the last was taken
                await editor.requested("terminal/output", len(editor.recording.frames))
            await editor.cancel(session)
        await editor.say(session, "What did it print?")
    result = next(each for each in model.requests[-1]["messages"] if each["role"] == "tool")
    assert "The turn ended while this call ran" in result["content"]
    assert re.search(r'Its output until then:\n<tool-output id="\w+">\none\ntwo\n</tool-output', result["content"])


async def test_the_model_does_not_know_what_a_cancelled_command_of_an_untrusted_folder_had_printed(tmp_path):
    async def only_the_command(params: dict[str, Any]) -> str:
        return "allow_once" if "sleep" in str(params["toolCall"].get("rawInput")) else "reject_once"

    call = ("bash", {"command": "echo one; echo two; sleep 1000"})
    async with (
        listening_model(call) as model,
        editing(tmp_path, None, capabilities=NOTHING, decide=only_the_command, **model.options) as editor,
    ):
        (editor.workspace / ".acp-agent").mkdir()
        (editor.workspace / ".acp-agent/config.toml").write_text(
            "[[mcp.servers]]\nname = 'theirs'\ncommand = 'never-started'\n"
        )
        session = await editor.open()
        async with editor.prompting(session):
            await editor.seen(lambda frame: "two" in str(frame.update.get("content")))
            await editor.cancel(session)
        await editor.say(session, "What did it print?")
    assert len(editor.requests("session/request_permission")) == 2, "one for the folder and one for the command"
    result = next(each for each in model.requests[-1]["messages"] if each["role"] == "tool")
    assert "The turn ended while this call ran" in result["content"]
    assert "output" not in result["content"]


async def test_a_cancel_of_a_local_command_kills_its_whole_tree(tmp_path):
    async with editing(tmp_path, HOLD, capabilities=NOTHING) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)
        assert editor.call.status == "failed"
        assert "cancelled" in editor.call.text
        await still_works(editor, session)


async def test_a_cancel_of_a_local_command_that_ignores_signals_and_hides_its_child_kills_it_too(tmp_path):
    stubborn = "trap '' TERM INT HUP\nsetsid sleep 60 &\necho \"$$ $!\" > alive\nwait\nsleep 60\n"
    async with editing(tmp_path, HOLD, capabilities=NOTHING) as editor:
        held = Held(editor)
        (editor.workspace / "hold.sh").write_text(stubborn)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            pids = await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await processes_ended(pids)


async def test_a_cancel_during_a_file_request_is_answered(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("no")]) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        editor.overrides["fs/read_text_file"] = never
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await editor.requested("fs/read_text_file")
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        assert editor.call.status == "failed"
        await still_works(editor, session)


async def test_every_call_of_a_cancelled_message_gets_its_final_update(tmp_path):
    script = [uses(("bash", {"command": Held.COMMAND}), ("bash", {"command": "echo later"})), says("no")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
    assert all(call.status == "failed" for call in editor.calls)


async def test_a_cancel_in_one_session_leaves_the_other_alone(tmp_path):
    script = [uses(("bash", {"command": "head -n 1 gate"})), says("through")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        gates = {}
        await editor.initialize()
        sessions = {}
        for name in ("one", "two"):
            (editor.workspace / name).mkdir()
            gates[name] = editor.fifo(f"{name}/gate")
            sessions[name] = await editor.new_session(str(editor.workspace / name))
        async with editor.prompting(sessions["two"]) as second:
            async with editor.prompting(sessions["one"]) as first:
                with anyio.fail_after(20):
                    while len(editor.calls) < 2:
                        await editor.recording.until(from_agent, len(editor.recording.frames))
                await editor.cancel(sessions["one"])
            assert first.stop_reason == "cancelled"
            assert second.stop_reason == ""
            gates["two"].write_line()
        assert second.stop_reason == "end_turn"


async def test_a_cancel_with_no_turn_running_does_not_hit_the_next_one(tmp_path):
    async with editing(tmp_path, [says("fine")]) as editor:
        session = await editor.open()
        await editor.cancel(session)
        assert await editor.say(session, "one") == "end_turn"
        await editor.cancel(session)
        await editor.cancel(session)
        assert await editor.say(session, "two") == "end_turn"


async def test_a_cancel_of_nothing_is_ignored(tmp_path):
    async with editing(tmp_path, [says("fine")]) as editor:
        session = await editor.open()
        for params in ({}, {"sessionId": "nobody"}, {"sessionId": 7}, None):
            await editor.agent.notify("session/cancel", params)
        assert await editor.say(session, "hi") == "end_turn"


async def test_a_cancel_in_the_same_write_as_the_prompt_cancels_it(tmp_path):
    async with editing(tmp_path, HOLD, capabilities=NOTHING, lawful=False) as editor:
        Held(editor)
        session = await editor.open()
        prompt = {
            "jsonrpc": "2.0",
            "id": "p",
            "method": "session/prompt",
            "params": editor.prompt_params(session, "go"),
        }
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        await editor.send_lines(prompt, cancel)
        assert (await editor.answer_to("p"))["result"]["stopReason"] == "cancelled"


async def test_a_request_that_is_cancelled_by_its_id_is_answered(tmp_path):
    async with editing(tmp_path, HOLD, capabilities=NOTHING, lawful=False) as editor:
        held = Held(editor)
        session = await editor.open()
        prompt = {
            "jsonrpc": "2.0",
            "id": "p",
            "method": "session/prompt",
            "params": editor.prompt_params(session, "go"),
        }
        await editor.send_lines(prompt)
        pids = await held.pids()
        await editor.agent.notify("$/cancel_request", {"requestId": "p"})
        answer = await editor.answer_to("p")
        assert answer.get("result") == {"stopReason": "cancelled"} or answer["error"]["code"] == -32800
        await processes_ended(pids)


async def test_three_cancels_are_one(tmp_path):
    async with editing(tmp_path, HOLD, capabilities=NOTHING) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await held.pids()
            for _ in range(3):
                await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        await still_works(editor, session)


ENDINGS = {
    "cancel": lambda session: {"method": "session/cancel", "params": {"sessionId": session}},
    "cancel by id": lambda _session: {"method": "$/cancel_request", "params": {"requestId": "p"}},
    "close": lambda session: {"id": "c", "method": "session/close", "params": {"sessionId": session}},
    "delete": lambda session: {"id": "d", "method": "session/delete", "params": {"sessionId": session}},
}


@pytest.mark.parametrize("option", ["allow_once", "allow_always"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_permission_right_behind_the_end_of_a_turn_starts_none_of_its_calls(tmp_path, ending, option):
    """The order of lines decides: what was allowed after the end does not begin, nor does any call behind it."""
    calls = [("bash", {"command": f"touch {name}"}) for name in ("first", "second", "third")]
    script = [uses(*calls), says("no")]
    async with editing(tmp_path, script, capabilities=NOTHING, lawful=False) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        session = await editor.open()
        prompt = {"id": "p", "method": "session/prompt", "params": editor.prompt_params(session, "go")}
        await editor.send_lines({"jsonrpc": "2.0", **prompt})
        question = await asked.next()
        allowed = {
            "id": question.frame.message["id"],
            "result": {"outcome": {"outcome": "selected", "optionId": option}},
        }
        await editor.send_lines({"jsonrpc": "2.0", **ENDINGS[ending](session)}, {"jsonrpc": "2.0", **allowed})
        assert (await editor.answer_to("p"))["result"]["stopReason"] == "cancelled"
        assert [call.status for call in editor.calls] == ["failed"] * len(editor.calls)
        assert len(asked.calls) == 1
        assert [path.name for path in editor.workspace.iterdir()] == []


async def test_a_terminal_that_is_made_right_behind_a_cancel_is_killed_and_given_back(tmp_path):
    async with editing(tmp_path, HOLD, lawful=False) as editor:
        Held(editor)
        create = editor.overrides["terminal/create"] = Holding()
        session = await editor.open()
        async with editor.prompting(session) as turn:
            late = await create.next()
            cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
            made = {"jsonrpc": "2.0", "id": late.frame.message["id"], "result": {"terminalId": "t"}}
            await editor.send_lines(cancel, made)
        assert turn.stop_reason == "cancelled"
        assert (await editor.requested("terminal/kill")).params["terminalId"] == "t"
        assert (await editor.requested("terminal/release")).params["terminalId"] == "t"
        assert not editor.requests("terminal/wait_for_exit")


async def test_the_prompt_after_a_cancelled_call_begins_a_turn_of_its_own(tmp_path):
    script = [uses(("bash", {"command": Held.COMMAND})), says("the rest of the first turn")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        async with editor.prompting(session):
            await held.pids()
            assert len(editor.calls) == 2
            await editor.cancel(session)
        assert "the rest of the first turn" not in editor.text
