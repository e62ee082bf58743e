"""/review runs nothing a repository names, and shows nothing from beyond it."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.session.slash.commands import Review, review_changes
from tests.unit.session.live_session import LiveSession
from tests.unit.session.review.repositories import SECRET, elsewhere, git, repository, script

pytestmark = pytest.mark.anyio


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
    assert f"this repository's own configuration names (`{key}`)" in told
    assert "`/review PATH`" in told
    assert [*marks.iterdir()] == []


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


UNKNOWN = "the repository that git finds does not know this folder"


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


MANY = b"[core]\n" + b"\tbare = false\n" * 20_000


@pytest.mark.parametrize(
    "section",
    [
        b'[filter "\xff"]\n\tclean = %s\n',
        b'[FILTER "\xff"]\n\tCLEAN = %s\n',
        b'[filter "x\ry\x1b[2K"]\n\tclean = %s\n',
        MANY + b'[filter "x"]\n\tclean = %s\n' + MANY,
        b'[lfs "extension.x"]\n\tclean = %s\n',
        b"[core]\n\tattributesFile = %s\n",
        b"[core]\n\texcludesFile = %s\n",
        b"[diff]\n\torderFile = %s\n",
    ],
    ids=["no text", "upper case", "controls", "among thousands", "git-lfs", "attributes", "excludes", "order"],
)
async def test_no_spelling_of_a_key_hides_it(live: LiveSession, tmp_path: Path, section: bytes):
    marks = tmp_path / "marks"
    marks.mkdir()
    repository(live.work)
    with (live.work / ".git" / "config").open("ab") as config:
        config.write(section % f'"{script(marks, "ran")}"'.encode())
    (live.work / ".gitattributes").write_bytes(b"* filter=\xff\na.txt filter=x\n")
    (live.work / "a.txt").write_text("two\n")
    assert "this repository's own configuration names" in str(await review_changes(live.tools))
    assert [*marks.iterdir()] == []


@pytest.mark.parametrize("name", ["alternates", "http-alternates"])
async def test_objects_of_another_repository_are_not_shown(live: LiveSession, tmp_path: Path, name: str):
    private = elsewhere(tmp_path / "private")
    repository(live.work)
    (live.work / ".git" / "objects" / "info" / name).write_text(f"{private}/.git/objects\n")
    (live.work / "a.txt").write_text("two\n")
    assert "takes objects from another one" in str(await review_changes(live.tools))


async def test_links_in_what_two_work_trees_share_are_found(live: LiveSession, tmp_path: Path):
    private = elsewhere(tmp_path / "private")
    live.work.rmdir()
    repository(tmp_path / "shared")
    git(tmp_path / "shared", "worktree", "add", "-q", str(live.work))
    (tmp_path / "shared" / ".git" / "objects" / "more").symlink_to(private / ".git" / "objects")
    assert "links among git's own files" in str(await review_changes(live.tools))


async def test_a_folder_with_a_line_break_in_its_name_does_not_stand_for_another(live: LiveSession):
    repository(live.work)
    (live.work / ".git").rename(live.work / "own\nfiles")
    (live.work / "own").mkdir()
    (live.work / ".git").write_text("gitdir: own\nfiles\n")
    assert "does not say clearly" in str(await review_changes(live.tools))


@pytest.mark.parametrize(
    "name", ["../private/a.txt", "{private}/a.txt", "x/../../private/a.txt", ".git/config", "x\n/../y"]
)
@pytest.mark.parametrize("within", [False, True], ids=["the folder", "a folder within"])
async def test_what_the_index_says_to_be_elsewhere_is_not_shown(
    live: LiveSession, tmp_path: Path, name: str, within: bool
):
    top = tmp_path if within else live.work
    elsewhere(tmp_path / "private")
    entry = name.format(private=tmp_path / "private").encode()
    stand_in = b"a" * (len(entry) - 2) + b"/b"
    (top / stand_in.decode()).parent.mkdir()
    (top / stand_in.decode()).write_text("old\n")
    (live.work / "b.txt").write_text("one\n")
    repository(top)
    index = top / ".git" / "index"
    told = index.read_bytes()[:-20]
    assert stand_in in told
    told = told.replace(stand_in, entry)
    index.write_bytes(told + hashlib.sha1(told, usedforsecurity=False).digest())  # git believes what the sum says
    answer = str(await review_changes(live.tools))
    assert SECRET not in answer
    assert "counts files elsewhere among its own" in answer
