"""What is not committed, and on which branch, as git says: without a program that the repository names."""

import os
import subprocess
from pathlib import Path

import pytest

from acp_agent.config.files import PathStamps
from acp_agent.core.untrusted import now_ns
from acp_agent.workspace.git.changes import branch_of, uncommitted
from tests.fakes.cancelled_start import left_of_a_cancelled_start

pytestmark = pytest.mark.anyio

ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, env={**os.environ, **ALONE})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path.resolve() / "project"
    (top / "src").mkdir(parents=True)
    (top / "a.txt").write_text("a\n")
    (top / "src" / "b.txt").write_text("b\n")
    git(top, "init")
    git(top, "add", ".")
    git(top, "commit", "-m", "first")
    return top


async def names(folder: Path, top: Path) -> list[str]:
    found = await uncommitted(str(folder))
    assert found is not None
    return [os.path.relpath(path, top) for path in found]


async def test_changed_new_and_deleted_files_are_uncommitted(repository: Path):
    assert await names(repository, repository) == []
    (repository / "a.txt").write_text("changed\n")
    (repository / "src" / "b.txt").unlink()
    (repository / "new name.txt").write_text("new\n")
    assert sorted(await names(repository, repository)) == ["a.txt", "new name.txt", "src/b.txt"]
    assert await names(repository / "src", repository) == ["src/b.txt"]


async def test_a_file_that_was_only_touched_is_not_uncommitted(repository: Path):
    os.utime(repository / "a.txt", (1, 1))
    assert await names(repository, repository) == []


async def test_a_folder_without_git_has_no_answer(tmp_path: Path):
    assert await uncommitted(str(tmp_path)) is None
    assert branch_of(str(tmp_path), PathStamps()) == ""


@pytest.mark.parametrize("key", ["filter.x.clean", "filter.x.process", "filter.X y.clean", "core.fsmonitor"])
async def test_no_program_that_the_repository_names_runs(repository: Path, key: str):
    ran = repository.parent / "ran"
    script = repository.parent / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    script.chmod(0o755)
    driver = key.split(".")[1] if key.startswith("filter") else "x"
    (repository / ".gitattributes").write_text(f'* "filter={driver}"\n*.txt filter={driver.replace(" ", "")}\n')
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    git(repository, "config", key, str(script))
    if key.startswith("filter"):
        git(repository, "config", f"filter.{driver}.required", "true")
    (repository / "a.txt").write_text("changed\n")
    os.utime(repository / "src" / "b.txt", (1, 1))  # so that git looks into it, however long the commit is ago
    assert "a.txt" in await names(repository, repository)
    assert not ran.exists()
    if key in ("filter.x.clean", "core.fsmonitor"):
        git(repository, "status")
        assert ran.exists(), "the program would have run"


async def test_a_filter_that_cannot_be_switched_off_ends_the_look(repository: Path):
    git(repository, "config", "filter.x=y.clean", "touch ran")
    assert await uncommitted(str(repository)) is None


def test_git_is_ended_if_the_task_is_cancelled_while_it_starts(repository: Path):
    assert left_of_a_cancelled_start(lambda: uncommitted(str(repository))) == 0


async def test_a_worktree_elsewhere_is_not_listed(repository: Path):
    elsewhere = repository.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "private.txt").write_text("x")
    git(repository, "config", "core.worktree", str(elsewhere))
    assert await names(repository, repository) == []


def test_the_branch_is_read_from_its_file(repository: Path):
    assert branch_of(str(repository), PathStamps()) == "main"
    git(repository, "switch", "-c", "feature/one")
    assert branch_of(str(repository / "src"), PathStamps()) == "feature/one"
    git(repository, "worktree", "add", "../beside", "-b", "beside")
    assert branch_of(str(repository.parent / "beside"), PathStamps()) == "beside"
    git(repository, "checkout", "--detach")
    assert branch_of(str(repository), PathStamps()).startswith("none (detached at ")


def test_a_head_that_is_no_file_has_no_branch(repository: Path):
    (repository / ".git" / "HEAD").unlink()
    os.mkfifo(repository / ".git" / "HEAD")
    assert branch_of(str(repository), PathStamps()) == ""


def test_a_git_file_that_names_an_impossible_path_has_no_branch(tmp_path: Path):
    (tmp_path / ".git").write_bytes(b"gitdir: a\0b\n")
    assert branch_of(str(tmp_path), PathStamps()) == ""


def test_the_branch_is_read_again_after_a_file_on_the_way_changed_and_after_a_head_that_said_nothing(repository: Path):
    near, head = (repository.stat().st_dev,), repository / ".git" / "HEAD"
    changes = {
        "another branch": lambda: head.write_text("ref: refs/heads/another\n"),
        "a repository in between": (repository / "src" / ".git").mkdir,
        "its head": lambda: (repository / "src" / ".git" / "HEAD").write_text("ref: refs/heads/inner\n"),
    }
    holds = dict[str, tuple[bool, bool]]()
    for name, change in changes.items():
        stamps = PathStamps(lambda: now_ns() + 1_000_000_000)
        branch_of(str(repository / "src"), stamps)
        before = stamps.hold(near)
        change()
        holds[name] = before, stamps.hold(near)
    assert holds == {
        "another branch": (True, False),
        "a repository in between": (True, False),
        "its head": (False, False),  # the reading may have failed
    }
