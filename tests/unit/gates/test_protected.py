"""Calls and commands that change what somebody else runs later: asked about, never silent."""

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolErrorCategory
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.core.types import Access, Allow, Ask, CallOrigin, Deny, PathSubject
from acp_agent.gates.gate import CommandFacts, Gate
from acp_agent.gates.git_calls import GitGuard
from acp_agent.gates.paths.command_paths import MAX_WORDS
from acp_agent.gates.paths.written_paths import Written, written
from acp_agent.gates.protected import ProtectedGate
from acp_agent.gates.shell.command import Command
from acp_agent.workspace.command_files import shell_names
from acp_agent.workspace.git.changes import GitChanges
from acp_agent.workspace.protected_paths import ProtectedPaths
from tests.unit.gates import everyday
from tests.unit.gates.chain import Chain, Judged, call, command, full_auto, inside, rules
from tests.unit.gates.test_policy import Agreeing

pytestmark = pytest.mark.anyio

HOOK, SHELL, SSH, SYSTEM = "git runs commands", "a shell runs it", "log in as you", "by itself"
GIT, EDITOR, DIRENV, HOOKS = "git runs or obeys", "an editor may run", "direnv runs", "git hooks are kept"

WRITES = {
    "mv .git x": HOOK,
    "cp evil .git/hooks/pre-commit": HOOK,
    "cp evil .git/hooks/": HOOK,
    "cp -t .git/hooks evil": HOOK,
    "cp --target-directory=.git/hooks evil": HOOK,
    "cp --target .git/hooks evil": HOOK,
    "cp -rt .git/hooks x": HOOK,
    "cp -vt .git/hooks x": HOOK,
    "cp -t.git/hooks x": HOOK,
    "cp -rvt.git/hooks x": HOOK,
    "mv -t.git/hooks x": HOOK,
    "mv -ft .git/hooks x": HOOK,
    "ln -st.git/hooks x": HOOK,
    "install -Dt .git/hooks x": HOOK,
    "install -m755 -t.git/hooks x": HOOK,
    "gcc -o.git/hooks/x y.c": HOOK,
    "tar -C.git/hooks -xf x.tar": HOOK,
    "tar -cf.git/hooks/x src": HOOK,
    "tar -c --file .git/hooks/x src": HOOK,
    "patch -o.git/hooks/x a b": HOOK,
    "sort -o.git/hooks/x y": HOOK,
    "sort -uo.git/hooks/x y": HOOK,
    "tree -o.git/hooks/x": HOOK,
    "tree -ao .git/hooks/x": HOOK,
    'awk \'BEGIN{print "#!/bin/sh;id" > ".git/hooks/post-commit"}\'': HOOK,
    "tar xf x.tar": HOOK,
    "tar -xzf x.tgz": HOOK,
    "tar -xf x.tar -C .": HOOK,
    "tar -xfcat.tar": HOOK,
    'tar -xf x.tar -C "$PWD"': HOOK,
    "tar xCf . x.tar": HOOK,
    "tar --extract --file=x.tar": HOOK,
    "gtar xf x.tar --directory=./": HOOK,
    "cat x.tar | tar x": HOOK,
    "unzip -o x.zip": HOOK,
    "unzip x.zip -d .": HOOK,
    "patch -p1 -i x.diff": HOOK,
    "patch -p1 < x.diff": HOOK,
    "patch -p1 -d . < x.diff": HOOK,
    "git apply x.diff": HOOK,
    "git apply --check --new-option x.diff": HOOK,
    "git am x.mbox": HOOK,
    "cpio -idm < x.cpio": HOOK,
    "7z x a.7z": HOOK,
    "jar xf a.jar": HOOK,
    'cp evil "$PWD/.git/hooks/x"': HOOK,
    "cp evil .git/hooks/$name": HOOK,
    "cp evil .g*/hooks/x": HOOK,
    "install -m 755 x .git/hooks/pre-commit": HOOK,
    "ln -s ../evil .git/hooks/pre-commit": HOOK,
    "ln -s .git g": HOOK,
    "cd .git && mv hooks h2": HOOK,
    "cd .git; mv hooks h2": HOOK,
    "(cd .git/hooks && echo x > pre-commit)": HOOK,
    "pushd .git && cp x hooks/y": HOOK,
    "bash -c 'mv .git x'": HOOK,
    "d=.git; mv $d x": HOOK,
    "env A=1 mv .git x": HOOK,
    "timeout 5 tee .git/config": HOOK,
    "busybox cp x .git/hooks/y": HOOK,
    "if true; then cp x .git/hooks/y; fi": HOOK,
    "rm -rf .git": HOOK,
    "rm -rf .gi[t]": HOOK,
    "mkdir .git": HOOK,
    "mkdir -p .git/hooks": HOOK,
    "echo x > .git/hooks/a": HOOK,
    "echo x > .GIT/Hooks/a": HOOK,
    "echo x > link/pre-commit": HOOK,
    "echo x > l*k/pre-commit": HOOK,
    "cp x l*/pre-commit": HOOK,
    "cd l* && cp x pre-commit": HOOK,
    "cp x link/pre-commit": HOOK,
    "echo .git/hooks/x | xargs rm": HOOK,
    "find .git/hooks -type f | xargs rm": HOOK,
    "bash -c 'find .git/hooks -type f | xargs rm'": HOOK,
    "find .git/hooks -type f -delete": HOOK,
    "find . -exec cp evil .git/hooks/x \\;": HOOK,
    "xargs -I{} cp {} .git/hooks/{}": HOOK,
    "dd if=x of=.git/hooks/pre-commit": HOOK,
    "sed -i 's/a/b/' .git/config": HOOK,
    "sed -n 'w .git/hooks/x' a": HOOK,
    "awk '{print > \".git/hooks/x\"}' a": HOOK,
    "python -c \"open('.git/hooks/x','w')\"": HOOK,
    "python3 - <<'EOF'\nopen('.git/config','a')\nEOF": HOOK,
    "git diff --output=.git/hooks/x": HOOK,
    "tar xf a.tar -C .git/hooks": HOOK,
    "unzip x -d .git/hooks": HOOK,
    "wget -O .git/hooks/x u": HOOK,
    "rm -rf ~/.config": HOOK,
    "tee .bashrc": SHELL,
    "echo x | tee -a ~/.bashrc": SHELL,
    "echo x >> ~/.zshrc": SHELL,
    "> .bashrc": SHELL,
    "exec 3> .bashrc": SHELL,
    "{ ls; } > .bashrc": SHELL,
    "cp evil/.bashrc ~": SHELL,
    "tar xf a.tar .bashrc": SHELL,
    "perl -pi -e s/a/b/ .bashrc": SHELL,
    "vim .bashrc": SHELL,
    "ed .bashrc": SHELL,
    "truncate -s 0 .bashrc": SHELL,
    "sort -o .bashrc x": SHELL,
    "uniq a .bashrc": SHELL,
    "curl -o .bashrc https://x.example": SHELL,
    "script -c ls .bashrc": SHELL,
    "echo k >> ~/.ssh/authorized_keys": SSH,
    "chmod 777 .ssh": SSH,
    "crontab jobs": SYSTEM,
    "crontab -r": SYSTEM,
    "tee /etc/cron.d/x": SYSTEM,
    "git config core.hooksPath evil": GIT,
    "git config --global alias.x '!sh'": GIT,
    "git config set core.fsmonitor x": GIT,
    "git config --unset core.hooksPath": GIT,
    "git config -e": GIT,
    "git config --remove-section user.name": GIT,
    "git -C sub config core.hooksPath x": GIT,
    "git config --file x --add include.path y": GIT,
    "git config rename-section x alias": GIT,
    "git config --rename-section x alias": GIT,
    "git config -f .bashrc user.name '$(evil)'": SHELL,
    "./git config -f .bashrc user.name x": SHELL,
    "tools/git rm .bashrc": SHELL,
    "git -c core.pager=config config -f .bashrc user.name x": SHELL,
    "git config --file=.envrc user.name '$(evil)'": DIRENV,
    "git init --template=evil": GIT,
    "git init --te=evil": GIT,
    "git init --separate-git-dir=x": GIT,
    "git init --separate-git-dir x": GIT,
    "git init --sep=x": GIT,
    "git clone --separate-git-dir=x a b": GIT,
    "git clone -c core.hooksPath=x a b": GIT,
    "git mv x .vscode/tasks.json": EDITOR,
    "git checkout evil -- .vscode/tasks.json": EDITOR,
    "rm -rf .vscode": EDITOR,
    "cp -r evil .vscode": EDITOR,
    "rsync -a evil/ .vscode/": EDITOR,
    "mv evil/tasks.json .vscode/": EDITOR,
    "mv evil .vscode": EDITOR,
    "sed -i s/a/b/ .vscode/settings.json": EDITOR,
    "git rm -r .husky": HOOKS,
    "chmod +x .husky/pre-commit": HOOKS,
    "touch .envrc": DIRENV,
    "rm .env*": DIRENV,
    "cat > .envrc <<'EOF'\nexport A=1\nEOF": DIRENV,
    "cp evil/.envrc .": DIRENV,
    "direnv allow": DIRENV,
    "npm pkg get x > .mcp.json": "a coding agent",
    "cp evil .claude/commands/x.md": "a coding agent",
    "rm -rf .claude": "a coding agent",
    "tee -a .hg/hgrc": "Mercurial",
    "cp evil sitecustomize.py": "Python runs it",
    "git log > sub/HEAD": "a git repository",
}

