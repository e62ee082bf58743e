"""A prompt, from the editor's side: text, tool calls in order, the end of the turn."""

from functools import partial

import anyio
import pytest

from acp_agent.cli.agent_process import text_at
from tests.fakes import editor as editors
from tests.fakes.editor import NOTHING, from_agent
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)


async def test_text_streams_in_pieces_of_one_message(tmp_path):
    async with editing(tmp_path, [says("Hel", "lo ", "you")]) as editor:
        session = await editor.open()
        assert await editor.say(session, "hi") == "end_turn"
    chunks = editor.recording.updates("agent_message_chunk")
    assert "".join(text_at(chunk, "content", "text") for chunk in chunks) == "Hello you"
    assert len({chunk["messageId"] for chunk in chunks}) == 1


async def test_the_first_piece_goes_out_at_once_and_a_fast_stream_in_few_updates(tmp_path):
    async with editing(tmp_path, [says(*(f"{number} " for number in range(1000)))]) as editor:
        await editor.say(await editor.open(), "count")
    chunks = editor.recording.updates("agent_message_chunk")
    assert text_at(chunks[0], "content", "text") == "0 "
    assert "".join(text_at(chunk, "content", "text") for chunk in chunks) == "".join(f"{each} " for each in range(1000))
    assert len(chunks) < 500


async def test_messages_of_different_model_calls_have_different_ids(tmp_path):
    script = [uses(("read", {"path": "a.txt"}), text="I read."), says("Done.")]
    async with editing(tmp_path, script) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        await editor.say(await editor.open(), "go")
    before, after = editor.recording.updates("agent_message_chunk")
    assert before["messageId"] != after["messageId"]


async def test_clients_that_show_one_message_a_turn_show_the_messages_of_a_turn_as_paragraphs(tmp_path):
    """Jupyter AI, and CodeCompanion when it loads a session, join all text of a turn, whatever stands between."""
    texts = ("In two ", "places."), ("And now", "?"), ("Done.",)
    read = ("read", {"path": "a.txt"})
    steps = [uses(read, text="".join(texts[0])), {**uses(read), "text": list(texts[1])}, says(*texts[2])]
    whole = "In two places.\n\nAnd now?\n\nDone."
    async with editing(tmp_path, steps) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        session = await editor.open()
        await editor.say(session, "go")
        assert editor.text == whole
        await editor.ask("session/close", {"sessionId": session})
        start = len(editor.recording.frames)
        await editor.ask("session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []})
        again = [frame.update for frame in editor.recording.frames[start:] if frame.update]
        chunks = [each for each in again if each["sessionUpdate"] == "agent_message_chunk"]
        assert "".join(text_at(each, "content", "text") for each in chunks) == whole
        assert len({each["messageId"] for each in chunks}) == 3, "clients that read ids can tell them"


async def test_a_tool_call_is_one_start_and_one_final_update_with_the_same_uuid(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("ok")]) as editor:
        (editor.workspace / "a.txt").write_text("alpha\nbeta\n")
        assert await editor.say(await editor.open(), "read it") == "end_turn"
    call = editor.call
    assert len(call.id) == 36
    assert (call.kind, call.first["status"], call.status) == ("read", "in_progress", "completed")
    assert call.first["title"] == "read a.txt"
    assert call.first["rawInput"] == {"path": "a.txt"}
    assert call.first["locations"][0]["path"] == str(editor.workspace / "a.txt")
    assert "beta" in call.text
    assert "beta" in str(call.final["rawOutput"])
    assert [update["status"] for update in call.updates if "status" in update] == ["completed"]


async def test_several_calls_of_one_message_keep_their_order_and_get_different_ids(tmp_path):
    names = [f"{number}.txt" for number in range(4)]
    async with editing(tmp_path, [uses(*[("read", {"path": name}) for name in names]), says("ok")]) as editor:
        for name in names:
            (editor.workspace / name).write_text(f"this is {name}\n")
        await editor.say(await editor.open(), "read them")
    assert [call.first["title"] for call in editor.calls] == [f"read {name}" for name in names]
    assert len({call.id for call in editor.calls}) == 4
    assert all(f"this is {name}" in call.text for name, call in zip(names, editor.calls, strict=True))


async def test_ids_are_never_used_again_in_a_later_turn(tmp_path):
    async with editing(tmp_path, [uses(("read", {"path": "a.txt"})), says("ok")]) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        session = await editor.open()
        await editor.say(session, "first")
        await editor.say(session, "second")
    assert editor.text == "okok"
    assert len({call.id for call in editor.calls}) == 2


async def test_no_update_comes_before_the_session_and_none_after_the_turn(tmp_path):
    async with editing(tmp_path, [uses(("bash", {"command": "echo hi"})), says("ok")], serves="") as editor:
        session = await editor.open()
        await editor.updated("available_commands_update")
        await editor.say(session, "go")
        await editor.ask("authenticate", {"methodId": editor.auth_method})  # all that was queued is out by now
    frames = editor.recording.frames
    opened = editor.index(lambda f: text_at(f.message, "result", "sessionId") == session)
    ended = editor.index(lambda f: text_at(f.message, "result", "stopReason") != "")
    assert not [f for f in frames[:opened] if f.update]
    assert [f.update["sessionUpdate"] for f in frames[ended:] if f.update] == []


