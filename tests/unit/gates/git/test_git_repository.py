"""Repositories that name programs of their own: commands of git ask where one of them would run."""

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.ports import Decision
from acp_agent.core.session_options import SessionOptions
from acp_agent.core.types import Allow, Ask, Deny, Verdict
from acp_agent.gates.git_calls import _NEIGHBOURS, GitGuard, git_call, may_call_git
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.shell.command import survey
from acp_agent.workspace.command_files import shell_names
from acp_agent.workspace.git.changes import IncomingFiles, IncomingSources
from acp_agent.workspace.git.repositories import GitRepositories
from acp_agent.workspace.git.settings import NotReadable, read_settings
from acp_agent.workspace.protected_paths import ProtectedPaths
from tests.unit.gates.chain import Chain, Judged, command, full_auto, inside, rules
from tests.unit.gates.git_markers import ALONE, git

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(one_commit: Path) -> Path:
    """A repository with one commit."""
    return one_commit


async def brings_nothing(folder: str, brought: IncomingSources, *, followed: bool) -> IncomingFiles:
    return IncomingFiles()


def gate_of(root: Path, conduct: SessionOptions | None = None) -> Judged:
    resolve = inside(str(root))
    gate = ProtectedGate(
        paths=ProtectedPaths(),
        options=conduct or SessionOptions(),
        resolve=resolve,
        resolve_command=resolve,
        git=GitGuard(GitRepositories(resolve, str(root)), brings_nothing),
    )
    return Judged(gate, expand=partial(shell_names, resolve=resolve))


def asked(root: Path, text: str) -> str:
    """Why a command line asks, empty when it does not."""
    verdict = gate_of(root).judge(command(text))
    return verdict.reason if isinstance(verdict, Ask) else ""


def firm(verdict: Verdict) -> bool:
    """Whether full-auto refuses."""
    return isinstance(verdict, Deny) or (isinstance(verdict, Ask) and verdict.firm)


EVERYDAY = (
    *(
        "git status",
        "git log -p",
        "git diff",
        "git add -A",
        "git commit -m x",
        "git fetch",
        "git push",
        "git checkout main",
    ),
    *("git branch -a", "git stash", "git remote -v", "git rebase main", "git tag v1", "git submodule status"),
)


def test_an_ordinary_repository_is_silent(root: Path):
    git(root, "remote", "add", "origin", "https://example.org/x.git")
    git(root, "config", "branch.main.remote", "origin")
    git(root, "config", "branch.main.vscode-merge-base", "origin/main")
    git(root, "config", "user.name", "Ann")
    git(root, "config", "core.fsmonitor", "true")
    git(root, "config", "alias.st", "status -sb")
    assert {text: asked(root, text) for text in EVERYDAY} == dict.fromkeys(EVERYDAY, "")


def test_a_question_names_the_setting_and_the_program(root: Path):
    git(root, "config", "core.fsmonitor", "touch PWNED; false")
    reason = asked(root, "git status")
    assert reason == "this repository's configuration names a program: core.fsmonitor = 'touch PWNED; false'"
    assert asked(root, "ls") == ""
    assert isinstance(gate_of(root, full_auto()).judge(command("git status")), Deny)


HIDDEN = (
    *("cd sub && git status", "git -C sub status", "(cd sub; git diff)", "env -C sub git status", "sh -c 'git status'"),
    *(
        "ls | xargs git add",
        "find . -name x -exec git add {} +",
        "timeout 9 git status",
        "git-status",
        "tig",
        "gh pr view",
    ),
    *("/usr/lib/git-core/git-status", "pushd sub && git log", "echo $(git status)", "cd sub; cd -; git status"),
)


def test_git_is_found_wherever_it_stands(root: Path):
    (root / "sub").mkdir()
    git(root, "config", "core.fsmonitor", "evil")
    assert [text for text in HIDDEN if "core.fsmonitor" not in asked(root, text)] == []


def test_git_asks_where_nobody_can_tell_in_which_folder_it_runs(root: Path):
    for text in ("find . -execdir git status ';'", 'git -C "$x" status', "git -C `pwd` status", "ls | xargs git -C"):
        assert "a folder that is not known" in asked(root, text), text
    assert asked(root, "find . -exec git status ';'") == ""


NETWORK = {
    "core.sshCommand": "evil",
    "credential.helper": "!evil",
    "remote.origin.uploadpack": "evil",
    "remote.origin.url": "ext::evil",
    "url.ext::evil.insteadOf": "https://",
    "http.proxy": "http://evil",
}


def test_settings_of_the_network_ask_only_where_it_is_reached(root: Path):
    for key, value in NETWORK.items():
        git(root, "config", key, value)
        for text in ("git fetch", "git pull", "git push", "git remote update", "git submodule update", "git ls-remote"):
            assert asked(root, text), f"{key} {text}"
        for text in ("git status", "git commit -m x", "git remote -v", "git log"):
            assert not asked(root, text), f"{key} {text}"
        git(root, "config", "--unset", key)


