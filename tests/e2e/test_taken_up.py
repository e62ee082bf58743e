"""A session that goes on has no more leave than the configuration of now gives, and no new allowance."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.editor import ScriptedEditor, editing
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

WRITES = {"go": [uses(("write", {"path": "x.txt", "content": "hi"})), says("done")]}


def place(editor: ScriptedEditor, session: str, cwd: Path | None = None) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(cwd or editor.workspace), "mcpServers": []}


def leave(answer: Any) -> str:
    """Return how freely the agent acts."""
    return next(each["currentValue"] for each in answer["configOptions"] if each["id"] == "mode")


async def choose(editor: ScriptedEditor, session: str, option: str, value: str) -> Any:
    return await editor.ask("session/set_config_option", {"sessionId": session, "configId": option, "value": value})


async def test_a_stricter_configuration_holds_for_sessions_that_are_taken_up(tmp_path: Path) -> None:
    fork = {"ACP_AGENT_ACP_FORK": "1"}
    async with editing(tmp_path, WRITES, config="[acp]\nmax_sessions = 2\n", environment=fork, lawful=False) as editor:
        session = await editor.open()
        await choose(editor, session, "auto_approve", "full-auto")
        await choose(editor, session, "mode", "architect")
        await editor.say(session, "hello")
        assert leave(await editor.ask("session/load", place(editor, session))) == "architect"
        assert leave(await choose(editor, session, "mode", "code")) == "full-auto"

        project = editor.workspace / ".acp-agent" / "config.toml"
        project.parent.mkdir()
        project.write_text("[acp]\nauto_approve = 'suggest'\n")
        assert leave(await editor.ask("session/load", place(editor, session))) == "suggest"
        forked = await editor.ask("session/fork", place(editor, session))
        assert leave(forked) == "suggest"
        await editor.say(session, "hello")
        assert "approval suggest instead of full-auto" in editor.text
        again = await choose(editor, session, "auto_approve", "full-auto")
        assert leave(again) == "full-auto", "their last word"

        await choose(editor, session, "mode", "code")
        for _ in range(2):  # the first one rests
            await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": []})
        project.write_text("[tools]\nautonomy_level = 'readonly'\n")
        await editor.say(session, "go")
        assert not (editor.workspace / "x.txt").exists()
        assert "read-only" in editor.text


async def test_no_load_gives_new_calls_in_the_hour(tmp_path: Path) -> None:
    config = "[acp]\nauto_approve = 'full-auto'\n[tools.rate_limit]\ncalls_per_hour = 1\n"
    script = {"go": [uses(("bash", {"command": "echo hi"})), says("done")]}
    async with editing(tmp_path, script, config=config) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        assert [each.status for each in editor.calls] == ["completed"]
        await editor.ask("session/close", {"sessionId": session})
        await editor.ask("session/resume", place(editor, session))
        await editor.say(session, "go")
        assert [each.status for each in editor.calls] == ["completed", "failed"]
