"""What operators make of the values of variables, compared with bash."""

import random
import shutil
import subprocess

import pytest

from acp_agent.core.types import Allow, Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.shell.command import ShellText, survey
from acp_agent.gates.shell.operators import pattern_of, replaced, without
from tests.rows import each_row
from tests.sizes import sized

MODERN = "shopt -q patsub_replacement"  # since bash 5.2, `&` in a replacement stands for what was found


def expansions(choose: random.Random) -> tuple[str, str]:
    """Return a value, and an expansion of `x` that is simple enough to be computed."""
    value = "".join(choose.choices("abB./ sudo,{}", k=choose.randint(0, 8)))
    start, end = ("".join(choose.choices("abs./", k=choose.randint(0, 2))) for _ in range(2))
    pattern = choose.choice(
        (
            *(start, f"{start}*{end}", f"{start}*", f"*{end}", f"'{start}'", f'"{start}"{end}', f"'*'{start}"),
            *(f"'{start},'", f'"{{{start}"', f"{start}','{end}", "'a b'"),
        )
    )
    number = choose.randint(-9, 9)
    shapes = [f"x{mark}{pattern}" for mark in ("#", "##", "%", "%%")]
    shapes += [f"x{mark}{''.join(choose.choices('ab?', k=2))}" for mark in ("#", "##", "%", "%%")]
    if not pattern.startswith(("/", "'", '"', "#", "%")) and "/" not in pattern and pattern:
        shapes += [
            f"x{mark}{pattern}{end}" for mark in ("/", "//", "/#", "/%") for end in ("/do", "/", "", "/&b", "/a b")
        ]
    shapes += [f"x: {number}", f"x: {number}:{abs(number)}", f"x:({number}):{-abs(number)}"]
    octal = f"0{number % 8}{abs(number) % 8}"
    shapes += [f"x:{2**64 + abs(number)}", f"x: {number - 2**65}", f"x:{'0' * 5000}{abs(number) % 8}"]
    shapes += [f"x:{octal}", f"x:{abs(number):#x}", "x:n", "x:n:n", "x:1:n", "x:$n", "x:${n}", "x: -1:$n", "x~~", "x~"]
    shapes += ["x~~[ab]", "x~[B]"]
    shapes += ["x^", "x^^", "x,", "x,,", "x@U", "x@u", "x@L", "!y"]
    return value, choose.choice(shapes)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_what_bash_makes_of_a_value_is_computed():
    choose = random.Random(2028)
    some = [expansions(choose) for _ in range(sized(500, 10_000))]
    script = "".join(
        f"r=ERROR x='{value}' y=x n=2\nr=\"${{{shape}}}\"\nprintf '%s\\0' \"$r\"\n" for value, shape in some
    )
    fits = f"{MODERN} || exit 9\n"
    ran = subprocess.run(["bash"], input=(fits + script).encode(), capture_output=True, check=False, timeout=60)
    if ran.returncode == 9:
        pytest.skip("needs bash 5.2")
    results = ran.stdout.decode().split("\0")[:-1]
    assert len(results) == len(some)
    missed = [
        (value, shape, result)
        for (value, shape), result in zip(some, results, strict=True)
        if result not in ("ERROR", *made_of(value, shape))  # an error: the part would end in front of its beginning
        and not (shape.startswith("x~") and result.lower() in map(str.lower, made_of(value, shape)))
    ]
    assert missed == []


def made_of(value: str, shape: str) -> set[str]:
    """Return the words that a command may have for an expansion of `x`."""
    return {word for each in survey(f"x='{value}' y=x n=2; cat \"${{{shape}}}\"").commands for word in each.argv}


@each_row(
    "text",
    [
        "x=asudo; ${x#a} ls",
        "x=sudo.x; ${x%%.*} ls",
        "x=/usr/bin/sudo.x; y=${x##*/}; ${y%.*} ls",
        "n=x; x=sudo; ${!n} ls",
        "x=suXo; ${x/X/d} ls",
        "x=ls; ${x/ls/sudo} a",
        "x=asudob; ${x:1:4} ls",
        "x=asudo; ${x: -4} ls",
        "x=RM; y=RF; ${x,,} -${y,,} /",
        "x=aaaaaaaasudo; ${x:010} ls",
        "x=asudob; n=1; ${x:$n:4} ls",
        "x='a,sudo'; ${x#'a,'} ls",
        "x='a,b'; ${x/'a,b'/sudo} ls",
        "x=RM; ${x~~} -rf /",
        "w='sudo x'; v=${w%% *}; $v ls",
        "w='x sudo'; v=${w##* }; $v ls",
        "v='su do'; v=${v/ }; $v ls",
        "v=su/do; v=${v/\\/}; $v ls",
        "v=${HOME:+sudo}; $v ls",
        "v=; v=${v:-sudo}; $v ls",
        "x=asudo; echo ${x#a} | sh",
        'x=asudo; y="${x#a} ls"; eval "$y"',
        "x=asudo; for y in b ${x#a}; do $y ls; done",
        "x=asudo; sh <<E\n${x#a} ls\nE",
        'x=asudo; sh <<< "${x#a} ls"',
        "x=asudo y=a; ${x#$y} ls",
        "for x in asudo b; do ${x#a} ls; done",
        "x=/etc/x; rm -rf ${x%/*}",
        "set -- asudo; ${1#a} ls",
        "f() { ${1#a} ls; }; f asudo",
        "x=sudo; ${x#b} ls",
        "x=sudo; ${x#[a]} ls",
        "env 'BASH_FUNC_ls%%=() { sudo ls; }' bash -c ls",
    ],
)
def test_what_an_operator_makes_of_a_known_value_is_judged(text: str):
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Deny)


@each_row(
    "text",
    [
        "x=/a/b.c; cp ${x%.*} ${x##*/}; rm -rf ${x%/*}/old",
        'for f in *.c; do cc -o "${f%.c}" "$f"; done',
        "x=$(ls); echo ${x//a/b}",
        "x=/usr/local/bin; y=${x#/usr}; rm -rf build$y",
        "x=a; y=${x/b/sudo}; echo $y",
    ],
)
def test_an_honest_use_of_operators_is_not_refused(text: str):
    assert isinstance(judge(ShellText(text), BlocklistPolicy()), Allow)


def test_more_values_than_are_followed_come_from_no_operator():
    many = " ".join(f"a{number}.c" for number in range(100))
    steps = "".join(f"x{number + 1}=${{x{number}#{number}}}; " for number in range(9))
    assert survey(f"for x0 in {many}; do {steps} y=${{x9%.*}}; cc -o $y; done").unread == ""


def test_a_long_value_is_searched_in_linear_time():
    value = "ab" * 2000
    pattern = pattern_of([("a*b", False)])
    assert pattern is not None
    assert without(value, "##", pattern) == ""
    assert without(value, "%", pattern) == value[:-2]
    assert replaced(value, "//", pattern, "&&") == value * 2
