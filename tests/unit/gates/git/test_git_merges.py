"""What a merge, a pull or the index brings under another name: held against git itself."""

from pathlib import Path

import pytest

from tests.unit.gates.git.test_git_brings import fate
from tests.unit.gates.git.test_git_hostile_folders import MARK, Row, bash, root

pytestmark = pytest.mark.anyio
__all__ = ["root"]

TASKS = ".vscode/tasks.json"
EVIL = (
    f"git checkout -qb evil; mkdir .vscode; echo EVIL > {TASKS}; git add .; git commit -qm evil; git checkout -q main"
)
FOLDER = "mkdir a; seq 50 > a/f1; seq 9 99 > a/f2; git add .; git commit -qm a"
NESTED = f"git init -q sub; git -C sub commit -q --allow-empty -m s; git -C sub config core.fsmonitor '{MARK}; false'"
LINKED = (
    f"{NESTED}; git checkout -qb evil; git -c advice.addEmbeddedRepo=false add sub; git commit -qm evil;"
    " mv sub ../sub; git checkout -q main; rm -rf sub; mv ../sub sub"
)
MOVED = f"{FOLDER}; git checkout -qb evil; echo EVIL > a/tasks.json; git add .; git commit -qm e; git checkout -q main"
RENAMED = "git mv a .vscode; git commit -qm r"

BRINGING = {  # the setup, and the line that brings tasks for an editor
    "a link in place of the folder": Row(
        "git checkout -qb evil; mkdir vs; echo EVIL > vs/tasks.json; ln -s vs .vscode; git add .; git commit -qm e;"
        " git checkout -q main",
        "git checkout evil",
    ),
    "two branches to merge": Row(
        f"git checkout -qb ok; seq 3 > f; git add .; git commit -qm ok; git checkout -q main; {EVIL};"
        " git commit -q --allow-empty -m m; git config branch.main.remote ."
        "; for each in ok evil; do git config --add branch.main.merge refs/heads/$each; done",
        "git merge --no-edit",
    ),
    "two branches that were fetched": Row(
        f"git checkout -qb ok; seq 3 > f; git add .; git commit -qm ok; git checkout -q main; {EVIL};"
        " git commit -q --allow-empty -m m; git fetch -q . ok evil",
        "git merge --no-edit FETCH_HEAD",
    ),
    "a folder renamed here": Row(f"{MOVED}; {RENAMED}", "git merge --no-edit evil"),
    "a folder renamed here, for certain": Row(
        f"{MOVED}; {RENAMED}; git config merge.directoryRenames true",
        "git merge --no-edit evil",
    ),
    "a folder renamed there": Row(
        f"{FOLDER}; git checkout -qb evil; {RENAMED}; git checkout -q main; echo EVIL > a/tasks.json; git add .;"
        " git commit -qm t",
        "git merge --no-edit evil",
    ),
    "a folder renamed, and a commit picked": Row(f"{MOVED}; {RENAMED}", "git cherry-pick evil"),
    "a folder renamed, and a rebase": Row(f"{MOVED}; {RENAMED}; git checkout -q evil", "git rebase main"),
    "a folder renamed, and a stash": Row(
        f"{FOLDER}; echo EVIL > a/tasks.json; git add .; git stash -q; {RENAMED}",
        "git stash apply",
    ),
    "a file renamed here": Row(
        "mkdir b; seq 50 > b/x; seq 9 > b/y; git add .; git commit -qm b; git checkout -qb evil; echo EVIL >> b/x;"
        f" git commit -qam e; git checkout -q main; mkdir .vscode; git mv b/x {TASKS}; git commit -qm r",
        "git merge --no-edit evil",
    ),
    "a pull from here": Row(
        f"{EVIL}; git update-ref refs/remotes/origin/evil evil; git branch -qD evil",
        "git pull . refs/remotes/origin/evil",
    ),
    "a pull from here by the settings": Row(
        f"{EVIL}; git config branch.main.remote .; git config branch.main.merge refs/heads/evil",
        "git pull",
    ),
    "a pull from a folder": Row(f"{EVIL}; git clone -q --bare . o; git branch -qD evil", "git pull ./o evil"),
    "a pull from a file": Row(f"{EVIL}; git bundle create -q b evil; git branch -qD evil", "git pull b evil"),
    "a commit by its words": Row(EVIL, "git merge --no-edit :/evil"),
    "the base of two commits": Row(
        f"{EVIL}; git checkout -q evil; git checkout -qb x; git commit -q --allow-empty -m x;"
        " git checkout -qb y evil; git commit -q --allow-empty -m y; git checkout -q main",
        "git checkout x...y",
    ),
}
ENTERING = {
    "a repository is added": Row(NESTED, "git add sub; git status"),
    "a repository is added with the rest": Row(NESTED, "git add -A && git status"),
    "an ignored one is added": Row(f"echo sub > .gitignore; {NESTED}", "git add -f sub; git status"),
    "the index is reset": Row(LINKED, "git reset evil; git status"),
    "a branch is checked out": Row(LINKED, "git checkout evil; git status"),
    "a pull": Row(f"{NESTED}; git clone -q . o; git -C o fetch -q", "git add . && git diff"),
}
SILENT = {
    "a merge of new files": Row(f"{MOVED}; seq 9 > n; git add n; git commit -qm n", "git merge evil"),
    "a rename elsewhere": Row(f"{MOVED}; git mv a c; git commit -qm r", "git cherry-pick evil"),
    "a pull from a server": Row(
        "git config remote.origin.url https://example.org/x.git; mkdir main", "git pull origin main"
    ),
    "adding": Row("seq 3 > f", "git add -A && git commit -m x && git push"),
    "adding a repository that runs nothing": Row(
        "git init -q sub; git -C sub commit -q --allow-empty -m s", "git add . && git diff"
    ),
    "adding a repository by itself": Row(NESTED, "git add sub"),
    "resetting": Row(f"{FOLDER}; echo x >> a/f1; git add .", "git reset && git status"),
}


@pytest.mark.parametrize("name", BRINGING)
async def test_what_comes_under_another_name_asks(root: Path, name: str):
    row = BRINGING[name]
    bash(root, f"set -e; {row.setup}", check=True)
    reason = await fate(root, row.line)
    bash(root, row.line, check=False)
    planted = root / TASKS
    assert planted.exists(), bash(root, "git status; ls -la", check=False)
    assert "EVIL" in planted.read_text()
    assert "git would bring" in reason or "cannot be told" in reason


@pytest.mark.parametrize("name", ENTERING)
async def test_what_the_next_command_would_enter_asks(root: Path, name: str):
    row = ENTERING[name]
    bash(root, f"set -e; {row.setup}", check=True)
    reason = await fate(root, row.line)
    bash(root, row.line, check=False)
    assert (root.parent / "home/PWNED").exists()
    assert "git would enter" in reason


@pytest.mark.parametrize("name", SILENT)
async def test_ordinary_merges_and_additions_are_silent(root: Path, name: str):
    row = SILENT[name]
    bash(root, f"set -e; {row.setup}", check=True)
    assert await fate(root, row.line) == ""
