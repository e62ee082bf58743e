"""When a turn goes round in circles, and when it does not."""

from uuid import uuid4

import pytest

from acp_agent.agent.turn import DoomLoop
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import ToolUsePart
from acp_agent.core.types import ToolResult


def rounds(*outputs: str) -> list[bool]:
    """What the watch says of equal calls with these outputs."""
    loop = DoomLoop()
    return [loop.watch([(ToolUsePart(str(uuid4()), "bash", {"command": "x"}), ToolResult(text))]) for text in outputs]


def test_three_equal_outputs_in_a_row_are_a_loop() -> None:
    assert rounds("a", "a", "a") == [False, False, True]


def test_another_output_in_between_starts_the_count_again() -> None:
    assert rounds("a", "a", "b", "a", "a") == [False] * 5


@pytest.mark.parametrize(
    ("first", "second", "third"),
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
    assert rounds(first, second, third) == [False, False, True]


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [
        ("1 failed", "2 failed", "3 failed"),
        ("line 10", "line 11", "line 12"),
        ("v1.2.3", "v1.2.4", "v1.2.5"),
    ],
)
def test_other_numbers_are_a_difference(first: str, second: str, third: str) -> None:
    assert rounds(first, second, third) == [False, False, False]


def test_different_commands_that_say_the_same_are_progress() -> None:
    loop = DoomLoop()
    for command in ("mkdir a", "mkdir b", "mkdir c", "mkdir d"):
        assert not loop.watch([(ToolUsePart("i", "bash", {"command": command}), ToolResult("(no output)"))])


def test_the_same_failure_from_ever_new_arguments_is_a_loop() -> None:
    loop = DoomLoop()
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.PERMANENT_FAILURE, "old_text not found in a.py"))
    outcome = [loop.watch([(ToolUsePart("i", "edit", {"old_text": text}), failed)]) for text in "abc"]
    assert outcome == [False, False, True]


def test_all_calls_of_a_round_count() -> None:
    loop = DoomLoop()
    one = (ToolUsePart("i", "read", {"path": "a"}), ToolResult("a"))
    other = (ToolUsePart("j", "read", {"path": "b"}), ToolResult("b"))
    assert not loop.watch([one])
    assert not loop.watch([one, other])
    assert not loop.watch([one])
    assert not loop.watch([one])
    assert loop.watch([one])
