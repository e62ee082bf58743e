"""What commands may change of the repository of a linked worktree, which lies outside the session's folders."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_agent.workspace.processes.environment import child_environment
from acp_agent.workspace.protected_paths import ProtectedPaths
from acp_agent.workspace.sandbox.sandbox import SandboxTier, SessionSandbox, tier_works, why_missing
from acp_agent.workspace.sandbox.walls import WallRules

TIER = SandboxTier.BUBBLEWRAP
needs_bubblewrap = pytest.mark.skipif(not tier_works(TIER), reason=why_missing(TIER))
PROTECTED = ProtectedPaths()
WHO = {f"GIT_{role}_{what}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


EMPTY = "git commit -q --allow-empty -m empty"


def protects(path: str) -> bool:
    found = PROTECTED.find(path)
    return found is not None and not found.everyday


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null"}
    words = ("git", "-c", "protocol.file.allow=always", *words)
    done = subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a repository with a commit, `main`, and its linked worktrees `root` and `other`."""
    folder = tmp_path_factory.mktemp("made")
    main = folder / "main"
    git(folder, "init", "-q", "-b", "trunk", str(main))
    (main / "a.txt").write_text("1\n")
    git(main, "add", ".")
    git(main, "commit", "-qm", "first")
    for name in ("root", "other"):
        git(main, "worktree", "add", "-q", str(folder / name))
    return folder


@pytest.fixture
def main(made: Path, tmp_path: Path) -> Path:
    """The repository: a copy, which takes less than to have git make it. Its worktrees are beside it."""
    main = Path(shutil.copytree(made / "main", tmp_path / "main"))
    for name in ("root", "other"):
        shutil.copytree(made / name, tmp_path / name)
        (tmp_path / name / ".git").write_text(f"gitdir: {main}/.git/worktrees/{name}\n")
        (main / f".git/worktrees/{name}/gitdir").write_text(f"{tmp_path / name}/.git\n")
    return main


@pytest.fixture
def root(main: Path) -> Path:
    return main.parent / "root"


class Contained:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {**child_environment(os.environ), **WHO}
        self.sandbox = SessionSandbox(WallRules((str(root),), protects, lambda *_: None), self.environment, TIER)
        self.told = ""

    def run(self, command: str) -> str:
        """Return what a contained command prints, with its exit code."""
        with self.sandbox.launch(["sh", "-c", command], str(self.root)) as launch:
            done = subprocess.run(
                launch.arguments,
                check=False,
                cwd=self.root,
                env=self.environment,
                pass_fds=launch.descriptors,
                capture_output=True,
                text=True,
            )
            assert launch.afterwards is not None
            self.told = launch.afterwards()
        return f"{done.stdout}{done.stderr}{done.returncode}"


@pytest.fixture
def contained(root: Path) -> Iterator[Contained]:
    made = Contained(root)
    yield made
    made.sandbox.close()


@needs_bubblewrap
@pytest.mark.parametrize(
    "command",
    [
        "echo 2 > a.txt && git add a.txt && git commit -qm second",
        "git checkout -q -b topic && git branch -q other-topic && git branch -q -D other-topic && git tag v1",
        "echo 2 > a.txt && git stash -q && git stash pop -q && git diff --stat",
        (
            f"git checkout -q -b a && {EMPTY} && git checkout -q -b b HEAD~ && {EMPTY} && git merge -q -m m a "
            f"&& git rebase -q HEAD~ && {EMPTY} && git reset -q --hard HEAD~ && git cherry-pick --allow-empty a"
        ),
        "git pack-refs --all && git repack -qad && git prune && git worktree list && git fsck",
        "git worktree add -q inner && cd inner && git commit -q --allow-empty -m second && git status --short",
    ],
)
def test_git_works_in_a_linked_worktree(contained, command):
    assert contained.run(command).endswith("0")
    assert contained.told == ""


@needs_bubblewrap
def test_a_commit_of_a_contained_command_is_there_in_the_repository(contained, main):
    contained.run("git checkout -q -b topic && git commit -q --allow-empty -m second")
    assert git(main, "log", "-1", "--format=%s", "topic") == "second"
    assert git(main, "fsck") == ""
    assert sorted(path.name for path in (main / ".git/worktrees").iterdir()) == ["other", "root"]


@needs_bubblewrap
def test_what_git_obeys_and_the_state_of_other_worktrees_stays_as_it_is(contained, main):
    names = ("config", "HEAD", "index", "hooks/post-checkout", "info/exclude", "info/attributes")
    names += tuple(f"worktrees/other/{name}" for name in ("HEAD", "index", "gitdir", "commondir", "new"))
    names += ("worktrees/root/gitdir", "worktrees/root/commondir")

    def content() -> dict[str, bytes | None]:
        files = {name: main / ".git" / name for name in names} | {"pointer": contained.root / ".git"}
        return {name: path.read_bytes() if path.exists() else None for name, path in files.items()}

    before = content()
    said = contained.run(
        f"for name in {' '.join(names)}; do echo x > {main}/.git/$name; rm -f {main}/.git/$name; done; echo x > .git; "
        f"git config core.fsmonitor ./x; mv {main}/.git/worktrees {main}/.git/w; rm -r {main}/.git/hooks; "
        "git worktree prune; git worktree remove --force other"
    )
    assert content() == before
    assert "Read-only file system" in said
    assert sorted(path.name for path in (main / ".git/worktrees").iterdir()) == ["other", "root"]


