"""Files that git itself puts into protected places: asked about before git does it."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from acp_agent.core.session_options import SessionOptions
from acp_agent.core.types import Ask, Deny
from acp_agent.gates.gate import CallFacts, CommandFacts
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.protected import ProtectedGate
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.protected_paths import ProtectedPaths
from tests.unit.gates.chain import command, full_auto, inside
from tests.unit.gates.git_markers import ALONE, git

pytestmark = pytest.mark.anyio

PLANTED = (".vscode/tasks.json", ".envrc", ".husky/pre-commit")


@pytest.fixture(scope="module")
def branched(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose branch `evil` has files that editors run, and whose branch `good` has none."""
    work = Path(shutil.copytree(committed, tmp_path_factory.mktemp("branched") / "work"))
    git(work, "checkout", "-qb", "good")
    (work / "b.txt").write_text("b\n")
    (work / "AGENTS.md").write_text("b\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "good")
    git(work, "checkout", "-qb", "evil", "main")
    plant(work)
    git(work, "add", ".")
    git(work, "commit", "-qm", "evil")
    git(work, "checkout", "-q", "main")
    assert not (work / ".envrc").exists()
    git(work, "update-ref", "refs/remotes/origin/far", "evil")
    return work


@pytest.fixture
def root(branched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(branched, tmp_path / "work"))


def plant(work: Path) -> None:
    for name in PLANTED:
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("evil\n")


async def fate(root: Path, text: str, conduct: SessionOptions | None = None) -> str:
    resolve = inside(str(root))
    gate = ProtectedGate(
        paths=ProtectedPaths(),
        options=conduct or SessionOptions(),
        resolve=resolve,
        resolve_command=resolve,
        git=GitGuard(GitRepositories(resolve, str(root)), changes=GitChanges(resolve)),
    )
    verdict = await gate.examine(CallFacts(command(text)))
    match verdict:
        case Deny(reason):
            return f"refused: {reason}"
        case Ask(reason):
            return reason
        case _:
            return ""


BRINGING = (
    *(
        "git checkout evil",
        "git checkout far",
        "git switch evil",
        "git switch --detach evil",
        "git checkout evil -- .envrc",
    ),
    *("git checkout evil .envrc", "git restore --source=evil .", "git restore -s evil -- .", "git reset --hard evil"),
    *(
        "git merge evil",
        "git merge --no-ff evil",
        "git rebase evil",
        "git cherry-pick evil",
        "git cherry-pick main..evil",
    ),
    *("git worktree add ../other evil", "git read-tree -u -m evil", "git checkout -b x evil", "git -C . checkout evil"),
    *("git restore -S -W --source=evil .", "git restore --staged --worktree -s evil ."),
    *("git log && git checkout evil", "git stash branch y", "git stash pop", "git stash apply 0"),
)
SILENT = (
    *(
        "git checkout good",
        "git switch good",
        "git checkout -b new",
        "git switch -c new",
        "git merge good",
        "git rebase good",
    ),
    *(
        "git cherry-pick good",
        "git reset --hard good",
        "git reset --hard",
        "git checkout -- .",
        "git restore .",
        "git stash",
    ),
    *(
        "git reset evil",
        "git reset --soft evil",
        "git stash list",
        "git diff evil",
        "git show evil",
        "git bisect start",
    ),
    *("git worktree list", "git worktree add ../other good", "git checkout nothing", "git restore --staged ."),
)


async def test_what_would_plant_a_file_asks(root: Path):
    plant(root)
    git(root, "stash", "-u")
    fates = {text: await fate(root, text) for text in BRINGING}
    assert [text for text, reason in fates.items() if "protected: " not in reason] == []
    assert "an editor may run" in await fate(root, "git checkout evil -- .vscode")


async def test_what_plants_nothing_is_silent(root: Path):
    assert {text: await fate(root, text) for text in SILENT} == dict.fromkeys(SILENT, "")


INDEXED = (
    "git checkout -- .",
    "git checkout .",
    "git checkout .envrc",
    "git restore .",
    "git checkout-index -a",
    "git reset --hard",
    "git stash",
)


async def test_what_was_put_into_the_index_alone_asks_before_it_comes_out(root: Path):
    plant(root)
    git(root, "add", ".")
    for name in PLANTED:
        (root / name).unlink()
    fates = {text: await fate(root, text) for text in INDEXED}
    assert [text for text, reason in fates.items() if "protected: " not in reason] == []
    assert "git would bring" in await fate(root, "git checkout -- '*.json'")
    assert await fate(root, "git checkout -- a.txt") == ""
    assert await fate(root, "git checkout good") == ""


async def test_a_protected_file_that_only_looks_changed_to_git_is_silent(root: Path):
    git(root, "checkout", "-q", "evil")
    for name in PLANTED:
        os.utime(root / name, (1, 1))  # as after a copy, or where the sandbox shows other owners to git
    assert set(PLANTED) <= set(git(root, "diff-files", "--name-only").splitlines())
    for text in ("git stash", "git checkout -- .", "git reset --hard", "git rebase --continue"):
        assert await fate(root, text) == "", text
    (root / ".envrc").write_text("EVIL\n")
    for text in ("git stash", "git checkout -- .", "git reset --hard", "git rebase --continue"):
        assert ".envrc" in await fate(root, text), text


async def test_a_link_or_a_mode_that_git_would_restore_asks(root: Path):
    git(root, "checkout", "-q", "evil")
    (root / ".envrc").chmod(0o755)
    assert ".envrc" in await fate(root, "git checkout -- .")
    git(root, "checkout", "--", ".")
    (root / ".envrc").unlink()
    (root / ".envrc").symlink_to(root / ".husky/pre-commit")  # the same bytes
    assert ".envrc" in await fate(root, "git checkout -- .")


async def test_the_undoing_of_a_removal_asks(root: Path):
    git(root, "checkout", "-q", "evil")
    git(root, "rm", "-rq", *PLANTED)
    git(root, "commit", "-qm", "gone")
    assert "git would bring" in await fate(root, "git revert HEAD")
    assert "git would bring" in await fate(root, "git revert --no-edit HEAD")
    assert await fate(root, "git revert HEAD~1") == ""


BISECTING = (
    ((), "git bisect start HEAD main"),
    ((), "git bisect start --no-checkout HEAD main -- a.txt"),
    ((), "git bisect start HEAD main a.txt HEAD~1"),
    ((), "git bisect start --term-new=broken --term-old fixed HEAD main"),
    ((), "git bisect start && git bisect bad && git bisect good main"),
    ((), "git bisect start --term-bad broken --term-good=fixed && git bisect fixed main && git bisect broken HEAD"),
    (("start", "bad"), "git bisect good main"),
    (("start", "good main"), "git bisect bad"),
    (("start", "good main"), "git bisect bad HEAD~1"),
    (("start", "new"), "git bisect old main"),
    (("start", "old main"), "git bisect new"),
    (("start --term-new=broken --term-old=fixed", "broken"), "git bisect fixed main"),
    (("start --term-new=broken --term-old=fixed", "fixed main"), "git bisect broken"),
    (("start HEAD main",), "git bisect bad"),
    (("start HEAD main",), "git bisect good main"),
    (("start HEAD main",), "git bisect skip"),
    (("start HEAD main",), "git bisect next"),
    (("start HEAD main",), "git bisect run make test"),
)
BISECTING_SILENTLY = (
    ((), "git bisect start"),
    ((), "git bisect start HEAD"),
    ((), "git bisect start HEAD HEAD~2"),
    ((), "git bisect start HEAD -- main"),
    ((), "git bisect start HEAD HEAD~2 && git bisect run make test"),
    (("start",), "git bisect good main"),
    (("start",), "git bisect bad"),
    (("start", "good main"), "git bisect bad main"),
    (("start HEAD HEAD~2",), "git bisect bad"),
    (("start HEAD HEAD~2",), "git bisect reset"),
    (("start HEAD main",), "git bisect good"),
    (("start HEAD main",), "git bisect log"),
)


@pytest.fixture
def planted_between(root: Path) -> Path:
    """A repository in which a commit between `main` and HEAD has files that editors run."""
    git(root, "checkout", "-q", "evil")
    git(root, "rm", "-rq", *PLANTED)
    git(root, "commit", "-qm", "gone")
    for number in range(4):
        git(root, "commit", "-q", "--allow-empty", "-m", str(number))
    return root


async def fates_of_bisecting(root: Path, table: Iterable[tuple[tuple[str, ...], str]]) -> dict[str, str]:
    fates = dict[str, str]()
    for before, text in table:
        for words in before:
            git(root, "bisect", *words.split())
        fates[f"{before}: {text}"] = await fate(root, text)
        git(root, "bisect", "reset")
    return fates


async def test_bisecting_over_such_a_commit_asks(planted_between: Path):
    fates = await fates_of_bisecting(planted_between, BISECTING)
    assert [text for text, reason in fates.items() if "git would bring" not in reason] == []


async def test_bisecting_beside_such_a_commit_is_silent(planted_between: Path):
    fates = await fates_of_bisecting(planted_between, BISECTING_SILENTLY)
    assert fates == dict.fromkeys(fates, "")


async def test_bisecting_from_a_branch_without_what_the_bad_commit_has_asks(root: Path):
    git(root, "bisect", "start")
    git(root, "bisect", "bad", "evil")
    assert "git would bring" in await fate(root, "git bisect good main")


async def test_a_bisection_that_a_file_describes_cannot_be_told(planted_between: Path):
    assert "cannot be told" in await fate(planted_between, "git bisect replay log")
    assert "cannot be told" in await fate(planted_between, "git bisect unknown main")


async def test_a_sparse_checkout_that_grows_asks(root: Path):
    git(root, "checkout", "-q", "evil")
    git(root, "sparse-checkout", "set", "--no-cone", "/a.txt")
    assert not (root / ".envrc").exists()
    assert "git would bring" in await fate(root, "git sparse-checkout disable")


async def test_full_auto_refuses(root: Path):
    assert (await fate(root, "git checkout evil", full_auto())).startswith("refused: git would bring")


async def test_asking_git_runs_nothing_and_takes_no_lock(root: Path, tmp_path: Path):
    mark = tmp_path / "MARK"
    for key in ("filter.x.clean", "filter.x.smudge", "diff.x.textconv", "diff.external", "core.fsmonitor"):
        git(root, "config", key, f"touch {mark}; cat")
    (root / ".gitattributes").write_text("* filter=x diff=x\n")
    (root / ".git/index.lock").touch()
    (root / "a.txt").write_text("changed\n")
    changes = GitChanges(inside(str(root)))
    guard = GitGuard(GitRepositories(inside(str(root)), str(root)), changes=changes)
    for text in (*BRINGING, *SILENT):
        assert await guard.bringing(CommandFacts(text)) is not None, text
    assert not mark.exists()


async def test_a_pull_into_a_branch_whose_name_is_no_utf_8_asks(root: Path):
    git(root, "checkout", "-qb", "gr\udcfcn")
    assert "cannot be told" in await fate(root, "git pull")


async def test_a_git_that_does_not_answer_asks(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{ALONE['PATH']}")
    monkeypatch.setattr("acp_agent.workspace.git.changes.SECONDS", 0.1)
    assert "cannot be told" in await fate(root, "git checkout good")