def test_a_partial_clone_reaches_the_network_from_any_command(root: Path):
    git(root, "config", "remote.origin.url", "ext::evil")
    git(root, "config", "remote.origin.promisor", "true")
    assert "remote.origin.url" in asked(root, "git show")


@pytest.mark.parametrize(
    "key", ["include.path", "includeIf.gitdir:/.path", "some.key", "filter.x.clean", "diff.x.textconv"]
)
def test_what_includes_filters_or_nobody_knows_asks(root: Path, key: str):
    git(root, "config", key, "x")
    assert asked(root, "git status")


def test_the_filters_of_git_lfs_ask_but_full_auto_goes_on(root: Path):
    git(root, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    assert "git-lfs clean" in asked(root, "git add a.txt")
    assert not asked(root, "git branch -a")
    assert not firm(gate_of(root, full_auto()).judge(command("git add a.txt")))


@pytest.mark.parametrize("where", [".git/hooks", ".husky/_"])
def test_hooks_ask_where_git_runs_them_and_full_auto_goes_on(root: Path, where: str):
    folder = root / where
    folder.mkdir(parents=True, exist_ok=True)
    git(root, "config", "core.hooksPath", where)
    (folder / "pre-commit.sample").write_text("#!/bin/sh\n")
    (folder / "pre-commit.sample").chmod(0o755)
    (folder / "pre-commit").write_text("#!/bin/sh\n")
    assert not asked(root, "git commit -m x")  # not executable: git does not run it
    (folder / "pre-commit").chmod(0o755)
    assert f"{where}/pre-commit" in asked(root, "git commit -m x")
    assert not asked(root, "git status")
    assert not asked(root, "git checkout main")
    assert not firm(gate_of(root, full_auto()).judge(command("git commit -m x")))


def test_hooks_outside_the_workspace_are_refused_in_full_auto(root: Path, tmp_path: Path):
    outside = tmp_path / "hooks"
    outside.mkdir()
    (outside / "post-index-change").write_text("#!/bin/sh\n")
    (outside / "post-index-change").chmod(0o755)
    git(root, "config", "core.hooksPath", str(outside))
    assert isinstance(gate_of(root, full_auto()).judge(command("git status")), Deny)


def test_an_alias_asks_by_its_name_only(root: Path):
    git(root, "config", "alias.go", "!evil")
    assert "alias.go" in asked(root, "git go")
    assert not asked(root, "git status")


def test_a_submodule_is_looked_into(root: Path, tmp_path: Path):
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "x")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "libs/x")
    assert not asked(root, "git status")
    git(root / "libs/x", "config", "core.fsmonitor", "evil")
    assert "the submodule libs/x's configuration names a program" in asked(root, "git status")


def test_a_repository_that_was_added_as_a_folder_is_looked_into(root: Path):
    git(root, "init", "-q", "nested")
    git(root / "nested", "commit", "-q", "--allow-empty", "-m", "x")
    git(root, "-c", "advice.addEmbeddedRepo=false", "add", "nested")
    git(root / "nested", "config", "core.fsmonitor", "evil")
    for version in ("2", "4"):
        git(root, "update-index", "--index-version", version)
        assert "core.fsmonitor" in asked(root, "git status"), version


def test_a_bare_repository_in_the_workspace_is_found(root: Path):
    git(root, "init", "-q", "--bare", "b")
    git(root / "b", "config", "core.fsmonitor", "evil")
    assert "core.fsmonitor" in asked(root, "cd b && git status")
    assert not asked(root, "git status")


def test_a_linked_worktree_and_a_submodule_as_the_workspace_are_silent(root: Path, tmp_path: Path):
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert not asked(tmp_path / "linked", "git status")
    git(tmp_path, "init", "-q", "super")
    git(tmp_path / "super", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "x")
    assert not asked(tmp_path / "super/x", "git status")


def test_a_git_file_that_leads_to_a_repository_that_does_not_know_it_asks(root: Path, tmp_path: Path):
    session = tmp_path / "session"
    session.mkdir()
    (session / ".git").write_text(f"gitdir: {root}/.git\n")
    assert "outside the workspace" in asked(session, "git show")


def test_objects_from_outside_the_workspace_ask(root: Path, tmp_path: Path):
    git(tmp_path, "init", "-q", "session")
    (tmp_path / "session/.git/objects/info").mkdir(exist_ok=True)
    (tmp_path / "session/.git/objects/info/alternates").write_text(f"{root}/.git/objects\n")
    assert "takes objects from outside" in asked(tmp_path / "session", "git show abc")


def test_a_worktree_elsewhere_asks(root: Path):
    git(root, "config", "core.worktree", "../..")
    assert asked(root, "git status")


def test_an_interrupted_rebase_that_runs_a_command_asks(root: Path):
    (root / ".git/rebase-merge").mkdir()
    (root / ".git/rebase-merge/git-rebase-todo").write_text("pick abc x\nexec touch PWNED\n")
    assert "touch PWNED" in asked(root, "git rebase --continue")
    assert not asked(root, "git status")


