"""What read, grep, cat and git diff show is what the file holds, and an edit that copies what was shown applies."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acp_agent.output.sanitize import faithful
from acp_agent.text import unescaped
from acp_agent.tools.registry import ToolLimits, default_tools
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

PIECES = st.sampled_from(
    [
        "a",
        "word",
        "  ",
        "\t",
        "é",
        "e\u0301",
        "日本",
        "\\u200b",
        "\\",
        "[line 3 holds U+200B]",
        " [line 1 holds U+200B]",
        "12:",
        "7-",
        "\u200b",
        "\u200c",
        "\u200d",
        "\u202e",
        "\ufeff",
        "\u2028",
        "\x0c",
        "\x1b[31m",
        "\x07",
        "\x85",
        "\xa0",
        "👩\u200d💻",
        "\U000e0041",
    ]
)
LINES = st.lists(st.lists(PIECES, min_size=1, max_size=5).map("".join), min_size=1, max_size=8)
ENDS = st.sampled_from(["\n", "\r\n"])
LIMITS = ToolLimits(line_chars=10_000, match_chars=10_000)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def texts_of(shown: str) -> list[str]:
    """The lines of a read without their numbers."""
    return [line.partition("\t")[2] for line in unescaped(shown).split("\n")]


@given(LINES, ENDS)
async def test_the_lines_of_a_read_and_of_a_search_are_the_files(lines: list[str], end: str):
    lines = [line.removeprefix("\ufeff") or "x" for line in lines]
    bench = Workbench({"a": end.join([*lines, ""])}, tools=default_tools(LIMITS))

    assert texts_of(faithful((await bench.run("read", path="a")).text, terminal=False)) == lines
    heading, *hits, _ = faithful((await bench.run("grep", pattern=".*")).text, terminal=False).split("\n")
    assert heading == "a"
    assert [unescaped(hit).partition(":")[2] for hit in hits] == lines


@given(LINES)
async def test_what_a_command_prints_of_a_file_is_the_files_but_for_what_acts_on_a_terminal(lines: list[str]):
    text = "\n".join(lines)
    assume(CONTROLS.search(text.replace("\n", "").replace("\x0c", "").replace("\x07", "")) is None)
    assert unescaped(faithful(text, terminal=True)) == text
    diff = "\n".join(f"+{line}" for line in lines)
    assert unescaped(faithful(diff, terminal=True)) == diff


@given(LINES, ENDS, st.tuples(st.integers(0), st.integers(0)))
async def test_an_edit_that_copies_lines_as_they_were_shown_applies(lines: list[str], end: str, span: tuple[int, int]):
    lines = [f"{number}:{line}" for number, line in enumerate(lines)]  # each is unique
    text = end.join([*lines, ""])
    bench = Workbench({"a": text}, tools=default_tools(LIMITS))
    shown = [
        line.partition("\t")[2]
        for line in faithful((await bench.run("read", path="a")).text, terminal=False).split("\n")
    ]
    first, last = sorted(number % len(lines) for number in span)

    result = await bench.run("edit", path="a", old_string="\n".join(shown[first : last + 1]), new_string="new")

    assert result.failure is None
    assert bench.files.raw("a").decode() == end.join([*lines[:first], "new", *lines[last + 1 :], ""])
