"""A turn that ends with its session, not with an answer: what the next one knows of it."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.agent import prompt as notes
from acp_agent.cli.agent_process import text_at
from tests.e2e.test_taken_up import place
from tests.fakes.editor import NOTHING, ScriptedEditor, editing
from tests.fakes.held import PATIENCE, Held, processes_ended
from tests.fakes.model_script import Script, Step, says, uses

pytestmark = pytest.mark.anyio

SECRET = "sk-ant-api03-" + "Ab1" * 31 + "AA"
HALF: Step = {"text": ["The key is sk-ant-", SECRET[7:], " and it"], "hang": True}
SCRIPT: Script = {"^half": [HALF], "^lost": [{"error": {"kind": "auth", "message": "no"}}], "": [says("Hello.")]}
SAID = ["hello", "Hello.", "half", "The key is [REDACTED:api-key] and it", notes.INTERRUPTED]
LONG = "hello " * 500
ENDS = ["killed", "EOF", "closed", "cancelled"]


async def ask(editor: ScriptedEditor, session: str, text: str) -> None:
    """Send a prompt whose answer may never come."""
    prompt = editor.prompt_params(session, text)
    await editor.send_line({"jsonrpc": "2.0", "id": "go", "method": "session/prompt", "params": prompt})


async def end_in_mid_answer(editor: ScriptedEditor, how: str) -> str:
    session = await editor.open()
    await editor.say(session, "hello")
    await ask(editor, session, "half")
    await editor.seen(lambda frame: " and it" in str(frame.update.get("content")))
    match how:
        case "killed":
            os.kill(editor.agent.pid, signal.SIGKILL)
        case "EOF":
            await editor.agent.close_stdin()
        case "closed":
            await editor.ask("session/close", {"sessionId": session})
        case _:
            await editor.agent.notify("session/cancel", {"sessionId": session})
            await editor.answer_to("go")
    if how in ("killed", "EOF"):
        await editor.agent.wait()
    return session


async def until_kept(database: Path, text: str) -> None:
    """Wait until the model's conversation in a database has a text."""
    with anyio.fail_after(PATIENCE), closing(sqlite3.connect(database)) as connection:
        while True:
            if any(text.encode() in body for (body,) in connection.execute("SELECT body FROM messages")):
                return
            await anyio.sleep(0.01)  # nothing tells


async def known(editor: ScriptedEditor, session: str) -> list[str]:
    """What the model has of the conversation."""
    exported: Any = await editor.ask("_acp_agent/session/export", {"sessionId": session})
    parts = [part["text"] for message in exported["session"]["messages"] for part in message["parts"]]
    return [text for text in parts if not text.startswith("<workspace ")]


@pytest.mark.parametrize("how", ENDS)
async def test_the_model_knows_what_the_user_saw_of_an_answer_and_why_it_has_no_end(tmp_path: Path, how: str) -> None:
    async with editing(tmp_path, SCRIPT, lawful=False) as editor:
        session = await end_in_mid_answer(editor, how)
    async with editing(tmp_path, SCRIPT) as editor:
        await editor.initialize()
        for _ in range(3):
            start = len(editor.recording.frames)
            await editor.ask("session/load", place(editor, session))
            told = [text_at(frame.update, "content", "text") for frame in editor.recording.frames[start:]]
            assert "The key is [REDACTED:api-key] and it" in told
        await editor.say(session, "hello")
        said = SAID if how != "cancelled" else [*SAID[:-1], notes.CANCELLED]
        assert await known(editor, session) == [*said, "hello", "Hello."]
        assert SECRET[7:] not in editor.told
    assert [f.name for f in editor.home.data.rglob("*") if f.is_file() and SECRET[7:].encode() in f.read_bytes()] == []


async def test_an_editor_that_is_reloaded_in_mid_turn_has_its_session_again_at_once(tmp_path: Path) -> None:
    """The new editor starts a new agent and loads the session while the old agent still ends its commands."""
    hold: Script = {"wait": [uses(("bash", {"command": Held.COMMAND}))], "": [says("Hello.")]}
    async with editing(tmp_path, hold, capabilities=NOTHING, lawful=False) as old:
        held = Held(old)
        (old.workspace / "hold.sh").write_text("trap '' TERM HUP\necho $$ > alive\nread rest < held\n")
        old.fifo("held")
        session = await old.open()
        await ask(old, session, "wait")
        pids = await held.pids()
        async with editing(tmp_path, hold, capabilities=NOTHING) as new:
            await new.initialize()
            await old.agent.close_stdin()
            await new.ask("session/load", place(new, session))
            assert (new.call.status, new.call.first["title"]) == ("failed", Held.COMMAND)
            await processes_ended(pids)
            assert await new.say(session, "hello") == "end_turn"
            assert new.text == "Hello."


async def test_a_prompt_is_known_to_whoever_goes_on_after_a_kill_before_any_answer(tmp_path: Path) -> None:
    script: Script = {"hello": [says("Hello.")], "^quiet": [{"hang": True}]}
    async with editing(tmp_path, script, lawful=False) as editor:
        session = await editor.open()
        await ask(editor, session, "quiet")
        await until_kept(editor.home.data / "acp-agent.db", "quiet")
        os.kill(editor.agent.pid, signal.SIGKILL)
        await editor.agent.wait()
    async with editing(tmp_path, script) as editor:
        await editor.initialize()
        await editor.ask("session/load", place(editor, session))
        await editor.say(session, "hello")
        assert await known(editor, session) == ["quiet", notes.INTERRUPTED, "hello", "Hello."]


async def test_what_the_calls_of_a_round_gave_is_known_though_another_was_killed(tmp_path: Path) -> None:
    write = ("write_file", {"path": "new.txt", "content": "one\n"})
    command = ("bash", {"command": "echo $$ > alive; sleep 1000"})
    script: Script = {"hello": [says("Hello.")], "": [uses(write, command)]}
    async with editing(tmp_path, script, capabilities=NOTHING, lawful=False) as editor:
        alive = editor.fifo("alive")
        session = await editor.open()
        await ask(editor, session, "go")
        await alive.line()
        os.kill(editor.agent.pid, signal.SIGKILL)
        await editor.agent.wait()
    async with editing(tmp_path, script) as editor:
        await editor.initialize()
        await editor.ask("session/load", place(editor, session))
        await editor.say(session, "hello")
        exported: Any = await editor.ask("_acp_agent/session/export", {"sessionId": session})
        wrote, ran, note, prompt = exported["session"]["messages"][2]["parts"]
        assert "new.txt" in wrote["text"]
        assert "is_error" not in wrote
        assert "its outcome is not known" in ran["text"]
        assert (note["text"], prompt["text"]) == (notes.INTERRUPTED, "hello")


async def test_no_turn_that_came_to_its_end_is_said_to_have_been_cut_off(tmp_path: Path) -> None:
    async with editing(tmp_path, SCRIPT, config="[acp]\nmax_sessions = 1\n") as editor:
        session = await editor.open()
        other = await editor.new_session(str(editor.workspace))
        await editor.say(session, LONG)
        await editor.say(session, "lost")  # the model fails
        for _ in range(2):
            await editor.say(other, "hello")  # the other one rests
            await editor.say(session, "/status")
        assert await known(editor, session) == [LONG, "Hello.", "lost"]
        await editor.say(session, "/compact")
        for _ in range(2):
            await editor.ask("session/load", place(editor, session))
            await editor.say(session, "/status")
        (summary,) = await known(editor, session)
        assert summary.startswith("<knowledge ")