EVERYDAY = {
    "cp evil conftest.py": "the test runner",
    "echo x >> tests/conftest.py": "the test runner",
    "tee AGENTS.md": "coding agents obey it",
    "sed -i s/a/b/ CLAUDE.md": "coding agents obey it",
    "cp evil .github/workflows/ci.yml": "the build server",
    "touch .pre-commit-config.yaml": "git hooks run",
    "ln -sf evil .venv/bin/pytest": "programs are started",
    "install -m 755 x node_modules/.bin/tsc": "programs are started",
    "mv x .cargo/config.toml": "Cargo",
}
"""Commands that ask where anything asks; full-auto runs them."""

READS = (
    "python -m venv .venv",
    "uv venv .venv",
    "rm -rf .venv node_modules",
    "rm -rf web/node_modules",
    ".venv/bin/pytest -q",
    "timeout 5 .venv/bin/python -m pytest",
    "source .venv/bin/activate && pytest",
    ". venv/bin/activate",
    "node_modules/.bin/tsc -p .",
    "python .venv/bin/pytest",
    "cat AGENTS.md CLAUDE.md",
    "grep -n x tests/conftest.py",
    "wc -l .github/workflows/*",
    "git add AGENTS.md conftest.py .github/workflows/ci.yml",
    "git diff -- conftest.py",
    "mkdir -p .github .claude .cargo",
    "pip install -r requirements.txt",
    "npm ci",
    "pre-commit run --all-files",
    "pytest tests",
    "black .",
    "ruff check --fix .",
    "mypy src tests",
    "git commit -m 'edit .git/hooks/x > .bashrc'",
    "git commit -am 'x'",
    "git config --get core.hooksPath",
    "git config core.hooksPath",
    "git config get core.hooksPath",
    "git config --list",
    "git config -f .gitmodules --get-regexp path",
    "git config",
    "git config user.name Ann",
    "git config --global user.email ann@example.com",
    "git config set --global pull.rebase true",
    "git config branch.main.remote origin",
    "cat .git/config",
    "ls -la .git/hooks",
    "cat ~/.bashrc | grep PATH",
    "grep -rn x .vscode",
    "cp .vscode/settings.json backup.json",
    "cp .git/hooks/pre-commit scripts/pre-commit",
    "diff .vscode/settings.json x",
    "rsync -a --exclude .git src/ dst/",
    "tar czf x.tgz .git",
    "tar --exclude .git -czf x.tgz .",
    "zip -r x.zip . -x '.git/*'",
    "find . -path ./.git -prune -o -name '*.pyc' -print",
    "find . -not -path './.git/*' -name '*.pyc' -delete",
    "find . -path ./.git -prune -o -name '*.pyc' -delete",
    "find .git -name '*.sample' | xargs wc -l",
    "find .git/hooks -type f -exec cat {} +",
    "rm -f .git/index.lock",
    "rm -rf s*",
    "rm -rf src/library",
    "source ~/.bashrc",
    "bash .husky/pre-commit",
    "ssh -i ~/.ssh/id_ed25519 host",
    "git add .vscode/settings.json",
    "git restore --staged .vscode/settings.json",
    "git rm -r --cached .idea",
    "git diff HEAD -- .envrc",
    "git checkout HEAD -- src/a",
    "git clone https://example.com/x/y.git",
    "git init",
    "crontab -l",
    "mkdir -p .vscode",
    "mkdir -p .config/x",
    "git ls-files .vscode | xargs cat",
    "sed -n 1,10p .bashrc",
    "sed s/a/b/ .bashrc > out",
    "awk '{print $1}' .git/config",
    "jq . .vscode/settings.json",
    "test -f .git/hooks/pre-commit && echo yes",
    "[ -d .git ] && echo yes",
    "curl https://example.com/.bashrc",
    "echo '> .bashrc'",
    "ls 2>/dev/null >&2",
    "cp -t out .vscode/settings.json",
    "rsync -rt src/ backup",
    "tar -cf x.tar .git/hooks",
    "tar -C.git/hooks -cf x.tar .",
    "install -o root -m 644 x out",
    "tar xf x.tar -C build",
    "tar -xzf x.tgz -Cbuild",
    "tar -xf x.tar --directory=build",
    "tar tf x.tar",
    "tar -xOf x.tar a",
    "unzip -l x.zip",
    "unzip -p x.zip a",
    "unzip x.zip -d build",
    "patch --dry-run -p1 -i x.diff",
    "patch --check -p1 -i x.diff",
    "patch -d build -p1 < x.diff",
    "patch src/x.c < x.diff",
    "git apply --check x.diff",
    "git apply --stat x.diff",
    "git am --abort",
    "jar tf a.jar",
    "7z l a.7z",
    "gcc -Isrc/include -obuild/x y.c",
    "git init --shared",
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "link").symlink_to(".git/hooks")
    return str(tmp_path)


