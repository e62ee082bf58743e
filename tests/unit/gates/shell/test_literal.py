"""Texts of plain words are read without the parser. The result is the parser's."""

import ast
import inspect
import random
import textwrap

from acp_agent.gates.shell import reading
from acp_agent.gates.shell.command import Plain, ShellText
from acp_agent.gates.shell.options import tables
from acp_agent.gates.shell.printing import printing_commands
from acp_agent.gates.shell.syntax import Parses
from acp_agent.gates.shell.wrappers import Expander
from tests.unit.gates import everyday, hostile
from tests.unit.gates.shell.grammars import known_programs

_CORPORA = (*hostile.U, *everyday.COMMANDS, *(text for table in (hostile.A, hostile.B, hostile.C) for text, _ in table))
_ODD = (
    "a=b",
    "==",
    "=",
    "-",
    "--",
    "-x",
    "--a=b",
    "1",
    "+x",
    "a+=b",
    "%1",
    "..",
    ".",
    "/",
    "a/",
    "/bin/rm",
    "if=x",
    "bisect",
    "submodule",
    "run",
    "foreach",
    "-c",
    "-c=x",
    "-e",
    "-ex",
    "--pre",
    "--pre=x",
    "-O",
    "--exec=x",
    "--eval=x",
    ",",
)
_CHARACTERS = "abzAZ019_./:@%+,=-"


def _texts(count: int):
    chance = random.Random(15)
    names = (*known_programs(), *tables().starters, *tables().text, *_ODD)
    for _ in range(count):
        words = [
            chance.choice(names)
            if chance.random() < 0.6
            else "".join(chance.choices(_CHARACTERS, k=chance.randint(1, 6)))
            for _ in range(chance.randint(1, 5))
        ]
        yield " ".join(words)
        yield f"{chance.choice(_CORPORA)} {words[0]}"


def test_a_literal_text_is_what_the_parser_reads():
    literal = 0
    for text in (*_CORPORA, *_texts(1500)):
        read, parsed = ShellText(text), ShellText(text)
        if read.literal is None:
            continue
        literal += 1
        assert read.analysis == reading.analyse(text, Parses()), text
        assert read.survey == reading.survey(text, Parses()), text
        vars(parsed)["literal"] = None
        assert printing_commands(read) == printing_commands(parsed), text
    assert literal > 500


def test_a_literal_text_is_read_without_the_parser():
    read = ShellText("ls -la src")
    assert (read.analysis, read.commands) == (Plain(read.survey.commands), read.survey.commands)
    assert "parses" not in vars(read)


def test_what_starts_others_is_no_literal_text():
    for text in (
        "sudo ls",
        "bash x",
        "xargs ls",
        "uv run x",
        "git bisect run sudo",
        "git -c x=y log",
        "rg --pre=sudo x",
        "find x",
        "export A=b",
        ". x",
        "if x",
        "time ls",
    ):
        assert ShellText(text).literal is None, text
    for text in (
        "ls  -a",
        " ls",
        "ls\n",
        "ls *",
        "ls ~",
        "A=b ls",
        "a;b",
        "a|b",
        "ls >x",
        "ls #x",
        "ls {a,b}",
        "l's'",
        "",
        "$x",
    ):
        assert ShellText(text).literal is None, text
    assert ShellText("ls -la docs/a.md").analysis == Plain((ShellText("ls -la docs/a.md").survey.commands[0],))


def test_every_program_that_the_expander_knows_is_a_starter():
    """A new case there must not be passed by."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(Expander._other)))
    cases = [each for each in ast.walk(tree) if isinstance(each, ast.match_case)]
    names = {each.value for case in cases for each in ast.walk(case.pattern) if isinstance(each, ast.Constant)}
    assert len(names) > 12
    assert names <= tables().starters | {"git"}
