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
    monkeypatch.setenv("HOME", str(tmp_path.resolve()))
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


def script(marks: Path, name: str) -> str:
    """A program that leaves a mark and passes on what it reads."""
    return f"sh -c 'touch {marks}/{name}; cat'"


def repository(work: Path) -> None:
    work.mkdir(exist_ok=True)
    git(work, "init", "-q")
    (work / "a.txt").write_text("one\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "first")


async def test_no_hook_no_program_of_a_submodule_and_none_that_fetches_runs(live: LiveSession, tmp_path: Path):
    work, marks = live.work, tmp_path / "marks"
    marks.mkdir()
    repository(work)
    repository(work / "sub")
    git(work, "add", "sub")
    git(work, "commit", "-qm", "second")
    hook = work / "hooks" / "post-index-change"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {marks}/hook\n")
    hook.chmod(0o755)
    git(work / "sub", "config", "filter.own.clean", script(marks, "clean"))
    git(work / "sub", "config", "core.fsmonitor", script(marks, "fsmonitor"))
    (work / "sub" / ".gitattributes").write_text("* filter=own\n")
    (work / "sub" / "a.txt").write_text("two\n")
    os.utime(work / "a.txt", (1, 1))  # its entry in the index is to be refreshed
    (work / "new.txt").write_text("x\n")
    for key, value in {
        "core.hooksPath": str(hook.parent),
        "status.submoduleSummary": "true",
        "diff.submodule": "diff",
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::touch {marks}/fetched",
        "protocol.ext.allow": "always",
    }.items():
        git(work, "config", key, value)

    asked = await review("", live.tools)
    assert isinstance(asked, Review)
    assert "?? new.txt" in asked.prompt
    for blob in (work / ".git" / "objects").glob("??/*"):
        blob.rename(marks.parent / blob.name)
    (work / "a.txt").write_text("two\n")
    assert "cannot be seen: git exited with code" in str(await review("", live.tools))
    assert [mark.name for mark in marks.iterdir()] == []


@pytest.mark.parametrize("key", ["filter.own.clean", "filter.own.process", "filter.a b.smudge", "hook.own.command"])
@pytest.mark.parametrize("scope", ["--local", "--worktree", "included"])
async def test_where_the_repository_names_a_program_git_would_run_nothing_runs_and_the_user_is_told(
    live: LiveSession, tmp_path: Path, key: str, scope: str
):
    work, marks = live.work, tmp_path / "marks"
    marks.mkdir()
    repository(work)
    (work / ".gitattributes").write_text("* filter=own\n")
    (work / "a.txt").write_text("two\n")
    if scope == "included":
        git(work, "config", "--file", str(work / "more"), key, script(marks, "ran"))
        git(work, "config", "include.path", str(work / "more"))
    else:
        git(work, "config", "extensions.worktreeConfig", "true")
        git(work, "config", scope, key, script(marks, "ran"))

    told = str(await review("", live.tools))
    assert f"git would run programs this repository's own configuration names (`{key}`)" in told
    assert "`/review PATH`" in told
    assert [*marks.iterdir()] == []


async def test_a_filter_the_user_has_for_all_repositories_works(live: LiveSession, tmp_path: Path):
    (tmp_path / ".gitconfig").write_text('[filter "own"]\n\tclean = tr a-z A-Z\n')
    repository(live.work)
    (live.work / ".gitattributes").write_text("*.txt filter=own\n")
    (live.work / "a.txt").write_text("two\n")
    asked = await review("", live.tools)
    assert isinstance(asked, Review)
    assert "+TWO" in asked.prompt


async def test_outside_of_a_repository_and_where_nothing_may_run_a_path_is_asked_for(live: LiveSession):
    told = str(await review("", live.tools))
    assert "cannot be seen: git exited with code" in told
    assert "`/review PATH`" in told
    live.session.active.mode = Mode.ASK
    assert "'bash' is not available in ask mode" in str(await review("", live.tools))