def gate_of(root: str, conduct: SessionOptions | None = None, *behind: Gate) -> Judged:
    resolve = inside(root)
    gate = ProtectedGate(
        paths=ProtectedPaths(),
        options=conduct or SessionOptions(),
        resolve=resolve,
        resolve_command=resolve,
        git=GitGuard(lambda folder, others=(): (), GitChanges(resolve)),
    )
    return Judged(gate, *behind, expand=partial(shell_names, resolve=resolve))


def test_a_command_that_may_change_a_protected_path_asks_and_says_why(root: str):
    judged = {text: gate_of(root).judge(command(text)) for text in WRITES}
    broken = {text: verdict for text, verdict in judged.items() if not isinstance(verdict, Ask)}
    assert not broken, str(broken)
    broken = {text: verdict for text, verdict in judged.items() if WRITES[text] not in verdict.reason}
    assert not broken, str(broken)


def test_reading_and_ordinary_work_do_not_ask(root: str):
    judged = {text: gate_of(root).judge(command(text)) for text in READS}
    assert not (broken := {text: verdict for text, verdict in judged.items() if verdict != Allow()}), str(broken)


def test_everyday_commands_are_free_at_every_level(root: str):
    texts = (*everyday.COMMANDS, *everyday.CONSTRUCTS)
    judged = {text: gate_of(root, full_auto()).judge(command(text)) for text in texts}
    assert not (broken := {text: verdict for text, verdict in judged.items() if verdict != Allow()}), str(broken)


