"""The same text read by us and run by a real bash whose PATH holds nothing but recorders.

What is not found on it is recorded as well: bash takes `!'x'` for the name of a program. Of each text we know which
programs ran with which words and variables, which files changed and, on Linux, what was opened.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from acp_agent.gates.shell.command import Command, Plain, analyse
from acp_agent.workspace.command_files import shell_names
from tests.unit.gates import watching

PROGRAMS = ("git", "ls", "cat", "grep", "evil", "evil2", "log", "x", "make", "find", "sudo", "curl", "-n", "1", "a.b")
REAL = ("env", "timeout", "nice", "nohup", "xargs", "stdbuf", "bash", "sh")

WORDS = (*PROGRAMS[:12], "log", "x", "-n", "status", "'a b'", '"a b"', "'evil x'", '"evil"', "a'b'", "--", "--x=y")
_JOINS = (" ", " ", " ", " ", " ", "  ", "\t", "\n", ";", " && ", " || ", " | ", " & ", "; ", "|", "&&", "|&")
# Never anything that clears the environment or the search path (`env -`, `command -p`): the recorders stand there.
_PREFIXES = (
    "A=1 ",
    "env ",
    "env A=1 ",
    "timeout 1 ",
    "nice -n 5 ",
    "nohup ",
    "command ",
    "exec ",
    "time ",
    "! ",
    "bash -c ",
    "sh -c ",
    "eval ",
    "xargs ",
    "stdbuf -oL ",
    "time -p ",
    "env -S ",
    "bash -uc ",
    "builtin ",
    "coproc ",
    "env -u A ",
    "timeout -k 1 1 ",
    "timeout -s KILL 1 ",
    "timeout --signal=KILL 1 ",
    "nice -5 ",
    "nice --adj=5 ",
    "xargs -n1 ",
    "xargs -0 -I% ",
    "bash -ec ",
    "bash -o pipefail -c ",
    "sh -c -- ",
    "stdbuf -o L -e0 ",
)
MARKS = (
    "'",
    '"',
    "\\",
    "\\\n",
    "\n",
    "\n\\",
    "\n\\\n",
    " ",
    "\t",
    "\r",
    "\v",
    "\x01",
    "#",
    " #",
    "!",
    "$",
    "$x",
    "${x}",
    "$(",
    ")",
    "`",
    "(",
    "{",
    "}",
    "{}",
    "{ ",
    "; }",
    "\\;",
    "\\(",
    "\\)",
    "\\!",
    " \\( ",
    " \\! ",
    ";",
    ";;",
    "&",
    "&&",
    "|",
    "||",
    "<",
    ">",
    ">>",
    ">|",
    "&>",
    "2>",
    "2>&1",
    ">&2",
    ">/dev/null",
    "<<",
    "<<E\n",
    "\nE\n",
    "<<<",
    "<(",
    ">(",
    "=",
    "A=",
    "a[1]=",
    "+=",
    "~",
    "*",
    "?",
    "[",
    "]",
    "[[",
    "]]",
    "((",
    "))",
    "$((",
    "if ",
    "then ",
    "fi",
    "do ",
    "done",
    "for x in ",
    "case x in ",
    "esac",
    "function ",
    "f()",
    "@{0}",
    ",",
    "..",
    "é",
    "\u00a0",
    "\u2028",
    "\u200b",
    "$'evil'",
    '$"evil"',
    "--",
    "-c ",
    "^",
    "@",
    "%",
    "export ",
    "declare ",
    "else ",
    "select ",
    "\\'",
    '\\"',
    "''",
    '""',
    "+",
    ":",
    ".",
    "/",
    "\x7f",
    "\f",
    "1>",
    "{fd}>",
    "<&-",
    ">&-",
    "in ",
    *("0<", "0>", "0<x ", "0>&1 ", "1<x ", "0<<<x ", "1<<E ", "<>x ", "3>&1-", "00<", "-1", "+1"),
    *("!(", "@(", "*(", "?(x)", "$[", "=~", "**", "==", "-eq", "<<-E\n\t", "<<\\E ", "{1..2}", "{a,evil}"),
    *("time ", "until ", "elif ", "&>>", ">>&", "|&", ";&", ";;&", "[[ ", " ]] ", "((1))", "~+", "~-", "[[:alpha:]]"),
)


_WRITES_ELSEWHERE = re.compile(r">[|&]?[\s'\"\\$]*/(?!dev/null(?:[\s;&|)<>]|$))")


def strings(seed: int, count: int) -> Iterator[str]:
    """Random command lines: mostly well-formed, with marks strewn in."""
    choose = random.Random(seed)
    given = 0
    while given < count:
        parts: list[str] = []
        for _ in range(choose.randint(1, 7)):
            if choose.random() < 0.15:
                parts.append(choose.choice(_PREFIXES))
            parts.append(choose.choice(WORDS))
            parts.append(choose.choice(_JOINS))
        for _ in range(choose.choice((0, 0, 1, 1, 2, 3, 5))):
            mark = choose.choice(MARKS)
            if choose.random() < 0.3:
                part = choose.randrange(len(parts))
                at = choose.randint(0, len(parts[part]))
                parts[part] = parts[part][:at] + mark + parts[part][at:]
            else:
                parts.insert(choose.randint(0, len(parts)), mark)
        text = "".join(parts)
        if not _WRITES_ELSEWHERE.search(text):  # whoever runs the tests as root would find the files in `/`
            given += 1
            yield text


_DISGUISES: tuple[Callable[[str], str], ...] = (
    *(f"{before}{{}}{after}".format for before, after in (("", ""), ("'", "'"), ('"', '"'), ("$'", "'"), ('$"', '"'))),
    *(f"{before}{{}}".format for before in ("${{u}}", "$*", "$9", '"$@"', "$''", '$""', "\\\n")),
    *(f"{{}}{after}".format for after in ("''", "\\\n")),
    *(f"${{{{{name}{{}}}}}}".format for name in ("u:-", "u-", "v:+", "HOME:+")),
    *(f'"${{{{{name}{{}}}}}}"'.format for name in ("u:-", "HOME+")),
    '"$u"{}'.format,
    '$u"{}"'.format,
    lambda text: "".join(f"\\{letter}" for letter in text),
    lambda text: "$'" + "".join(f"\\x{ord(letter):02x}" for letter in text) + "'",
    lambda text: "$'" + "".join(f"\\{ord(letter):03o}" for letter in text) + "'",
)
"""Ways to write some letters that bash reads as these letters, where `v` and `HOME` are set, and `u` is not."""
_PLACES = (
    *("{} ls", "{} ls", "x={}; $x ls", "x={}\n$x ls", "if true; then {} ls; fi", "true && {} ls", "( {} ls )"),
    *("f() {{ {} ls; }}; f", "{{ {} ls; }}", "! {} ls", "time {} ls", "env {} ls", "bash -c {}", "eval {} ls"),
    *("A=1 {} ls", ">o {} ls", "for i in {}; do $i ls; done", "echo x | {} ls", "$(echo {}) ls", "command {} ls"),
    *("case x in x) {} ls;; esac", "set -- {}; $1 ls", "a=({} x); ${{a[0]}} ls", "nice {} ls", "[[ x ]] && {} ls"),
)


def disguised(word: str, seed: int, count: int) -> Iterator[str]:
    """Command lines that run a program, whose name is written in pieces, each in another way."""
    choose = random.Random(seed)
    for _ in range(count):
        left, parts = word, list[str]()
        while left:
            size = choose.randint(1, len(left))
            parts.append(choose.choice(_DISGUISES)(left[:size]))
            left = left[size:]
        yield f"v=1; {choose.choice(_PLACES).format(''.join(parts))}"


VARIABLES = ("A", "B", "PATH", "HOME", "BASH_ENV", "ENV", "LS_COLORS", "CDPATH", "GLOBIGNORE", "LC_ALL")
"""Those that the recorders tell, if a program has them."""
_NAMES = (
    *VARIABLES,
    "A",
    "A",
    "CI",
    "RUST_LOG",
    "IFS",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "POSIXLY_CORRECT",
    "a[0]",
    "A[d]",
    "'A'",
    "1A",
)
_VALUES = (
    *(
        "1",
        "a",
        "d",
        ".",
        "",
        "''",
        "'a b'",
        '"a b"',
        "~",
        "~/k",
        "x:~",
        "d:.",
        "*",
        "d/*",
        "a.b",
        "/nowhere",
        "==",
        "'='",
    ),
    *(
        "(a b)",
        "([0]=evil)",
        "$(evil)",
        "`evil`",
        "$B",
        "${B:-evil}",
        "$((1))",
        "$'a'",
        '$"a"',
        "<(evil)",
        "{a,b}",
        "a\\ b",
        "<<<a",
    ),
)
_FILES = (
    *(
        "a",
        "b",
        ".k",
        "d/a",
        "d/../a",
        "./a",
        "../secret",
        "~/k",
        "~+/a",
        "~-/a",
        "nothing",
        "new",
        "d/new",
        "'a'",
        '"a"',
        "a''",
    ),
    *(
        "*",
        "?",
        "d/*",
        "*/a",
        "[ab]",
        "[!b]",
        "[[:alpha:]]",
        "[[.a.]]",
        "[[.period.]]k",
        ".[k]",
        ".*",
        "d*",
        "~/*",
        "'d'/*",
        "*/*",
        "a*b",
    ),
    *(
        "x=~/k",
        "x=d/*",
        "x:~/k",
        "--x=~/k",
        "~root",
        "~nobody/k",
        "-",
        "--",
        "-a",
        "{}",
        "HEAD^{a}",
        "@{0}",
        "a{b}",
        "$A",
        "${A}",
        '"$A"',
    ),
    *(
        "$(<a)",
        '"$(<a)"',
        "`<a`",
        "$(cat a)",
        "<(cat a)",
        ">(cat)",
        "$((1))",
        "a[0]",
        "a=(b)",
        "!",
        "!a",
        "#a",
        "a#",
        "a\\*",
        "'*'",
        "\u00e9",
    ),
)
_OPENINGS = (
    *(
        "<",
        "< ",
        "<",
        "0<",
        "3<",
        "<",
        "<<<",
        "<<< ",
        "<&",
        "0<&",
        "<>",
        "< <",
        "{fd}<",
        "1<",
        "<<E ",
        "9<",
        "10<",
        "<\\\n",
        "<\n",
    ),
    *(">", ">>", "2>", "&>", ">&", ">|", "1>", "> ", ">\n"),
)
_DECLARES = (
    *(
        "export",
        "declare",
        "declare -x",
        "declare -a",
        "declare -n",
        "typeset",
        "local",
        "readonly",
        "export -n",
        "export -f",
        "unset",
    ),
    *(
        "set --",
        "set -a;",
        "set -f;",
        "set -o posix;",
        "shopt -s nullglob;",
        "shopt -s extglob dotglob;",
        "alias",
        "read",
        "mapfile -t",
    ),
    *(
        "eval",
        "source",
        ".",
        "cd",
        "pushd",
        "builtin",
        "command",
        "exec",
        "let",
        "printf -v",
        "enable -n",
        "hash -p",
        "trap",
        "test",
        "[",
    ),
    *(
        "env",
        "env -u A",
        "time",
        "!",
        "coproc",
        "bash -c",
        "sh -c",
        "nice",
        "xargs",
        "umask 0;",
        "ulimit -n 99;",
        "getopts a",
        "wait -p",
    ),
)
_BETWEEN = (" ", " ", " ", " ", "  ", "; ", " && ", " || ", " | ", " & ", "\n", "\t", "; ", "", "\\\n", " #")


def settings(seed: int, count: int) -> Iterator[str]:
    """Random command lines that set variables, open files and have patterns."""
    choose = random.Random(seed)
    given = 0
    while given < count:
        text = "".join(_statement(choose) for _ in range(choose.choice((1, 1, 2, 2, 3, 4))))
        if not _WRITES_ELSEWHERE.search(text):
            given += 1
            yield text


def _statement(choose: random.Random) -> str:
    parts = [
        choose.choice(_FILES if choose.random() < 0.7 else WORDS) for _ in range(choose.choice((0, 0, 1, 1, 2, 3)))
    ]
    if choose.random() < 0.85:
        parts.insert(0, choose.choice(PROGRAMS[:11]))
    if choose.random() < 0.15:
        parts.insert(0, choose.choice(_DECLARES))
    for _ in range(choose.choice((0, 0, 1, 1, 2))):
        joint = "=" if choose.random() < 0.9 else "+="
        assignment = f"{choose.choice(_NAMES)}{joint}{choose.choice(_VALUES)}"
        parts.insert(0 if choose.random() < 0.8 else choose.randint(0, len(parts)), assignment)
    if choose.random() < 0.4:
        opening = f"{choose.choice(_OPENINGS)}{choose.choice(_FILES)}"
        parts.insert(choose.randint(0, len(parts)), opening)
    if choose.random() < 0.03:
        parts.insert(choose.randint(0, len(parts)), choose.choice(MARKS))
    return " ".join(parts) + choose.choice(_BETWEEN)


class Ran(NamedTuple):
    """One run of a program: its words, and `NAME=value` for each of the VARIABLES that it has."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()


