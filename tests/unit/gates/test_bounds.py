"""Texts made to be expensive or deep are asked about or refused, by counting and not by the clock."""

import pytest

from acp_agent.core.types import Deny
from acp_agent.gates.blocklist import BlocklistPolicy, judge
from acp_agent.gates.command import Command, Opaque, analyse


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo " + "${a:-" * 300 + "x" + "}" * 300, "nests too deeply"),
        ("ls " + ">a " * 5000, "more than 1000 redirections"),
        ("ls; " * 8000, "more than 1000 commands"),
        ("ls | " * 5000 + "ls", "more than 2000 pipes"),
    ],
)
def test_they_are_refused_because_nobody_could_check_them(text: str, why: str) -> None:
    verdict = judge(text, BlocklistPolicy())
    assert isinstance(verdict, Deny)
    assert why in verdict.reason
    assert isinstance(analyse(text), Opaque)


def test_a_command_that_starts_thousands_knows_its_own_words_in_one_pass() -> None:
    class Counted(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    inner = tuple(Command((Counted("ls"), Counted("x"))) for _ in range(500))
    words = [word for _ in range(500) for word in (Counted("-exec"), Counted("ls"), Counted("x"), Counted(";"))]
    find = Command(("find", *words), runs=inner)
    assert find.own == ("-exec", ";") * 500
    assert Counted.compared < 20_000
