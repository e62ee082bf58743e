"""When a turn goes round in circles, what the model is told of it, and when it ends."""

from uuid import uuid4

import pytest

from acp_agent.agent.turn import DoomLoop, Repetition
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.types import ToolResult
from tests.rows import each_row

NONE, TOLD, ENDED = Repetition.NONE, Repetition.TOLD, Repetition.ENDED


def rounds(*outputs: str, read_only: bool = False) -> list[Repetition]:
    """What the watch says of equal calls with these outputs."""
    loop = DoomLoop()
    uses = [ToolUsePart(str(uuid4()), "bash", {"command": "x"}) for _ in outputs]
    results = [ToolResult(text, read_only=read_only) for text in outputs]
    return [loop.watch([outcome]) for outcome in zip(uses, results, strict=True)]


def test_three_equal_outputs_in_a_row_are_told_and_three_more_end_the_turn() -> None:
    assert rounds(*"aaaaaa") == [NONE, NONE, TOLD, NONE, NONE, ENDED]


def test_another_output_in_between_starts_the_count_again() -> None:
    assert rounds(*"aabaa") == [NONE] * 5
    assert rounds(*"aaaabaa") == [NONE, NONE, TOLD, *[NONE] * 4]


def test_a_model_that_comes_back_to_what_it_was_told_of_is_stopped_and_another_loop_is_told_first() -> None:
    assert rounds(*"aaabaaa")[-1] is ENDED
    assert rounds(*"aaabbb")[-1] is TOLD


def test_a_call_that_only_reads_makes_progress_when_a_time_in_its_output_changes() -> None:
    waiting = [f"12:00:0{second} waiting for the server" for second in range(9)]
    assert rounds(*waiting, read_only=True) == [NONE] * 9
    assert TOLD in rounds(*waiting)
    fenced = [f'<tool-output id="0a1b2c{at}d">\nx\n</tool-output id="0a1b2c{at}d">' for at in range(3)]
    assert rounds(*fenced, read_only=True) == [NONE, NONE, TOLD], "the ids of the fence are ours"


def test_a_round_of_calls_that_poll_is_no_round() -> None:
    loop = DoomLoop()
    failing = [(ToolUsePart("i", "bash", {"command": "x"}), ToolResult("a"))]
    assert [loop.watch(each) for each in (failing, [], [], [], failing, [], failing)] == [NONE] * 6 + [TOLD]


@each_row(
    "first, second, third",
    [
        ("3 passed in 0.03s", "3 passed in 0.12s", "3 passed in 1s"),
        ("took 12 ms", "took 7 ms", "took 120ms"),
        (
            "stored as overflow:1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
            "stored as overflow:9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
            "stored as overflow:6ec0bd7f-11c0-43da-975e-2a8ad9ebae0b",
        ),
        (
            '<tool-output id="0a1b2c3d">\nx\n</tool-output id="0a1b2c3d">',
            '<tool-output id="12345678">\nx\n</tool-output id="12345678">',
            '<tool-output id="abcdefab">\nx\n</tool-output id="abcdefab">',
        ),
        ("at 2025-01-02T03:04:05Z", "at 2025-01-02T03:04:06.123Z", "at 2026-11-12 13:14:15+01:00"),
        ("12:00:01 fail", "12:00:02 fail", "12:00:03.5 fail"),
        ("<obj at 0x7f3a>", "<obj at 0x7F3B>", "<obj at 0x10>"),
        ("HEAD is now at 1a2b3c4", "HEAD is now at 5d6e7f8", "HEAD is now at " + "a1" * 20),
    ],
)
def test_volatile_parts_are_no_difference(first: str, second: str, third: str) -> None:
    assert rounds(first, second, third) == [NONE, NONE, TOLD]


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [
        ("1 failed", "2 failed", "3 failed"),
        ("line 10", "line 11", "line 12"),
        ("v1.2.3", "v1.2.4", "v1.2.5"),
    ],
)
def test_other_numbers_are_a_difference(first: str, second: str, third: str) -> None:
    assert rounds(first, second, third) == [NONE] * 3


def test_different_commands_that_say_the_same_are_progress() -> None:
    loop = DoomLoop()
    for command in ("mkdir a", "mkdir b", "mkdir c", "mkdir d"):
        assert loop.watch([(ToolUsePart("i", "bash", {"command": command}), ToolResult("(no output)"))]) is NONE


def test_the_same_failure_from_ever_new_arguments_is_a_loop() -> None:
    loop = DoomLoop()
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "old_text not found in a.py"))
    outcome = [loop.watch([(ToolUsePart("i", "edit", {"old_text": text}), failed)]) for text in "abc"]
    assert outcome == [NONE, NONE, TOLD]


def test_all_calls_of_a_round_count() -> None:
    loop = DoomLoop()
    one = (ToolUsePart("i", "read", {"path": "a"}), ToolResult("a"))
    other = (ToolUsePart("j", "read", {"path": "b"}), ToolResult("b"))
    said = [loop.watch(calls) for calls in ([one], [one, other], [one], [one], [one])]
    assert said == [NONE] * 4 + [TOLD]