class Run(NamedTuple):
    """What bash did with one text. The paths are absolute."""

    folder: Path
    programs: list[Ran]
    changed: set[Path]
    opened: set[Path]


_TREE = {name: name for name in ("in/a", "in/b", "in/.k", "in/d/a", "in/d/.k", "home/k", "secret")}
"""The files that there are for each text, with what they hold. It runs in the folder `in`."""
_WHERE = ("in", "in/d", "home", "")
"""The folders of a text in which its commands may run."""


@dataclass(frozen=True, slots=True)
class Bash:
    """A bash in a folder of its own, which runs each text in a folder of its own."""

    folder: Path

    @classmethod
    def install(cls, folder: Path) -> "Bash":
        programs = folder / "bin"
        programs.mkdir()
        recorder = folder / "recorder"
        shown = " ".join(f'"${{{name}+{name}=${name}}}"' for name in VARIABLES)
        record = f'printf "%s\\0" "$RECORD_N" {shown} "$#" "${{0##*/}}" "$@" >> "$RECORD_LOG"'
        recorder.write_text(f"#!/bin/sh\n{record}\n")
        recorder.chmod(0o755)
        for name in PROGRAMS:
            (programs / name).symlink_to(recorder)
        for name in REAL:
            found = shutil.which(name)
            assert found is not None, name
            (programs / name).symlink_to(found)
        unfound = f'printf "%s\\0" "$RECORD_N" {shown} "$(($# - 1))" "$@" >> "$RECORD_LOG"'
        (folder / "runner").write_text(
            f"command_not_found_handle() {{ {unfound}; }}\n"
            'while IFS= read -r -d "" RECORD_N && IFS= read -r -d "" RECORD_TEXT; do export RECORD_N\n'
            '( HOME=$PWD/$RECORD_N/home; cd "$RECORD_N/in" && eval "$RECORD_TEXT"; wait ) </dev/null >/dev/null 2>&1\n'
            "done\n"
        )
        return cls(folder)

    def run(self, texts: Sequence[str]) -> list[Run]:
        log = self.folder / "log"
        log.write_bytes(b"")
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        for number in range(len(texts)):
            for name, held in _TREE.items():
                (work / str(number) / name).parent.mkdir(parents=True, exist_ok=True)
                (work / str(number) / name).write_text(held)
        environment = {"PATH": str(self.folder / "bin"), "RECORD_LOG": str(log), "HOME": str(work), "LC_ALL": "C.UTF-8"}
        given = b"".join(f"{number}\0".encode() + text.encode() + b"\0" for number, text in enumerate(texts))
        with watching.watching() if watching.AVAILABLE else nullcontext() as watch:
            if watch is not None:
                for number in range(len(texts)):
                    for each in _WHERE:
                        watch.add(work / str(number) / each)
            subprocess.run(
                ["/bin/bash", "--norc", "--noprofile", str(self.folder / "runner")],
                input=given,
                env=environment,
                cwd=work,
                check=False,
                timeout=60,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            opened = set(watch.opened()) if watch is not None else set[Path]()
        programs = _records(log.read_bytes(), len(texts))
        runs: list[Run] = []
        for number, ran in enumerate(programs):
            top = work / str(number)
            changed = {
                path
                for path in top.rglob("*")
                if path.is_file() and _TREE.get(str(path.relative_to(top))) != path.read_text()
            }
            runs.append(Run(top, ran, changed, set()))
        for path in opened:
            runs[int(path.relative_to(work).parts[0])].opened.add(path)
        return runs


def _records(log: bytes, count: int) -> list[list[Ran]]:
    ran: list[list[Ran]] = [[] for _ in range(count)]
    fields = [os.fsdecode(field) for field in log.split(b"\0")[:-1]]
    at = 0
    while at < len(fields):
        number, begin = int(fields[at]), at + 1 + len(VARIABLES)
        size = int(fields[begin])
        if fields[begin + 1] != "runner":  # a recorder that was sourced, not run
            ran[number].append(
                Ran(tuple(fields[begin + 1 : begin + 2 + size]), tuple(filter(None, fields[at + 1 : begin])))
            )
        at = begin + 2 + size
    return ran


def proven(text: str) -> Plain | None:
    """The verdict on a text that is plain and of which it is clear what it starts."""
    verdict = analyse(text)
    if not isinstance(verdict, Plain):
        return None
    return None if any(each.unclear for command in verdict.commands for each in command.walk()) else verdict


def escapes(bash: Bash, texts: Sequence[str]) -> tuple[int, int, list[str]]:
    """How many texts were plain, how many programs they ran, and the texts that did what was not listed."""
    plain = [(text, verdict) for text in texts if (verdict := proven(text)) is not None]
    ran = 0
    escaped: list[str] = []
    for start in range(0, len(plain), 200):
        batch = plain[start : start + 200]
        for (text, verdict), run in zip(batch, bash.run([text for text, _ in batch]), strict=True):
            listed = [each for command in verdict.commands for each in command.walk()]
            ran += len(run.programs)
            if not _explained(run, listed):
                escaped.append(text)
    return len(plain), ran, escaped


_STEERING = frozenset(
    ("PATH", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "HOME", "CDPATH", "GLOBIGNORE", "POSIXLY_CORRECT")
)
_STEERING_COMMANDS = frozenset((".", "source", "shopt", "set"))
"""With them a command may run, read or write something else. Gates ask about every text that has one."""


def _explained(run: Run, listed: list[Command]) -> bool:
    """Whether all that bash did was listed."""
    given = [word for command in listed for word in command.assignments]
    steered = not _STEERING.isdisjoint(word.partition("=")[0] for word in given)
    if steered or any(each.name in _STEERING_COMMANDS for each in listed):
        return True
    more = {id(inner) for command in listed if command.appended for inner in command.walk()}
    programs = all(any(_same(ran, each, run.folder, more=id(each) in more) for each in listed) for ran in run.programs)
    own = {f"HOME={run.folder}/home", f"PATH={run.folder.parents[1]}/bin", "LC_ALL=C.UTF-8"}
    variables = {word for each in run.programs for word in each.variables} - own
    targets = [(each, command) for command in listed for each in command.redirections if not each.harmless]
    written = [(each.target, command) for each, command in targets if each.writes]
    opened = [(each.target, command) for each, command in targets]
    opened += [
        (word, command)
        for command in listed
        for word in command.argv
        if command.name in (*REAL, "enable") or word == command.argv[0]
    ]
    return (
        programs
        and all(any(_means(word, each, run) for each in given) for word in variables)
        and all(any(_names(path, *each, run.folder) for each in written) for path in run.changed)
        and all(
            any(_names(path, *each, run.folder) for each in opened) or _lists(path, listed, run.folder)
            for path in run.opened
        )
    )


def _means(variable: str, assignment: str, run: Run) -> bool:
    """Whether a variable of a program has the value of an assignment."""
    del run
    return variable == assignment or ("~" in assignment and variable.partition("=")[0] == assignment.partition("=")[0])


def _names(path: Path, word: str, command: Command, folder: Path) -> bool:
    """Whether a word of a command names a path in one of the folders. Of a name with a tilde only the end is known."""
    if "~" in word:
        return str(path).endswith(word.rpartition("~")[2].lstrip("+-")) or (word in command.patterns)
    places = [folder / each for each in _WHERE]
    names = [place / word for place in places]
    if word in command.patterns:
        names += [place / name for place in places for name in _matches(word, place)]
    return os.path.normpath(path) in map(os.path.normpath, names)


def _matches(word: str, place: Path) -> tuple[str, ...]:
    return shell_names(word, str(place), resolve=lambda path, access: path) or ()


def _lists(path: Path, listed: list[Command], folder: Path) -> bool:
    """Whether a path is a folder that bash reads for a pattern of a command."""
    if not path.is_dir():
        return False
    for word in (word for command in listed for word in command.patterns):
        if "~" in word:
            return True
        parts = word.split("/")
        for at, part in enumerate(parts):
            above = "/".join(parts[:at])
            if not frozenset("*?[").isdisjoint(part) and any(
                os.path.normpath(place / name) == os.path.normpath(path)
                for place in (folder / each for each in _WHERE)
                for name in (above, *_matches(above, place))
            ):
                return True
    return False


def _same(ran: Ran, command: Command, folder: Path, *, more: bool) -> bool:
    """Whether a recorded run is this command. There may be `more` words behind those of `xargs`.

    A shell runs its script itself, and finds it on PATH: `bash make` records `make`.
    """
    if command.name in ("bash", "sh") and not command.runs:
        return command.argv[-len(ran.words) :] == ran.words
    if ran.words[0] != command.name and not _stands_for(
        ran.words[0], command.argv[0] if command.argv else "", command, folder
    ):
        return False
    return _aligned(ran.words[1:], command.argv[1:], command, folder, more=more)


def _aligned(words: tuple[str, ...], listed: tuple[str, ...], command: Command, folder: Path, *, more: bool) -> bool:
    """Whether words are those of a command once bash has put in the names of files."""
    ends = {0}  # how many words may be taken by the listed ones so far
    for each in listed:
        if each not in command.patterns and "~" not in each:
            ends = {at + 1 for at in ends if words[at : at + 1] == (each,)}
            continue
        fits = [_stands_for(word, each, command, folder) for word in words]
        after = set[int]()
        for at in ends:
            most = len(words) if each in command.patterns else at + 1
            after.update(end + 1 for end in range(at, min(most, len(words))) if all(fits[at : end + 1]))
        ends = after
    return len(words) in ends or (more and bool(ends))


def _stands_for(word: str, listed: str, command: Command, folder: Path) -> bool:
    """Whether bash may pass a word for a listed one."""
    if word == listed:
        return True
    if "~" in listed:
        return (
            re.fullmatch(re.sub(r"\\~(?:\w|\\[+-])*", ".*", re.escape(listed)), word) is not None
            or listed in command.patterns
        )
    return listed in command.patterns and any(word in _matches(listed, folder / each) for each in _WHERE)
