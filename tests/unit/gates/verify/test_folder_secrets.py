"""Commands that read a folder, or let git keep a copy of it, where a file with secrets is in it."""

import os
import subprocess
import time
from functools import partial
from itertools import product
from pathlib import Path

import anyio
import pytest

from acp_agent.core.types import Access, Allow, Ask, PathSubject
from acp_agent.gates.shell.command import Command, survey
from acp_agent.gates.verify.firewall import Firewall
from acp_agent.gates.verify.folder_readers import reading, surely_matches
from acp_agent.gates.verify.verifiers import VerifierGate
from acp_agent.workspace.command_files import FoundSecret, Look, SecretsBelow, real_path, shell_names
from acp_agent.workspace.roots import Roots
from tests.rows import each_row
from tests.unit.gates.chain import Judged, call, command

pytestmark = pytest.mark.anyio


def rows(table: str) -> list[tuple[str, str]]:
    return [(text, verdict) for verdict, text in (line.split(maxsplit=1) for line in table.strip().splitlines())]


def plant(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("KEY=1\n")


def git(folder: Path, *args: str) -> None:
    alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/", "PATH": os.environ["PATH"]}
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *author, *args], cwd=folder, env=alone, check=True, capture_output=True)


def gate(folder: Path) -> Judged:
    """Return the gate over a real folder, as a session has it."""
    roots = Roots(os.fspath(folder))
    verifier = Firewall(roots.resolve, partial(real_path, folder=roots.cwd), SecretsBelow(roots))
    return Judged(VerifierGate([verifier]), expand=partial(shell_names, resolve=roots.resolve))


def asks(folder: Path, text: str) -> str:
    verdict = gate(folder).judge(command(text))
    assert isinstance(verdict, Allow | Ask)
    return "Ask" if isinstance(verdict, Ask) else "Allow"


SEARCHES = """
Ask    grep -d rec KEY .
Ask    grep -drecurse KEY .
Ask    grep -nd rec KEY .
Ask    grep --directories=rec KEY .
Ask    grep --direc recurse KEY .
Ask    rgrep KEY
Ask    GREP_OPTIONS=-r grep KEY .
Ask    grep -r KEY *
Ask    grep -r KEY con*
Ask    grep -r --exclude='.env*' --include=.env KEY .
Ask    grep -r --include=.env --exclude='*.py' KEY .
Ask    grep -r --include='\\.env' KEY .
Ask    grep -r --include='.e[^x]v' KEY .
Ask    grep -r -e --exclude=.env -e --exclude=x.key -e KEY .
Ask    grep -r KEY . -- --exclude=.env --exclude=x.key
Allow  grep -d skip KEY src
Allow  grep -d read KEY src/a.py
Allow  grep -r --include='.e*' --exclude='*' KEY .
Allow  grep -r --exclude=.env --exclude=x.key KEY .
Ask    rg -ng .env KEY
Ask    rg -ng.env KEY
Ask    rg KEY conf -g 'conf/*.key'
Ask    rg KEY sub -g sub/.env
Ask    rg --hidden KEY sub -g '!/.env'
Ask    rg KEY -g '!.env' -g .env
Ask    rg KEY -g '{.env,x}'
Ask    rg KEY -g '*.{py,key}'
Ask    rg --type-add 'x:.env' -tx KEY
Ask    rg --ignore-file list KEY
Ask    RIPGREP_CONFIG_PATH=c rg KEY
Allow  rg KEY sub
Allow  rg -n KEY -g '*.py'
Allow  rg -n KEY -g '*.{py,md}'
Allow  rg KEY -g .env -g '!.env'
Allow  rg KEY -g '!*.key'
Allow  rg -t py KEY src
Ask    ag KEY
Ask    ag -u KEY sub
Ask    ag --hidden KEY sub
Ask    ag -p list KEY sub
Allow  ag KEY sub
Ask    ack KEY sub
Ask    fd . -x cat
Ask    fd -H . sub -x cat
Ask    fd -HX cat
Ask    fd -H env -x cat
Ask    fd -H -e env -x cat
Allow  fd -e py -x wc -l
Allow  fd a.py sub -x cat
Allow  fd -H -e py
Allow  fd -H py -x cat
Ask    find . -exec cat {} + -name '*.py'
Ask    find . -name '\\.env' -exec cat {} +
Allow  find . -name '*.py' -exec cat {} +
Ask    diff -N sub other
Ask    diff sub other
Ask    diff -x '*.py' sub other
Allow  diff -x .env sub other
Allow  diff src other
Allow  diff -ru src other
Ask    diff -r src conf
Ask    cpio -o
Ask    cpio -pd other
Ask    pax -w .
Ask    pax -wf x.pax conf
Allow  cpio -i
Allow  pax -r
Ask    tar cf x.tar -T list
Ask    tar cf x.tar --files-from=list
Ask    tar rf x.tar conf
Ask    tar uf x.tar conf
Ask    tar cf x.tar -C conf .
Ask    tar czf x.tar *
Ask    zip x -@
Ask    zip -R x '*'
Ask    7z a x.7z conf
Ask    jar cf x.jar conf
Ask    jar -vfc x.jar conf
Ask    jar -f x.jar -u conf
Ask    jar --file x.jar --create conf
Ask    jar --update --file=x.jar conf
Allow  tar cf x.tar src
Allow  tar xf x.tar -C sub
Allow  tar tf x.tar
Allow  7z l x.7z
Allow  jar tf x.jar
Allow  jar xf x.jar conf
Allow  jar --extract --file cu.jar conf
Allow  jar -x -f x.jar -C src .
Allow  7z x -scsUTF-8 x.7z conf
Ask    git diff --no-index sub other
"""


