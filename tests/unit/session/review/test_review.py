"""/review sees what git sees, by the user's own shell and through the session's gates."""

from pathlib import Path

import pytest

from acp_agent.session.slash.commands import Review, review_changes
from tests.unit.session.live_session import LiveSession
from tests.unit.session.review.repositories import SECRET, elsewhere, git, repository

pytestmark = pytest.mark.anyio


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
    live.session.active.readonly = True
    assert "'bash' is not available" in str(await review_changes(live.tools))


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
