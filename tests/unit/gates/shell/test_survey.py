"""What `survey` finds: everything, understood or not."""

import pytest

from acp_agent.gates.shell.command import Construct, survey
from acp_agent.gates.shell.danger import shell_texts
from tests.rows import each_row


def names(text: str) -> set[str]:
    return {command.name for command in survey(text).walk()}


@each_row(
    "text",
    [
        "if evil; then :; fi",
        "while evil; do :; done",
        "for x in 1; do evil; done",
        "for x in evil; do $x; done",
        "case x in y) evil;; esac",
        "f() { evil; }",
        "function f { (evil); }",
        "[[ -n $(evil) ]]",
        "x=$(evil)",
        'echo "$(evil)"',
        "echo `evil`",
        "echo $((`evil`))",
        "if ((cd a) && evil); then :; fi",
        "echo $((cd a) && evil)",
        'echo "$((cd a) && evil)"',
        "x='a' && ((cd a) && (evil))",
        "cat <(evil)",
        "cat <<E\n$(evil)\nE",
        "cat <<< $(evil)",
        "cat <<E\n`evil`\nE",
        "cat <<-E\n\t`evil`\n\tE",
        "cat <<E\n\\\\`evil`\nE",
        "cat <<E $(evil)\nx\nE",
        "cat <<E\n`echo a\nevil`\nE",
        'echo "${x:-`evil`}"',
        "echo ${x/a/`evil`}",
        "echo ${x%%$(evil)}",
        "echo \"${x:-'$(evil)'}\"",
        "echo `echo \\`evil\\``",
        "echo ${x:-`echo \\`evil\\``}",
        "echo $(echo ${x:-`evil`})",
        "case ${x:-`evil`} in a) ;; esac",
        "bash <<E\n\\ls\nevil\nE",
        "bash <<E\nevil\nE",
        "cat <<E | bash\nevil\nE",
        "bash <<< evil",
        "echo evil | sh",
        "printf '%s' 'evil' | bash -",
        "printf '\\x65vil' | sh",
        "echo evil > f; sh f",
        "cat > f.sh <<E\nevil\nE\n. ./f.sh",
        "echo evil | tee f | cat; bash f",
        "sh -c 'sh -c \"sh -c evil\"'",
        "eval evil",
        "eval -- evil",
        "eval $'ev\\x69l'",
        "trap evil EXIT",
        "alias x=evil",
        "a=ev; b=il; $a$b",
        'x=evil; "$x"',
        "export x=evil; sh -c '$x'",
        "x=evil; eval '$x'",
        "${x:-evil}",
        'set -- evil; "$@"',
        "shift; x=$@; evil",
        "shift; evil $@",
        'shift; "$@" evil',
        '"$@" evil',
        '"${@}" evil',
        '"${@:1}" evil',
        'x=(); "${x[@]}" evil',
        'sh -c "$@" evil',
        'timeout 1 "$@" evil',
        'set -- a; shift; "$@" evil',
        "set -- a; shift; $1 evil",
        "set -- a; set --; $@ evil",
        "set -- a b; set -- c; $2 evil",
        "f() { shift; $1 evil; }; f a",
        "x=a; unset x; $x evil",
        "x=(a b); unset x[0] x[1]; $x evil",
        'a=(evil); "${a[@]}"',
        "bash -c '$0' evil",
        "bash -c '\"$@\"' _ evil",
        "ev{il,}",
        "{evil,x}",
        "$x evil",
        "sh -c $x evil",
        "e''v\"i\"\\l",
        "e\\\nvil",
        "ｅｖｉｌ",
        "e\u200bvil",
        "ls\n\\evil",
        "ls\n\\\nevil",
        "ls\revil",
        "env --strange evil",
        "nice -n 5 timeout 1 evil",
        "env -S 'evil x'",
        "find . -exec evil {} +",
        "echo evil | xargs -I% sh -c %",
        "exec 3<>x; evil",
        "{fd}>x evil",
        "git -c alias.x='!evil' x",
        "tar cf x . --checkpoint-action=exec=evil",
        "watch 'evil x'",
        "coproc evil",
        "! evil",
        "evil) (",
        "echo 'unclosed; evil",
        "echo 'unclosed; do evil",
        "echo 'unclosed; sh -c evil",
        "echo 'unclosed; env --strange evil",
        "echo 'unclosed; su -c evil",
        "x ) ; sh -c evil",
        "ls $\nevil",
        "f(){ $1; }; f evil",
        'f(){ sh -c "$1"; }; f evil',
        "{evi,}l",
        "{e..e}vil",
        "set x evil; shift; $1",
        "setarch x86_64 -R evil",
        "start-stop-daemon -S --exec evil",
        "perf stat -d evil",
    ],
)
def test_a_command_is_found_wherever_it_hides(text: str):
    assert "evil" in names(text)


