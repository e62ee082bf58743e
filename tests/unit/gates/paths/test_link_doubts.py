"""Links that a command line follows out of the workspace, or makes for its own later commands."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from acp_agent.core.types import Allow, Ask, Deny
from acp_agent.gates.paths.unnamed_paths import followed
from acp_agent.gates.sandbox import SandboxGate
from acp_agent.gates.shell.command import Command
from acp_agent.workspace.command_files import WorkspaceFiles, shell_names
from tests.rows import each_row
from tests.unit.gates.chain import Judged, command, inside


def gate_of(root: Path, resolve_from: Path | None = None) -> Judged:
    """A sandbox gate over real files, whose outermost folder may lie above the one commands start in."""
    resolve = inside(str(root), above=str(resolve_from) if resolve_from else "")
    files = WorkspaceFiles(str(root), resolve)
    return Judged(SandboxGate(resolve, resolve, workspace=files), expand=partial(shell_names, resolve=resolve))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a file and folders, beside a folder outside."""
    root = tmp_path / "work"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "shared").mkdir()
    (root / "a.py").write_text("x = 1\n")
    (root / "src" / "b.txt").write_text("b\n")
    (root / "link-in").symlink_to("docs")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret.txt").write_text("canary\n")
    return root


@pytest.fixture
def gate(root: Path) -> Judged:
    """The gate of a workspace without links that lead out."""
    return gate_of(root)


def asked(gate: Judged, texts: Iterable[str]) -> dict[str, bool]:
    """Tell of each command line whether it would be asked about."""
    return {text: isinstance(gate.judge(command(text)), Ask) for text in texts}


FOLLOWING = (
    "grep -R x .",
    "grep -nR x",
    "grep -RA 3 x docs",
    "grep --dereference-rec x .",
    "find -L . -name x",
    "find . -follow -type f",
    "find -L . -type f -exec cat {} +",
    "rg -L x",
    "rg -nL x docs",
    "rg --follow x",
    "fd -L x",
    "ls -LR",
    "ls -L --recursive",
    "ls -RL -w 80",
    "tar -C docs -chf x.tar away",
    "tree -lL 2",
    "tree -l",
    "du -L docs",
    "tar -chf x.tar docs",
    "tar chf x.tar docs",
    "tar -c --dereference -f x.tar docs",
    "cp -rL docs copy",
    "rsync -aL docs/ copy",
    "rsync -a --copy-links docs copy",
    "zip -r x.zip docs",
    "diff -r docs src",
    "diff docs src",
    "diff -ry docs src",
    "chmod -RL u+w docs",
    "chown -R -L me docs",
    "ag -f x",
    "ack --follow x",
    "rg -L x docs src",
    "fd -L -e py x docs",
)


def test_a_command_that_follows_a_link_out_of_the_workspace_is_asked_about(gate: Judged, root: Path):
    assert asked(gate, FOLLOWING) == dict.fromkeys(FOLLOWING, False)
    (root / "docs" / "away").symlink_to(root.parent / "other")
    assert asked(gate, FOLLOWING) == dict.fromkeys(FOLLOWING, True)
    verdict = gate.judge(command("grep -R x ."))
    assert isinstance(verdict, Ask)
    assert verdict.firm
    assert "docs/away" in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        "grep -rn x .",
        "grep -R x src",
        "grep -Rn --include='*.py' x src",
        "grep -RA 3 x src",
        "rg x",
        "rg -L x src",
        "fd -L -e py x src",
        "tar -chf x.tar src",
        "find . -name x",
        "find src -follow -name x",
        "ls -la docs",
        "ls -R",
        "ls -L src",
        "tree docs",
        "du -sh docs",
        "tar czf x.tgz docs",
        "cp -r docs copy",
        "rsync -a docs/ copy",
        "zip -ry x.zip docs",
        "diff --no-dereference -r docs src",
        "diff -u a.py src/b.txt",
        "chmod -R u+w docs",
    ],
)
def test_what_follows_no_link_or_meets_none_that_leads_out_is_silent(gate: Judged, root: Path, text: str):
    (root / "docs" / "away").symlink_to(root.parent / "other")
    assert gate.judge(command(text)) == Allow()


