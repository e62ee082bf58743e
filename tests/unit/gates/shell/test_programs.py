"""The packaged tables, and what an approval of a program covers."""

import tomllib
from importlib.resources import files

from acp_agent.gates.shell import programs
from acp_agent.gates.shell.arguments import MAX_SCRIPT, awk_asks, sed_asks
from acp_agent.gates.shell.command import Command, Plain, analyse
from acp_agent.gates.shell.options import Wrapper, tables
from acp_agent.gates.shell.programs import Program, program_table
from tests.rows import each_row


def plain(text: str) -> Command:
    verdict = analyse(text)
    assert isinstance(verdict, Plain)
    return verdict.commands[0]


def test_every_key_of_the_program_table_is_known():
    data = tomllib.loads(files("acp_agent.gates.shell").joinpath("programs.toml").read_text(encoding="utf-8"))
    known = {*Program._fields, "valued", "sparing"}
    for name, table in data["programs"].items():
        assert set(table) <= known, name
        for sub, inner in table.get("sub", {}).items():
            assert set(inner) <= known, (name, sub)
    assert set(data["aliases"].values()) <= set(data["programs"])
    for program in program_table().programs.values():
        assert program.key in ("program", "subcommand", "targets", "payload")


def test_every_key_of_the_wrapper_table_is_known():
    data = tomllib.loads(files("acp_agent.gates.shell").joinpath("tables.toml").read_text(encoding="utf-8"))
    known = set(Wrapper._fields)
    for name, table in data["wrappers"].items():
        assert set(table) <= known, name
    for name, commands in data["commands"].items():
        for sub, table in commands.items():
            assert set(table) <= known, (name, sub)
    assert set(tables().danger) == set(data["danger"])


@each_row(
    "text, prefix",
    [
        ("git status -s", "git status"),
        ("/usr/bin/git -C sub log", "git log"),
        ("git --no-pager diff", "git diff"),
        ("cargo test --release", "cargo test"),
        ("npm run build -- --x", "npm run build"),
        ("npm test", "npm test"),
        ("docker compose up -d", "docker compose up"),
        ("make -j4 test lint", "make lint test"),
        ("make", "make"),
        ("go vet ./...", "go vet"),
        ("kubectl get pods", "kubectl get"),
        ("pip list", "pip list"),
        ("ls -la", "ls"),
        ("sed -n 1p x", "sed"),
        ("mkdir -p x", "mkdir"),
        ("git push origin main", "git push"),
        ("git push -u origin main:main", "git push"),
        ("git clean -n", "git clean"),
        ("git reset --soft HEAD~1", "git reset"),
        ("git branch -a", "git branch"),
        ("git stash pop", "git stash"),
        ("git checkout -b feature/x", "git checkout"),
        ("git commit --amend -m clear", "git commit"),
        ("pytest -x", "pytest"),
    ],
)
def test_an_approval_covers_a_program_and_what_belongs_to_its_name(text: str, prefix: str):
    assert " ".join(programs.prefix(plain(text))) == prefix


@each_row(
    "text",
    [
        "python x.py",
        "python3.12 -m pytest",
        "node x.js",
        "bash x.sh",
        "sh -c ls",
        "perl x",
        "awk 1 x",
        "timeout 5 ls",
        "env ls",
        "xargs ls",
        "find . -exec ls {} +",
        "npx tsc",
        "ssh host ls",
        "rm x",
        "tar xf x",
        "./build.sh",
        "/tmp/git status",
        "git",
        "uv run pytest",
        "eval ls",
        "make 'a b'",
        "unheard-of x y",
        "fakeroot make",
        "prlimit ls",
        "hyperfine ls",
        "entr make",
        "watchexec make",
        "nodemon x.js",
        "perf stat ls",
        "mise run x",
        "direnv exec . ls",
        "nix-shell --run ls",
        "cross-env A=1 ls",
        "jshell x",
        "swift x",
        "kotlin x",
        "racket x",
        "tcc -run x.c",
    ],
)
def test_interpreters_runners_wrappers_and_the_irreversible_bind_to_the_whole_text(text: str):
    assert programs.prefix(plain(text)) == ()


@each_row(
    "text",
    [
        "git push --force",
        "git push --forc",
        "git push -f",
        "git push -uf origin main",
        "git push origin main --force-with-lease",
        "git push --mirror",
        "git push --delete origin x",
        "git push -d origin x",
        "git push --prune origin",
        "git push origin :main",
        "git push origin +main",
        "git -C sub push -f",
        "git clean -fd",
        "git clean --force",
        "git clean -fdx",
        "git reset --hard",
        "git reset --har HEAD~3",
        "git branch -D x",
        "git branch -f x y",
        "git branch -M x",
        "git stash clear",
        "git stash drop",
        "git checkout -f",
        "git checkout -- x",
        "git checkout .",
        "git checkout HEAD -- src",
        "git checkout src/app.py",
        "git checkout -B x",
        "git switch -C x",
        "git switch --discard-changes x",
        "git restore x",
        "git tag -d v1",
        "git tag -f v1",
        "git rm -rf src",
        "git worktree remove -f x",
        "git reflog expire --all",
        "git update-ref -d refs/heads/x",
        "git fetch origin +x:y",
        "sed -i d README.md",
        "sed -ni p README.md",
        "sed --in-place=.bak d x",
        "gsed -i d x",
        "sed -i.bak d x",
        "rsync -a --delete a/ b",
        "sqlite3 x.db 'drop table y'",
        "psql -c 'TRUNCATE y'",
    ],
)
def test_no_approval_of_a_prefix_covers_what_destroys(text: str):
    assert programs.prefix(plain(text)) == ()


