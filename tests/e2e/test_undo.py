"""/undo, /redo and `acp-agent sessions undo`: what the agent changed is restored, or refused with the difference."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from acp_agent.workspace.git.objects import object_name
from tests.e2e import aided as aided_agents
from tests.e2e.aided import Aided, told
from tests.fakes.editor import AGENT_CWD
from tests.fakes.forked_agent import CAN_FORK
from tests.fakes.forked_command import run_forked
from tests.fakes.held import PATIENCE
from tests.fakes.home import Home

pytestmark = pytest.mark.anyio

aided = partial(aided_agents.aided, serves=__name__)

FULL_AUTO = "[acp]\nauto_approve = 'full-auto'\n"
SH = "sed -i s/one/two/ a.txt; chmod 700 a.txt; rm gone.txt; mkdir -p new/empty; ln -s a.txt new/link; echo x > new/x"


def prepared(agent: Aided) -> dict[str, object]:
    agent.write("a.txt", "one\r\n").chmod(0o644)
    agent.write("gone.txt", "bye\n").chmod(0o600)
    agent.write(".env", "KEY=old\n")
    agent.write(".gitignore", ".env\n")
    return tree(agent)


def tree(agent: Aided) -> dict[str, object]:
    work = agent.editor.workspace
    return {
        str(path.relative_to(work)): (
            oct(path.lstat().st_mode),
            path.readlink() if path.is_symlink() else path.read_bytes(),
        )
        if not path.is_dir() or path.is_symlink()
        else oct(path.stat().st_mode)
        for path in sorted(work.rglob("*"))
    }


def sessions_undo(home: Home, session: str, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = ["sessions", "undo", session, *more]
    if CAN_FORK:
        return run_forked(arguments, home.environment(), AGENT_CWD, 50)
    command = [sys.executable, "-m", "acp_agent", *arguments]
    return subprocess.run(command, env=home.environment(), capture_output=True, text=True, check=False)


async def test_a_turn_is_taken_back_and_brought_back_and_the_model_learns_of_it(tmp_path: Path):
    steps = (
        ("bash", {"command": SH}),
        ("write", {"path": "deep/er/new.txt", "content": "new"}),
        ("edit", {"path": ".env", "edits": [{"old_text": "old", "new_text": "new"}]}),
        ("move_path", {"source": "new/x", "destination": "y"}),
        "done",
        "understood",
    )
    async with aided(tmp_path, *steps, config=FULL_AUTO) as (agent, model, _):
        before = prepared(agent)
        await agent.say("change them")
        after = tree(agent)
        assert after != before
        assert "Turn 1 is taken back" in await agent.say("/undo")
        assert tree(agent) == before
        assert "nothing to undo" in await agent.say("/undo")
        assert "in force again" in await agent.say("/redo")
        assert tree(agent) == after
        assert "Usage" in await agent.say("/undo the last thing")
        await agent.say("what now?")
        assert "I took back changes that you made to files" in told(model.requests[-1])


async def test_what_the_user_ran_is_not_the_agents(tmp_path: Path):
    steps = (("write", {"path": "b", "content": "b"}), "ok")
    async with aided(tmp_path, *steps, config=FULL_AUTO) as (agent, _, _):
        await agent.say("write it")
        await agent.say("/run touch mine")
        assert "Turn 1" in await agent.say("/undo")
        assert [path.name for path in agent.editor.workspace.iterdir()] == ["mine"]


async def test_what_the_user_changed_since_stops_it_with_the_difference(tmp_path: Path):
    steps = (
        ("bash", {"command": "sed -i s/one/two/ a.txt; rm gone.txt"}),
        "done",
        ("write", {"path": "b", "content": "b"}),
        "ok",
    )
    async with aided(tmp_path, *steps, config=FULL_AUTO) as (agent, _, _):
        prepared(agent)
        await agent.say("change them")
        await agent.say("and more")
        agent.write("a.txt", "two\r\nmine\n")
        now = tree(agent)
        said = await agent.say("/undo 1")
        assert "Nothing was changed" in said
        assert "+mine" in said
        assert tree(agent) == now
        assert "Turn 2 is taken back" in await agent.say("/undo")
        assert not (agent.editor.workspace / "b").exists()


async def test_a_stored_session_is_undone_on_the_command_line_and_not_while_it_is_open(tmp_path: Path):
    async with aided(tmp_path, ("bash", {"command": SH}), "done", config=FULL_AUTO, serves="") as (agent, _, _):
        before = prepared(agent)
        await agent.say("change them")
        after, home, session = tree(agent), agent.editor.home, agent.id
        refused = sessions_undo(home, session)
        assert (refused.returncode, "open in another process" in refused.stderr) == (1, True)
    done = sessions_undo(home, session[:8], "--turn", "1")
    assert (done.returncode, done.stderr, "Turn 1 is taken back" in done.stdout) == (0, "", True)
    assert tree(agent) == before
    assert sessions_undo(home, session, "--redo").returncode == 0
    assert tree(agent) == after
    agent.write("a.txt", "mine\n")
    refused = sessions_undo(home, session)
    assert (refused.returncode, "+mine" in refused.stderr) == (1, True)


async def test_where_it_is_switched_off_nothing_is_kept(tmp_path: Path):
    off = f"{FULL_AUTO}[tools.undo]\nenabled = false\n"
    steps = (("bash", {"command": SH}), "done", "understood")
    async with aided(tmp_path, *steps, config=off, serves="") as (agent, model, _):
        prepared(agent)
        await agent.say("change them")
        assert "Undo is off" in await agent.say("/undo")
        assert "Undo: off" in await agent.status()
        assert not (agent.editor.home.data / "undo").exists()
        assert "a.txt" in str(agent.calls[0].final["content"]), "the difference is shown"
        await agent.say("what now?")
        assert "took back" not in told(model.requests[-1])


async def test_the_first_copy_of_a_large_folder_is_made_beside_the_models_answer(tmp_path: Path):
    async with aided(tmp_path, "hello", config=FULL_AUTO, serves="") as (agent, _, _):
        agent.write("a.txt", "one")
        (agent.editor.workspace / ".git").mkdir()
        agent.write(".git/index", "DIRC" * 100_000)  # its size tells how many files there are
        await agent.say("hi")
        name = object_name(b"one")
        with anyio.fail_after(PATIENCE):
            while True:
                if list((agent.editor.home.data / "undo").glob(f"*/objects/{name[:2]}/{name[2:]}")):
                    break
                await anyio.sleep(0.01)  # nothing tells


TRANSACTION = f"{FULL_AUTO}[tools.shell]\ntransactional = true\nauto_rollback = true\n"


async def test_what_a_failed_command_changed_is_taken_back_at_once_and_recorded(tmp_path: Path):
    steps = (
        ("bash", {"command": f"{SH}; exit 2"}),
        ("bash", {"command": "echo kept > kept; exit 3"}),
        "done",
    )
    config = f'{TRANSACTION}transaction_scope = ["*.txt", "new/**", "new"]\n'
    async with aided(tmp_path, *steps, config=config, serves="") as (agent, model, _):
        before = prepared(agent)
        await agent.say("change them")
        assert "taken back: 2 restored, 4 deleted" in told(model.requests[1])
        assert agent.records[0]["result"] == {"type": "rollback", "restored": 2, "deleted": 4}
        (agent.editor.workspace / "kept").unlink()
        assert tree(agent) == before
        (agent.editor.workspace / "kept").write_text("kept\n")
        assert "Restored: `kept`" in await agent.say("/undo")


async def test_a_command_that_needs_a_snapshot_does_not_run_without_one(tmp_path: Path):
    steps = (("bash", {"command": "touch made"}), "done")
    config = f"{TRANSACTION}snapshot_required = true\nmax_snapshot_bytes = 10\n"
    async with aided(tmp_path, *steps, config=config) as (agent, model, _):
        agent.write("large", "more than ten bytes")
        await agent.say("make it")
        assert "did not run" in told(model.requests[1])
        assert not (agent.editor.workspace / "made").exists()
