"""A machine that is not in order: each thing wrong is named or worked around, and the session goes on."""

import shutil
from functools import partial

import pytest

from tests.fakes import editor as editors
from tests.fakes.answers import choosing
from tests.fakes.editor import NOTHING
from tests.fakes.model_script import says, uses

pytestmark = pytest.mark.anyio

editing = partial(editors.editing, serves=__name__)

WORK = [uses(("bash", {"command": "touch hi"})), uses(("write", {"path": "a.txt", "content": "a\n"})), says("ok")]


async def test_a_data_folder_that_is_a_file_is_named_and_the_server_lives(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "data").write_text("in the way\n")
    async with editors.editing(tmp_path, WORK) as editor:
        session = await editor.open()
        assert await editor.say(session, "go") == "end_turn"
        assert "ACP_AGENT_DATA_DIR" in editor.told
        assert await editor.ask("authenticate", {"methodId": editor.auth_method}) == {}


async def test_a_corrupt_permission_file_grants_nothing(tmp_path):
    data = tmp_path / "home" / "data"
    data.mkdir(parents=True)
    (data / "acp-permissions.toml").write_text("[tools\nbash = allow")
    async with editing(tmp_path, WORK) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert [call.status for call in editor.calls] == ["completed", "completed"]
    assert len(editor.requests("session/request_permission")) == 2


async def test_always_holds_for_the_process_where_it_cannot_be_kept(tmp_path):
    config = '[acp]\npermission_file = "/proc/nowhere/permissions.toml"\n'
    async with editing(tmp_path, WORK, config=config, decide=choosing("allow_always")) as editor:
        session = await editor.open()
        for _ in range(2):
            assert await editor.say(session, "go") == "end_turn"
    assert [call.status for call in editor.calls] == ["completed"] * 4
    assert len(editor.requests("session/request_permission")) == 2


@pytest.mark.parametrize("folder", ["missing", "with a space"])
async def test_a_folder_for_temporary_files_that_is_missing_or_awkward_stops_no_command(tmp_path, folder):
    (tmp_path / "with a space").mkdir()
    async with editing(tmp_path, WORK, environment={"TMPDIR": str(tmp_path / folder)}) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    assert [call.status for call in editor.calls] == ["completed", "completed"]


@pytest.mark.parametrize("capabilities", [None, NOTHING], ids=["editor", "local"])
async def test_a_folder_that_went_away_is_named_and_other_sessions_work(tmp_path, capabilities):
    (tmp_path / "other").mkdir()
    async with editing(tmp_path, WORK, capabilities=capabilities) as editor:
        session = await editor.open()
        shutil.rmtree(editor.workspace)
        assert await editor.say(session, "go") == "end_turn"
        assert str(editor.workspace) in editor.told
        assert await editor.say(await editor.new_session(str(tmp_path / "other")), "go") == "end_turn"
        assert [call.status for call in editor.calls[-2:]] == ["completed", "completed"]


async def test_without_a_shell_commands_fail_by_name_and_files_still_work(tmp_path):
    async with editing(tmp_path, WORK, capabilities=NOTHING, environment={"PATH": str(tmp_path / "empty")}) as editor:
        assert await editor.say(await editor.open(), "go") == "end_turn"
    command, write = editor.calls
    assert (command.status, write.status) == ("failed", "completed")
    assert "PATH" in command.text
