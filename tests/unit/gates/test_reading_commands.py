"""Commands that only read run without a question; what stands beside them in any respect still asks."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acp_agent.config.load import Flags, Loaded, load
from acp_agent.core.session_options import AutoApprove, SessionOptions
from acp_agent.gates.gate import CommandFacts
from acp_agent.gates.grants import Grant, GrantKind
from acp_agent.gates.rules.permission_rules import Action
from acp_agent.gates.shell.grammar import Grammar, grammar_of
from acp_agent.gates.shell.programs import program_table
from tests.unit.gates import everyday, hostile
from tests.unit.gates.chain import Chain, command, defaults, rules

pytestmark = pytest.mark.anyio

READING = (
    *("ls -la", "cat README.md", "head -50 src/app.py", "grep -rn needle src", "rg needle", "find . -name '*.py'"),
    *("git status", "git log --oneline -5", "git diff HEAD~1 -- src", "git show HEAD:src/app.py", "git branch -a"),
    *("git blame src/app.py", "git tag -l 'v*'", "git branch --contains HEAD", "git stash list", "git remote -v"),
    *("cd src && cat app.py | head -3", "ls; pwd", "wc -l src/*.py", "sed -n 1,40p src/app.py", "awk '{print $1}' x"),
    *("find . -name '*.py' -exec wc -l {} +", "timeout 5 git status", "ls missing 2>/dev/null || true"),
    *("sed 's/[^/]*$//' x", "sed -E 's/[[:space:]]+/ /g;/^[#;]/d' x", "printf '%s 100%%n\\n' a", "echo src/*"),
    *(
        "time cd src && ls",
        "diff -u a b",
        "jq .name package.json",
        "sort x | uniq -c",
        "command -v make",
        "git -C src log -1",
        "echo hi",
    ),
)
OTHERS = {
    "writes": (
        *("ls > out", "sed -i s/a/b/ x", "sort -o x y", "sort -ox y", "sort --output=x y", "uniq a b", "xxd a b"),
        *("find . -delete", "find . -fprint out", "find . -name x -exec rm {} +", "awk '{print > \"x\"}' y"),
        *("sed -n 'w out' x", "sed 's/a/b/w out' x", "git diff --output=x", "tree -o x", "tee x", "git branch new"),
        *("git tag v1", "git branch -d x", "git tag -d v1", "git branch -m x", "git stash", "git reflog expire --all"),
        *(
            "git remote add x y",
            "git config x.y z",
            "git branch -u origin/x",
            "git branch --edit-description",
            "date -s 1",
        ),
        *("git worktree prune", "git notes remove x", "sort * ", "git diff *", "tree *", "rg x *", "find *"),
        *(
            "sed 's/[/A/g;s,x]/R/w f,y,' x",
            "sed '/[/p;s,x]/w f,y,' x",
            "sed 's/[]/A/g;s,x]/R/w f,y,' x",
            "sed 's/[^]/A/g;s,x]/R/w f,y,' x",
            "sed 's/[\\]/A/g;s,x]/R/w f,y,' x",
            "sed -n '\\,[,]p;s/,]/x/w f/;s,p,x,' x",
        ),
        *("find . -- -delete", "find -L -- . -delete", "yes | head > x", "git symbolic-ref HEAD x", "hostname x"),
    ),
    "runs": (
        *("ls; make", "git log | sh", "xargs cat", "find . | xargs cat", "find . -execdir cat {} \\;", "./cat x"),
        *(
            "find . -exec sh -c x \\;",
            "fd x -x cat",
            "rg --pre evil x",
            "git -c core.pager=x log",
            "env ls",
            "nohup ls",
        ),
        *(
            "git grep -O x",
            "git log --ext-diff",
            "git diff --textconv",
            "bash -c ls",
            "eval ls",
            "awk 'BEGIN{system(\"x\")}'",
            "printf '%n' PATH && ls",
            "printf 'a%-ln' PATH; ls",
            "printf * && ls",
        ),
        *("sort --compress-program=x y", "sed 1e x", "PATH=. ls", "GIT_PAGER=x git log", "export X=1; ls", "bin/ls"),
        *(
            "node_modules/.bin/cat x",
            "python --version",
            "cargo --version",
            "tail -f x & make",
            "sudo-ls",
            "ls $(make)",
            "git log --format=%G?",
        ),
    ),
    "reaches": (
        *(
            "git fetch",
            "git ls-remote",
            "git remote show origin",
            "git remote update",
            "dig x",
        ),
        *("ssh x ls", "git pull"),
    ),
    "leads out": (
        *(
            "ls /",
            "cat /etc/hostname",
            "cat ~/x",
            "grep -r x /etc",
            "cd / && ls",
            "cat link-out/x",
            "git -C /other log",
        ),
        *(
            "cat l*-out/x",
            "find / -name x",
            "ls ~",
            "wc -l < /etc/passwd",
            "git diff --no-index /etc/hosts x",
            "cd; ls",
        ),
        *("timeout 5 cat /etc/hostname", "find link-out/ -exec cat {} +", "diff /etc/hosts x", "grep -R x ."),
        *(
            "cd /tmp; cat x",
            "grep --exclude-from=/etc/hosts x .",
            "rg --ignore-file=/etc/hosts x",
            "date -r /etc/hosts",
            'awk \'BEGIN{SYMTAB["AR" "GV"][1]="../x"}{print}\' x',
            "echo /etc/*",
            "printf '%s ' ~/.*",
            "diff -x /etc/host*",
            "grep -v /etc/host* x",
            "cut -d /etc/* -f1",
            "nice cd src && cat ../x",
            "timeout 5 cd src && cat ../x",
        ),
    ),
    "secrets": (
        *(
            "cat .env",
            "grep -r KEY .",
            "head .env",
            "git diff --no-index .env x",
            "find . -exec cat {} +",
            "base64 .env",
        ),
        *(
            "cat .e*",
            "cat .[e]nv",
            "sort .env",
            "jq . credentials.json",
            "echo $GITHUB_TOKEN",
            "jq -n env",
            "printenv",
            "env",
        ),
        *(
            "rg --hidden KEY",
            "awk 'BEGIN{print ENVIRON[\"KEY\"]}'",
            "git show HEAD:.env",
            "grep -v .e* x",
            "diff .env x",
            "set",
            "ps auxe",
        ),
    ),
}
READS = "head -n 1 README.md"
"""A command that only reads, for chains that have judged many others."""
CONDUCTS = [SessionOptions(auto_approve=level) for level in (AutoApprove.SUGGEST, AutoApprove.AUTO_EDIT)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A project beside another folder, with a link that leads there."""
    (tmp_path / "other").mkdir()
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("x = 1\n")
    (folder / "README.md").write_text("hello\n")
    (folder / "link-out").symlink_to(tmp_path / "other")
    return folder


