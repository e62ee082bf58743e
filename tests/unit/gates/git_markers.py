"""Settings and hooks that mark a file when git runs them, and a repository for everyday commands to run in."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

ALONE = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}

# Settings of which one runs a program that leaves a mark. A pager and interactive.diffFilter run on a terminal only.
PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "fsmonitor": {"core.fsmonitor": "{mark}; false"},
    "editor": {"core.editor": "{mark}; true"},
    "sequence": {"sequence.editor": "{mark}; true"},
    "filter": {"filter.x.clean": "{mark}; cat", "filter.x.smudge": "{mark}; cat"},
    "textconv": {"diff.d.textconv": "{mark}; cat"},
    "driver": {"merge.d.driver": "{mark}; true"},
    "gpg": {"gpg.program": "{script}", "commit.gpgsign": "true", "tag.gpgsign": "true"},
    "uploadpack": {"remote.origin.uploadpack": "{mark}; git-upload-pack"},
    "receivepack": {"remote.origin.receivepack": "{mark}; git-receive-pack"},
    "trailer": {"trailer.x.command": "{mark}; echo x"},
}
HOOKS = (
    *(
        "pre-commit",
        "pre-merge-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "pre-rebase",
        "post-checkout",
    ),
    *(
        "post-merge",
        "pre-push",
        "reference-transaction",
        "post-rewrite",
        "post-index-change",
    ),
)
ATTRIBUTES = "* filter=x diff=d merge=d\n"


def git(folder: Path | str, *args: str) -> str:
    """Run git, and nothing of the user's own settings; return what it prints."""
    done = subprocess.run(["git", *args], cwd=folder, env=ALONE, capture_output=True, text=True, check=True)
    return done.stdout


def with_one_commit(folder: Path) -> Path:
    """A repository with one commit."""
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("a\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def made(folder: Path) -> Path:
    """A repository with branches, a stash, tags and a remote; nothing changed in it."""
    work = folder / "work"
    git(folder, "init", "-q", "-b", "main", str(work))
    for name in ("a", "b", "c"):
        (work / f"{name}.txt").write_text(f"{name}\n" * 5)
    git(work, "add", ".")
    git(work, "commit", "-qm", "one")
    git(work, "tag", "v0")
    git(work, "checkout", "-qb", "clean")
    (work / "q.txt").write_text("q\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "clean")
    git(work, "checkout", "-qb", "feature", "v0")
    (work / "a.txt").write_text("x\n")
    git(work, "commit", "-qam", "feature")
    git(work, "checkout", "-q", "main")
    (work / "a.txt").write_text("y\n")
    git(work, "commit", "-qam", "two")
    (work / "b.txt").write_text("z\n")
    git(work, "stash", "-q")
    git(folder, "clone", "-q", "--bare", str(work), "origin.git")
    git(work, "remote", "add", "origin", "../origin.git")
    git(work, "fetch", "-q")
    git(work, "branch", "-q", "-u", "origin/main")
    (work / ".git/info/attributes").write_text(ATTRIBUTES)
    return work


def copied(template: Path, folder: Path, *, dirty: bool) -> Path:
    """A copy of it with its remote. `dirty`: with changes that are staged, unstaged and new."""
    shutil.copytree(template.parent, folder, symlinks=True)
    work = folder / "work"
    os.utime(work / "c.txt", (0, 0))
    if dirty:
        (work / "b.txt").write_text("changed\n")
        (work / "new.txt").write_text("new\n")
        (work / "c.txt").write_text("staged\n")
        git(work, "add", "c.txt")
    return work


def plant(work: Path, name: str, marks: Path) -> None:
    """Make a repository run something that leaves a mark: a name of PROGRAMS, or of a hook."""
    script = marks / "bin" / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        f"#!/bin/sh\ntouch {marks}/{name}\nexit 1\n" if name == "gpg" else f"#!/bin/sh\ntouch {marks}/{name}\n"
    )
    script.chmod(0o755)
    if name in HOOKS:
        shutil.copy(script, work / ".git/hooks" / name)
    for key, value in PROGRAMS.get(name, {}).items():
        git(work, "config", key, value.format(mark=f"touch {marks}/{name}", script=script))


def ran(work: Path, arguments: str, marks: Path) -> set[str]:
    """The names that left a mark when a command of git was run."""
    subprocess.run(
        ["git", *arguments.split()], cwd=work, env=ALONE, capture_output=True, check=False, input=b"y\n" * 5, timeout=60
    )
    return {path.name for path in marks.iterdir() if path.is_file()}
