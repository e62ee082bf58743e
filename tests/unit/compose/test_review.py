"""/review sees what git sees, by the user's own shell and through the session's gates (A17.5)."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.core.conduct import Mode
from acp_agent.protocol.review import Review, review_changes
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
    assert "no uncommitted changes" in str(await review_changes(live.tools))
    for key in ("core.fsmonitor", "diff.external", "diff.own.textconv", "diff.own.command"):
        git(work, "config", key, f"touch {live.root}/ran-{key}; false")
    for name in ("changed.py", "staged.py", "new.py"):
        (work / name).write_text("new = 2\n")
    (work / "staged.py").write_text("two = 2\n")
    git(work, "-c", "core.fsmonitor=false", "add", "staged.py")
    ran = set(live.root.glob("ran-*"))
    asked = await review_changes(live.tools)
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

    asked = await review_changes(live.tools)
    assert isinstance(asked, Review)
    assert "?? new.txt" in asked.prompt
    for blob in (work / ".git" / "objects").glob("??/*"):
        blob.rename(marks.parent / blob.name)
    (work / "a.txt").write_text("two\n")
    assert "cannot be seen: git exited with code" in str(await review_changes(live.tools))
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

    told = str(await review_changes(live.tools))
    assert f"git would run programs this repository's own configuration names (`{key}`)" in told
    assert "`/review PATH`" in told
    assert [*marks.iterdir()] == []


async def test_a_filter_the_user_has_for_all_repositories_works(live: LiveSession, tmp_path: Path):
    (tmp_path / ".gitconfig").write_text('[filter "own"]\n\tclean = tr a-z A-Z\n')
    repository(live.work)
    (live.work / ".gitattributes").write_text("*.txt filter=own\n")
    (live.work / "a.txt").write_text("two\n")
    asked = await review_changes(live.tools)
    assert isinstance(asked, Review)
    assert "+TWO" in asked.prompt


async def test_outside_of_a_repository_and_where_nothing_may_run_a_path_is_asked_for(live: LiveSession):
    told = str(await review_changes(live.tools))
    assert "cannot be seen: git exited with code" in told
    assert "`/review PATH`" in told
    live.session.active.mode = Mode.ASK
    assert "'bash' is not available in ask mode" in str(await review_changes(live.tools))


SECRET = "what is kept elsewhere"


def elsewhere(folder: Path) -> Path:
    """A repository of the user's with a secret in it."""
    repository(folder)
    (folder / "a.txt").write_text(f"{SECRET}\n")
    git(folder, "commit", "-qam", "second")
    return folder


def gitfile(work: Path, private: Path) -> None:
    (work / ".git").write_text(f"gitdir: {private}/.git\n")


def git_link(work: Path, private: Path) -> None:
    (work / ".git").symlink_to(private / ".git")


def common_folder(work: Path, private: Path) -> None:
    (work / ".git").mkdir()
    (work / ".git" / "commondir").write_text(f"{private}/.git\n")
    (work / ".git" / "HEAD").write_text((private / ".git" / "HEAD").read_text())


def linked_objects(work: Path, private: Path) -> None:
    repository(work)
    for name in ("objects", "refs"):
        (work / ".git" / name).rename(work / ".git" / f"own-{name}")
        (work / ".git" / name).symlink_to(private / ".git" / name)


def other_work_tree(work: Path, private: Path) -> None:
    repository(work)
    git(work, "config", "core.worktree", str(private))


def work_tree_above(work: Path, private: Path) -> None:
    repository(work)
    git(work, "config", "core.worktree", str(private.parent))


def work_tree_of_its_own(work: Path, private: Path) -> None:
    repository(work)
    git(work, "config", "extensions.worktreeConfig", "true")
    git(work, "config", "--worktree", "core.worktree", str(private))


UNKNOWN = "the repository git finds does not know this folder"


@pytest.mark.parametrize(
    ("arranged", "why"),
    [
        (gitfile, UNKNOWN),
        (git_link, UNKNOWN),
        (common_folder, UNKNOWN),
        (linked_objects, "links among git's own files"),
        (other_work_tree, "look at another folder"),
        (work_tree_above, UNKNOWN),
        (work_tree_of_its_own, "look at another folder"),
    ],
)
async def test_a_repository_that_leads_git_elsewhere_shows_nothing_and_the_user_is_told(
    live: LiveSession, tmp_path: Path, arranged: Callable[[Path, Path], None], why: str
):
    arranged(live.work, elsewhere(tmp_path / "private"))
    told = await review_changes(live.tools)
    assert isinstance(told, str)
    assert why in told
    assert "`/review PATH`" in told
    assert SECRET not in told


async def test_hooks_may_be_links(live: LiveSession, tmp_path: Path):
    repository(live.work)
    (live.work / ".git" / "hooks").mkdir(exist_ok=True)
    (live.work / ".git" / "hooks" / "pre-commit").symlink_to(tmp_path / "elsewhere")
    (live.work / "a.txt").write_text("two\n")
    assert isinstance(await review_changes(live.tools), Review)


async def test_of_a_folder_within_a_repository_its_own_changes_are_shown(live: LiveSession, tmp_path: Path):
    (live.work / "b.txt").write_text("one\n")
    repository(tmp_path)
    (live.work / "b.txt").write_text("two\n")
    (tmp_path / "a.txt").write_text(f"{SECRET}\n")
    asked = await review_changes(live.tools)
    assert isinstance(asked, Review)
    assert "+two" in asked.prompt
    assert SECRET not in asked.prompt


async def test_a_second_work_tree_and_a_submodule_are_shown_as_any_other(tmp_path: Path, live: LiveSession):
    private = elsewhere(tmp_path / "private")
    live.work.rmdir()
    git(private, "worktree", "add", "-q", str(live.work))
    (live.work / "a.txt").write_text("two\n")
    assert "+two" in getattr(await review_changes(live.tools), "prompt", "")
    git(private, "worktree", "remove", "--force", str(live.work))
    outer = tmp_path / "outer"
    repository(outer)
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", str(private), "sub")
    (outer / "sub" / "a.txt").write_text("three\n")
    (outer / "sub").rename(live.work)
    git(tmp_path, "config", "--file", str(outer / ".git/modules/sub/config"), "core.worktree", str(live.work))
    (live.work / ".git").write_text(f"gitdir: {outer}/.git/modules/sub\n")
    assert "+three" in getattr(await review_changes(live.tools), "prompt", "")


@pytest.mark.parametrize("value", ["always", "true"])
async def test_colours_of_the_repository_do_not_reach_the_model(live: LiveSession, value: str):
    repository(live.work)
    (live.work / "a.txt").write_text("two\n")
    for key in ("color.diff", "color.status", "color.ui"):
        git(live.work, "config", key, value)
    asked = await review_changes(live.tools)
    assert isinstance(asked, Review)
    assert "\x1b" not in asked.prompt
    assert "+two" in asked.prompt
