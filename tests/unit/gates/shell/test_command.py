"""What `analyse` proves, and what it leaves alone."""

import subprocess
import sys
import time

from acp_agent.gates.shell.command import (
    MAX_BYTES,
    MAX_DEPTH,
    Command,
    Opaque,
    Plain,
    Redirection,
    ShellText,
    analyse,
    survey,
)
from acp_agent.gates.shell.options import ShellCall, shell_call
from acp_agent.gates.shell.syntax import Parsed, Parses
from acp_agent.gates.shell.wrappers import is_runner
from tests.rows import each_row
from tests.sizes import sized
from tests.unit.gates import everyday, hostile


def argvs(text: str) -> list[list[str]]:
    """Every argument list of a plain text, nested ones included."""
    verdict = analyse(text)
    assert isinstance(verdict, Plain), verdict
    return [list(each.argv) for command in verdict.commands for each in command.walk()]


def test_a_program_that_starts_no_other_is_no_runner():
    assert [is_runner(Command(tuple(text.split()))) for text in ("ls -l", "timeout 5 ls", "chroot / ls")] == [
        *(False, False),
        True,
    ]


def test_the_commands_of_a_proven_text_are_the_proven_ones_alone():
    text = "rg --pre 'sudo x' y"
    assert [each.runs for each in survey(text).commands] != [()]
    assert [each.runs for each in ShellText(text).commands] == [()]


def only(text: str) -> Command:
    verdict = analyse(text)
    assert isinstance(verdict, Plain), verdict
    assert len(verdict.commands) == 1
    return verdict.commands[0]


@each_row(
    "text, expected",
    [
        ("git status", [["git", "status"]]),
        ("  ls\t-la  ", [["ls", "-la"]]),
        ("ls 'a b' \"c d\" e'f'\"g\"", [["ls", "a b", "c d", "efg"]]),
        ("ls '' \"\"", [["ls", "", ""]]),
        ("a; b && c || d | e |& f & g\nh", [[name] for name in "abcdefgh"]),
        ("(a; b); { c; }; ! d", [["a"], ["b"], ["c"], ["d"]]),
        ("ls # comment; evil", [["ls"]]),
        ("git show stash@{0} HEAD^{tree}", [["git", "show", "stash@{0}", "HEAD^{tree}"]]),
        ("git log 'a;b' \"c&&d\"", [["git", "log", "a;b", "c&&d"]]),
        ("git commit -m 'one\ntwo'", [["git", "commit", "-m", "one\ntwo"]]),
        ('grep "a\\.b" x', [["grep", "a\\.b", "x"]]),
        ("fd -x a {} \\; --exec b", [["fd", "-x", "a", "{}", ";", "--exec", "b"], ["a", "{}"], ["b"]]),
        ("find . -exec cat {} \\;", [["find", ".", "-exec", "cat", "{}", ";"], ["cat", "{}"]]),
        ("> out cat x", [["cat", "x"]]),
        ("0< in cat 0> out x", [["cat", "x"]]),
        ("awk -F 0</dev/null 1 x", [["awk", "-F", "1", "x"]]),
        ("cat 0 1&> out", [["cat", "0", "1"]]),
        ("cat > out x y", [["cat", "x", "y"]]),
        (
            "timeout -k 3 5s nice -n5 ls",
            [["timeout", "-k", "3", "5s", "nice", "-n5", "ls"], ["nice", "-n5", "ls"], ["ls"]],
        ),
        ("bash -lc 'a; b'", [["bash", "-lc", "a; b"], ["a"], ["b"]]),
        ("bash -e -o pipefail -c 'a' x", [["bash", "-e", "-o", "pipefail", "-c", "a", "x"], ["a"]]),
        ("eval 'a b' c", [["eval", "a b", "c"], ["a", "b", "c"]]),
        ("xargs -0 -n1 wc -l", [["xargs", "-0", "-n1", "wc", "-l"], ["wc", "-l"]]),
        ("command -v sudo", [["command", "-v", "sudo"]]),
        ("time grep 'a=b' x", [["time", "grep", "a=b", "x"], ["grep", "a=b", "x"]]),
        ("time -- A=1 ls", [["time", "--", "A=1", "ls"], ["ls"]]),
        ("A=1 time ls", [["time", "ls"], ["ls"]]),
        ("time -p time -p -- ls", [["time", "-p", "time", "-p", "--", "ls"], ["time", "-p", "--", "ls"], ["ls"]]),
        ("time ls >a=b", [["time", "ls"], ["ls"]]),
        ("nice ls --", [["nice", "ls", "--"], ["ls", "--"]]),
        ("uv run -q pytest -x", [["uv", "run", "-q", "pytest", "-x"], ["pytest", "-x"]]),
    ],
)
def test_a_plain_text_gives_every_command_word_for_word(text: str, expected: list[list[str]]):
    assert argvs(text) == expected