Make = Callable[..., Chain]


@pytest.fixture
def make(work: Path, tmp_path: Path) -> Make:
    def chain(
        allow: tuple[object, ...] = (), conduct: SessionOptions | None = None, loaded: Loaded | None = None
    ) -> Chain:
        grants = str(tmp_path / "grants.toml")
        return Chain(str(work), grants, allow, conduct or SessionOptions(), loaded=loaded or defaults())  # pyright: ignore[reportArgumentType]

    return chain


@pytest.mark.parametrize("conduct", CONDUCTS, ids=str)
async def test_a_command_that_only_reads_runs_without_a_question(make: Make, conduct: SessionOptions):
    chain = make(conduct=conduct)
    for text in READING:
        assert await chain.fate(command(text)) == "silent", text


@pytest.mark.parametrize("kind", OTHERS)
async def test_what_does_more_than_read_the_roots_asks_as_before(make: Make, work: Path, kind: str):
    if kind == "secrets":
        (work / ".env").write_text("KEY=x\n")
    chains = [make(conduct=conduct) for conduct in CONDUCTS]
    for text in OTHERS[kind]:
        for chain in chains:
            assert await chain.fate(command(text)) in ("asked", "refused", "blocked"), text
    assert [await chain.fate(command(READS)) for chain in chains] == ["silent"] * 2, "they refuse not just everything"


async def test_no_hostile_command_runs_without_a_rule(make: Make):
    chain = make()
    for text in (*hostile.U, *(text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table)):
        assert await chain.fate(command(text)) != "silent", text
    assert await chain.fate(command(READS)) == "silent", "it refuses not just everything"


@given(
    st.sampled_from(READING),
    st.sampled_from([(kind, each) for kind in OTHERS if kind != "secrets" for each in OTHERS[kind]]),
    st.sampled_from(["&&", ";", "||", "|", "&", "\n"]),
    st.booleans(),
)
@settings(max_examples=settings.default.max_examples)
async def test_a_reading_command_lends_nothing_to_what_stands_beside_it(
    tmp_path_factory: pytest.TempPathFactory, reading: str, other: tuple[str, str], joint: str, first: bool
):
    kind, text = other
    goes_on = first and "cd " in reading and joint in ("&&", ";", "\n")
    if goes_on and kind == "leads out":  # `cd src && cat ../x` stays inside
        assume("../" not in text and "link-out" not in text and text != "grep -R x .")  # it follows the link-out
    folder = tmp_path_factory.getbasetemp() / "beside"
    folder.mkdir(exist_ok=True)
    if not os.path.lexists(folder / "link-out"):
        (folder / "link-out").symlink_to("/usr")
    line = f"{reading} {joint} {text}" if first else f"{text} {joint} {reading}"
    assert await Chain(str(folder), os.devnull).fate(command(line)) != "silent"


async def test_reading_commands_need_no_rule_beside_others_that_have_one(make: Make):
    assert await make(rules("make *")).fate(command("git status && make test")) == "silent"
    assert await make(rules("make *")).fate(command("git status && ls > out && make test")) == "asked"