@each_row(
    "text, key",
    [
        ("git push --force", "git push"),
        ("git push --force", "git"),
        ("/usr/bin/git -C x push", "git push"),
        ("rm -rf x", "rm"),
        ("docker ps", "docker"),
        ("npm run build", "npm run"),
        ("npm run build", "npm run build"),
        ("python3.12 x.py", "python"),
        ("python3.12 x.py", "python3.12"),
        ("./build.sh", "build.sh"),
        ("make x y", "make"),
        ("unheard-of x", "unheard-of"),
    ],
)
def test_a_denial_is_found_by_the_bare_program_too_and_covers_what_destroys(text: str, key: str):
    assert key in tuple(programs.denials(plain(text)))


def test_a_denial_of_one_subcommand_is_none_of_another():
    assert tuple(programs.denials(plain("git status push"))) == ("git", "git status")


@each_row(
    "script",
    [
        "p",
        "1,5p",
        "$d",
        "/a/,/b/p",
        "s/a/b/g",
        "s#a/b#c#;p",
        "1~2d",
        "/x/!d",
        "y/abc/def/",
        "s/a/\\n/2p",
        "\\,x,d",
        "=",
        "5q",
        "s/a\\/b/c/",
        "10p\n20p",
        "{p}",
        "{p;q}",
        "/a/{\nn\np\n}",
        "/a/,/b/{/b/!d}",
        ":a;N;$!ba;s/\\n/,/g",
        "s/a/b/;ta;p;:a",
        "i x",
        "$a e ls",
        "1i first\n2d",
        "p;" * (MAX_SCRIPT // 2),
    ],
)
def test_plain_sed_scripts(script: str):
    assert sed_asks(("-n", script, "file")) == ""


@each_row(
    "script",
    [
        "e",
        "1e ls",
        "s/a/b/e",
        "s/a/b/w x",
        "w x",
        "r /etc/passwd",
        "R x",
        "1!w x",
        "a\\\ntext",
        "i\\",
        "i\\\ne ls",
        "a",
        "a x\ne ls",
        "{e ls}",
        "{p;e ls}",
        "{p}e ls",
        "1{w x\n}",
        "{s/a/ls/e}",
        "{p}}w x",
        "{p} w x",
        ":a;e ls",
        "ba e ls",
        "b a\ne ls",
        "t;w x",
        "p;w x",
        "p\nw x",
        "s/a/b/;e",
        "F;W x",
        "p" * (MAX_SCRIPT + 1),
    ],
)
def test_sed_scripts_that_run_read_or_write(script: str):
    assert sed_asks(("-n", script, "file")) != ""


@each_row(
    "args",
    [
        ("-f", "x"),
        ("--file=x", "y"),
        ("-nf", "x"),
        ("-e", "p", "-e", "w x"),
        ("--expression=e",),
        ("-ne", "e"),
        ("--fol", "p"),
        ("-i", "", "w x"),
    ],
)
def test_sed_options_that_bring_scripts(args: tuple[str, ...]):
    assert sed_asks(args) != ""


@each_row(
    "args",
    [
        ("{print $1}", "x"),
        ("-F,", "NR>1", "x"),
        ("-v", "a=1", "$1 > a || $2 == 3"),
        ("--", "{ s += $1 } END { print s }"),
        (" " * MAX_SCRIPT,),
        ("-F", ","),
        ("-F,",),
        ('{split($0, a, "|"); print a[1]}',),
        ('$2 == "a|b" || $3 == "x@y"',),
    ],
)
def test_plain_awk_scripts(args: tuple[str, ...]):
    assert awk_asks(args) == ""


@each_row(
    "args",
    [
        ('{system("x")}',),
        ('{print | "x"}',),
        ('{"x" | getline}',),
        ('{print > "x"}',),
        ('{printf "a" >> "x"}',),
        ("-f", "x"),
        ("-i", "x"),
        ("@load 'x'",),
        ('{print "|" | "x"}',),
        ('{print "a" |"x"}',),
        ('/"/{print | "x"}',),
        ('{print "\\"" | "x"}',),
        ('{print 1 #"\n | "x"}',),
        ('@include "x|y"',),
        ('BEGIN{f = "x"; @f("y")}',),
        ("{print ENVIRON[1]}",),
        ("BEGIN{ARGV[1]=1}",),
        (" " * (MAX_SCRIPT + 1),),
    ],
)
def test_awk_scripts_that_run_read_or_write(args: tuple[str, ...]):
    assert awk_asks(args) != ""


def test_no_regular_expression_of_the_tables_is_slow():
    long = ["a" * 20_000, "://" * 5000, "=" * 20_000, "\n." * 8000, "e" * 20_000, "@:" * 9000]
    for program in program_table().programs.values():
        for pattern in (*program.words, *program.args):
            for text in long:
                pattern.fullmatch(text)


def test_an_empty_sed_script_does_nothing():
    assert sed_asks(("-e", "", "file")) == ""


def test_whether_a_command_only_reads_is_remembered_but_no_text_that_it_is_given():
    asked = programs._only_reads.cache_info
    before = asked()
    assert not programs.only_reads(Command(("cat",), stdin="a here-document\n"))
    assert asked() == before
    command = Command(("cat", "a file that no other test names"))
    assert (programs.only_reads(command), programs.only_reads(command)) == (True, True)
    assert (asked().misses, asked().hits) == (before.misses + 1, before.hits + 1)
