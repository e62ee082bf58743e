"""Where the files come from that a call of git brings, as its words say."""

from acp_agent.gates.gate import CommandFacts
from acp_agent.gates.git_calls import _READERS, GitCall, git_call, git_calls, moved_by
from acp_agent.gates.shell.command import survey
from acp_agent.workspace.git.changes import BisectStep, IncomingSources
from tests.rows import each_row

UPSTREAM = ("@{upstream}",)
HEAD = IncomingSources(restores=True)
SOURCES: dict[str, IncomingSources | None] = {
    "git checkout a": IncomingSources(("a",), loose=True),
    "git checkout -": IncomingSources(("@{-1}",), loose=True),
    "git checkout -b new a": IncomingSources(("new", "a"), loose=True),
    "git checkout -f a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout -p a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout -m a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout --force a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout --patch a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout --ours a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout --theirs a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout --merge a": IncomingSources(("a",), loose=True, restores=True),
    "git checkout --pathspec-from-file=f a": IncomingSources(("f", "a"), loose=True, restores=True),
    "git checkout a -- b c": IncomingSources(("a",), loose=True, restores=True, paths=("b", "c")),
    "git checkout -- -f": IncomingSources(loose=True, restores=True, paths=("-f",)),
    "git checkout '' a": IncomingSources(("a",), loose=True),
    "git switch a": IncomingSources(("a",)),
    "git switch -": IncomingSources(("@{-1}",)),
    "git switch -f a": IncomingSources(("a",), restores=True),
    "git switch -m a": IncomingSources(("a",), restores=True),
    "git switch --force a": IncomingSources(("a",), restores=True),
    "git switch --discard-changes a": IncomingSources(("a",), restores=True),
    "git switch --merge a": IncomingSources(("a",), restores=True),
    "git restore a": IncomingSources(restores=True, paths=("a",)),
    "git restore -- -a": IncomingSources(restores=True, paths=("-a",)),
    "git restore -sx a": IncomingSources(("x",), restores=True, paths=("a",)),
    "git restore -s x a": IncomingSources(("x",), restores=True, paths=("x", "a")),
    "git restore --source x a": IncomingSources(("x",), restores=True, paths=("x", "a")),
    "git restore --source=x a": IncomingSources(("x",), restores=True, paths=("x", "a")),
    "git restore --so=x a": IncomingSources(("x",), restores=True, paths=("x", "a")),
    "git restore -s": HEAD,
    "git restore -S a": IncomingSources(paths=("a",), indexed=True),
    "git restore --staged a": IncomingSources(paths=("a",), indexed=True),
    "git restore -SW a": IncomingSources(restores=True, paths=("a",)),
    "git restore --staged --worktree a": IncomingSources(restores=True, paths=("a",)),
    "git restore --pathspec-from-file=f a": HEAD,
    "git reset a": IncomingSources(("a",), indexed=True),
    "git reset --soft a": IncomingSources(("a",), indexed=True),
    "git reset --hard a": IncomingSources(("a",), restores=True),
    "git reset --merge a": IncomingSources(("a",), restores=True),
    "git reset --keep a": IncomingSources(("a",), restores=True),
    "git merge": IncomingSources(merged=UPSTREAM),
    "git merge a b": IncomingSources(merged=("a", "b")),
    "git merge a -- b": IncomingSources(merged=("a", "b")),
    "git merge --continue": HEAD,
    "git merge --abort": HEAD,
    "git merge --quit": HEAD,
    "git rebase": IncomingSources(UPSTREAM, replayed=True),
    "git rebase a b": IncomingSources(("a", "b"), replayed=True),
    "git rebase --onto x a": IncomingSources(("x", "a"), replayed=True),
    "git rebase --onto=x a": IncomingSources(("x", "a"), replayed=True),
    "git rebase --continue": IncomingSources(restores=True, state=True),
    "git rebase --skip": IncomingSources(restores=True, state=True),
    "git pull": IncomingSources(pulled=(), added=True, indexed=True),
    "git pull origin a -- b": IncomingSources(pulled=("origin", "a", "b"), added=True, indexed=True),
    "git add a": IncomingSources(added=True, indexed=True),
    "git add -f a -- b": IncomingSources(added=True, ignored=True, paths=("a", "b"), indexed=True),
    "git add --force a": IncomingSources(added=True, ignored=True, paths=("a",), indexed=True),
    "git stage a": IncomingSources(added=True, indexed=True),
    "git submodule add url a": IncomingSources(added=True, indexed=True),
    "git update-index --add a": IncomingSources(added=True, indexed=True),
    "git apply a": IncomingSources(added=True, indexed=True),
    "git am a": IncomingSources(added=True, indexed=True),
    "git cherry-pick a b..c": IncomingSources(commits=("a", "b..c")),
    "git cherry-pick --abort": IncomingSources(restores=True, state=True),
    "git revert a": IncomingSources(commits=("a",), undone=True),
    "git revert --continue": IncomingSources(restores=True, state=True, undone=True),
    "git stash": HEAD,
    "git stash -u": HEAD,
    "git stash push a -- b": IncomingSources(restores=True, paths=("a", "b")),
    "git stash save a": IncomingSources(restores=True, paths=("a",)),
    "git stash pop": IncomingSources(stashes=("0",)),
    "git stash pop 2": IncomingSources(stashes=("2",)),
    "git stash apply x": IncomingSources(stashes=("x",)),
    "git stash branch a": IncomingSources(("stash@{0}^1",), stashes=("0",)),
    "git stash branch a 3": IncomingSources(("stash@{3}^1",), stashes=("3",)),
    "git stash branch a x": IncomingSources(("x^1",), stashes=("x",)),
    "git stash list": None,
    "git read-tree a": IncomingSources(("a",), indexed=True),
    "git read-tree -u a": IncomingSources(("a",), restores=True),
    "git read-tree --reset a": IncomingSources(("a",), restores=True),
    "git checkout-index a -- b": IncomingSources(restores=True, paths=("a", "b")),
    "git checkout-index -a": HEAD,
    "git checkout-index --all a": HEAD,
    "git worktree list": None,
    "git worktree": None,
    "git worktree add ../x/ a": IncomingSources(("../x/", "a", "x", "a")),
    "git worktree add -- x": IncomingSources(("x", "x")),
    "git sparse-checkout": None,
    "git sparse-checkout list": None,
    "git sparse-checkout check-rules": None,
    "git sparse-checkout add a": IncomingSources(hidden=True),
    "git bisect": None,
    "git bisect --help": None,
    "git bisect log": None,
    "git bisect start a b": IncomingSources(state=True, bisected=(BisectStep("start", ("a", "b"), "", ""),)),
    "git bisect start a -- b": IncomingSources(state=True, bisected=(BisectStep("start", ("a",), "", ""),)),
    "git bisect start --term-bad x --term-good=y a": IncomingSources(
        state=True, bisected=(BisectStep("start", ("a",), "x", "y"),)
    ),
    "git bisect start --term-new=x --term-old y a": IncomingSources(
        state=True, bisected=(BisectStep("start", ("a",), "x", "y"),)
    ),
    "git bisect start --term-bad": IncomingSources(state=True, bisected=(BisectStep("start", (), "", ""),)),
    "git bisect bad --no-checkout a": IncomingSources(bisected=(BisectStep("bad", ("a",), "", ""),)),
    "git bisect reset": IncomingSources(state=True),
    "git bisect reset a": IncomingSources(("a",), state=True),
}