def test_redirections_and_assignments_are_told_apart_from_words():
    command = only("A=1 B='x y' ls -l > out 2>&1 < in")
    assert command.argv == ("ls", "-l")
    assert command.assignments == ("A=1", "B=x y")
    assert command.redirections == (Redirection(">", "out"), Redirection(">&", "1", "2"), Redirection("<", "in"))
    assert [each.harmless for each in command.redirections] == [False, True, False]
    assert only("ls 2>/dev/null").redirections[0].harmless
    assert not only("ls >&2file").redirections[0].harmless


def test_each_command_knows_the_operator_before_it():
    verdict = analyse("a && b || c; d | e & f\ng")
    assert isinstance(verdict, Plain)
    assert [command.joined for command in verdict.commands] == ["", "&&", "||", ";", "|", "&", ";"]


def test_words_that_bash_may_replace_by_file_names_are_marked():
    assert only("ls *.py '*.md'").patterns == {"*.py"}


@each_row(
    "text, reason",
    [
        ("ls $(x)", "command substitution"),
        ("ls `x`", "command substitution"),
        ("ls <(x)", "process substitution"),
        ("cat <<< x", "here-string"),
        ("cat <<E\nx\nE", "here-document"),
        ("ls $HOME", "variable"),
        ('ls "$HOME"', "variable"),
        ("ls $'x'", "escaped string"),
        ("ls {a,b}", "braces"),
        ("for x in a; do b; done", "loop"),
        ("while a; do b; done", "loop"),
        ("if a; then b; fi", "condition"),
        ("case x in y) z;; esac", "case"),
        ("f() { a; }", "function"),
        ("[ -f x ]", "test"),
        ("[[ -f x ]]", "test"),
        ("export A=1", "changes the shell"),
        ("a=(1 2)", "array"),
        ("a[1]=x y", "array"),
        ("a; ; b", "syntax error"),
        ("ls \x01", "control"),
        ("ls\r", "control"),
        ("ls \u202e", "invisible"),
        ("ls \u00a0", "word that is not plain"),
        ("ls\n\\x", "not plain"),
        ("ls\n\\\nx", "skipped"),
        ("s\\u x", "not plain"),
        ("g*t x", "pattern"),
        ("then x", "shell word"),
        ("", "nothing"),
        ("# only a comment", "nothing"),
        ("\ud800", "not valid text"),
        ("ls " + "x" * MAX_BYTES, "longer than 64 KiB"),
        ("( " * 300 + "ls" + " )" * 300, "nested too deep"),
        ("a;" * 2000, "more than 1000 commands"),
        ("a|" * 20_000, "more than 2000 pipes"),
        ("ls 99999999999>x", "descriptor"),
        ("ls a=0>x 1>0<x", "descriptor"),
        ("A+=1 ls", "adds to a variable"),
        ("A+=1", "adds to a variable"),
        ('!"/bin/ls"', "touch"),
        ("!(ls)", "touch"),
        ("{/bin/ls\n}", "touch"),
        ("ls;{}", "touch"),
        ("time 'CI=/ls' ls", "odd word behind time"),
        ("time -- 'CI=/ls' ls", "odd word behind time"),
        ("A=1 time CI=/ls ls", "odd word behind time"),
        (">x time CI=/ls ls", "odd word behind time"),
        ("'time' CI=/ls ls", "odd word behind time"),
        ("/usr/bin/time -p CI=/ls ls", "odd word behind time"),
        ("time >x 'CI=/ls' ls", "odd word behind time"),
        ("time A=1 2>x 'CI=/ls' ls", "odd word behind time"),
        ("time -p -p ls", "odd word behind time"),
        ("time '-p' ls", "odd word behind time"),
        ("time '--' ls", "odd word behind time"),
        ("ls >& -x y", "closes a descriptor"),
        ("ls >&'.gi\\\nt/x'", "expands twice"),
        ("ls >&'$(evil)'", "expands twice"),
        ("ls >& '`evil`'", "expands twice"),
        ("ls >&'\".git/x\"'", "expands twice"),
        ("ls >&\"'a'\"", "expands twice"),
        ("ls >&a'b c'", "expands twice"),
        ("ls 1>&'~/x'", "expands twice"),
        (">a >b x=1", "behind its redirections"),
        ("ls '\ufdd0'x", "control"),
    ],
)
def test_what_cannot_be_proven_is_opaque_and_says_why(text: str, reason: str):
    verdict = analyse(text)
    assert isinstance(verdict, Opaque)
    assert reason in verdict.reason