def test_where_nothing_is_asked_it_is_refused_but_not_to_the_user_himself(root: str):
    judged = {text: gate_of(root, full_auto()).judge(command(text)) for text in WRITES}
    broken = {text: verdict for text, verdict in judged.items() if not isinstance(verdict, Deny)}
    assert not broken, str(broken)
    said = {text: (verdict.category, "full-auto does not ask" in verdict.reason) for text, verdict in judged.items()}
    due = (ToolErrorCategory.CONFIRMATION_REQUIRED, True)
    assert not (broken := {text: judged[text] for text in said if said[text] != due}), str(broken)
    own = {text: gate_of(root, full_auto()).judge(command(text, origin=CallOrigin.USER)) for text in WRITES}
    assert not (broken := {text: verdict for text, verdict in own.items() if isinstance(verdict, Deny)}), str(broken)


def test_what_belongs_to_everyday_work_asks_where_anything_does_and_full_auto_changes_it(root: str):
    for text, reason in EVERYDAY.items():
        verdict = gate_of(root).judge(command(text))
        assert isinstance(verdict, Ask), text
        assert reason in verdict.reason, text
        assert not verdict.firm, text
        assert gate_of(root, full_auto()).judge(command(text)) == verdict
        both = gate_of(root, full_auto()).judge(command(f"{text}; cp x .claude/settings.json"))
        assert isinstance(both, Deny), text


