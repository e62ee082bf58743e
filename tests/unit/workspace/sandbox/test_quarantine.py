"""What becomes of protected files that a contained command makes where there were none."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.landlock import _drop_capabilities
from acp_agent.workspace.sandbox.quarantine import Quarantine

PROTECTED = ProtectedPaths()
T = TypeVar("T")


def protects(path: str) -> bool:
    found = PROTECTED.find(path)
    return found is not None and not found.everyday


@pytest.fixture
def root(tmp_path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def run(root: Path, command: str) -> None:
    subprocess.run(["sh", "-ec", command], cwd=root, check=True, capture_output=True)


def in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work` in a thread for which the modes of files count, even if the tests run as root."""

    def confined() -> T:
        if sys.platform == "linux":
            _drop_capabilities(ctypes.CDLL(None, use_errno=True))
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(confined).result()


def look_as_user(quarantine: Quarantine) -> str:
    return in_thread(quarantine.look)


def kept_and_renamed(root: Path, command: str) -> tuple[str, list[str]]:
    """Return what is said after a command, and which names end in the suffix."""
    quarantine = Quarantine((str(root),), protects)
    run(root, command)
    said = look_as_user(quarantine)
    renamed = (os.path.relpath(path, root) for path in root.rglob("*.quarantined*") if ".quarantined/" not in str(path))
    return said, sorted(renamed)