async def test_the_users_rules_and_answers_come_first(make: Make):
    for text in ("git log", "timeout 5 git log", "ls && git log"):
        assert await make(rules("git *", action=Action.ASK)).fate(command(text)) == "asked", text
        assert await make(rules("git *", action=Action.DENY)).fate(command(text)) == "refused", text
    chain = make()
    await chain.grants.remember(Grant("bash", GrantKind.PREFIX, "git log", allowed=False))
    assert await chain.fate(command("git log -1")) == "refused"
    assert await chain.fate(command("git status")) == "silent"
    await chain.grants.remember(Grant("bash", GrantKind.TOOL, "", allowed=False))
    assert await chain.fate(command("git status")) == "refused"


async def test_where_some_files_may_not_be_read_commands_ask(make: Make, tmp_path: Path):
    file = tmp_path / "config.toml"
    for text in (
        "tools.file.deny_read = ['private']",
        "tools.file.allow_read = ['src/**']",
        "[[tools.permissions.read]]\npattern = 'private/*'\naction = 'deny'",
        "[[tools.permissions.grep]]\npattern = 'private/*'\naction = 'ask'",
    ):
        file.write_text(text)
        loaded = load(Flags(), {"ACP_AGENT_CONFIG": str(file)})
        for line in ("ls", "grep -r x .", "cat private/x"):
            assert await make(loaded=loaded).fate(command(line)) != "silent", (text, line)
    chain = make()
    await chain.grants.remember(Grant("read", GrantKind.TOOL, "", allowed=False))
    assert await chain.fate(command("cat src/app.py")) == "asked"


@pytest.mark.parametrize("text", ["wc *", "wc ?-*", "cd src && cat *", "echo *", "du [-]*"])
async def test_a_file_that_is_called_like_an_option_asks_if_a_pattern_stands_for_it(make: Make, work: Path, text: str):
    for folder in (work, work / "src"):
        (folder / "--files0-from=README.md").touch()
    (work / "link-out").unlink()
    assert await make().fate(command(text)) == "asked"
    assert await make().fate(command("wc -- *; wc ./*; wc r*")) == "silent"


async def test_reading_a_partial_clone_asks_since_git_fetches_what_is_missing(make: Make, work: Path):
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".git" / "refs").mkdir()
    (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (work / ".git" / "config").write_text('[remote "o"]\n\turl = https://host.invalid/x\n\tpromisor = true\n')
    assert await make().fate(command("git show HEAD:a")) == "asked"
    assert await make(rules("git *")).fate(command("git show HEAD:a")) == "silent"
    chain = make()
    await chain.grants.remember(Grant("bash", GrantKind.PREFIX, "git show", allowed=True))
    assert await chain.fate(command("git show HEAD:a")) == "silent"


def forms() -> Iterator[tuple[list[str], Grammar]]:
    """Every program and subcommand of the table that has a grammar and is here."""
    for name in sorted(program_table().reads):
        program, *verbs = name.split(" ")
        form = grammar_of(program)
        if form is None or shutil.which(program) is None or (program == "git" and not verbs):
            continue
        for verb in verbs:
            form = form.verbs[verb]
        yield [program, *verbs], form


def test_no_option_that_a_grammar_lists_makes_a_reading_program_write(tmp_path: Path):
    """The programs themselves are the oracle: each option alone, with files to read, leaves the folder as it is.

    Of the options of a program every twelfth is tried here, and each under `make properties`.
    """
    step_width = 1 if settings.default.max_examples > 1000 else 12
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (folder / name).write_text("one two\nthree\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": os.devnull}
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for step in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *step], cwd=folder, env=environment, check=True, capture_output=True)
    before, ran = contents(folder), 0
    for words, form in forms():
        for option in sorted(form.flags | form.optional.keys())[::step_width]:
            argv = [*words, option, *([] if words[0] == "git" else ["a", "b"])]
            if not CommandFacts(" ".join(argv)).only_reads or words[0] in ("tail", "sleep", "free"):
                continue
            try:
                subprocess.run(
                    argv,
                    check=False,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=5,
                )
            except subprocess.TimeoutExpired:
                continue
            ran += 1
            assert contents(folder) == before, argv
    assert ran > 500 // step_width


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without git's index, which `git status` refreshes."""
    files = (each for each in folder.rglob("*") if each.is_file() and each.name != "index")
    return {str(each): each.read_bytes() for each in files}


def test_a_reading_program_without_a_grammar_does_no_harm_with_any_words():
    names = {name for name in program_table().reads if " " not in name}
    assert {name for name in names if grammar_of(name) is None} == {":", "cd", "echo", "false", "sleep", "true"}


def test_everyday_reading_is_known():
    known = [text for text in everyday.COMMANDS if CommandFacts(text).only_reads]
    assert len(known) > 90