@each_row("text, expected", rows(SEARCHES))
def test_a_search_is_judged_by_what_its_options_make_it_read(tmp_path: Path, text: str, expected: str):
    plant(tmp_path, "sub/.env", "conf/x.key", "src/a.py", "other/a.py", "a.py", ".git/HEAD")
    assert asks(tmp_path, text) == expected


@each_row(
    "file, line",
    product(
        [".ignore", ".rgignore", ".gitignore", "sub/.ignore", ".git/info/exclude"],
        ["!.env", "!/sub/.env", "!.e*", "!**", "!sub/.[e]nv", "a\n!*.env\r"],
    ),
)
def test_an_ignore_file_may_take_a_secret_in_again(tmp_path: Path, file: str, line: str):
    plant(tmp_path, "sub/.env", "a.py", ".git/HEAD")
    assert asks(tmp_path, "rg KEY") == "Allow"
    plant(tmp_path, file)
    (tmp_path / file).write_text(f"{line}\n")
    assert asks(tmp_path, "rg KEY") == "Ask"
    assert asks(tmp_path, "rg KEY -g '!.env'") == "Allow"


@each_row("line", ["!.env.example", "!keep/", "# !.env", "\\!.env", ".env", "!src"])
def test_other_lines_of_an_ignore_file_take_no_secret_in(tmp_path: Path, line: str):
    plant(tmp_path, "sub/.env", "a.py", ".git/HEAD")
    (tmp_path / ".gitignore").write_text(f"{line}\n")
    assert asks(tmp_path, "rg KEY") == "Allow"


@pytest.mark.parametrize(("secret", "expected"), [(".env", "Ask"), ("a.py", "Allow")])
def test_a_link_that_leads_to_itself_keeps_no_search_from_being_judged(tmp_path: Path, secret: str, expected: str):
    plant(tmp_path, secret)
    (tmp_path / "a").symlink_to("a")

    assert asks(tmp_path, "grep -R KEY .") == expected


def test_a_name_that_is_no_utf_8_hides_no_secret(tmp_path: Path):
    plant(tmp_path, os.fsdecode(b"caf\xe9/x.pem"), "a.py")
    (tmp_path / ".gitignore").write_text("*.log\n")
    git(tmp_path, "init")

    assert asks(tmp_path, "git add .") == "Ask"


def test_an_ignored_secret_is_left_out_only_in_a_repository(tmp_path: Path):
    plant(tmp_path, "x.key")
    (tmp_path / ".gitignore").write_text("*.key\n")
    assert asks(tmp_path, "rg KEY") == "Ask"
    plant(tmp_path, ".git/HEAD")
    assert asks(tmp_path, "rg KEY") == "Allow"
    assert asks(tmp_path, "rg --no-ignore KEY") == "Ask"


