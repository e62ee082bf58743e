"""Commands within Landlock, where bubblewrap is missing: what the user and the model are told of it."""

from pathlib import Path

import pytest

from acp_agent.workspace.sandbox.sandbox import SandboxTier, tier_works
from tests.fakes.editor import NOTHING, editing
from tests.fakes.model_script import says, uses

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not tier_works(SandboxTier.LANDLOCK), reason="Landlock does not work on this machine"),
]
MODE = "ACP_AGENT_TOOLS__SANDBOX__MODE"


async def test_a_session_names_its_walls_and_what_they_stopped(tmp_path: Path):
    script = [
        uses(("bash", {"command": "echo x > new.txt"})),
        uses(("bash", {"command": "cd src; touch new.txt; chmod +x new.txt; echo crvne | rev | xargs -I{} touch .{}"})),
        says("ok"),
    ]
    config = '[acp]\nauto_approve = "auto-edit"\n'
    async with editing(tmp_path, script, capabilities=NOTHING, config=config, environment={MODE: "landlock"}) as editor:
        (editor.workspace / ".git/hooks").mkdir(parents=True)
        (editor.workspace / "src").mkdir()
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "/status")
    assert "Sandbox: landlock, profile workspace" in editor.told
    assert editor.requests("session/request_permission") == []
    stopped, planted = editor.calls
    assert "in the sandbox new.txt may not be used" in stopped.text
    assert not (editor.workspace / "new.txt").exists()
    assert (editor.workspace / "src/new.txt").stat().st_mode & 0o100
    assert ".quarantined" in planted.text
    assert not (editor.workspace / "src/.envrc").exists()


async def test_walls_that_are_missing_are_told_once_a_session(tmp_path: Path):
    if tier_works(SandboxTier.SEATBELT):
        pytest.skip("they work on this machine")
    script = [uses(("bash", {"command": "true"})), says("ok"), says("ok")]
    config = '[acp]\nauto_approve = "full-auto"\n'
    async with editing(tmp_path, script, capabilities=NOTHING, config=config, environment={MODE: "seatbelt"}) as editor:
        session = await editor.open()
        await editor.say(session, "go")
        await editor.say(session, "again")
    assert editor.told.count("no sandbox can be built: there is no sandbox-exec") == 1


async def test_hosts_that_only_bubblewrap_could_reach_are_told_to_be_out_of_reach(tmp_path: Path):
    config = '[tools.sandbox]\nnetwork_allow = ["docs.example.com"]\n'
    async with editing(
        tmp_path, [says("ok")], capabilities=NOTHING, config=config, environment={MODE: "landlock"}
    ) as editor:
        session = await editor.open()
        await editor.say(session, "go")
    assert editor.told.count("`network_allow` does nothing with landlock") == 1
