"""Several calls in one answer: shown at once, run together where they do not meet, in order where they do."""

from functools import partial
from typing import Any

import anyio
import pytest

from acp_agent.cli.agent_process import RecordedFrame, SeenCall
from tests.fakes import editor as editors
from tests.fakes.answers import Holding, allowing
from tests.fakes.editor import EVERYTHING, FILES_ONLY, NOTHING, ScriptedEditor
from tests.fakes.held import PATIENCE, Held
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

FULL_AUTO = "[acp]\nauto_approve = 'full-auto'\n"


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write", {"path": path, "content": content}


def is_end(frame: RecordedFrame) -> bool:
    return frame.update.get("sessionUpdate") == "tool_call_update" and frame.update.get("status") in (
        "completed",
        "failed",
    )


async def all_shown(editor: ScriptedEditor, number: int) -> list[SeenCall]:
    """The cards of an answer, as soon as there are so many."""
    with anyio.fail_after(PATIENCE):
        while len(editor.calls) < number:
            await editor.recording.until(lambda frame: bool(frame.update), len(editor.recording.frames))
    return editor.calls


async def ended(editor: ScriptedEditor, call: SeenCall) -> None:
    await editor.seen(lambda frame: is_end(frame) and frame.update["toolCallId"] == call.id)


def assert_each_ended_once(editor: ScriptedEditor) -> None:
    ends = [frame.update["toolCallId"] for frame in editor.recording.frames if is_end(frame)]
    assert sorted(ends) == sorted(call.id for call in editor.calls)
    assert len(set(ends)) == len(ends)


@pytest.mark.parametrize("capabilities", [NOTHING, EVERYTHING], ids=["local", "editor's terminal"])
async def test_commands_that_only_read_run_at_the_same_time(tmp_path, capabilities):
    script = [uses(*(bash(f"head -n 1 gate{number}") for number in range(3))), says("done")]
    async with editing(tmp_path, script, capabilities=capabilities) as editor:
        gates = [editor.fifo(f"gate{number}") for number in range(3)]
        async with editor.prompting(await editor.open()) as turn:
            calls = await all_shown(editor, 3)
            for number in (2, 1, 0):  # one by one, the first would never end
                gates[number].write_line(f"line {number}")
                await ended(editor, calls[number])
        assert turn.stop_reason == "end_turn"
    assert_each_ended_once(editor)
    assert [f"line {number}" in str(call.final) for number, call in enumerate(editor.calls)] == [True] * 3
    assert not editor.requests("session/request_permission")


async def test_no_more_calls_run_together_than_the_configuration_says(tmp_path):
    script = [uses(*(bash(f"head -n 1 gate{number}") for number in range(3))), says("done")]
    async with editing(tmp_path, script, config="[agent]\nmax_parallel_tools = 2\n") as editor:
        gates = [editor.fifo(f"gate{number}") for number in range(3)]
        async with editor.prompting(await editor.open()):
            calls = await all_shown(editor, 3)
            gates[2].write_line()
            gates[1].write_line()
            await ended(editor, calls[1])
            await ended(editor, calls[2])
            gates[0].write_line()
    assert_each_ended_once(editor)
    made = [i for i, frame in enumerate(editor.recording.frames) if frame.method == "terminal/create"]
    assert any(is_end(frame) for frame in editor.recording.frames[made[1] : made[2]]), "the third waits for a place"


async def test_all_cards_are_shown_in_order_before_the_first_call_runs(tmp_path):
    calls = [bash("touch a"), ("read", {"path": "b.txt"}), ("nonsense", {}), write("c.txt", "c"), ("read", {})]
    async with editing(tmp_path, [uses(*calls), says("done")]) as editor:
        (editor.workspace / "b.txt").write_text("b\n")
        await editor.say(await editor.open(), "go")
    assert [call.first["rawInput"] for call in editor.calls] == [arguments for _, arguments in calls]
    assert [call.status for call in editor.calls] == ["completed", "completed", "failed", "completed", "failed"]
    last = max(call.start for call in editor.calls)
    before = [frame.method for frame in editor.recording.frames[:last] if frame.is_request]
    assert not {"session/request_permission", "terminal/create", "fs/write_text_file"}.intersection(before)
    assert not any(is_end(frame) for frame in editor.recording.frames[:last])
    assert_each_ended_once(editor)


async def test_calls_on_one_file_keep_their_order(tmp_path):
    calls = [
        write("a.txt", "one\n"),
        ("read", {"path": "a.txt"}),
        ("edit", {"path": "a.txt", "old_string": "one", "new_string": "two"}),
        ("grep", {"pattern": "two", "path": "."}),
        bash("cat a.txt"),
        bash("sh -c 'echo three > a.txt'"),
        ("read", {"path": "a.txt"}),
    ]
    async with editing(tmp_path, [uses(*calls), says("done")], config=FULL_AUTO) as editor:
        await editor.say(await editor.open(), "go")
    assert [call.status for call in editor.calls] == ["completed"] * 7
    read, edited, found, shown, last = (editor.calls[at] for at in (1, 2, 3, 4, 6))
    assert "one" in read.text
    assert [diff["newText"] for diff in edited.final["content"] if diff["type"] == "diff"] == ["two\n"]
    assert "two" in found.text
    assert "two" in str(shown.final["rawOutput"])
    assert "three" in last.text