def test_an_everyday_name_hides_nothing_it_leads_to(root: str):
    os.symlink(".git/hooks/pre-commit", os.path.join(root, "conftest.py"))
    os.makedirs(os.path.join(root, ".claude"))
    os.symlink(".claude/settings.json", os.path.join(root, "AGENTS.md"))
    gate = gate_of(root, full_auto())
    for text in ("echo x > conftest.py", "cp x AGENTS.md"):
        assert isinstance(gate.judge(command(text)), Deny), text
    for path in ("conftest.py", "AGENTS.md"):
        assert isinstance(gate.judge(call("write", PathSubject(path, Access.WRITE))), Deny), path


@given(st.sampled_from([*WRITES]), st.sampled_from(["timeout 9 ", "nice ", "env A=1 ", "command ", "  "]))
def test_a_wrapper_in_front_changes_nothing(text: str, wrapper: str):
    if text.startswith(("(", "{", ">", "if ", "d=", "exec", "cd", "pushd", "crontab", "git", "direnv")) or "\n" in text:
        return
    first = gate_of("/nonexistent").judge(command(f"{wrapper}{text}"))
    assert "link/" in text or "l*" in text or isinstance(first, Ask)


async def test_no_rule_and_no_prefix_grant_makes_it_silent(root: str, tmp_path: Path):
    chain = Chain(root, str(tmp_path / "grants.toml"), allow=rules("*", "cp *", "git *", "echo *"))
    gate = gate_of(root, None, chain.permission)
    fates: Counter[str] = Counter()
    for number, text in enumerate(WRITES):
        asked = len(chain.approver.questions) if chain.approver else 0
        result = await gate.execute(command(text, number=number))
        fates["asked" if chain.approver and len(chain.approver.questions) > asked else "silent"] += 1
        assert result.failure is not None, text
    assert fates == {"asked": len(WRITES)}


# -------------------------------------------------------------------------------------------- paths


def test_a_tool_is_refused_for_hard_paths_and_asked_about_for_soft_ones(root: str):
    for conduct in (SessionOptions(), SessionOptions(auto_approve=AutoApprove.AUTO_EDIT)):
        gate = gate_of(root, conduct)
        for path in (".git/hooks/x", "link/x", "sub/.BASHRC", os.path.join(root, ".ssh/k")):
            verdict = gate.judge(call("write", PathSubject(path, Access.WRITE)))
            assert isinstance(verdict, Deny)
            assert path in verdict.reason
        for path in (".vscode/tasks.json", ".envrc", "sub/.mcp.json"):
            assert isinstance(gate.judge(call("write", PathSubject(path, Access.WRITE))), Ask)
            assert gate.judge(call("read", PathSubject(path, Access.READ))) == Allow()
        assert gate.judge(call("write", PathSubject("src/x.py", Access.WRITE))) == Allow()