@each_row(
    "text",
    [
        "echo '!x.key' > .ignore; rg KEY",
        "rm .gitignore && git add -A",
        "mv .gitignore x; git stash -u",
        ": > .gitignore; git add .",
        "rm .gitig*; git add .",
        "cp x .git/info/exclude; rg KEY",
    ],
)
def test_a_line_that_changes_what_is_ignored_hides_no_secret(tmp_path: Path, text: str):
    repository(tmp_path)
    plant(tmp_path, "x.key")
    (tmp_path / ".gitignore").write_text("*.key\n")
    assert asks(tmp_path, text.partition(";")[2].strip() or "git add -A") == "Allow"
    assert asks(tmp_path, text) == "Ask"


def repository(folder: Path) -> None:
    git(folder, "init", "-q")
    plant(folder, "a.py", "src/a.py")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "a")


# With .env and conf/x.key in the folder: ignored, untracked, changed in the index, staged.
GIT = """
Allow Ask   Ask   Allow  git add -A
Allow Ask   Ask   Allow  git add .
Allow Ask   Ask   Allow  git add -v --all
Allow Ask   Ask   Allow  git stage .
Allow Ask   Ask   Allow  cd src && git add -A
Allow Ask   Ask   Allow  git -C src add -A
Allow Ask   Ask   Allow  git add conf
Allow Ask   Ask   Allow  git add 'c*'
Allow Ask   Ask   Allow  git add 'con?'
Allow Ask   Ask   Allow  git add *
Allow Ask   Ask   Allow  git add ':/'
Allow Ask   Ask   Allow  git add ':(top)conf'
Allow Ask   Ask   Allow  git add --pathspec-from-file=list
Allow Ask   Ask   Allow  git add -N .
Allow Allow Allow Allow  git add src
Allow Allow Allow Allow  git add '*.py'
Allow Allow Allow Allow  git add -n .
Allow Allow Allow Allow  git add . ':!conf' ':!.env'
Allow Allow Ask   Allow  git add -u
Allow Allow Ask   Allow  git add -p
Ask   Ask   Ask   Allow  git add -f .
Ask   Ask   Ask   Allow  git add --force conf
Ask   Ask   Ask   Allow  git add -fA
Ask   Ask   Ask   Allow  git add -f conf ':!x.key'
Allow Allow Ask   Allow  git stash
Allow Allow Ask   Allow  git stash push -m x
Allow Ask   Ask   Allow  git stash -u
Allow Ask   Ask   Allow  git stash push --include-untracked
Allow Ask   Ask   Allow  git stash save -u x
Ask   Ask   Ask   Allow  git stash -a
Ask   Ask   Ask   Allow  git stash push --all -- conf
Allow Allow Allow Allow  git stash push -u -- src
Allow Allow Allow Allow  git stash pop
Allow Allow Allow Allow  git stash show -p
Allow Allow Allow Allow  git stash list
Allow Allow Ask   Allow  git commit -am x
Allow Allow Allow Allow  git commit -m x
Allow Allow Allow Ask    git commit -vm x
Allow Allow Ask   Allow  git diff
Allow Allow Ask   Ask    git diff HEAD
Allow Allow Allow Allow  git diff --stat
Allow Allow Ask   Allow  git diff --stat -p
Allow Allow Allow Allow  git diff-files
Allow Allow Ask   Allow  git diff-files -p
Allow Allow Allow Allow  git diff-index HEAD
Allow Allow Ask   Ask    git diff-index -p HEAD
Allow Allow Allow Allow  git diff main..HEAD
Allow Allow Allow Allow  git diff -- src
Allow Allow Ask   Ask    git diff --cached
Allow Allow Ask   Ask    git diff --staged
Allow Allow Ask   Ask    git status -vv
Allow Allow Allow Allow  git status
Allow Ask   Ask   Ask    git grep KEY
Allow Ask   Ask   Ask    git grep --untracked KEY
Ask   Ask   Ask   Ask    git grep --untracked --no-exclude-standard KEY
Ask   Ask   Ask   Ask    git grep --no-index KEY
Ask   Ask   Ask   Ask    git grep --no-ind KEY
Allow Allow Allow Allow  git grep KEY src
Allow Allow Allow Allow  git log -p
"""