async def test_writes_to_different_files_run_together(tmp_path):
    script = [uses(write("a.txt", "a"), write("b.txt", "b"), ("read", {"path": "b.txt"})), says("done")]
    async with editing(tmp_path, script, config=FULL_AUTO, capabilities=FILES_ONLY) as editor:
        writing = editor.overrides["fs/write_text_file"] = Holding()
        async with editor.prompting(await editor.open()):
            both = await writing.next(1), await writing.next(2)
            first, second = sorted(both, key=lambda call: call.params["path"])
            await second.serve()
            await ended(editor, editor.calls[1])
            await ended(editor, editor.calls[2])
            assert editor.calls[0].status == "in_progress"
            await first.serve()
    assert "b" in editor.calls[2].text
    assert_each_ended_once(editor)


async def test_questions_come_one_at_a_time_and_in_the_order_of_the_calls(tmp_path):
    asked, open_questions, most = [], 0, 0

    async def decide(params: dict[str, Any]) -> str | None:
        nonlocal open_questions, most
        open_questions += 1
        most = max(most, open_questions)
        asked.append(params["toolCall"]["toolCallId"])
        await anyio.lowlevel.checkpoint()
        open_questions -= 1
        return await allowing(params)

    calls = [("edit", {"path": "a.txt", "old_string": "a", "new_string": "x"}), ("read", {"path": "c.txt"})]
    calls += [("fetch", {"url": "https://example.invalid/"}), write("b.txt", "b"), bash("touch d")]
    async with editing(tmp_path, [uses(*calls), says("done")], decide=decide) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        (editor.workspace / "c.txt").write_text("c\n")
        await editor.say(await editor.open(), "go")
    assert asked == [editor.calls[at].id for at in (0, 2, 3, 4)]
    assert most == 1


async def test_a_call_that_asks_nothing_runs_while_another_one_asks(tmp_path):
    asking = Holding()
    async with editing(tmp_path, [uses(write("a.txt", "a"), ("read", {"path": "b.txt"})), says("done")]) as editor:
        (editor.workspace / "b.txt").write_text("b\n")
        editor.overrides["session/request_permission"] = asking
        async with editor.prompting(await editor.open()):
            question = await asking.next()
            await ended(editor, editor.calls[1])
            await question.serve()
    assert [call.status for call in editor.calls] == ["completed", "completed"]


async def test_a_cancel_gives_every_shown_call_its_end(tmp_path):
    script = [uses(bash(Held.COMMAND), ("read", {"path": "b.txt"}), write("a.txt", "a"), ("nonsense", {})), says("no")]
    async with editing(tmp_path, script, config=FULL_AUTO) as editor:
        held = Held(editor)
        session = await editor.open()
        async with editor.prompting(session) as turn:
            await held.pids()
            await editor.cancel(session)
        assert turn.stop_reason == "cancelled"
        assert [call.status for call in editor.calls] == ["failed"] * 4
        assert_each_ended_once(editor)
        assert not (editor.workspace / "a.txt").exists()
        assert await editor.say(session, "/help") == "end_turn"


async def test_a_denial_of_one_call_leaves_the_others(tmp_path):
    async def decide(params: dict[str, Any]) -> str | None:
        kind = "reject_once" if "a.txt" in str(params["toolCall"]) else "allow_once"
        return next(option["optionId"] for option in params["options"] if option["kind"] == kind)

    async with editing(tmp_path, [uses(write("a.txt", "a"), write("b.txt", "b")), says("ok")], decide=decide) as editor:
        await editor.say(await editor.open(), "go")
    assert [call.status for call in editor.calls] == ["failed", "completed"]
    assert not (editor.workspace / "a.txt").exists()


async def test_a_prompt_waits_where_as_many_sessions_work_as_may(tmp_path):
    script = {"hold": [uses(bash("head -n 1 gate")), says("held")], "go": [says("went")]}
    async with editing(tmp_path, script, config="[acp]\nmax_sessions = 1\n", capabilities=NOTHING) as editor:
        gate = editor.fifo("gate")
        waiting = await editor.open()
        working = await editor.new_session(str(editor.workspace))
        async with editor.prompting(working, "hold") as first:
            await all_shown(editor, 1)
            async with editor.prompting(waiting, "go") as second:
                status = await editor.ask("_acp_agent/status", {"sessionId": working})
                assert status["busy"]
                assert "went" not in editor.text
                gate.write_line("on")
    assert (first.stop_reason, second.stop_reason) == ("end_turn", "end_turn")
    assert "went" in editor.text