def test_links_are_met_in_the_named_folders_only_where_all_words_are_known():
    """Beside an unknown option, any word may be its value; another folder may be the one to start from."""
    for text in ("rg -L --later x src", "ls -LR -w 80", "tar -C docs -chf x.tar sub", "cloc --follow-links src"):
        assert "." in next(followed(Command(tuple(text.split())))).folders, text
    for text in ("rg -L x src", "grep -RA 3 x src", "tar -chf x.tar src", "fd -L -e py x src"):
        assert next(followed(Command(tuple(text.split())))).folders == ("src",), text


def test_a_link_into_the_workspace_is_followed_to_what_lies_behind_it(gate: Judged, root: Path):
    (root / "docs" / "away").symlink_to(root.parent / "other" / "secret.txt")
    (root / "src" / "near").symlink_to("../docs")
    assert isinstance(gate.judge(command("grep -R x src")), Ask)


def test_a_broken_link_leads_nowhere(gate: Judged, root: Path):
    (root / "docs" / ".#lock").symlink_to("me@host.1234")
    (root / "docs" / "gone").symlink_to(root.parent / "other" / "missing")
    assert gate.judge(command("grep -R x .")) == Allow()


def test_what_find_gives_to_a_program_may_be_a_link_that_leads_out(gate: Judged, root: Path):
    texts = (
        "find . -exec cat {} +",
        "find . -name 'read*' -exec cat {} +",
        "find . -iname 'READ*' -exec head -1 {} \\;",
        "find . -name '[r]*' -exec cat {} +",
        "find . -type f -o -name readme.txt -exec cat {} +",
        "find . ! -type f -exec cat {} +",
        "find . -type f -exec true \\; -o -exec cat {} +",
        "find . -type l -exec cat {} +",
        "find . -execdir cat {} +",
        "find . -name x -o -exec cat {} +",
        "find . -exec timeout 5 cat {} \\;",
        "find . -exec ls {} +",
        "find . -exec chmod u+w {} +",
        "fd -x cat",
        "fd -e txt -x cat",
        "fd -t f -tl -x cat",
        "fd -t l -x cat",
        "fd -t f --type symlink -x cat",
        "fd --type=l -x cat",
        "fd . -X wc -l",
    )
    assert asked(gate, texts) == dict.fromkeys(texts, False)
    (root / "readme.txt").symlink_to(root.parent / "other" / "secret.txt")
    assert asked(gate, texts) == dict.fromkeys(texts, True)


@pytest.mark.parametrize(
    "text",
    [
        "find . -type f -exec cat {} +",
        "find . -name '*.py' -exec grep -l main {} \\;",
        "find . -type f -name '*.md' -exec wc -l {} +",
        "find . -not -path './node_modules/*' -name '*.py' -exec wc -l {} +",
        "find src -exec cat {} +",
        "find . -exec echo {} \\;",
        "find . -exec rm {} +",
        "find . -exec ls -ld {} +",
        "find . -exec chmod -h u+w {} +",
        "find . -exec chown --no-dereference me {} +",
        "fd -t f -x cat",
        "fd -e py -x wc -l",
    ],
)
def test_what_can_give_no_such_link_is_silent(gate: Judged, root: Path, text: str):
    (root / "readme.txt").symlink_to(root.parent / "other" / "secret.txt")
    assert gate.judge(command(text)) == Allow()


def test_a_link_to_a_folder_matters_to_programs_that_read_folders(gate: Judged, root: Path):
    (root / "away").symlink_to(root.parent / "other")
    assert gate.judge(command("find . -exec grep -l x {} +")) == Allow()
    assert gate.judge(command("find . -exec cat {} +")) == Allow()
    assert isinstance(gate.judge(command("find . -exec grep -rl x {} +")), Ask)
    assert isinstance(gate.judge(command("find . -exec ls {} +")), Ask)


def test_a_name_that_find_puts_into_another_path_is_asked_about(gate: Judged):
    texts = ("find . -type f -exec cat .{} \\;", "find . -type f -exec cat {}/x \\;", "fd -t f -x cat .{}")
    assert asked(gate, texts) == dict.fromkeys(texts, True)
    assert gate.judge(command("find . -type f -exec cp {} {}.bak \\;")) == Allow()


