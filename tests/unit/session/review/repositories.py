"""Repositories to look at, and programs that would betray that git ran them."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

SECRET = "what is kept elsewhere"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def repository(work: Path) -> None:
    """Make a folder a repository with one commit, of all in it and of `a.txt`: a copy, since git takes longer."""
    has_files = work.exists() and any(work.iterdir())
    shutil.copytree(_made().name, work, dirs_exist_ok=True)
    if has_files:
        git(work, "add", ".")
        git(work, "commit", "-q", "--amend", "-m", "first")


@cache
def _made() -> "TemporaryDirectory[str]":
    folder = TemporaryDirectory(prefix="acp-repository-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    git(Path(folder.name), "init", "-q")
    Path(folder.name, "a.txt").write_text("one\n")
    git(Path(folder.name), "add", ".")
    git(Path(folder.name), "commit", "-qm", "first")
    return folder


def elsewhere(folder: Path) -> Path:
    """A repository of the user's with a secret in it."""
    repository(folder)
    (folder / "a.txt").write_text(f"{SECRET}\n")
    git(folder, "commit", "-qam", "second")
    return folder


def script(marks: Path, name: str) -> str:
    """A program that leaves a mark and passes on what it reads."""
    return f"sh -c 'touch {marks}/{name}; cat'"
