"""Repositories to look at, and programs that would betray that git ran them."""

import subprocess
from pathlib import Path

SECRET = "what is kept elsewhere"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def repository(work: Path) -> None:
    work.mkdir(exist_ok=True)
    git(work, "init", "-q")
    (work / "a.txt").write_text("one\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "first")


def elsewhere(folder: Path) -> Path:
    """A repository of the user's with a secret in it."""
    repository(folder)
    (folder / "a.txt").write_text(f"{SECRET}\n")
    git(folder, "commit", "-qam", "second")
    return folder


def script(marks: Path, name: str) -> str:
    """A program that leaves a mark and passes on what it reads."""
    return f"sh -c 'touch {marks}/{name}; cat'"