@needs_bubblewrap
def test_what_was_not_there_and_is_obeyed_gets_another_name(contained, main):
    folder = main / ".git"
    names = ("commondir", "config.worktree", "worktrees/root/config.worktree")
    contained.run(f"cd {folder}; for name in {' '.join(names)}; do echo x > $name; done")
    assert [name for name in names if (folder / name).exists()] == []
    assert all(str(folder / name) in contained.told for name in names)


@needs_bubblewrap
def test_a_worktree_that_a_command_makes_in_the_folder_can_be_used_by_the_next_one(contained):
    assert contained.run("git worktree add -q inner") == "0"
    contained.sandbox.adopt(WallRules((str(contained.root),), protects, lambda *_: None))
    assert contained.run("cd inner && echo 2 > a.txt && git add a.txt && git commit -qm second") == "0"


@needs_bubblewrap
def test_nothing_else_of_the_repository_is_there(contained, main):
    assert "No such file" in contained.run(f"cat {main}/a.txt")
    assert contained.run(f"ls -A {main}") == ".git\n0"


@needs_bubblewrap
def test_git_works_in_a_submodule_of_the_folder(tmp_path, main):
    root = tmp_path / "above"
    git(tmp_path, "init", "-q", str(root))
    git(root, "submodule", "add", "-q", str(main), "sub")
    contained = Contained(root)
    try:
        assert contained.run("cd sub && echo 2 > a.txt && git add . && git checkout -q -b b && git commit -qm b") == "0"
        assert "Read-only" in contained.run("cd sub && echo x > ../.git/modules/sub/config")
    finally:
        contained.sandbox.close()


def writable(root: Path, **rules) -> list[str]:
    found = WallRules((str(root),), protects, rules.pop("refuses", lambda *_: None), **rules).walls({})
    return [path for path in found.writable if path != str(root)]


def test_the_repository_of_a_registered_worktree_may_be_changed(main, root):
    assert writable(root) == [str(main / ".git")]


def test_the_pointers_may_be_relative(main, root):
    (root / ".git").write_text("gitdir: ../main/.git/worktrees/root\n")
    (main / ".git/worktrees/root/gitdir").write_text("../../../../root/.git\n")
    assert writable(root) == [str(main / ".git")]


def point(root: Path, where: object) -> None:
    (root / ".git").write_text(f"gitdir: {where}\n")


def keep(path: Path, kept: Path) -> Path:
    return path.rename(kept)


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def own_folder(main: Path, root: Path) -> None:
    """Let a checkout bring the folder of a worktree, which names the repository of somebody else."""
    own = root / "data/worktrees/root"
    own.mkdir(parents=True)
    (own / "commondir").write_text(f"{main}/.git\n")
    (own / "gitdir").write_text(f"{root}/.git\n")
    point(root, own)


HOSTILE = {
    "another worktree's folder": lambda main, root: point(root, main / ".git/worktrees/other"),
    "a repository": lambda main, root: point(root, main / ".git"),
    "a folder of the system": lambda main, root: point(root, "/etc"),
    "a folder of worktrees": lambda main, root: point(root, main / ".git/worktrees"),
    "a way back out": lambda main, root: point(root, f"{main}/.git/worktrees/root/../other"),
    "two lines": lambda main, root: point(root, f"{main}/.git/worktrees/root\n/etc"),
    "nothing": lambda main, root: point(root, ""),
    "more than a path": lambda main, root: point(root, f"{main}/.git/worktrees/root" + " " * 5000),
    "a pointer that is a link": lambda main, root: link(root / ".git", keep(root / ".git", root / "pointer")),
    "a pointer that is a pipe": lambda main, root: (os.unlink(root / ".git"), os.mkfifo(root / ".git")),
    "its own folder that shares another repository": own_folder,
    "a worktree that was moved away": lambda main, root: (main / ".git/worktrees/root/gitdir").write_text("/x/.git\n"),
    "a worktree that shares another repository": lambda main, root: (main / ".git/worktrees/root/commondir").write_text(
        "../../../../other\n"
    ),
    "no worktree any more": lambda main, root: (
        git(main, "worktree", "remove", "--force", str(root))
        or root.mkdir()
        or point(root, main / ".git/worktrees/root")
    ),
    "hooks that lie elsewhere": lambda main, root: link(
        main / ".git/hooks", keep(main / ".git/hooks", main.parent / "hooks")
    ),
    "a state that lies elsewhere": lambda main, root: link(main / ".git/worktrees/linked", main.parent / "other"),
    "no repository": lambda main, root: (main / ".git/HEAD").unlink(),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_pointer_that_git_did_not_write_opens_nothing(main, root, hostile):
    HOSTILE[hostile](main, root)
    assert writable(root) == []


def test_a_repository_of_somebody_else_opens_nothing(main, root):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(main / ".git", 65534, 65534)
    assert writable(root) == []


def test_a_repository_that_may_not_be_read_opens_nothing(main, root):
    assert writable(root, hidden=(str(main),)) == []
    assert writable(root, refuses=lambda path, _: "secret" if path == str(main / ".git") else None) == []


def test_a_repository_around_the_folder_opens_nothing(tmp_path, main):
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "-q", "--bare", str(main), str(bare))
    git(bare, "worktree", "add", "-q", str(bare / "trunk"), "trunk")
    assert writable(bare / "trunk") == []


def test_a_profile_that_only_reads_changes_nothing_of_it(main, root):
    found = WallRules((str(root),), protects, lambda *_: None, read_only=True).walls({})
    assert found.writable == ()
    assert str(main / ".git") in found.readable