async def test_a_second_prompt_while_one_runs_is_refused_and_the_first_goes_on(tmp_path):
    async with editing(
        tmp_path, [uses(("bash", {"command": "head -n 1 gate"})), says("through")], capabilities=NOTHING
    ) as editor:
        gate = editor.fifo("gate")
        session = await editor.open()
        async with editor.prompting(session, "first") as first:
            await editor.updated("tool_call")
            refused = await editor.error_of("session/prompt", editor.prompt_params(session, "second"))
            gate.write_line()
        assert refused.code == -32600
        assert "in progress" in refused.message
        assert first.stop_reason == "end_turn"
        assert editor.text == "through"


async def test_a_prompt_for_a_session_nobody_opened_is_resource_not_found(tmp_path):
    async with editing(tmp_path, [says("never")]) as editor:
        await editor.initialize()
        error = await editor.error_of("session/prompt", editor.prompt_params("no-such-session", "hi"))
        assert error.code == -32002
        assert error.data == {"sessionId": "no-such-session"}


async def test_a_prompt_of_the_wrong_shape_is_invalid_params_and_the_next_one_works(tmp_path):
    async with editing(tmp_path, [says("fine")]) as editor:
        session = await editor.open()
        for prompt in (None, "text", [{"type": "text"}], [{"type": "image"}], [3]):
            error = await editor.error_of("session/prompt", {"sessionId": session, "prompt": prompt})
            assert error.code == -32602, prompt
        assert await editor.say(session, "hi") == "end_turn"
        assert editor.text == "fine"


async def test_a_block_of_an_unknown_type_is_left_out_and_said_so(tmp_path):
    async with editing(tmp_path, [says("fine")]) as editor:
        session = await editor.open()
        prompt = [{"type": "telepathy"}, {"type": "text", "text": "hi"}]
        answer = await editor.ask("session/prompt", {"sessionId": session, "prompt": prompt})
        assert answer["stopReason"] == "end_turn"
        assert "left out of the prompt: a block of type telepathy: not supported" in editor.told
        assert editor.text.endswith("fine")
        nothing = await editor.ask("session/prompt", {"sessionId": session, "prompt": prompt[:1]})
        assert nothing["stopReason"] == "end_turn"
        assert editor.text.endswith("There was nothing in that prompt I can read.")


async def test_a_prompt_over_a_mebibyte_of_text_is_refused(tmp_path):
    async with editing(tmp_path, [says("fine")]) as editor:
        session = await editor.open()
        error = await editor.error_of("session/prompt", editor.prompt_params(session, "x" * (1024 * 1024 + 1)))
        assert error.code == -32600
        assert "too large" in error.message
        accepted = await editor.say(session, "x" * (1024 * 1024))
        assert accepted in {"end_turn", "max_tokens"}, "it fits, or fills the model's window"


async def test_a_tool_nobody_knows_shows_as_failed_and_the_model_is_told(tmp_path):
    async with editing(tmp_path, [uses(("teleport", {"to": "Mars"})), says("I cannot.")]) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert editor.call.status == "failed"
    assert "teleport" in editor.call.text
    assert editor.text == "I cannot."


async def test_arguments_of_the_wrong_type_fail_the_call_and_not_the_turn(tmp_path):
    calls = [
        ("read", {"path": 7}),
        ("read", {}),
        ("read", {"path": "a.txt", "surprise": True}),
        ("bash", {"command": ["ls"]}),
        ("edit", {"path": "a", "old_string": "b"}),
    ]
    broken = {"tools": [{"name": "read", "raw_arguments": '{"path": '}]}
    async with editing(tmp_path, [uses(*calls), broken, says("sorry")]) as editor:
        (editor.workspace / "a.txt").write_text("a\n")
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert [call.status for call in editor.calls] == ["failed"] * 6
    assert editor.text == "sorry"


async def test_a_turn_that_never_stops_calling_tools_ends_with_max_turn_requests(tmp_path):
    script = [uses(("read", {"path": f"{number}.txt"})) for number in range(5)]
    async with editing(tmp_path, script, config="[agent]\nmax_tool_iterations = 3\n") as editor:
        for number in range(5):
            (editor.workspace / f"{number}.txt").write_text("x\n")
        assert await editor.say(await editor.open(), "go") == "max_turn_requests"
    assert len(editor.calls) == 3


async def test_two_sessions_at_once_keep_their_folders_and_their_answers_apart(tmp_path):
    script = [uses(("bash", {"command": "head -n 1 gate; cat where.txt"})), says("done")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        await editor.initialize()
        sessions, gates = {}, []
        for name in ("one", "two"):
            folder = editor.workspace / name
            folder.mkdir()
            (folder / "where.txt").write_text(f"in {name}\n")
            gates.append(editor.fifo(f"{name}/gate"))
            sessions[name] = await editor.new_session(str(folder))
        async with editor.prompting(sessions["one"], "go") as first, editor.prompting(sessions["two"], "go") as second:
            with anyio.fail_after(20):
                while len(editor.calls) < 2:  # both commands are under way at the same time
                    await editor.recording.until(from_agent, len(editor.recording.frames))
            for gate in reversed(gates):
                gate.write_line()
        assert (first.stop_reason, second.stop_reason) == ("end_turn", "end_turn")
        for name, session in sessions.items():
            (call,) = editor.calls_of(session)
            assert f"in {name}" in call.text