PLANTED = {
    "what a shell runs on entering": ("echo x > .envrc", [".envrc"]),
    "tasks of an editor": ("mkdir .vscode && echo {} > .vscode/tasks.json", [".vscode/tasks.json"]),
    "a folder of hooks": ("mkdir .husky && echo x > .husky/pre-commit", [".husky"]),
    "a hook": (
        "git init -q && echo x > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        [".git/hooks/pre-commit"],
    ),
    "a link as a hook": ("git init -q && ln -s /bin/true .git/hooks/pre-push", [".git/hooks/pre-push"]),
    "a link as a hook to what may become a program": (
        "echo x > later && git init -q && ln -s ../../later .git/hooks/pre-push",
        [".git/hooks/pre-push"],
    ),
    "a monitor for git": ("git init -q sub && git -C sub config core.fsmonitor ./x", ["sub/.git/config"]),
    "a place for hooks": (
        "mkdir evil && git init -q sub && git -C sub config core.hooksPath ../evil",
        ["sub/.git/config"],
    ),
    "a place for hooks without a name": (
        "git init -q sub && printf '[core]\\nhooksPath' >> sub/.git/config",
        ["sub/.git/config"],
    ),
    "a place for hooks behind a protected one": (
        "git init -q && git config core.hooksPath .husky/../evil",
        [".git/config"],
    ),
    "a place for hooks of a submodule": (
        "git init -q && mkdir -p .git/modules/a && printf '[core]\\nhooksPath = evil\\n' > .git/modules/a/config",
        [".git/modules/a/config"],
    ),
    "hooks in another folder": (
        "git init -q && git config core.hooksPath .husky/_ && mkdir -p .husky/_ && echo x > .husky/_/pre-commit",
        [".husky"],
    ),
    "another repository's settings": ("git init -q && echo ../evil > .git/commondir", [".git/commondir"]),
    "settings in the repository's own folder": (
        "git init -q && mkdir .git/evil && echo evil > .git/commondir",
        [".git/commondir"],
    ),
    "a file that leads git to such a folder": (
        "git init -q && mkdir lib .git/evil && echo 'gitdir: ../.git/evil' > lib/.git",
        ["lib/.git"],
    ),
    "a file that leads git where nobody looks": (
        "git init -q && mkdir -p lib .git/modules/objects && echo 'gitdir: ../.git/modules/objects' > lib/.git",
        ["lib/.git"],
    ),
    "settings of a worktree": ("git init -q && echo x > .git/config.worktree", [".git/config.worktree"]),
    "a file that leads git elsewhere": ("mkdir lib evil && echo 'gitdir: ../evil' > lib/.git", ["lib/.git"]),
    "a link in place of a folder": ("mkdir x && ln -s x .vim", [".vim"]),
    "a file in a lower folder": ("mkdir -p a/b && echo x > a/b/.envrc", ["a/b/.envrc"]),
    "a file in a folder where nothing can be renamed": ("mkdir a && echo x > a/.envrc && chmod 555 a", ["a/.envrc"]),
    "a file in the folder of the session, where nothing can be renamed": ("echo x > .envrc && chmod 555 .", [".envrc"]),
    "a file in a folder that cannot be listed": ("mkdir a && echo x > a/.envrc && chmod 111 a", ["a/.envrc"]),
    "hooks in a repository that cannot be entered": (
        "git init -q && echo x > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && chmod 444 .git",
        [".git/hooks/pre-commit"],
    ),
    "a file in the folder of the session, which cannot be listed": ("echo x > .envrc && chmod 111 .", [".envrc"]),
    "hooks that cannot be listed": (
        "git init -q && echo x > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && chmod 311 .git/hooks",
        [".git/hooks"],
    ),
    "hooks of a submodule that cannot be listed": (
        "git init -q && mkdir -p .git/modules/a/hooks && touch .git/modules/a/config && chmod 311 .git/modules/a/hooks",
        [".git/modules/a/hooks"],
    ),
    "submodules that cannot be listed": (
        "git init -q && mkdir -p .git/modules/a/hooks && touch .git/modules/a/hooks/x && chmod 311 .git/modules",
        [".git/modules"],
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_gets_another_name_and_is_told(root, planted):
    command, expected = PLANTED[planted]
    said, renamed = kept_and_renamed(root, command)
    assert renamed == [f"{name}.quarantined" for name in expected]
    assert all(str(root / name) in said for name in expected)
    assert not any((root / name).exists() for name in expected)


COMMIT = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
USUAL = {
    "a repository": "git init -q",
    "a clone": f"git init -q a && git -C a {COMMIT} && git clone -q a b",
    "an environment of Python": "mkdir -p env/lib/site-packages && touch env/pyvenv.cfg env/lib/site-packages/a.pth",
    "a worktree": f"git init -q && git {COMMIT} && git worktree add -q w",
    "a repository that runs no hooks": "git init -q && git config core.hooksPath /dev/null",
    "a repository with hooks in a protected place": "git init -q a && git -C a config core.hooksPath .githooks",
    "a text beside the hooks": "git init -q && echo x > .git/hooks/README",
    "code": "mkdir src && touch src/a.py Makefile package.json",
}


@pytest.mark.parametrize("usual", USUAL)
def test_what_the_usual_tools_make_stays(root, usual):
    assert kept_and_renamed(root, USUAL[usual]) == ("", [])


@pytest.mark.parametrize("place", ["tools/hooks", "tools/on-commit"])
def test_a_hook_in_a_new_folder_that_a_repository_names_gets_another_name(root, place):
    run(root, f"git init -q && git config core.hooksPath {place}")
    _, renamed = kept_and_renamed(root, f"mkdir -p {place} && echo x > {place}/pre-commit")
    assert renamed in ([f"{place}.quarantined"], [f"{place}/pre-commit.quarantined"])


def test_what_was_there_before_is_left_alone(root):
    (root / ".envrc").touch()
    assert kept_and_renamed(root, "echo x > .envrc") == ("", [])


def test_what_is_in_a_folder_that_could_not_be_listed_before_is_left_alone(root):
    run(root, "mkdir a && echo x > a/.envrc && chmod 311 a")
    quarantine: list[Quarantine] = []
    in_thread(lambda: quarantine.append(Quarantine((str(root),), protects)))
    assert look_as_user(quarantine[0]) == ""
    assert (root / "a").stat().st_mode & 0o777 == 0o311


def test_a_folder_that_a_command_makes_anew_and_closes_is_looked_into(root):
    root.rmdir()
    quarantine = in_thread(lambda: Quarantine((str(root),), protects))
    root.mkdir()
    run(root, "echo x > .envrc; chmod 000 .")
    assert ".envrc" in look_as_user(quarantine)
    assert [path.name for path in root.iterdir()] == [".envrc.quarantined"]


def test_what_cannot_be_renamed_is_told(root):
    name = ".claude/" + "x" * 250
    said, renamed = kept_and_renamed(root, f"mkdir .claude && echo x > {name}")
    assert renamed == []
    assert name in said
    assert "could not be renamed" in said


def test_a_name_that_is_taken_is_not_overwritten(root):
    (root / ".envrc.quarantined").write_text("mine")
    _, renamed = kept_and_renamed(root, "echo x > .envrc")
    assert renamed == [".envrc.quarantined", ".envrc.quarantined-1"]
    assert (root / ".envrc.quarantined").read_text() == "mine"


def test_no_link_is_followed_to_rename_something_outside(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tasks.json").touch()
    quarantine = Quarantine((str(root),), protects)
    (root / ".vscode").symlink_to(outside)
    quarantine.look()
    assert (outside / "tasks.json").exists()
