"""What `read` and `mapfile` put into variables, and what loops run with the lines that they read."""

import random
import shutil
import subprocess

import pytest

from acp_agent.core.types import Allow, Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.shell.command import ShellText, survey
from acp_agent.gates.shell.lines import ReadLines
from tests.rows import each_row
from tests.sizes import sized

_CALLS = (
    *("read a", "read a b", "read a b c", "read -r a b", "read -ra a", "read -d , a b", "read -rd '' a"),
    *("read -n 3 a", "read -N4 a b", "read -r", "read -p x -r a b", "mapfile -t a", "read -- a b"),
    *("mapfile -td , a", "read -rn 1 a", "read -n 2 -d x a"),
)
_MARKS = (" \t\n", ":", ",", ": ", ",:", "", "x")


def calls(choose: random.Random) -> tuple[str, str, tuple[str, ...]]:
    """Return a text, a value of IFS, and two calls that read the text one after the other."""
    text = "".join(choose.choices("ab x:,\t\\\n", weights=(4, 4, 3, 2, 2, 2, 1, 1, 3), k=choose.randint(1, 14)))
    return f"{text}b\n", choose.choice(_MARKS), tuple(choose.choices(_CALLS, k=2))


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_lines_are_split_as_bash_splits_them():
    choose = random.Random(2030)
    some = [calls(choose) for _ in range(sized(400, 4000))]
    script, given = "", ""
    for text, marks, both in some:
        shown = 'printf \'%s\\0\' "$a" "$b" "$c" "$REPLY" "${#a[@]}" "${a[@]}" \'|\'; unset a b c REPLY'
        marked = f"IFS={quoted(marks)}"
        script += f"{{ {marked} {both[0]}; {shown}; {marked} {both[1]}; {shown}; }} <<< {quoted(text[:-1])}\n"
        given += text
    ran = subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True, timeout=60)
    results = ran.stdout.decode().split("\0|\0")[:-1]
    assert len(results) == 2 * len(some)
    missed: list[tuple[object, ...]] = []
    for (text, marks, both), found in zip(some, zip(results[::2], results[1::2], strict=True), strict=True):
        lines = ReadLines(text)
        for call, result in zip(both, found, strict=True):
            taken = lines.take(object(), tuple(call.replace("''", "").split(" ")), marks)
            a, b, c, reply, _, *elements = result.split("\0")
            single = {"a": a, "b": b, "c": c, "REPLY": reply}
            for name, values in taken.items():
                is_array = "-ra" in call or "mapfile" in call
                bashs, ours = (elements, values[1:]) if is_array else ([single[name]], values)
                if trimmed(bashs, marks) != trimmed(ours, marks):
                    missed.append((text, marks, call, name, ours, bashs))
    assert missed == []


def trimmed(texts: list[str], marks: str) -> list[str]:
    """Return texts without the separators at their ends, of which bash leaves some in an odd way."""
    return [*filter(None, (each.strip(f"{marks} \t\n") for each in texts))]


def quoted(text: str) -> str:
    return f"'{text}'"


LINES = "ls\nrm -rf /"