@each_row(
    "text",
    [
        "echo evil",
        "echo 'x; evil'",
        'git commit -m "evil; evil"',
        "cat > notes <<E\nevil\nE",
        "command -v evil",
        "grep 'a|evil' x",
        "ls # evil",
    ],
)
def test_a_word_that_runs_nothing_is_no_command(text: str):
    assert "evil" not in names(text)


@each_row(
    "text, construct",
    [
        ("ls $(x)", Construct.COMMAND_SUBSTITUTION),
        ('ls "`x`"', Construct.BACKTICK),
        ("ls <(x)", Construct.PROCESS_SUBSTITUTION),
        ("ls > >(x)", Construct.PROCESS_SUBSTITUTION),
        ("cat <<< x", Construct.HERE_STRING),
        ("cat <<E\n$(x)\nE", Construct.COMMAND_SUBSTITUTION),
        ("bash -c 'ls $(x)'", Construct.COMMAND_SUBSTITUTION),
        ("a; ; $(b)", Construct.COMMAND_SUBSTITUTION),
    ],
)
def test_substitutions_are_found_in_the_tree(text: str, construct: Construct):
    assert construct in survey(text).constructs


@each_row(
    "text", ["echo '$(x)'", "echo '`x` <(y) <<<z'", "echo \\$\\(x", "cat <<'E'\n$(x)\nE", "echo $((1 + 2))", "ls < x"]
)
def test_quoted_substitutions_are_text(text: str):
    assert not survey(text).constructs


@each_row(
    "text",
    [
        ":(){ :|:& };:",
        "f() { f | f & }; f",
        "f(){ f& f& };f",
        "$0 & $0 &",
        "base64 -d x | sh",
        "echo x | rev | bash",
        "echo ez -es / | tr a-z n-za-m | sh",
        "find / | xargs rm -rf",
        "ls / | xargs rm -rf",
        "find ／ | xargs rm -rf",
        "base64 -d x | {fd}>y sh",
    ],
)
def test_dangerous_shapes_are_named(text: str):
    assert survey(text).hazards


@each_row(
    "text",
    [
        "walk() { ls; walk x && ls; }",
        "base64 -d x | cat",
        "base64 -d x; echo ls | sh",
        "find . | xargs rm",
        "find / | rm x",
        "df / | xargs rm",
        "f() { ls & }; f",
    ],
)
def test_ordinary_shapes_are_not(text: str):
    assert not survey(text).hazards


def test_a_survey_that_did_not_get_to_the_end_says_so():
    assert "longer" in survey("x" * (300 * 1024)).unread
    assert "deep" in survey("( " * 300 + "x" + " )" * 300).unread
    assert "commands" in survey("a;" * 2000).unread
    assert "shells" in survey("eval " * 10 + "x").unread
    assert "wrappers" in survey("env " * 50 + "x").unread
    assert "wrappers" in survey("{fd}>y " + "env " * 50 + "x").unread
    assert survey("ls").unread == ""


def test_more_values_readings_or_commands_than_are_followed_say_so():
    assert "256 values" in survey("".join(f"x={number};" for number in range(300))).unread
    assert "calls of functions" in survey('f() { echo "$1"; }; ' + "".join(f"f {n};" for n in range(600))).unread
    assert "too deep" in survey("".join(f"f{n}() {{ f{n + 1} $1; }}; " for n in range(9)) + "f0 x").unread
    assert (
        "4000 commands"
        in survey("for x in " + "a " * 0 + " ".join(map(str, range(200))) + "; do " + "$x;" * 90 + "done").unread
    )
    assert survey('log() { echo "$1"; }; ' + "".join(f"log {n};" for n in range(100))).unread == ""


def test_as_many_texts_inside_a_text_are_read_as_may_be_and_not_one_more():
    many = "".join(f"eval x{number}; " for number in range(499))  # equal ones are read once
    last = survey(many.partition("; ")[2] + "eval evil")
    assert last.unread == ""
    assert "evil" in {command.name for command in last.walk()}
    assert "500 texts" in survey(many + "eval evil").unread
    assert survey("eval x; " * 600).unread == ""


def test_a_body_without_parameters_is_read_once_however_often_it_is_called():
    assert survey("log() { echo x; }; " + "log; " * 600).unread == ""


def test_a_damaged_text_may_hold_as_many_commands_as_are_followed_and_not_one_more():
    assert survey("echo 'unclosed;" + "".join(f"a {n};" for n in range(1999))).unread == ""
    assert "4000 commands" in survey("echo 'unclosed;" + "".join(f"a {n};" for n in range(1999)) + "a").unread


