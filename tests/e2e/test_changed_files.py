"""The files that a command has changed: diffs in its card, places to open, and one line for the model."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import editor as editors
from tests.fakes import mcp_server
from tests.fakes.editor import EVERYTHING, NOTHING, ScriptedEditor
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)
SED = "sed -i s/one/two/ a.py && echo new > b.txt && rm gone.txt"


def prepare(editor: ScriptedEditor) -> None:
    work = editor.workspace
    (work / "a.py").write_text("one\nrest\n")
    (work / "gone.txt").write_text("bye\n")
    (work / "same.txt").write_text("same\n")
    (work / ".gitignore").write_text("build/\n*.log\n")
    (work / "build").mkdir()


def diffs(content: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
    found = [each for each in content if each["type"] == "diff"]
    return [(os.path.basename(each["path"]), each["oldText"], each["newText"]) for each in found]


@pytest.mark.parametrize("capabilities", [NOTHING, EVERYTHING], ids=["here", "in the editor"])
async def test_the_card_of_a_command_shows_what_it_changed(tmp_path: Path, capabilities: dict[str, Any]):
    command = f"{SED} && touch same.txt && echo x > build/out && echo x > x.log"
    script = [uses(("bash", {"command": command})), uses(("bash", {"command": "cat a.py"})), says("ok")]
    config = '[acp]\nauto_approve = "full-auto"\n'
    async with editing(tmp_path, script, capabilities=capabilities, config=config) as editor:
        prepare(editor)
        await editor.say(await editor.open(), "go")
    call, reading = editor.calls
    assert diffs(call.final["content"]) == [
        ("a.py", "one\nrest\n", "two\nrest\n"),
        ("b.txt", None, "new\n"),
        ("gone.txt", "bye\n", ""),
    ]
    work = str(editor.workspace)
    assert call.final["locations"] == [{"path": f"{work}/a.py", "line": 1}, {"path": f"{work}/b.txt", "line": 1}]
    assert "[changed: a.py, b.txt; deleted: gone.txt]" in call.final["rawOutput"]["output"]
    assert "changed:" not in str(reading.final)


async def test_secrets_and_hidden_files_are_not_shown_and_it_can_be_switched_off(tmp_path: Path):
    script = {"one": [uses(("bash", {"command": "sh make.sh"})), says("ok")]}
    config = '[tools.file]\ndeny_read = ["hidden.txt"]\n'
    async with editing(tmp_path, script, capabilities=NOTHING, config=config) as editor:
        (editor.workspace / "make.sh").write_text("echo PASSWORD=x > .env; echo x > hidden.txt; echo x > seen.txt")
        session = await editor.open()
        await editor.say(session, "one")
        text = editor.home.config.read_text()
        editor.home.config.write_text(f"{text}[tools.shell]\nshow_changes = false\n")
        (editor.workspace / "seen.txt").unlink()
        await editor.say(session, "one")
    first, second = editor.calls
    assert [name for name, _, _ in diffs(first.final["content"])] == ["seen.txt"]
    assert "hidden" not in first.final["rawOutput"]["output"]
    assert diffs(second.final["content"]) == []
    assert "changed:" not in str(second.final)


async def test_what_a_command_changed_in_a_file_is_shown_before_the_file_is_edited(tmp_path: Path):
    edit = ("edit", {"path": "a.py", "old_string": "rest", "new_string": "REST"})
    calls = (("read", {"path": "a.py"}), ("bash", {"command": "sed -i s/one/two/ a.py"}), edit, edit)
    config = '[acp]\nauto_approve = "full-auto"\n'
    async with editing(tmp_path, [*map(uses, calls), says("ok")], capabilities=NOTHING, config=config) as editor:
        (editor.workspace / "a.py").write_text("one\nrest\n")
        await editor.say(await editor.open(), "go")
        assert (editor.workspace / "a.py").read_text() == "two\nREST\n"
    assert [call.status for call in editor.calls[2:]] == ["failed", "completed"]
    assert "a.py was changed since you last read or wrote it" in editor.calls[2].text
    assert "-one\n+two\n" in editor.calls[2].text


async def test_the_card_of_a_servers_tool_shows_what_it_changed(tmp_path: Path):
    script = [uses(("mcp_bare_echo", {"text": "hello"})), says("ok")]
    async with editing(tmp_path, script, capabilities=NOTHING) as editor:
        state = editor.workspace / "state"  # where it writes down each call
        state.mkdir()
        args = [mcp_server.__file__, str(state)]
        server = {"name": "bare", "command": sys.executable, "args": args, "env": []}
        await editor.initialize()
        opened = await editor.ask("session/new", {"cwd": str(editor.workspace), "mcpServers": [server]})
        await editor.say(opened["sessionId"], "go")
    assert "[changed: state/log]" in editor.call.final["rawOutput"]["output"]
    ((name, _, new),) = diffs(editor.call.final["content"])
    assert (name, new.splitlines()[-1]) == ("log", 'call echo {"text": "hello"}')