def test_a_folder_that_goes_or_comes_whole_counts(root: str):
    gate = gate_of(root)
    assert isinstance(gate.judge(call("delete_path", PathSubject(".vscode", Access.DELETE))), Ask)
    for one, two in ((".vscode", "x"), ("x", ".vscode")):
        moved = call("move_path", PathSubject(one, Access.MOVE), PathSubject(two, Access.WRITE))
        assert isinstance(gate.judge(moved), Ask)
    assert gate.judge(call("write", PathSubject(".vscode", Access.WRITE))) == Allow()  # making the folder is nothing


async def test_a_yes_runs_what_is_only_to_be_asked_about_and_nothing_else(root: str):
    gate = gate_of(root, None, Agreeing())
    assert (await gate.execute(call("write", PathSubject(".envrc", Access.WRITE)))).failure is None
    assert (await gate.execute(command("touch .envrc"))).failure is None
    refused = await gate.execute(call("write", PathSubject(".git/config", Access.WRITE)))
    assert refused.failure is not None
    assert refused.ruling is not None
    assert refused.ruling.gate == "protected"
    assert len(gate.recorder.ran) == 2


def test_a_flood_of_words_is_asked_about(root: str):
    verdict = gate_of(root).judge(command("rm " + " ".join(f"f{number}" for number in range(MAX_WORDS + 1))))
    assert isinstance(verdict, Ask)
    assert "more paths" in verdict.reason
    assert gate_of(root).judge(command("rm " + " ".join(f"f{number}" for number in range(MAX_WORDS)))) == Allow()


def test_a_flood_of_names_that_a_pipe_passes_on_is_asked_about(root: str):
    names = " ".join(f"f{number}" for number in range(MAX_WORDS))
    assert gate_of(root).judge(command(f"find {names[:2000]} -type f | xargs rm")) == Allow()
    verdict = gate_of(root).judge(command(f"find {names} .git/hooks -type f | xargs rm"))
    assert isinstance(verdict, Ask)
    assert "more paths" in verdict.reason


def test_more_folders_than_can_be_followed_are_asked_about(root: str):
    text = "; ".join(f"cd d{number}" for number in range(20))
    assert gate_of(root).judge(command(text)) == Allow()
    assert isinstance(gate_of(root).judge(command(f"{text}; rm x")), Ask)


def test_a_question_is_short_and_names_what_is_hard_first(root: str):
    verdict = gate_of(root).judge(
        command("rm -f .envrc .vscode/tasks.json .mcp.json .bashrc .git/hooks/a .git/hooks/b")
    )
    assert isinstance(verdict, Ask)
    assert verdict.reason.count("may change") == 3
    assert verdict.reason.startswith("may change .bashrc")


@pytest.mark.parametrize(
    "text",
    [
        "printf -v f .envrc; cp a.txt $f",
        "printf -vf .envrc; cp a.txt $f",
        "unset x; printf -v x '%s' '.git/hooks/pre-commit'; cp a.txt $x",
        "read f <<< .envrc; cp a.txt $f",
        "ex -sc 'w! .envrc|q' a.txt",
    ],
)
def test_a_name_that_a_built_in_puts_into_a_variable_is_seen(root: str, text: str):
    assert isinstance(gate_of(root).judge(command(text)), Ask)


def test_every_path_that_a_command_moves_or_deletes_counts_with_all_that_lies_below_it():
    for text, words in (
        ("mv a b c", [("a", True), ("b", True), ("c", True), ("c/a", True), ("c/b", True)]),
        ("cp a c", [("c", False), ("c/a", False)]),
        ("cp -r a c", [("c", True), ("c/a", True)]),
        ("find build -delete -o ! -empty", [("build", True), ("!", True)]),
        ("find build -prune -delete", [("build", True)]),
        ("find . -not -path x -delete", [(".", True)]),
    ):
        assert [*written(Command(tuple(text.split())))] == [Written(*each) for each in words], text


def test_in_a_sandbox_only_what_a_command_may_change_in_the_sessions_folders_counts(root: str):
    gate: Any = gate_of(root).gates.in_order[0]
    for place, within in ((".git/hooks/x", [True, False]), ("/elsewhere/.git/hooks/x", [False])):
        line = CommandFacts(f"touch {place}")
        assert [only for only in (True, False) if [*gate._command(line, within=only)]] == within, place
