"""The same text read by us and run by a real bash whose PATH holds nothing but recorders.

What is not found on it is recorded as well: bash takes `!'x'` for the name of a program.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from acp_agent.gates.shell.command import Command, Plain, analyse

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
    "bash -lc ",
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


@dataclass(frozen=True, slots=True)
class Bash:
    """A bash in a folder of its own, which runs each text in an empty folder.

    `run` gives, for each text, the argument lists of the programs that ran. `made` then gives the files that one made.
    """

    folder: Path

    @classmethod
    def install(cls, folder: Path) -> "Bash":
        programs = folder / "bin"
        programs.mkdir()
        recorder = folder / "recorder"
        recorder.write_text('#!/bin/sh\nprintf "%s\\0" "$RECORD_N" "$#" "${0##*/}" "$@" >> "$RECORD_LOG"\n')
        recorder.chmod(0o755)
        for name in PROGRAMS:
            (programs / name).symlink_to(recorder)
        for name in REAL:
            found = shutil.which(name)
            assert found is not None, name
            (programs / name).symlink_to(found)
        (folder / "runner").write_text(
            'command_not_found_handle() { printf "%s\\0" "$RECORD_N" "$(($# - 1))" "$@" >> "$RECORD_LOG"; }\n'
            'while IFS= read -r -d "" RECORD_N && IFS= read -r -d "" RECORD_TEXT; do export RECORD_N\n'
            '( cd "$RECORD_N" && eval "$RECORD_TEXT"; wait ) </dev/null >/dev/null 2>&1\ndone\n'
        )
        return cls(folder)

    def run(self, texts: Sequence[str]) -> list[list[tuple[str, ...]]]:
        log = self.folder / "log"
        log.write_bytes(b"")
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        for number in range(len(texts)):
            (work / str(number)).mkdir(parents=True)
        environment = {"PATH": str(self.folder / "bin"), "RECORD_LOG": str(log), "HOME": str(work), "LC_ALL": "C.UTF-8"}
        given = b"".join(f"{number}\0".encode() + text.encode() + b"\0" for number, text in enumerate(texts))
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
        return _records(log.read_bytes(), len(texts))

    def made(self, number: int) -> set[str]:
        return set(os.listdir(self.folder / "work" / str(number)))


def _records(log: bytes, count: int) -> list[list[tuple[str, ...]]]:
    ran: list[list[tuple[str, ...]]] = [[] for _ in range(count)]
    fields = [os.fsdecode(field) for field in log.split(b"\0")[:-1]]
    at = 0
    while at < len(fields):
        number, size = int(fields[at]), int(fields[at + 1])
        if fields[at + 2] != "runner":  # a recorder that was sourced, not run
            ran[number].append(tuple(fields[at + 2 : at + 3 + size]))
        at += 3 + size
    return ran


def proven(text: str) -> Plain | None:
    """The verdict on a text that is plain and of which it is clear what it starts."""
    verdict = analyse(text)
    if not isinstance(verdict, Plain):
        return None
    return None if any(each.unclear for command in verdict.commands for each in command.walk()) else verdict


def escapes(bash: Bash, texts: Sequence[str]) -> tuple[int, int, list[str]]:
    """How many texts were plain, how many programs they ran, and the texts that ran or wrote what was not listed."""
    plain = [(text, verdict) for text in texts if (verdict := proven(text)) is not None]
    ran = 0
    escaped: list[str] = []
    for start in range(0, len(plain), 200):
        batch = plain[start : start + 200]
        for number, records in enumerate(bash.run([text for text, _ in batch])):
            text, verdict = batch[number]
            listed = [each for command in verdict.commands for each in command.walk()]
            ran += len(records)
            known = all(any(_same(record, command) for command in listed) for record in records)
            if not (known and all(any(_writes(command, name) for command in listed) for name in bash.made(number))):
                escaped.append(text)
    return len(plain), ran, escaped


def _writes(command: Command, name: str) -> bool:
    """Whether a redirection of this command makes a file. Of a name that bash expands only the pattern is known."""
    written = [each.target for each in command.redirections if each.writes and not each.harmless]
    return any(name == target.removeprefix("./") or target in command.patterns or "~" in target for target in written)


def _same(record: tuple[str, ...], command: Command) -> bool:
    """Whether a recorded run is this command. Words that bash expands (globs, tildes) and words from xargs differ.

    A shell runs its script itself, and finds it on PATH: `bash make` records `make`.
    """
    if command.name in ("bash", "sh") and not command.runs:
        return command.argv[-len(record) :] == record
    if record[0] != command.name:
        return False
    if command.appended or any(word in command.patterns or "~" in word for word in command.argv):
        return True
    return record[1:] == command.argv[1:] or record[1 : len(command.argv)] == command.argv[1:]
