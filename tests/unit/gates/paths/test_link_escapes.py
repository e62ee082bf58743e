"""Command lines that the gates let through unasked are really run beside a canary: no link leads to it."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_agent.gates.paths.unnamed_paths import feeds_names_below
from acp_agent.gates.shell.command import survey
from tests.sizes import sized
from tests.unit.gates.chain import Chain, command, rules

CANARY = "canary-of-the-outside"
OUTSIDE = dict.fromkeys(("secret.txt", "a.py", "b.txt", "c.txt", "readme.txt", "5"), f"{CANARY}\n".encode())
PROGRAMS = (
    "git",
    "cat",
    "grep",
    "find",
    "ls",
    "head",
    "tail",
    "wc",
    "cp",
    "mv",
    "ln",
    "tar",
    "cd",
    "mkdir",
    "diff",
    "sed",
)
RULES = rules(
    *(f"{name} *" for name in (*PROGRAMS, "sort", "rm", "echo", "xargs", "du", "chmod", "tee", "make", "test"))
)

PATHS = (
    *("a.py", "readme.txt", "docs", "docs/c.txt", "src", "src/b.txt", "new", "new/b.txt", "near/secret.txt", ".", "5"),
    *("'read me'", "-- -x", "'a$b'", "@x", "src/deep", "src/deep/far/a.py"),
)
MAKERS = (
    *(
        "git checkout -q evil",
        "git checkout -q evil -- {0}",
        "git switch -q evil",
        "git reset -q --hard evil",
        "git merge -q evil",
    ),
    *(
        "git restore -s evil .",
        "git stash pop -q",
        "git stash",
        "git cherry-pick evil",
        "git apply x.diff",
        "git pull -q",
    ),
    *(
        "git checkout -q main",
        "git read-tree -u -m evil",
        "git rm -q -r docs",
        "git mv {0} {1}",
        "git worktree add w evil",
    ),
    *(
        "tar xf evil.tar",
        "tar -xf evil.tar -C {0}",
        "ln -s ../{0} {1}",
        "ln -s {0} {1}",
        "ln -sr {0} {1}",
        "ln -st src ../{0}",
    ),
    *(
        "ln -s ../{0} src/new",
        "ln {0} {1}",
        "mv {0} {1}",
        "mv src/deep/up .",
        "mv src/deep new",
        "cp -r {0} {1}",
        "cp {0} {1}",
    ),
    *(
        "cp -a src/deep new",
        "cp -P src/deep/up new",
        "mkdir -p {0}",
        "rm -rf {0}",
        "git clone -q . new",
        "sed -i s/a/b/ {0}",
    ),
)
READERS = (
    *(
        "cat {0}",
        "head -n 5 {0}",
        "tail -n5 {0}",
        "wc -l {0}",
        "grep -r canary {0}",
        "grep -R canary {0}",
        "grep canary {0}",
    ),
    *(
        "find {0} -name '*.txt'",
        "find {0} -exec cat {{}} +",
        "find {0} -type f -exec cat {{}} +",
        "find -L {0} -exec cat {{}} +",
    ),
    *(
        "find {0} -name '*.py' -exec head {{}} \\;",
        "find . -type f -exec cat .{{}} \\;",
        "ls {0}",
        "ls -LR {0}",
        "ls -R",
    ),
    *(
        "git log -p",
        "git -C {0} log",
        "git show",
        "git diff --no-index {0} {1}",
        "git hash-object {0}",
        "git grep canary",
    ),
    *(
        "git log -1 --format=%x2e%x2e%x2foutside%x2fsecret.txt | xargs cat",
        "git ls-files | xargs cat",
        "echo {0} | xargs cat",
    ),
    *(
        "git add . && git commit -qm x",
        "git commit -q --allow-empty -F {0}",
        "git config -f {0} -l",
        "diff {0} {1}",
        "diff -r . {0}",
    ),
    *(
        "tar cf - {0}",
        "tar chf - {0}",
        "cat < {0}",
        "sort {0}",
        "sed -n p {0}",
        "cd {0}",
        "cd ..",
        "cat ../secret.txt",
        "cat ../a.py",
    ),
    *(
        "cat *.txt",
        "cat */*",
        "cat near/*",
        "cp {0} {1}",
        "cp -rL {0} {1}",
        "tee {0}",
        "du -L {0}",
        "git apply {0}",
        "chmod -R -L u+w {0}",
    ),
)
STEPS = st.builds(
    lambda text, first, second: text.format(first, second),
    st.sampled_from((*MAKERS, *READERS)),
    st.sampled_from(PATHS),
    st.sampled_from(PATHS),
)
SEPARATORS = st.sampled_from((" && ", " && ", "; ", " | ", " & ", " || "))


@dataclass(frozen=True)
class World:
    """A workspace that can be made anew, with an evil branch, beside a folder with a canary."""

    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def renew(self) -> None:
        """Put the workspace back to how it began."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.folder / "first-work", self.work, symlinks=True)

    def run(self, text: str) -> str:
        """Run a line in the workspace and return what it printed."""
        done = subprocess.run(
            ["bash", "--norc", "-c", f"{text}\nwait"],
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder / "home"),
                "GIT_EDITOR": "true",
                "LC_ALL": "C.UTF-8",
                **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        return (done.stdout + done.stderr).decode(errors="replace")

    def escaped(self, printed: str) -> str:
        """Tell how the canary got in or something got out; empty if nothing did."""
        if CANARY in printed:
            return "the canary was printed"
        if _contents(self.folder / "outside") != OUTSIDE:
            return "something outside was changed"
        kept = [name for name, data in _contents(self.work).items() if CANARY.encode() in data]
        return f"the canary was copied to {kept[0]}" if kept else ""