def git_rows() -> list[tuple[str, str, str]]:
    states = ("ignored", "untracked", "changed", "staged")
    split = [line.split(maxsplit=4) for line in GIT.strip().splitlines()]
    return [(text, state, each) for *verdicts, text in split for state, each in zip(states, verdicts, strict=True)]


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = dict[str, Path]()
    for state in ("ignored", "untracked", "changed", "staged"):
        folder = made[state] = tmp_path_factory.mktemp(state)
        repository(folder)
        plant(folder, ".env", "conf/x.key")
        if state == "ignored":
            (folder / ".gitignore").write_text(".env\nconf/\n")
        if state in ("changed", "staged"):
            time.sleep(0.01)  # an object counts as staged when it is newer than the last commit by the file's clock
            git(folder, "add", ".")
        if state == "changed":
            git(folder, "commit", "-qm", "b")
            (folder / ".env").write_text("KEY=22\n")
            (folder / "conf/x.key").write_text("KEY=22\n")
    return made


@each_row("text, state, expected", git_rows())
def test_git_keeps_no_copy_of_a_secret_unasked(repositories: dict[str, Path], text: str, state: str, expected: str):
    assert asks(repositories[state], text) == expected


@pytest.fixture(scope="module")
def clean_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    repository(folder)
    return folder


@each_row("text", sorted({text for text, _, _ in git_rows() if "no-index" not in text}))
def test_git_is_silent_where_there_is_no_secret(clean_repository: Path, text: str):
    assert asks(clean_repository, text) == "Allow"


def test_a_committed_secret_is_the_repositorys_own_until_it_changes(tmp_path: Path):
    repository(tmp_path)
    plant(tmp_path, "tests/server.key")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "b")
    for text in ("git add -A", "git stash -a", "git diff", "git diff --cached", "git diff HEAD~1", "git commit -am x"):
        assert asks(tmp_path, text) == "Allow", text
    assert asks(tmp_path, "git grep KEY") == "Ask"


def test_a_repository_inside_another_one_is_not_taken_along(tmp_path: Path):
    repository(tmp_path)
    (tmp_path / "inner").mkdir()
    repository(tmp_path / "inner")
    plant(tmp_path, "inner/.env")
    assert asks(tmp_path, "git add -A") == "Allow"
    assert asks(tmp_path, "cd inner && git add -A") == "Ask"


