"""Which commands print into the output of a command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.gates.shell.command import ShellText
from acp_agent.gates.shell.printing import printing_commands
from tests.rows import each_row


@each_row(
    "text, printing",
    [
        ("make", ["make"]),
        ("ls 'a b' \"c d\" e\\ f", ["ls a b c d e f"]),
        ("a; b && c || d & e", ["a", "b", "c", "d", "e"]),
        ("a\nb", ["a", "b"]),
        ("! make", ["make"]),
        ("{ a; b; }; (c)", ["a", "b", "c"]),
        ("if test -f x; then make; else ls; fi", ["make", "ls"]),
        ("if cargo test; then ls; fi", ["cargo test", "ls"]),
        ("for f in *.c; do gcc $f; done", ["gcc $f"]),
        ("while read l; do grep $l x; done < f", ["grep $l x"]),
        ("case $x in a) ls;; *) make;; esac", ["ls", "make"]),
        ("f() { ls; }; f", ["f"]),
        ("[[ -f x ]] && make", ["make"]),
        ("ls $(pwd) `x` ${y:-z} $HOME", ["ls $() $() z $HOME"]),
        ("cat <<'EOF'\nmake\nEOF\nls", ["cat", "ls"]),
        ("cat <<EOF && make\nx\nEOF", ["cat", "make"]),
    ],
)
def test_every_command_that_prints_is_named_in_order(text: str, printing: list[str]) -> None:
    assert list(printing_commands(ShellText(text))) == printing


@each_row(
    "text, printing",
    [
        ("FOO=1 timeout -k 5 60 nice -n 5 env A=b .venv/bin/pytest -q", "pytest -q"),
        ("sudo -u root /usr/bin/apt-get update", "apt-get update"),
        ("uv run --frozen pytest", "pytest"),
        ("command ls", "ls"),
        ("nice -n 5 -- ls", "ls"),
        ("env - ls", "ls"),
        ("timeout -vk 5 60 ls", "ls"),
        ("timeout -vk5 60 ls", "ls"),
        ("bash -lc 'cd x && make test'", "make test"),
        ("time make", "time make"),  # says more than make does
        ("strace -f ls", "strace -f ls"),
        ("xargs -n1 ls", "xargs -n1 ls"),
        ("find . -exec cat {} +", "find . -exec cat {} +"),
        ("env -S 'a b'", "env -S a b"),
        ("sh run.sh", "sh run.sh"),
    ],
)
def test_a_wrapper_is_peeled_unless_it_adds_words_of_its_own(text: str, printing: str) -> None:
    assert printing_commands(ShellText(text)) == (printing,)


@each_row(
    "text",
    [
        "cd /srv; make",
        "cd x && export A=1 && B=2; set -e; make",
        "mkdir -p a && rm -rf b && touch c; make",
        "source .venv/bin/activate && make",
        ". ~/.cargo/env; make",
        "declare -x A=1; unset B; make",
        "true && make || exit 1",
        "test -d x || mkdir x; make",
        "sed -i -e s/a/b/ x.c && sed -Ei.bak s/c/d/ x.c && sed -n --in-place p x.c; make",
        "perl -pi -e s/a/b/ x.c; perl -i.bak -pe s/a/b/ x.c; make",
        "git stash -q; git -C sub commit --quiet -m x; git add -A; make; git stash pop -q",
    ],
)
def test_a_silent_command_is_left_out(text: str) -> None:
    assert printing_commands(ShellText(text)) == ("make",)


@pytest.mark.parametrize(
    "first",
    [
        *("cp -v a b", "rm --verbose x", "mkdir -pv x", "source setup.sh", "source", "pushd x"),
        *("sed -e s/i/j/ x", "sed", "perl -ne print x", "perl x.pl -i", "git add -v x", "git add -n x"),
        *("git stash", "git log -n 3", "git log -q", "git show --quiet x"),
        *("git log -q merge", "git show -q stash", "git -C commit log -q", "git -c a=b diff -q -- push"),
    ],
)
def test_a_command_that_may_print_is_not(first: str) -> None:
    assert printing_commands(ShellText(f"{first}; make")) == (first, "make")


@each_row(
    "text",
    [
        "make 2>&1 | tail -50",
        "make | head -n 20 | cat",
        "make |& tee -a log | less",
        "make | tail -c 10K",
        "make | sudo tee /var/log/x",
        "make 2>/dev/null",
        "make 2> errors.txt",
        "make >&2",
        "make > /dev/stderr",
        "make < input",
    ],
)
def test_what_is_only_passed_on_is_the_first_commands(text: str) -> None:
    assert printing_commands(ShellText(text)) == ("make",)


@each_row(
    "text, printing",
    [
        ("make | grep error", "| grep error"),
        ("make 2>&1 | grep error | head", "| grep error"),
        ("cat x | sort | uniq -c | tail -3", "| uniq -c"),
        ("make | cat -A", "| cat -A"),
        ("make | tail -3 other.log", "| tail -3 other.log"),
        ("cat x | while read l; do echo $l; done", "| while"),
        ("cat <<EOF | wc -l\nx\nEOF", "| wc -l"),
        ("find . | xargs ls", "| xargs ls"),
    ],
)
def test_what_is_selected_or_transformed_is_nobodys_that_a_rule_could_mean(text: str, printing: str) -> None:
    assert printing_commands(ShellText(text)) == (printing,)


@each_row(
    "redirected",
    ["make > log", "make >> log 2>&1", "make &> log", "make 2>&1 >/dev/null", "make | sort > log", "(a; b) > log"],
)
def test_what_goes_to_a_file_is_left_out_while_something_else_prints(redirected: str) -> None:
    assert printing_commands(ShellText(f"{redirected}; ls")) == ("ls",)


def test_a_redirection_belongs_to_the_command_it_stands_behind() -> None:
    assert printing_commands(ShellText("a && b > log")) == ("a",)
    assert printing_commands(ShellText("a | b > log && c")) == ("c",)
    assert printing_commands(ShellText("a > log | cat; c")) == ("c",)


def test_when_all_goes_to_files_the_commands_are_named_for_what_they_say_on_stderr() -> None:
    assert printing_commands(ShellText("cargo build > log")) == ("cargo build",)


@each_row(
    "text",
    ["", "cd x", "make 'x", "make |", "((", "if true; then", "\ud800", "a" * 70_000, "a && " * 200 + "a", "eval '"],
)
def test_nothing_is_named_when_nothing_prints_or_nobody_can_read_it(text: str) -> None:
    assert printing_commands(ShellText(text)) == ()


@given(
    st.lists(
        st.sampled_from(
            [
                *"|&;(){}<>'\"$`\\#!\n ",
                "make",
                "if",
                "then",
                "fi",
                "do",
                "done",
                "for",
                "<<EOF",
                "EOF",
                "bash -c",
                "2>&1",
            ]
        ),
        max_size=25,
    ).map(" ".join)
)
def test_no_text_makes_it_raise(text: str) -> None:
    for command in printing_commands(ShellText(text)):
        assert command


def test_shells_inside_one_another_are_read_to_a_depth() -> None:
    assert printing_commands(ShellText("bash -c 'bash -c \"make\"'")) == ("make",)
    assert printing_commands(ShellText("( " * 30 + "make" + " )" * 30)) == ("make",)
    assert printing_commands(ShellText("( " * 300 + "make" + " )" * 300)) == ()


@pytest.mark.parametrize("said", ["make > /dev/stderr", "make > /dev/stdout", "make > /dev/tty", "make >&2"])
def test_what_goes_to_the_terminal_prints(said: str) -> None:
    assert printing_commands(ShellText(f"{said}; ls")) == ("make", "ls")
