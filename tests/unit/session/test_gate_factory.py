"""How the gates of a session are wired: each sees the session's own files, repository and patterns."""

import os
from pathlib import Path

import pytest

from tests.unit.gates.chain import Chain, command, full_auto, rules
from tests.unit.gates.git_markers import git

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    return folder


def chain(root: Path, *allowed: str, **more) -> Chain:
    return Chain(str(root), str(root.parent / "grants.toml"), rules(*allowed), **more)


async def test_a_search_is_silent_until_a_link_in_the_folder_leads_out(root: Path):
    """The sandbox looks at the links that there are: it neither asks for nothing nor takes one for a mere doubt."""
    text = "grep -R a ."
    assert await chain(root, "grep *").fate(command(text)) == "silent"
    os.symlink("/etc", root / "out")
    assert await chain(root, "grep *").fate(command(text)) == "asked"
    assert await chain(root, "grep *", conduct=full_auto()).fate(command(text)) == "refused"


async def test_a_pattern_stands_for_the_files_that_it_finds_in_the_folder(root: Path):
    assert await chain(root, "cat *").fate(command("cat *.txt")) == "silent"
    os.symlink("/etc/hostname", root / "b.txt")
    assert await chain(root, "cat *").fate(command("cat *.txt")) == "asked"


async def test_a_branch_that_brings_files_which_editors_run_is_asked_about(root: Path):
    git(root, "init", "-q", "-b", "main", ".")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    git(root, "checkout", "-qb", "evil")
    (root / ".envrc").write_text("evil\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "evil")
    git(root, "checkout", "-q", "main")
    assert await chain(root, "git *").fate(command("git checkout main")) == "silent"
    assert await chain(root, "git *").fate(command("git checkout evil")) == "asked"