@each_row("text, sources", SOURCES.items())
def test_the_words_of_a_call_say_where_its_files_come_from(text: str, sources: IncomingSources | None):
    call = git_call(survey(text).commands[0])
    assert call is not None
    assert _READERS[call.subcommand](call.args) == sources


MOVES = {
    "env -C a git log": ["a"],
    "genv --chdir a git log": ["a"],
    "env --chdir=a git log": ["a"],
    "env -Ca git log": ["a"],
    "env -C": [""],
    "env A=1 git log": [],
    "git -C a log": [],
    "nice -C a git log": [],
}


@each_row("text, folders", MOVES.items())
def test_a_wrapper_may_start_git_in_another_folder(text: str, folders: list[str]):
    assert list(moved_by(survey(text).commands[0])) == folders


def test_git_is_judged_in_the_folder_in_which_a_wrapper_starts_it():
    (found,) = git_calls(CommandFacts("env -C a git -C b log"))
    assert found.folders is not None
    assert "a/b" in found.folders
    (found,) = git_calls(CommandFacts("find . -execdir git log +"))
    assert found.folders is None


CALLS: dict[str, GitCall | None] = {
    "ls": None,
    "git-": None,
    "gh pr list": GitCall(""),
    "git": GitCall(""),
    "git-log -1": GitCall("log", ("-1",)),
    "git log -1": GitCall("log", ("-1",)),
    "git -C a log": GitCall("log", folder="a"),
    "git -C a -C b log": GitCall("log", folder="a/b"),
    "git -C a -C /b log": GitCall("log", folder="/b"),
    "git -C a -C '~/b' log": GitCall("log", folder="~/b"),
    "git -C $a log": GitCall("log", folder=None),
    "git -C {} log": GitCall("log", folder=None),
    "git -C": GitCall("", folder=None),
    "git remote": GitCall("remote"),
    "git remote -v": GitCall("remote", ("-v",)),
    "git remote add a b": GitCall("remote", ("add", "a", "b")),
    "git remote add -f a b": GitCall("remote add", ("add", "-f", "a", "b")),
    "git remote add --fetch a b": GitCall("remote add", ("add", "--fetch", "a", "b")),
    "git remote update": GitCall("remote update", ("update",)),
    "git submodule status": GitCall("submodule", ("status",)),
    "git submodule update": GitCall("submodule update", ("update",)),
    "git fetch -q a b": GitCall("fetch", ("-q", "a", "b"), others=("a", "b")),
    "git push a": GitCall("push", ("a",), others=("a",)),
    "git clone a b": GitCall("clone", ("a", "b"), others=("a", "b")),
}


@each_row("text, expected", CALLS.items())
def test_a_call_of_git_is_read_as_git_reads_it(text: str, expected: GitCall | None):
    assert git_call(survey(text).commands[0]) == expected
