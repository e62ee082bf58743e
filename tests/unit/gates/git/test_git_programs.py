"""What a repository really makes git run is what is asked about: held against git itself."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.gates.git.test_git_repository import asked
from tests.unit.gates.git_markers import HOOKS, PROGRAMS, copied, made, plant, ran

NAMES = (*PROGRAMS, *HOOKS)
COMMANDS = (
    """
status|log -p|log --oneline -n 3|diff|diff --cached|show|branch -vv|branch x|checkout clean|checkout -- b.txt
switch -c y|restore b.txt|add -A|add -p|commit -m x|commit -am x|commit --amend|stash|stash pop|stash show -p
rebase clean|rebase -i HEAD~1|merge --no-ff clean|merge --edit clean|merge feature|cherry-pick clean
revert HEAD|fetch|pull --rebase|push|push origin HEAD:new|ls-remote|remote -v|remote update|remote show origin
rev-parse HEAD|blame a.txt|ls-files -m|grep a|tag v1|tag -a v2 -m x|tag -a v3|reset|reset --hard HEAD~1
worktree add ../other feature|submodule status|bisect start HEAD v0|reflog|describe --dirty --always|clean -fd
rm -f a.txt|mv a.txt z.txt|cat-file -p HEAD:a.txt|show-ref|for-each-ref|format-patch -1 --stdout
diff-index HEAD|check-ignore a.txt|hash-object a.txt|update-index --refresh|sparse-checkout set a|notes add
notes add -m x|gc|fsck|prune|range-diff v0..main v0..feature|branch --edit-description|config -l
read-tree -m HEAD|checkout-index -a -f|apply --check /dev/null|interpret-trailers --trailer x=y
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("template"))


def unasked(template: Path, folder: Path, names: tuple[str, ...], commands: Sequence[str]) -> list[str]:
    """What git ran, and nobody would have been asked about."""
    found, marked = list[str](), set[str]()
    judged = {name: copied(template, folder / f"judged-{name}", dirty=False) for name in names}
    for name, work in judged.items():
        plant(work, name, folder / "elsewhere")
    for number, (text, dirty) in enumerate(itertools.product(commands, (False, True))):
        work = copied(template, folder / f"run-{number}", dirty=dirty)
        each = folder / f"marks-{number}"
        for name in names:
            plant(work, name, each)
        found += [f"{name}: git {text}" for name in ran(work, text, each) if not asked(judged[name], f"git {text}")]
        marked.update(path.name for path in each.iterdir())
    assert marked & set(names), "nothing ran, so nothing was tried"
    return found


def test_what_git_runs_is_asked_about(template: Path, tmp_path: Path):
    commands = [
        "status",
        "log -p",
        "diff",
        "add -A",
        "commit -m x",
        "checkout clean",
        "stash",
        "pull --rebase",
        "push",
        "merge --edit clean",
    ]
    assert unasked(template, tmp_path, NAMES, commands) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_what_git_runs_is_asked_about_by_every_command(template: Path, tmp_path: Path, name: str):
    assert unasked(template, tmp_path, (name,), COMMANDS) == []