@each_row(
    "text",
    [
        "env --no-such-option ls",
        "env -S 'ls -l'",
        "xargs -I% sh -c 'ls %'",
        "find . -exec sh -c 'ls {}' \\;",
        "bash",
        "bash -s",
        "bash --rcfile x -c ls",
        "bash -c 'ls $x'",
        "fish -c ls",
        "zsh -c 'cat =ls'",
        "zsh -c 'ls >! x'",
        "zsh -c 'printf %d \"a[x]\"'",
        "ksh -c 'test 1 -eq \"a[x]\"'",
        "mksh -c ls",
        "timeout * ls",
        "env *x",
        "/usr/bin/time -v ls",
        "time ! ls",
        "time coproc a=b >f if >f",
        "nice coproc ls",
        "command time CI=/ls ls",
        "nice /usr/bin/time CI=/ls ls",
        "bash -c '\u00a0'",
        "bash -rcfile ls -i",
        "bash -norc x ls",
        "bash -oc pipefail ls",
        "bash +c ls",
        "sh +s ls",
        "zsh -ocorrect x y ls",
        "zsh -b -c ls",
        "mksh -T -c ls",
        "chrt -o x ls",
    ],
)
def test_a_command_whose_inside_cannot_be_told_is_marked_unclear(text: str):
    verdict = analyse(text)
    assert isinstance(verdict, Plain)
    assert any(each.unclear for command in verdict.commands for each in command.walk())


def test_shells_inside_shells_are_read_to_the_fifth():
    assert argvs("eval " * MAX_DEPTH + "evil")[-1] == ["evil"]
    deeper = analyse("eval " * (MAX_DEPTH + 2) + "evil")
    assert isinstance(deeper, Plain)
    assert any("too many" in each.unclear for command in deeper.commands for each in command.walk())


def test_base_names_and_folders_of_programs():
    assert only("/usr/bin/git log").name == "git"
    assert only("/usr/bin/git log").standard
    assert not only("/tmp/git log").standard
    assert not only("./git log").standard
    assert only("timeout 5 git log").own == ("5",)