def test_no_command_of_a_damaged_text_is_empty():
    assert all(command.argv for command in survey("echo 'unclosed; evil; ls x").commands)


@pytest.mark.parametrize(
    "text",
    [
        "walk() { ls $1; for d in $1/*; do walk $d; done; }; walk .",
        "f() { f $1; }; f x",
        "a() { b $1; }; b() { a $1; }; a x",
    ],
)
def test_a_function_that_calls_itself_is_read_once(text: str):
    assert survey(text).unread == ""


def test_patterns_are_told_wherever_they_come_from():
    for text in (
        "cat d*/x",
        "cat {d*,e}/x",
        "x='d*/x'; cat $x",
        "for f in d*/x; do cat $f; done",
        "echo d*/x | xargs cat",
    ):
        assert any("d*/x" in command.patterns for command in survey(text).walk() if command.name == "cat"), text
    assert survey("cat < d*/x").commands[0].patterns == {"d*/x"}
    assert survey("cat 'd*/x'").commands[0].patterns == frozenset()


def test_commands_in_different_brackets_are_told_apart():
    first, second, third = (command.scopes for command in survey("(cd a); (ls); { (rm x); }").commands)
    assert (first, second) == (("(1",), ("(2",))
    assert [scope[:1] for scope in third] == ["{", "("]
    assert len({*first, *second, *third}) == 4


def test_values_of_variables_do_not_grow_without_end():
    found = survey("x=aaaa;" + "x=$x$x;" * 300)
    assert max(len(word) for command in found.commands for word in command.assignments) < 10_000


@each_row(
    "code, texts",
    [
        ("os.system('ls -la'); print('done')", ["ls -la", "done"]),
        ("subprocess.run(['rm', '-rf' , '/'])", ["rm -rf /"]),
        (", 'evil'; os.system('ls')", ["evil", "ls"]),
        ("print('rm -rf /')", []),
    ],
)
def test_the_literals_of_a_program_text_are_read_if_it_starts_programs(code, texts):
    assert shell_texts(code) == texts


def test_each_command_has_the_input_that_its_line_gives_it():
    for text, inputs in (
        ("a | sh <<E\nls\nE", ["", "ls\n"]),
        ("a <<< ls | sh", ["ls\n", "\nls\n"]),
        ("echo ls <<E | sh\nx\nE", ["x\n", "\nls\n\nx\n\nls\n\nls\n\nls\n"]),
    ):
        assert [command.stdin for command in survey(text).commands] == inputs, text


@each_row(
    "text",
    [
        "cat <<'E'\n`evil` $(evil)\nE",
        "cat <<\\E\n`evil`\nE",
        "cat <<E\na \\`evil\\` \\$(evil)\nE",
        "echo '`evil` $(evil)'",
        "echo \\`evil\\`",
        'echo "\\`evil\\` \\$(evil)"',
        "echo ${x:-'`evil`'}",
        "ls # `evil` $(evil)",
        "x='`evil` $(evil)'",
        "echo 'x[$(evil)]'",
        "for ((i=0;i<3;i++)); do echo '`evil`'; x='`evil`'; done",
        "x=$(sed 's/a[^`]*`b`//' y)",
    ],
)
def test_what_bash_does_not_run_is_no_substitution(text: str):
    found = survey(text)
    assert Construct.BACKTICK not in found.constructs
    assert "evil" not in names(text)


def test_a_substitution_that_the_parser_takes_for_text_is_in_its_place():
    found = survey("cd a; cat <<E > x && cd b\n`cat y`\nE")
    assert [each.argv for each in found.commands] == [("cd", "a"), ("cat", "y"), ("cat",), ("cd", "b")]
    assert found.constructs == {Construct.BACKTICK}
    assert found.commands[1].scopes
    assert not found.commands[2].scopes
    assert [each.target for each in found.commands[2].redirections] == ["x"]


@each_row(
    "text, word",
    [
        ('cat "/etc/$x"', "/etc/$x"),
        ('x=passwd; cat "/etc/$x"', "/etc/passwd"),
        ('cat "  $x $y z"', "  $x $y z"),
        ('cat "$x ${y}\t${z}"', "$x $y\t$z"),
        ('x=1; y=2; cat "  $x  $y"', "  1  2"),
        ('cat "$x $(ls)  `ls` $((1))"', "$x $()  $() $()"),
        ('cat "a\n$x\nb"', "a\n$x\nb"),
        ('cat "a $(ls) b"', "a $() b"),
    ],
)
def test_the_text_around_an_expansion_in_quotes_stays_in_its_word(text: str, word: str):
    assert {command.argv[1:] for command in survey(text).walk() if command.name == "cat"} == {(word,)}