def test_a_configuration_that_cannot_be_read_asks(root: Path):
    for broken in (b"[core\n", b'[a "b\n"]\n', b"[core]\nx = \\q\n", b"\0", b"#" * 600_000):
        (root / ".git/config").write_bytes(broken)
        assert "cannot be read" in asked(root, "git status")
    (root / ".git/config").unlink()
    os.mkfifo(root / ".git/config")
    assert "cannot be read" in asked(root, "git status")


def test_a_change_is_seen_and_no_change_costs_nothing(root: Path):
    gate = gate_of(root)
    assert gate.judge(command("git status")) == Allow()
    git(root, "config", "core.fsmonitor", "evil")
    assert isinstance(gate.judge(command("git status")), Ask)


async def test_no_rule_makes_it_silent_but_an_exact_answer_does(root: Path, tmp_path: Path):
    git(root, "config", "core.fsmonitor", "evil")
    chain = Chain(str(root), str(tmp_path / "grants.toml"), allow=rules("*", "git *", "git status"))
    assert chain.approver is not None
    chain.approver.answers = [Decision.ALLOW_ONCE, Decision.ALLOW_ALWAYS]
    fates = [await chain.fate(command("git status", number=number)) for number in range(3)]
    assert fates == ["asked", "asked", "silent"]
    assert await chain.fate(command("git status -s", number=4)) == "asked"


_VALUES = st.text(st.sampled_from("ab =#;\"\\'.[]\n\té"), max_size=12)
_NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9-]{0,5}", fullmatch=True)
_SUBSECTIONS = st.text(st.sampled_from('aB ."\\é]['), max_size=6)
_SETTINGS = st.lists(st.tuples(_NAMES, _SUBSECTIONS, _NAMES, _VALUES), min_size=1, max_size=4)


@given(_SETTINGS)
def test_the_reader_reads_what_git_has_written(
    tmp_path_factory: pytest.TempPathFactory, given_settings: Sequence[tuple[str, str, str, str]]
):
    file = tmp_path_factory.mktemp("config") / "config"
    for section, subsection, name, value in given_settings:
        git(file.parent, "config", "-f", "config", "--add", ".".join(filter(None, (section, subsection, name))), value)
    assert _printed(file.read_bytes()) == git(file.parent, "config", "-f", "config", "--list", "-z")


_PIECES = (
    "[core]",
    '[a "b\\"c"]',
    "[X.Y]",
    "\n",
    "key",
    "k2",
    " = ",
    "=",
    " ",
    '"',
    "\\n",
    "\\\\",
    '\\"',
    "\\",
    "#x",
    ";",
    "\r\n",
    "[",
    "]",
    "é",
    "\\\n",
    '[a "x y"]',
    "-",
    ".",
    "1",
)


@settings(max_examples=settings.default.max_examples * 3)
@given(st.lists(st.sampled_from(_PIECES), max_size=14))
def test_the_reader_never_reads_another_file_than_git(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]):
    file = tmp_path_factory.mktemp("config") / "config"
    file.write_bytes("".join(("[core]", *pieces)).encode())
    done = subprocess.run(
        ["git", "config", "-f", "config", "--list", "-z"],
        cwd=file.parent,
        env=ALONE,
        capture_output=True,
        check=False,
    )
    try:
        ours = _printed(file.read_bytes())
    except NotReadable:
        assert done.returncode
    else:
        assert (done.returncode, done.stdout.decode().replace("\r", " ")) == (0, ours.replace("\r", " "))


def _printed(data: bytes) -> str:
    return "".join(key + ("" if value is None else f"\n{value}") + "\0" for key, value in read_settings(data))


def test_no_program_that_may_call_git_is_overlooked():
    for name in (*_NEIGHBOURS, "git", "git-commit", "GIT", "g'i't", "$(x)", "*"):
        assert may_call_git(f"cd a && {name} b"), name
    assert not may_call_git("ls -l && make all")


def test_a_remote_is_reached_only_by_what_speaks_to_it():
    at_home = ("", "-v", "get-url o", "add o u", "rename o p", "remove o", "rm o", "set-url o u", "set-branches o main")
    reaching = ("add -f o u", "update o", "show o", "prune o", "set-head o -a")
    calls = {words: git_call(survey(f"git remote {words}").commands[0]) for words in (*at_home, *reaching)}
    found = {words: call and call.subcommand for words, call in calls.items()}
    assert found == {
        **dict.fromkeys(at_home, "remote"),
        **{words: f"remote {words.split()[0]}" for words in reaching},
    }


def test_a_program_is_git_by_its_whole_name_or_its_beginning():
    called = {
        text: git_call(survey(text).commands[0]) for text in ("git push x", "git-push x", "make-push x", "python x")
    }
    assert {text: each and each.subcommand for text, each in called.items()} == {
        "git push x": "push",
        "git-push x": "push",
        "make-push x": None,
        "python x": None,
    }
