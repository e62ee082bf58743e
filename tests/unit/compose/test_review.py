"""/review sees what git sees, by the user's own shell and through the session's gates (A17.5)."""

import os
import subprocess
from pathlib import Path

import pytest

from acp_agent.core.conduct import Mode
from acp_agent.protocol.review import Review, review
from tests.unit.compose.live_session import LiveSession

pytestmark = pytest.mark.anyio


@pytest.fixture
async def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveSession:
    for name in [name for name in os.environ if name.startswith("ACP_AGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACP_AGENT_CONFIG", str(tmp_path.resolve() / "config.toml"))
    monkeypatch.setenv("ACP_AGENT_DATA_DIR", str(tmp_path.resolve() / "data"))
    return LiveSession(tmp_path).open()


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


async def test_changes_new_files_and_staged_ones_are_shown_and_no_program_of_the_repository_runs(live: LiveSession):
    work = live.work
    git(work, "init", "-q")
    for name in ("changed.py", "staged.py"):
        (work / name).write_text("old = 1\n")
    (work / ".gitattributes").write_text("*.py diff=own\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "first")
    assert "no uncommitted changes" in str(await review("", live.tools))
    for key in ("core.fsmonitor", "diff.external", "diff.own.textconv", "diff.own.command"):
        git(work, "config", key, f"touch {live.root}/ran-{key}; false")
    for name in ("changed.py", "staged.py", "new.py"):
        (work / name).write_text("new = 2\n")
    (work / "staged.py").write_text("two = 2\n")
    git(work, "-c", "core.fsmonitor=false", "add", "staged.py")
    ran = set(live.root.glob("ran-*"))
    asked = await review("", live.tools)
    assert isinstance(asked, Review)
    for shown in ("+new = 2", "+two = 2", "?? new.py"):
        assert shown in asked.prompt
    assert set(live.root.glob("ran-*")) == ran
    assert live.peer.asked == []


async def test_outside_of_a_repository_and_where_nothing_may_run_a_path_is_asked_for(live: LiveSession):
    told = str(await review("", live.tools))
    assert "cannot be seen: git exited with code" in told
    assert "`/review PATH`" in told
    live.session.active.mode = Mode.ASK
    assert "'bash' is not available in ask mode" in str(await review("", live.tools))
