"""Git folders made to look harmless to a reader while git obeys them: held against git itself."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.gates.git.test_git_repository import asked
from tests.unit.gates.git_markers import ALONE

MARK = "touch $HOME/PWNED"
HOOK = f"#!/bin/sh\n{MARK}\n"
PRIVATE = "git init -q $HOME/priv; echo CANARY > $HOME/priv/s; git -C $HOME/priv add s; git -C $HOME/priv commit -qm s"
EVIL = f"git clone -q --bare . evil.git; printf '{HOOK}' > evil.git/hooks/pre-receive; chmod +x evil.git/hooks/*"
OTHER = (
    "git init -q sub; git -C sub commit -q --allow-empty -m s; git -c advice.addEmbeddedRepo=false add sub;"
    f" git commit -qm sub; git -C sub config core.fsmonitor '{MARK}; false'"
)
PADDED = "python3 -c 'print(\"gitdir: evilgit\" + chr(10) * 70000)' > .git"
CONFLICT = (
    "seq 3 > f; git add f; git commit -qm f; git branch t; git reset -q --hard HEAD~1; git commit -q --allow-empty -m o"
)


class Row(NamedTuple):
    """A repository and what a command line does in it.

    setup    makes the repository, in a workspace with one commit; HOME is outside
    line     the command line that asks
    shows    the text that the line shows or writes below HOME; empty if it makes the file PWNED there
    """

    setup: str
    line: str
    shows: str = ""


ROWS = {
    # a configuration that git leaves out says where the hooks are, or how the index is stored
    "hooks hidden by config.worktree": Row(
        f"printf '{HOOK}' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit;"
        " printf '[core]\\nhooksPath = none\\n' > .git/config.worktree",
        "git commit --allow-empty -m x",
    ),
    "hooks at a prefix": Row(
        f"mkdir h; printf '{HOOK}' > h/pre-commit; chmod +x h/pre-commit;"
        " git config core.hooksPath '%(prefix)/../proc/self/cwd/h'",
        "git commit --allow-empty -m x",
    ),
    "hooks in the folder of the process": Row(
        f"mkdir h; printf '{HOOK}' > h/pre-commit; chmod +x h/pre-commit; ln -s /proc/self/cwd/h l;"
        " git config core.hooksPath l",
        "git commit --allow-empty -m x",
    ),
    "hooks among many files": Row(
        f"cd .git/hooks; rm *; seq 1 12000 | xargs touch; printf '{HOOK}' > pre-commit; chmod +x pre-commit",
        "git commit --allow-empty -m x",
    ),
    "hooks that cannot be listed": Row(
        f"printf '{HOOK}' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; chmod 100 .git/hooks",
        "git commit --allow-empty -m x",
    ),
    "the format of objects in config.worktree": Row(
        f"{OTHER}; printf '[extensions]\\nobjectformat = sha256\\n' > .git/config.worktree", "git status"
    ),
    # files too long or of another kind
    "a long .git file": Row(
        f"mv .git evilgit; git --git-dir=evilgit config core.fsmonitor '{MARK}; false'; {PADDED}", "git status"
    ),
    "a .git file with NUL": Row(
        f"mv .git evilgit; git --git-dir=evilgit config core.fsmonitor '{MARK}; false';"
        " printf 'gitdir: evilgit\\0x' > .git",
        "git status",
    ),
    "a .git file of the folder of the process": Row(
        f"mv .git evilgit; git --git-dir=evilgit config core.fsmonitor '{MARK}; false';"
        " echo gitdir: /proc/self/cwd/evilgit > .git",
        "git status",
    ),
    "a FIFO at .git": Row(
        f"git config core.fsmonitor '{MARK}; false'; mkdir d; mkfifo d/.git", "cd d && git status"
    ),
    "a HEAD in upper case": Row(
        "git clone -q --bare . evil; cd evil; git rev-parse HEAD | tr a-f A-F > HEAD; git config core.bare false;"
        f" git config core.worktree .; git config core.fsmonitor '{MARK}; false'",
        "cd evil && git status",
    ),
    "a long HEAD": Row(
        "git clone -q --bare . evil; cd evil; python3 -c 'print(\"ref: refs/heads/main\" + chr(10) * 70000)' > HEAD;"
        f" git config core.bare false; git config core.worktree .; git config core.fsmonitor '{MARK}; false'",
        "cd evil && git status",
    ),
    "a HEAD that git refuses": Row(
        f"git config core.fsmonitor '{MARK}; false'; git clone -q --bare . d; printf 'ref:\\vrefs/heads/main' > d/HEAD",
        "cd d && git --work-tree=.. status",
    ),
    "a bare repository beside .git": Row(
        f"git clone -q --bare . e; cp -r e/. .; git --git-dir=. config diff.external '{MARK};:';"
        " seq 3 > f; git --git-dir=. --work-tree=. add f; git --git-dir=. --work-tree=. commit -qm f",
        "git --bare diff HEAD~1 HEAD",
    ),
    # aliases that git reaches by itself
    "a strategy": Row(
        f"git config alias.merge-foo '!{MARK}; false'; {CONFLICT};"
        " GIT_SEQUENCE_EDITOR='sed -i 1i\\break' git rebase -q -i HEAD t; echo foo > .git/rebase-merge/strategy",
        "git rebase --continue",
    ),
    "a helper of credentials": Row(
        f"git config alias.credential-wincred '!{MARK}; false'; git config credential.helper wincred", "git fetch"
    ),
    "a transport": Row(
        f"git config alias.remote-evil '!{MARK}; false'; mkdir -p .git/branches; echo evil::x > .git/branches/bk",
        "git fetch bk",
    ),
    "an alias of an alias": Row(f"git config alias.go evil; git config alias.evil '!{MARK}'", "git go"),
    # remotes
    "a branch's remote": Row(
        f"{EVIL}; git config branch.main.remote ./evil.git; git config push.default current;"
        " git commit -q --allow-empty -m y",
        "git push",
    ),
    "the remote for pushes": Row(
        f"{EVIL}; git config remote.pushDefault ./evil.git; git config push.default current;"
        " git commit -q --allow-empty -m y",
        "git push",
    ),
    "an old file of a remote": Row(
        f"{EVIL}; mkdir -p .git/remotes; echo URL: evil.git > .git/remotes/bk", "git push bk HEAD:refs/heads/z"
    ),
    "a remote behind values of options": Row(
        f"{EVIL}; git -C evil.git config receive.advertisePushOptions true",
        "git push -o 1 -o 2 -o 3 -o 4 ./evil.git HEAD:refs/heads/z",
    ),
    "a group of remotes": Row(
        f'{PRIVATE}; git config remotes.all "$HOME/priv $HOME/priv"', "git fetch all; git show FETCH_HEAD", "CANARY"
    ),
    "a branch's remote outside": Row(
        f"{PRIVATE}; git config branch.main.remote $HOME/priv", "git fetch -q; git log -p -1 FETCH_HEAD", "CANARY"
    ),
    "an encoded address": Row(
        f"{PRIVATE}; git config remote.o.url file://$HOME/pri%76", "git fetch -q o; git log -p -1 FETCH_HEAD", "CANARY"
    ),
    "a .git file as a remote": Row(
        f"{PRIVATE}; echo gitdir: $HOME/priv/.git > gf", "git fetch ./gf; git show FETCH_HEAD", "CANARY"
    ),
    "a folder with a colon": Row(
        f"{PRIVATE}; ln -s $HOME/priv host:x", "git clone host:x out; cat out/s", "CANARY"
    ),
    "a bundle outside": Row(
        f"{PRIVATE}; git -C $HOME/priv bundle create -q $HOME/x HEAD; git config remote.o.url $HOME/x",
        "git fetch -q o; git log -p -1 FETCH_HEAD",
        "CANARY",
    ),
    # links in the git folder
    "the message is the configuration": Row(
        "ln -sf config .git/COMMIT_EDITMSG",
        f"git commit -q --allow-empty --cleanup=verbatim -m '[core]\nfsmonitor=\"{MARK}; false\"'; git status",
    ),
    "the message is the configuration by a hard link": Row(
        "ln -f .git/config .git/COMMIT_EDITMSG",
        f"git commit -q --allow-empty --cleanup=verbatim -m '[core]\nfsmonitor=\"{MARK}; false\"'; git status",
    ),
    "the message is a file outside": Row(
        "ln -sf $HOME/.bashrc .git/COMMIT_EDITMSG",
        "git commit --allow-empty -m 'touch x'; cat $HOME/.bashrc",
        "touch x",
    ),
    "the sparse patterns": Row(
        "mkdir -p .git/info; ln -s $HOME/.profile .git/info/sparse-checkout",
        "git sparse-checkout set --no-cone 'touch x'; cat $HOME/.profile",
        "touch x",
    ),
    "the reflog": Row(
        "ln -sf $HOME/.profile .git/logs/HEAD",
        "git commit --allow-empty -m 'x; touch y'; cat $HOME/.profile",
        "touch y",
    ),
    "what was fetched": Row(
        "ln -sf $HOME/.profile .git/FETCH_HEAD", "git fetch . main; cat $HOME/.profile", "branch 'main' of ."
    ),
    "the grafts": Row("echo CANARY > $HOME/c; ln -s $HOME/c .git/info/grafts", "git log -1", "CANARY"),
    "the packed references": Row("echo CANARY > $HOME/c; ln -s $HOME/c .git/packed-refs", "git branch -a", "CANARY"),
    "a folder of references": Row("mkdir $HOME/r; ln -s $HOME/r .git/refs/heads/o", "git branch o/x; ls $HOME/r", "x"),
    "objects of who lends objects": Row(
        f"{PRIVATE}; git init -q o; echo $HOME/priv/.git/objects > o/.git/objects/info/alternates;"
        " echo ../../o/.git/objects > .git/objects/info/alternates",
        "git show $(git -C $HOME/priv rev-parse HEAD)",
        "CANARY",
    ),
    "quoted objects": Row(
        f"{PRIVATE}; echo '\"'$HOME/priv/.git/objects'\"' > .git/objects/info/alternates",
        "git show $(git -C $HOME/priv rev-parse HEAD)",
        "CANARY",
    ),
    # settings
    "a suffix that is a path": Row(
        "git config format.suffix /../../home/.bashrc; mkdir 0001-x; seq 3 > f; git add f;"
        " git commit -qm x",
        "git format-patch -1; cat $HOME/.bashrc",
        "Subject",
    ),
    "a list of revisions behind a link": Row(
        "echo CANARY > $HOME/c; ln -s $HOME/c lnk; git config blame.ignoreRevsFile lnk", "git blame a.txt", "CANARY"
    ),
    "a list for fsck": Row(
        "echo CANARY > $HOME/c; git config fsck.skipList $HOME/c", "git fsck", "CANARY"
    ),
    "submodules of the history": Row(
        "git init -q sub; cd sub; seq 1 > f; git add f; git commit -qm 1; seq 2 > f; git commit -qam 2; cd ..;"
        " git update-index --add --cacheinfo 160000,$(git -C sub rev-parse HEAD~1),sub; git commit -qm 1;"
        " git update-index --cacheinfo 160000,$(git -C sub rev-parse HEAD),sub; git commit -qm 2; git rm -q"
        f" --cached sub; git commit -qm 3; git config diff.submodule diff; git -C sub config diff.external '{MARK};:'",
        "git log -p -3",
    ),
    "a push into the worktree": Row(
        "git checkout -qb evil; seq 3 > evil.txt; git add .; git commit -qm e; git checkout -q main;"
        " git config receive.denyCurrentBranch updateInstead",
        "git push -q . evil:main; ls",
        "evil.txt",
    ),
}  # fmt: skip
UNSHOWN = {  # no effect without a server or another version of git
    "a helper of credentials",
    "a HEAD that git refuses",
}


@pytest.fixture
def root(one_commit: Path, tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return one_commit


def bash(root: Path, text: str, *, check: bool) -> str:
    env = {**ALONE, "HOME": str(root.parent / "home"), "GIT_CONFIG_COUNT": "0"}
    done = subprocess.run(
        ["bash", "-c", text], cwd=root, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ROWS)
def test_what_git_obeys_unseen_asks(root: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    row = ROWS[name]
    bash(root, f"set -e; {row.setup}", check=True)
    line = row.line.replace("$HOME", str(root.parent / "home"))
    monkeypatch.chdir("/")
    reason = asked(root, line)
    shown = bash(root, row.line, check=False)
    if (root / ".git/hooks").exists():
        (root / ".git/hooks").chmod(0o700)
    effect = row.shows in shown if row.shows else (root.parent / "home/PWNED").exists()
    assert reason, shown
    assert effect or name in UNSHOWN, shown


ORDINARY = {
    "as git init makes it": "true",
    "a clone": "git init -q --bare ../up.git; cd ..; rm -rf work; git clone -q up.git work; cd work;"
    " git commit -q --allow-empty -m x; git remote set-url origin https://example.org/x.git",
    "a shallow clone": "git clone -q --depth 1 file://$PWD ../new; rm -rf .git; mv ../new/.git .;"
    " git remote set-url origin git@example.org:x.git",
    "with a linked worktree": "git worktree add -q linked; git worktree add -q ../out",
    "with a submodule": "git init -q ../s; git -C ../s commit -q --allow-empty -m x;"
    " git -c protocol.file.allow=always submodule --quiet add ../s libs/s; git commit -qm s;"
    " git config submodule.libs/s.url https://example.org/s.git;"
    " git -C libs/s remote set-url origin https://example.org/s.git",
    "with a split index": "git update-index --split-index; seq 3 > f; git add f",
    "packed": "git pack-refs --all; git gc -q",
    "in a conflict": f"{CONFLICT}; seq 4 > f; git add f; git commit -qm g; git merge t || true",
    "in a rebase": f"{CONFLICT}; seq 4 > f; git add f; git commit -qm g; git rebase t || true",
    "with stashes and notes": "echo x >> a.txt; git stash -q; git notes add -m x",
    "with a sparse checkout": "git sparse-checkout set --no-cone /a.txt; git config core.sparseCheckoutCone false",
    "with SHA-256": "rm -rf .git; git init -q --object-format=sha256; git add .; git commit -qm x",
    "with hooks behind a link": "mkdir h; rm -rf .git/hooks; ln -s ../h .git/hooks",
    "with files of git-lfs": "mkdir -p .git/lfs/objects/ab/cd .git/lfs/tmp; echo x > .git/lfs/objects/ab/cd/abcd",
    "with what it leaves out": "git config core.excludesFile .x; touch .revs; git config blame.ignoreRevsFile .revs",
    "with a remote named as a folder": "mkdir origin; git config remote.origin.url https://example.org/x.git;"
    " git config branch.main.remote origin; git config branch.main.merge refs/heads/main",
}
EVERYDAY = (
    "git status",
    "git log -p",
    "git add -A && git commit -m x",
    "git fetch",
    "git push",
    "git diff --submodule",
)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_repository_stays_silent(root: Path, name: str):
    bash(root, f"set -e; {ORDINARY[name]}", check=True)
    assert {text: asked(root, text) for text in EVERYDAY} == dict.fromkeys(EVERYDAY, "")