def _contents(folder: Path) -> dict[str, bytes]:
    files = (Path(at) / name for at, _, names in os.walk(folder) if ".git" not in at for name in names)
    return {str(each.relative_to(folder)): each.read_bytes() for each in files if not each.is_symlink()}


@pytest.fixture(scope="module", params=["main", "evil"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world, its beginnings laid aside. On the branch `evil` links lead out from the start."""
    return new_world(tmp_path_factory.mktemp("world"), str(request.param))


def new_world(folder: Path, branch: str) -> World:
    """Make the world, with a branch of its repository checked out."""
    world = World(folder)
    outside = world.folder / "outside"
    for name in ("work", "outside", "home"):
        (world.folder / name).mkdir()
    for name, data in OUTSIDE.items():
        (outside / name).write_bytes(data)
    world.run(f"cd ../outside && git init -q --template= . && git add . && git commit -qm {CANARY}")
    world.run(
        "git init -q --template= -b main . && mkdir -p docs src/deep/in near\n"
        "echo a > a.py; echo b > src/b.txt; echo c > docs/c.txt; echo r > readme.txt; echo s > near/secret.txt\n"
        "ln -s ../../near/secret.txt src/deep/up; ln -s ../../../readme.txt src/deep/in/readme.txt\n"
        "git add . && git commit -qm first && git checkout -q -b evil\n"
        "rm -r docs near a.py readme.txt src/b.txt; ln -s ../outside docs; ln -s ../outside near\n"
        "for f in a.py readme.txt 5; do ln -s ../outside/secret.txt $f; done\n"
        "ln -s ../../outside/secret.txt src/b.txt\n"
        "for f in 'read me' -x 'a$b' @x; do ln -s ../outside/secret.txt \"./$f\"; done\n"
        "ln -s ../../outside src/deep/far\n"
        "git add . && git commit -qm evil && git diff main evil > ../x.diff\n"
        "tar cf ../evil.tar near a.py readme.txt 5\n"
        "git checkout -q main; ln -s ../outside/secret.txt 5; git add . && git stash -q; mv ../x.diff ../evil.tar .\n"
        f"git checkout -q {branch}\n"
    )
    world.work.rename(world.folder / "first-work")
    world.renew()
    return world


def silent(world: World, text: str) -> bool:
    """Tell whether a session with the rules of the table would run a line unasked."""
    chain = Chain(str(world.work), str(world.folder / "grants.toml"), allow=RULES)
    return anyio.run(partial(chain.fate, command(text))) == "silent"


def judge_and_run(world: World, text: str) -> bool:
    """Run a line if it is let through, and return whether it was. The workspace is new for the next one."""
    if not silent(world, text):
        return False
    try:
        escaped = world.escaped(world.run(text))
    finally:
        world.renew()
    assert not escaped, f"{text}: {escaped}"
    return True


@given(st.lists(st.tuples(SEPARATORS, STEPS), min_size=1, max_size=4))
@example([("", "git checkout -q evil"), ("; ", "cat readme.txt")])
@example([("", "mv src/deep new"), (" && ", "cat new/in/readme.txt")])
@example([("", "git log -1 --format=%x2e%x2e%x2foutside%x2fsecret.txt | xargs cat")])
@settings(max_examples=settings.default.max_examples * sized(1, 2))
def test_no_line_that_runs_unasked_reaches_the_outside_by_a_link(world: World, steps: list[tuple[str, str]]):
    judge_and_run(world, "".join(f"{joint if at else ''}{step}" for at, (joint, step) in enumerate(steps)))


def test_the_world_would_betray_a_line_that_escapes(world: World):
    for text in ("git checkout -q evil; cat readme.txt", "tar xf evil.tar; cat readme.txt", "git stash pop -q; cp 5 6"):
        assert not silent(world, text)
        escaped = world.escaped(world.run(text))
        world.renew()
        assert escaped, text


def test_lines_are_run_at_all(world: World):
    for text in (
        "git log",
        "git checkout -q evil && git status",
        "mkdir -p d && cd d && cat ../x.diff",
        "ls -R | wc -l",
    ):
        assert judge_and_run(world, text), text


def test_names_come_only_from_programs_of_the_system():
    def feeds(text: str) -> bool:
        *pipeline, xargs = survey(text).commands
        return feeds_names_below(pipeline, xargs)

    for text in ("rg -l x | xargs cat", "git ls-files | sort | xargs cat", "/usr/bin/find . -name x | xargs cat"):
        assert feeds(text), text
    for text in ("./rg -l x | xargs cat", "git ls-files | ./sort | xargs cat", "bin/find . -name x | xargs cat"):
        assert not feeds(text), text