def test_a_workspace_with_more_files_than_are_looked_at_is_asked_about(gate: Judged, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.workspace.command_files.MAX_ENTRIES", 3)
    assert isinstance(gate.judge(command("grep -R x .")), Ask)
    assert gate.judge(command("grep -r x .")) == Allow()


def test_a_line_with_many_searches_looks_at_few_folders(gate: Judged, root: Path):
    names = [f"d{number}" for number in range(40)]
    for name in names:
        (root / name).mkdir()
    assert isinstance(gate.judge(command("; ".join(f"grep -R x {name}" for name in names))), Ask)


MAKERS = (
    "git checkout -q evil",
    "git -C . switch evil",
    "git restore -s evil .",
    "git restore --staged --worktree .",
    "git reset -q --hard evil",
    "git reset --har evil",
    "git merge evil",
    "git pull",
    "git rebase evil",
    "git cherry-pick evil",
    "git revert evil",
    "git stash pop",
    "git stash branch x",
    "git apply x.diff",
    "git am x.mbox",
    "git read-tree -u evil",
    "git checkout-index -a",
    "git submodule update",
    "git worktree add x evil",
    "git unknown-alias",
    "ln -s src x",
    "ln a.py x",
    "tar xf a.tar",
    "tar -xf a.tar",
    "tar --extract -f a.tar",
    "tar -C docs -xf a.tar",
    "tar -fctar -x",
    "tar -fc.tar --ex",
    "tar --file=c.tar -x",
    "unzip a.zip",
    "unzip -dt a.zip",
    "python3 -m tarfile -e a.tar",
    "git apply --stat --apply x.diff",
    "find . -type f | xargs mv -t docs a.py",
    "7z x a.7z",
    "cpio -id",
    "patch -p1 -i x.diff",
    "rsync -a src/ docs",
    "cp -r src copy",
    "cp -a src/. docs",
    "cp -P link-in copy",
    "cp -s a.py copy",
    "mv src new",
    "mv link-in new",
    "mv missing new",
    "mv *.py docs",
    "hg update evil",
    "timeout 5 git checkout evil",
    "bash -c 'git checkout evil'",
    "find . -exec ln -s src x \\;",
)


def test_a_file_that_is_named_like_a_pattern_does_not_stand_for_all_that_the_pattern_moves(gate: Judged, root: Path):
    (root / "a*").write_text("")
    for word, known in (("'a*'", True), ("a*", False)):
        verdict = gate.judge(command(f"mv {word} docs && cat readme.txt"))
        assert isinstance(verdict, Allow if known else Ask), word


@each_row("maker", MAKERS)
def test_behind_a_command_that_may_make_links_no_path_is_known(gate: Judged, maker: str):
    for text in (
        f"{maker} && cat readme.txt",
        f"{maker}; grep x src/b.txt",
        f"{maker} && cd docs && cat .",
        f"{maker} && cd docs && ls",
        f"{maker} && cd docs && pwd && ls",
        f"{maker} && cd docs && git log -p",
        f"cat readme.txt | {maker}",
        f"cat readme.txt & {maker}",
        f"{maker} && git -C docs log",
        f"{maker} && git hash-object readme.txt",
        f"{maker} && git commit -F readme.txt",
        f"{maker} && grep -R x .",
        f"{maker} && find . -exec cat {{}} +",
        f"{maker} && sort < readme.txt",
        f"{maker} && head -n 5 readme.txt",
        f"{maker} && tail -n5 5",
        f"{maker} && grep --file=readme.txt x",
    ):
        verdict = gate.judge(command(text))
        assert isinstance(verdict, Ask), text
        assert not verdict.firm, text


@each_row(
    "text",
    [
        "git pull && make build",
        "git pull && make -C docs test",
        "git pull && cd docs && npm test",
        "git stash pop && npm test",
        "git checkout main && git pull",
        "git checkout -b x && git add . && git commit -m y",
        "git checkout main && git diff --stat HEAD~1 | head -n 20",
        "git checkout main 2>&1 | tail -3",
        "git pull && pytest tests/test_app.py",
        "git pull && python3 manage.py migrate",
        "git pull && rm -rf build dist",
        "git pull && ls",
        "git pull && grep -rn needle . | sort -u | head -n 5",
        "git pull && rg -t py needle",
        "git pull && find . -name '*.py' | wc -l",
        "git pull && find . -type f -exec grep -l x {} +",
        "git pull && fd -e py",
        "git pull && echo done > /dev/null",
        "tar xf a.tar && ls -la",
        "mv a.py b.py && pytest b.py",
        "mv a.py b.py && cat b.py",
        "cp a.py b.py && cat b.py",
        "cat a.py; git checkout main",
        "cat a.py | head -n 5 && git stash pop",
        "git stash list && cat a.py",
        "git status && cat a.py",
        "git fetch && git log -1 && cat a.py",
        "git reset --soft HEAD~1 && cat a.py",
        "git restore --staged a.py && cat a.py",
        "git worktree list && cat a.py",
        "tar czf x.tgz src && cat a.py",
        "tar tf x.tar && cat a.py",
        "tar -tvf x.tar && cat a.py",
        "tar --list --file=x.tar && cat a.py",
        "unzip -l x.zip && cat a.py",
        "mkdir -p build && cat a.py",
    ],
)
def test_everyday_lines_stay_silent(gate: Judged, text: str):
    assert gate.judge(command(text)) == Allow()


@pytest.mark.parametrize("folder", ["build", "docs", "new/build"])
def test_a_folder_that_the_line_makes_may_be_left_again(gate: Judged, folder: str):
    up = "/".join(".." for _ in folder.split("/"))
    assert gate.judge(command(f"mkdir -p {folder} && cd {folder} && cmake {up}")) == Allow()
    assert gate.judge(command(f"mkdir -p {folder} && cd {folder} && cat {up}/a.py")) == Allow()
    assert isinstance(gate.judge(command(f"mkdir -p {folder} && cd {folder} && cat {up}/../x")), Deny)


def test_a_link_in_place_of_that_folder_is_left_as_the_link_leads(gate: Judged, root: Path):
    (root / "build").symlink_to(root.parent / "other")
    assert not isinstance(gate.judge(command("mkdir -p build && cd build && cat ../x")), Allow)


def test_a_link_to_the_workspace_itself_in_place_of_that_folder_leads_out_behind_it(gate: Judged, root: Path):
    """`cd build` enters the workspace, so that `..` is the folder above it."""
    (root / "build").symlink_to(".")
    assert not isinstance(gate.judge(command("mkdir -p build && cd build && cat ../x")), Allow)


@pytest.mark.parametrize(
    "text",
    [
        "ln -s ../shared docs/shared",
        "ln -s ../shared docs",
        "ln -s ../shared docs/",
        "ln -sf ../../shared src/deep/shared",
        "ln -s ../shared ../a.py docs",
        "ln -st docs ../shared",
        "ln -s -t docs ../shared ../a.py",
        "ln -s --target-directory=docs ../shared",
        "ln -sT ../shared docs/x",
        "ln -s shared x",
        "ln -sr shared docs/x",
        "ln -s ../a.py link-in",
        "ln a.py b.py",
        "cd docs && ln -s ../shared shared",
        "cd docs && ln -s ../shared",
        "mkdir -p new && ln -s ../shared new",
        "mkdir -p new && ln -s ../shared new/x",
    ],
)
def test_a_link_to_what_lies_inside_is_silent(gate: Judged, text: str):
    assert gate.judge(command(text)) == Allow()


def test_the_target_of_a_link_may_lie_in_another_root(tmp_path: Path):
    (tmp_path / "app").mkdir()
    (tmp_path / "shared").mkdir()
    gate = gate_of(tmp_path / "app", tmp_path)
    assert gate.judge(command("ln -s ../shared shared")) == Allow()


@pytest.mark.parametrize(
    "text",
    [
        "ln -s /etc/passwd x",
        "ln -s ~/x y",
        "ln -s ../../other docs/x",
        "ln -s ../other x",
        "ln -s ../other",
        "ln -s ../x new",
        "ln -sT ../other docs",
        "ln -sr ../other docs/x",
        "ln -sr ../x docs/y",
        "ln -s --relative ../x docs/y",
        "ln -s --later ../x docs/y",
        "ln ../other/secret.txt docs/x",
        "ln -s ../shared ../shared",
        "ln -s -t docs ../../other",
        "ln -sn ../other link-in",
        "ln -s ../shared docs/x ../y",
    ],
)
def test_a_link_to_what_lies_outside_is_not(gate: Judged, text: str):
    assert not isinstance(gate.judge(command(text)), Allow)
