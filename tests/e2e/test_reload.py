"""The configuration changes under a running session: the next prompt and the next call obey it."""

import os
from pathlib import Path

import pytest

from tests.fakes.answers import Holding
from tests.fakes.editor import ScriptedEditor, editing
from tests.fakes.home import Home
from tests.fakes.model_script import says, uses, write_script

pytestmark = pytest.mark.anyio

TOUCH = [uses(("bash", {"command": "touch touched"})), says("ok")]
BAN = "[tools.shell]\nblocked_commands = ['touch']\n"
BROKEN = "[tools.shell]\nblocked_commands = ['touch'\n"


def rewrite(editor: ScriptedEditor, text: str) -> None:
    """Save as editors do: the new file takes the name of the old one. The model stays."""
    path: Path = editor.home.config
    new = path.with_suffix(".new")
    new.write_text(path.read_text().split("\n[tools", 1)[0] + "\n" + text)
    os.replace(new, path)


async def test_a_ban_between_two_prompts_holds_for_the_second_and_a_broken_file_lifts_nothing(tmp_path):
    async with editing(tmp_path, TOUCH) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        rewrite(editor, BAN)
        await editor.say(session, "again")
        for text in (BROKEN, "", "[tools.file]\ndeny_read = 7\n"):
            editor.home.config.write_text(text)
            await editor.say(session, "broken")
            await editor.say(session, "still broken")
        assert editor.told.count(f"{editor.home.config}: expected TOML") == 1
        assert "at line 3" in editor.told
        assert editor.told.count("expected it not to be empty; its earlier content stays in force") == 1
        assert (
            editor.told.count("deny_read = 7: expected a list of texts; the earlier configuration stays in force") == 1
        )
        editor.home.config.write_text("[tools.shell]\nblocked_commands = ['rm']\n")
        await editor.say(session, "mended")
    assert [call.status for call in editor.calls] == ["completed", *["failed"] * 7, "completed"]
    assert len(editor.requests("session/request_permission")) == 2


async def test_a_ban_written_during_a_turn_holds_for_the_next_call_and_not_for_the_one_under_way(tmp_path):
    script = [uses(("bash", {"command": "touch one"})), uses(("bash", {"command": "touch two"})), says("ok")]
    async with editing(tmp_path, script) as editor:
        asked = editor.overrides["session/request_permission"] = Holding()
        async with editor.prompting(await editor.open()):
            question = await asked.next()
            rewrite(editor, BAN)
            await question.serve()
    assert [call.status for call in editor.calls] == ["completed", "failed"]
    assert [path.name for path in editor.workspace.iterdir()] == ["one"]


async def test_with_a_configuration_nobody_can_read_prompts_are_answered_and_nothing_runs_until_it_is_mended(tmp_path):
    model = write_script(Home(tmp_path / "home").root, TOUCH)
    async with editing(tmp_path, None, config=BROKEN, environment={"ACP_AGENT_MODEL": model}) as editor:
        session = await editor.open()
        assert await editor.say(session, "go") == "end_turn"
        assert editor.text.endswith("ok")
        await editor.say(session, "/run touch touched")
        await editor.say(session, "/tools")
        assert "bash" not in editor.text.rpartition("Tools in this mode")[2]
        assert [call.status for call in editor.calls] == ["failed", "failed"]
        assert not (editor.workspace / "touched").exists()
        for words in (str(editor.home.config), "at line 3", "expected TOML", "without a restart"):
            assert words in editor.calls[0].text, words
        editor.home.config.write_text("[tools.shell]\nblocked_commands = ['rm']\n")
        await editor.say(session, "go")
    assert [call.status for call in editor.calls] == ["failed", "failed", "completed"]


async def test_a_mended_file_brings_the_model_and_the_mode_the_session_should_have_begun_with(tmp_path):
    model = write_script(Home(tmp_path / "home").root, TOUCH)
    async with editing(tmp_path, None, config=BROKEN) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        assert "No model" in editor.text
        editor.home.config.write_text(f"[llm]\nmodel = '{model}'\n[acp]\nmode = 'ask'\n")
        await editor.say(session, "go")
        update = await editor.updated("config_option_update")
        assert {o["id"]: o["currentValue"] for o in update["configOptions"]}["mode"] == "ask"
        assert (await editor.updated("current_mode_update"))["currentModeId"] == "ask"
    assert editor.call.status == "failed"
    assert not editor.requests("session/request_permission")


async def test_a_folder_that_is_made_anew_during_a_session_is_told_once(tmp_path):
    async with editing(tmp_path, [uses(("glob", {"pattern": "*"})), says("ok")]) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        assert "moved or replaced" not in editor.told
        editor.workspace.rename(tmp_path / "earlier")
        editor.workspace.mkdir()
        (editor.workspace / "new.txt").touch()
        await editor.say(session, "go on")
        await editor.say(session, "go on")
        told = f"the folder {editor.workspace} was removed, moved or replaced while the session was open"
        assert editor.told.count(told) == 1
        await editor.ask("session/load", {"sessionId": session, "cwd": str(editor.workspace), "mcpServers": []})
        await editor.say(session, "now")
    assert "new.txt" in str(editor.calls[-1].final["content"]), "as the words advise"