def test_rules_above_a_repository_do_not_count_in_it(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    repository(tmp_path / "inner")
    plant(tmp_path, "inner/x.key", ".git/HEAD")
    (tmp_path / ".gitignore").write_text("*.key\n")
    assert asks(tmp_path, "cd inner && git add -A") == "Ask"
    assert asks(tmp_path, "rg KEY inner") == "Ask"
    assert asks(tmp_path, "rg KEY") == "Ask"
    (tmp_path / ".gitignore").write_text("inner/\n")
    assert asks(tmp_path, "rg KEY") == "Allow"


def test_a_folder_with_an_empty_dot_git_is_no_repository(tmp_path: Path):
    repository(tmp_path)
    plant(tmp_path, "inner/.env")
    (tmp_path / "inner/.git").mkdir()
    assert asks(tmp_path, "git add -A") == "Ask"


@pytest.mark.parametrize(
    "content", [b"", b"gitdir: a\0b\n", b"gitdir: nowhere\n", b"gitdir: " + b"x" * 70_000, b"\xff"]
)
def test_a_damaged_repository_hides_no_secret(tmp_path: Path, content: bytes):
    plant(tmp_path, ".env", "inner/.env")
    for folder in (tmp_path, tmp_path / "inner"):
        (folder / ".git").write_bytes(content)
    for text in ("git add -A", "git stash -u", "git grep KEY", "cd inner && git add ."):
        assert asks(tmp_path, text) == "Ask", text


def test_a_damaged_index_hides_no_new_secret(tmp_path: Path):
    repository(tmp_path)
    plant(tmp_path, ".env")
    whole = (tmp_path / ".git/index").read_bytes()
    for size in range(0, len(whole), 7):
        (tmp_path / ".git/index").write_bytes(whole[:size])
        assert asks(tmp_path, "git add -A") == "Ask"


def test_the_question_says_that_git_keeps_a_copy(tmp_path: Path):
    repository(tmp_path)
    plant(tmp_path, ".env")
    verdict = gate(tmp_path).judge(command("git add -A"))
    assert verdict == Ask("may show secrets: .env, which git would copy into its storage", firm=True)


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_every_form_of_index_is_read(tmp_path: Path, version: str, hashes: str, *, split: bool):
    git(tmp_path, "init", "-q", f"--object-format={hashes}")
    plant(tmp_path, *(f"a{number}/a.py" for number in range(20)), "conf/x.key")
    git(tmp_path, "config", "index.version", version)
    git(tmp_path, "add", ".")
    git(tmp_path, "update-index", "--index-version", version, *(["--split-index"] if split else []))
    git(tmp_path, "commit", "-qm", "a")
    assert asks(tmp_path, "git diff") == "Allow"
    assert asks(tmp_path, "git add -A") == "Allow"
    (tmp_path / "conf/x.key").write_text("KEY=22\n")
    assert asks(tmp_path, "git diff") == "Ask"


@pytest.mark.parametrize("access", [Access.LIST, Access.MOVE])
def test_a_folder_that_alone_tells_of_secrets_gets_no_other_name_unasked(tmp_path: Path, access: Access):
    plant(tmp_path, ".docker/config.json", ".config/gh/hosts.yml", "src/a.py", "src/.env")
    for source, target, expected in (
        (".docker", "y", Ask),
        (".config", "y", Ask),
        (".docker", "sub/.docker", Allow),
        ("src", "y", Allow),
        ("src/a.py", "y.py", Allow),
    ):
        subjects = (PathSubject(source, access), PathSubject(target, Access.WRITE))
        assert isinstance(gate(tmp_path).judge(call("move_path", *subjects)), expected), source


def test_listing_such_a_folder_is_silent(tmp_path: Path):
    plant(tmp_path, ".docker/config.json")
    assert gate(tmp_path).judge(call("list_directory", PathSubject(".docker", Access.LIST))) == Allow()


async def test_other_calls_go_on_while_a_folder_is_looked_at(tmp_path: Path):
    looking, seen = anyio.Event(), anyio.Event()
    meanwhile = list[bool]()

    def below(folders: object, look: Look) -> tuple[FoundSecret, ...]:
        anyio.from_thread.run_sync(looking.set)
        anyio.from_thread.run(seen.wait)
        return ()

    judging = Judged(VerifierGate([Firewall(Roots(os.fspath(tmp_path)).resolve, below=below)]))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(judging.execute, command("grep -r x ."))
            await looking.wait()
            meanwhile.append(True)
            seen.set()
    assert meanwhile


@each_row(
    "text, folders",
    [
        ("tar cf x.tar a b", {"a", "b"}),
        ("tar cf x.tar -C d a b", {"a", "b", "d/a", "d/b"}),
    ],
)
def test_tar_packs_what_it_names_where_it_stands_and_in_the_folders_it_goes_to(text: str, folders: set[str]):
    packed = reading(survey(text).commands[0])
    assert packed is not None
    assert set(packed.folders) == folders


def test_where_it_is_unclear_in_which_folder_git_runs_it_keeps_the_files_that_no_pathspec_leaves_out():
    kept = reading(Command(("git", "-C", "$DIR", "add", ".", ":!conf")))
    assert kept is not None
    assert (kept.folders, kept.shows(FoundSecret(".env"))) == ((".",), True)


def test_fd_reads_ignored_files_only_where_it_is_told_to():
    for text, ignores in (("fd x -x cat", True), ("fd -I x -x cat", False), ("fd -u x -x cat", False)):
        read = reading(Command(tuple(text.split())))
        assert read is not None
        assert read.look == Look(ignores=ignores, needs_git=True, follows=True), text


def test_only_a_plain_glob_surely_matches_in_every_program():
    for glob, matches in (("a*", True), ("b*", False), ("[a]b", False), ("{ab,b}", False), ("ab", True)):
        assert surely_matches("ab", glob) is matches, glob


def test_more_exceptions_than_are_compared_may_include_any_file(tmp_path: Path):
    plant(tmp_path, ".env")
    for count, verdict in ((1000, "Allow"), (1001, "Ask")):
        (tmp_path / ".ignore").write_text("".join(f"!{number}.txt\n" for number in range(count)))
        assert asks(tmp_path, "rg KEY .") == verdict, count