def test_the_parser_is_not_loaded_before_the_first_text_that_needs_it():
    code = (
        "import sys; from acp_agent.gates import blocklist, mode, permission, sandbox;"
        "assert not any(name.startswith('tree_sitter') for name in sys.modules), 'loaded too early';"
        "from acp_agent.gates.shell.command import analyse, survey; analyse('ls -la'), survey('ls -la');"
        "assert not any(name.startswith('tree_sitter') for name in sys.modules), 'loaded for plain words';"
        "analyse('ls | wc');"
        "assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_character_ends_the_process():
    # tree-sitter-bash 0.25.1 alone dies of most characters of the higher planes behind a brace.
    code = (
        "from acp_agent.gates.shell.command import analyse, survey\n"
        f"low, high = range(0x80, 0xd800, {sized(887, 293)}), range(0xe000, 0x110000, {sized(6007, 2003)})\n"
        "for point in [*low, *high, 0x10ffff]:\n"
        "    for text in ('{%c', 'a{%c,b}', '${%c}', '<<%c', '$%c', '%c=1 x', '[[ %c =~ {%c ]]'):\n"
        "        analyse(text.replace('%c', chr(point))), survey(text.replace('%c', chr(point)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_letters_of_other_alphabets_are_words_like_any_other():
    assert argvs("echo grüße 漢字 🙂 'é' \"ñ\"") == [["echo", "grüße", "漢字", "🙂", "é", "ñ"]]
    assert isinstance(analyse("é=1 evil"), Opaque)
    assert isinstance(analyse("echo $é"), Opaque)


def test_garbage_takes_bounded_time_and_never_raises():
    for unit in ("(", "$(", "<<A ", '"$(', "[[", "{", "a<<E\n", "if ", "'", "\\\n", "x=$x$x;", "eval f()", "a{1,2}"):
        text = (unit * MAX_BYTES)[:MAX_BYTES]
        analyse(text)


def test_analysing_a_command_is_quick():
    texts = [*everyday.COMMANDS, *everyday.CONSTRUCTS, *(text for text in hostile.U if len(text) < 4096)]
    texts += [text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table]
    analyse("ls")
    taken: list[float] = []
    for text in texts:
        start = time.thread_time()
        analyse(text)
        taken.append((time.thread_time() - start) * 1000)
    taken.sort()
    half, most = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    print(f"\nanalyse: {len(taken)} commands, p50 {half:.2f} ms, p99 {most:.2f} ms")
    # Generous: this says that nothing is quadratic; the figure itself is printed.
    assert sum(taken) / len(taken) < 20


def test_a_long_text_that_takes_too_long_to_parse_is_given_up_and_a_short_one_is_read():
    seconds = 1e-9
    assert Parses(seconds).parse("ls; " * 4_000, MAX_BYTES) == "takes too long to parse"
    assert isinstance(Parses(seconds).parse("ls", MAX_BYTES), Parsed)


@each_row(
    "args",
    [
        ("--command", "x", "a"),
        ("--command=x", "a"),
        ("-c", "x", "a"),
        ("-co", "pipefail", "x", "a"),
        ("-c", "--", "x", "a"),
        ("-c", "-", "x", "a"),
        ("-c", "+", "x", "a"),
        ("-c", "+", "-e", "-", "x", "a"),
    ],
)
def test_the_text_of_a_shell_is_told_from_its_operands(args: tuple[str, ...]):
    assert shell_call(args) == ShellCall(("x",), ("a",))


def test_a_dash_ends_the_options_of_a_shell_and_a_plus_sign_is_an_option_without_letters():
    for marks in ((), ("-",), ("--",), ("+",), ("+", "-")):
        assert shell_call((*marks, "x", "a")) == ShellCall((), ("x", "a")), marks
        assert subprocess.run(("sh", *marks, "/dev/stdin", "a"), input=b'test "$1" = a', check=False).returncode == 0
        assert subprocess.run(("sh", "-c", *marks, 'test "$1" = a', "x", "a"), check=False).returncode == 0


def test_a_descriptor_that_is_closed_or_copied_touches_no_file():
    for target, harmless in (("-", True), ("1", True), ("3-", True), ("log", False), ("²", False)):
        assert Redirection(">&", target, "2").harmless is harmless, target


def test_braces_within_quotes_are_text():
    assert only('echo a"{b}"').argv == ("echo", "a{b}")
    assert isinstance(analyse('echo a"b"{c}'), Opaque)