@each_row(
    "text",
    [
        f"while read l; do $l; done <<E\n{LINES}\nE",
        f"while IFS= read -r l; do eval \"$l\"; done <<'E'\n{LINES}\nE",
        "until read l; do $l; done <<E\nsudo ls\nE",
        "{ read l; $l; } <<< 'rm -rf /'",
        f"(read l; read m; $m) <<E\n{LINES}\nE",
        "if read l; then $l; fi <<E\nrm -rf /\nE",
        f"case a in a) read l; read l; $l;; esac <<E\n{LINES}\nE",
        f"for i in 1 2; do read l; $l; done <<E\n{LINES}\nE",
        "echo 'rm -rf /' > f; while read l; do $l; done < f",
        "printf 'ls\\nrm -rf /\\n' | while read l; do $l; done",
        "while read l; do $l; done < <(echo ls; echo rm -rf /)",
        f"cd x && while read l; do $l; done <<E\n{LINES}\nE",
        "x='rm -rf /'; while read l; do $l; done <<E\nls\n$x\nE",
        f"{{ mapfile -t l; ${{l[1]}}; }} <<E\n{LINES}\nE",
        f"while read l; do while read m; do $m; done <<F\n$l\nF\ndone <<E\n{LINES}\nE",
        "while read a b; do $a $b; done <<E\nls x\nrm -rf /\nE",
        "while IFS=: read a b; do $b $a; done <<E\nx:ls\n/:rm -rf\nE",
        'while IFS=, read -ra a; do "${a[@]}"; done <<E\nls,x\nrm,-rf,/\nE',
        f"while read; do $REPLY; done <<E\n{LINES}\nE",
        "while read l; do $l; done <<E\ns\\udo ls\nE",
        "while read l; do $l; done <<'E'\nsu\\\ndo ls\nE",
        "while read -n 4 l; do $l ls; done <<'E'\nsu\\\ndo\nE",
        "read -d x v <<< 's\\udox'; $v ls",
        "while read -d , l; do $l; done <<< 'ls,rm -rf /,'",
        "while read a; read b; do $a $b; done <<E\nls\nx\nrm -rf\n/\nE",
        "while read l; do ${l#x}; done <<E\nxls\nxrm -rf /\nE",
        f"while read l 2>/dev/null; do $l; done <<E\n{LINES}\nE",
        f"while read l <&3; do $l; done 3<<E\n{LINES}\nE",
        f"exec 3<<E\n{LINES}\nE\nwhile read -u 3 l; do $l; done",
        f"f() {{ while read l; do $l; done; }}; f <<E\n{LINES}\nE",
        "f() { read x; $x ls; }; f <<< sudo",
        "sh -c 'read x; $x ls' <<< sudo",
        f"bash -c 'while read l; do $l; done' <<E\n{LINES}\nE",
        f"while read l; do echo $l | sh; done <<E\n{LINES}\nE",
        'while read k v; do printf \'%s %s\\n\' "$v" "$k"; done <<E | sh\nls a\n/ rm -rf\nE',
        "printf '/ rm -rf\\n' | while read k v; do echo $v $k; done | sh",
        "echo sudo ls | while read; do $REPLY; done",
        f'mapfile -t a <<E\n{LINES}\nE\nfor x in "${{a[@]}}"; do $x; done',
        "mapfile -t a < <(printf 'ls\\nrm -rf /\\n'); ${a[1]}",
        "IFS=, read w v <<< 'x,sudo'; $v ls",
        "read -d x v <<< sudox; $v ls",
        "IFS=x; w=axsudo; set -- $w; v=$2; $v ls",
        "IFS=x; w=axsudo; v=($w); v=${v[1]}; $v ls",
        "getopts a: o -a sudo; v=$OPTARG; $v ls",
        "a=('rm -rf /' ls); for x in \"${a[@]}\"; do $x; done",
        "set -- 'rm -rf /' ls; for x in \"$@\"; do $x; done",
        f"time while read l; do $l; done <<E\n{LINES}\nE",
        f"time -p until ! read l; do $l; done <<E\n{LINES}\nE",
        f"! {{ read l; read l; $l; }} <<E\n{LINES}\nE",
        f"while read a[0]; do ${{a[0]}}; done <<E\n{LINES}\nE",
        "read 'a[1]' <<< sudo; ${a[1]} ls",
        "printf -v 'a[0]' sudo; ${a[0]} ls",
        "mapfile -td , a <<< 'x,sudo ls,y'; for x in \"${a[@]}\"; do $x; done",
        "readarray -t -d ';' a <<< 'x;sudo ls;y'; for x in \"${a[@]}\"; do $x; done",
        "mapfile -d: a <<< 'x:sudo ls'; for x in \"${a[@]}\"; do $x; done",
        "while read -rN4 c; do $c ls; done <<< xxxxsudo",
        "while read -r -n 4 c; do $c ls; done <<< xxxxsudo",
        "while read l; do $l; done <<< \"$(printf 'ls\\nsudo ls')\"",
        "while read -rd '' c; do $c ls; done < <(printf '%s\\0' x sudo)",
    ],
)
def test_each_line_that_is_read_may_be_run(text: str):
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


@pytest.mark.parametrize("count", [3, 60, 1000])
@pytest.mark.parametrize(
    "loop",
    [
        "while read l; do rm -rf build/$l; done",
        "while read l; do k=${l%%=*}; v=${l#*=}; f=conf/$k.$v; mkdir -p $f; echo $k $v > $f/x; done",
        "while read a b; do command -v $a || echo $b; done",
        "while read a b; do for c in $a $b; do d=$c/$a/$b; cp $d $c; mv $c $d; done; done",
        "f() { while IFS== read -r k v; do export $k=$v; case $k in a*) $TOOL $v;; esac; done; }; f",
    ],
)
def test_what_a_loop_reads_is_no_reason_to_refuse_it_unless_it_runs_a_blocked_command(loop: str, count: int):
    lines = "\n".join(f"a{number}=curl sudo{number}" for number in range(count))
    text = ShellText(f"{loop} <<E\n{lines}\nE")
    assert judge(text, BlocklistPolicy()) == Allow()
    assert text.survey.unread == ""


def test_each_variable_gets_its_own_part_of_a_line_that_is_split_in_another_way():
    numbers = ",".join(map(str, range(10, 22)))
    names = [f"v{number}" for number in range(12)]
    text = f"IFS=, read {' '.join(names)} <<< {numbers}; rm -rf {' '.join(f'${name}' for name in names[:9])}"
    assert judge(ShellText(text), BlocklistPolicy()) == Allow()


def test_the_words_of_a_loop_over_lines_are_not_among_those_that_are_asked_about():
    found = survey("while read l; do cat $l; done <<E\n/etc/passwd\nE")
    assert "/etc/passwd" not in {word for command in found.walk() for word in command.argv}
    assert ("cat", "/etc/passwd") in {command.argv for command in found.ahead}
