"""read_overflow: any part of a long output, page by page, and never a page that is too long itself."""

import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.errors import StoreUnavailable, ToolError, ToolErrorCategory
from acp_agent.core.services import UNKNOWN_OVERFLOW
from acp_agent.core.sessions import OVERFLOW_PREFIX
from acp_agent.core.types import ToolKind
from acp_agent.tools import read_overflow
from acp_agent.tools.read_overflow import KeptText, ReadOverflow
from tests.rows import each_row
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio

ID = "0F9619FF-8b86-4d01-b42d-00cf4fc964ff"
LOG = "".join(f"line {n}\n" for n in range(1, 101))


class Kept:
    """An Overflow that holds texts by bare UUID; `asked` is what it was asked for."""

    def __init__(self, texts: Mapping[str, str], trouble: str = "") -> None:
        self.texts = {key.lower(): text for key, text in texts.items()}
        self.trouble = trouble
        self.asked: list[str] = []

    async def put(self, text: str) -> str:
        raise AssertionError(text)

    async def get(self, reference: str) -> str | None:
        self.asked.append(reference)
        if self.trouble:
            raise StoreUnavailable(self.trouble)
        return self.texts.get(str(uuid.UUID(reference.removeprefix(OVERFLOW_PREFIX))))


async def read(text: str | Kept | None, *, max_chars: int = 20_000, **arguments: object) -> str:
    bench = Workbench(tools=[ReadOverflow(max_chars=max_chars)])
    invocation = await bench.understand("read_overflow", **({"id": ID} | arguments))
    context = bench.context(invocation)
    kept = Kept({ID: text}) if isinstance(text, str) else text
    result = await invocation.run(replace(context, backends=replace(context.backends, overflow=kept)))
    assert result.display is None
    return result.text


def next_arguments(page: str) -> dict[str, int]:
    """What the last line of a page says to go on with."""
    return {key: int(value) for key, value in re.findall(r"(offset|column)=(\d+)", page.rsplit("\n", 1)[-1])}


# ------------------------------------------------------------------------------------------ ids


@each_row(
    "bad",
    ["", "overflow:", "1", ID[:-1], f"{ID}0", ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}", f"overflow:x{ID[1:]}",
     f"overflow:overflow:{ID}", "' OR 1=1 --", "../../etc/passwd", f"{ID}\0", "x" * 100_000],
)  # fmt: skip
async def test_what_is_no_uuid_is_refused_without_a_look_at_the_store(bad: str):
    kept = Kept({})

    with pytest.raises(ToolError) as error:
        await read(kept, id=bad)

    assert str(error.value) == "id must be a valid UUID"
    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert kept.asked == []


@pytest.mark.parametrize("given_id", [ID, ID.lower(), ID.upper(), f"overflow:{ID}", f" overflow:{ID}\n"])
async def test_an_id_is_taken_with_its_prefix_and_without(given_id: str):
    assert await read("kept\n", id=given_id) == "   1\tkept"


async def test_every_unknown_id_gets_one_and_the_same_answer_also_where_nothing_is_kept():
    answers = set[str]()
    for kept in (Kept({}), Kept({str(uuid.uuid4()): "another's"}), None):
        with pytest.raises(ToolError) as error:
            await read(kept)
        assert error.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
        assert error.value.failure.message == UNKNOWN_OVERFLOW
        answers.add(error.value.failure.block())

    assert len(answers) == 1


async def test_a_store_that_cannot_be_used_says_why():
    with pytest.raises(ToolError, match="the database is locked") as error:
        await read(Kept({}, trouble="the database is locked"))
    assert error.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE


# ---------------------------------------------------------------------------------------- lines


async def test_a_text_that_fits_is_shown_whole_with_line_numbers():
    assert await read("one\n\nthree") == "   1\tone\n   2\t\n   3\tthree"


async def test_offset_and_limit_are_those_of_read():
    assert await read(LOG, offset=99) == "  99\tline 99\n 100\tline 100"
    assert await read(LOG, offset=-1) == " 100\tline 100"
    assert await read(LOG, offset=11, limit=2) == ("  11\tline 11\n  12\tline 12")
    assert (await read(LOG, offset=-1000, limit=1)) == "   1\tline 1"


async def test_behind_the_end_it_says_how_many_lines_there_are():
    assert await read(LOG, offset=101) == "Nothing at offset 101: there are 100 lines"
    assert await read("", pattern="x") == "Nothing at offset 1: there are 0 lines"


async def test_a_long_line_is_cut_and_the_cut_says_how_to_read_the_rest():
    page = await read("short\n" + "x" * 5000 + "\nend\n")

    assert page == ("   1\tshort\n   2\t" + "x" * 2000 + "… [3000 more characters: offset=2 column=2000]\n   3\tend")
    assert await read("short\n" + "x" * 5000 + "\nend\n", offset=2, column=4990) == (
        "   2\txxxxxxxxxx\n[1 more line: go on with offset=3]"
    )


async def test_a_column_behind_the_line_is_told():
    assert await read("äöü\n", column=4) == "Nothing at column 4: line 1 has 3 characters"


async def test_one_line_of_ten_megabytes_is_read_piece_by_piece():
    line = "".join(f"{n:07d}é" for n in range(1_250_000))
    page = await read(line, column=9_000_000)
    assert page.startswith("   1\t1125000é1125001é")
    assert next_arguments(page) == {"offset": 1, "column": 9_000_000 + 20_000 - 180 - 6}
    assert len(page) <= 20_000


LINES = st.builds("".join, st.lists(st.sampled_from(["a", "é", "\t", "1\t", "x" * 99, "yz" * 300]), max_size=5))


@given(lines=st.lists(LINES, max_size=12), max_chars=st.integers(800, 1500))
async def test_following_the_notices_gives_back_every_character_and_no_page_is_too_long(
    lines: list[str], max_chars: int
):
    text = "".join(f"{line}\n" for line in lines)
    seen = [""] * len(lines)
    asked: list[dict[str, int]] = [{"offset": 1}] if lines else []
    while asked:
        arguments = asked.pop()
        page = await read(text, max_chars=max_chars, **arguments)
        assert len(page) <= max_chars
        for shown in page.split("\n"):
            number, _, rest = shown.partition("\t")
            if number.strip().isdecimal():
                seen[int(number) - 1] += rest.partition("…")[0]
            goes_on = next_arguments(shown)
            if goes_on and ("column" in goes_on or "column" not in arguments):  # else other pages lead there too
                asked.append(goes_on)

    assert seen == lines


# --------------------------------------------------------------------------------------- search


async def test_only_lines_that_match_are_shown():
    assert await read(LOG, pattern="line (5|7|50)$") == "5: line 5\n7: line 7\n50: line 50"


async def test_a_search_is_gone_on_with_where_it_stopped():
    page = await read(LOG, pattern="0$", limit=2, offset=16)

    assert page.endswith("30: line 30\n[more matches than these 2: go on with offset=40]")
    assert "40: line 40" in await read(LOG, pattern="0$", limit=1, **next_arguments(page))


async def test_nothing_found_is_said_with_where_it_was_looked_for():
    assert await read(LOG, pattern="LINE") == 'No matches for: "LINE"'
    assert await read(LOG, pattern="line 1$", offset=2) == 'No matches after line 1 for: "line 1$"'
    assert len(await read(LOG, pattern="y" * 100_000)) < 200


async def test_matches_in_one_very_long_line_are_shown_one_after_the_other():
    line = "é" * 3_000_000 + "NEEDLE" + "x" * 2_000_000 + "NEEDLE" + "y" * 10
    page = await read(line, pattern="NEEDLE")

    first, second = page.split("\n")
    assert first.startswith("1: [from column 2999875] …é")
    assert "NEEDLE" in first
    assert re.search(r"… \[\d+ more characters: offset=1 column=3000375\]$", first)
    assert second.endswith("NEEDLEyyyyyyyyyy")


async def test_more_matches_in_a_long_line_than_a_page_holds_are_gone_on_with_by_column():
    page = await read("NEEDLE" * 100_000, pattern="NEEDLE")

    arguments = next_arguments(page)
    assert arguments["offset"] == 1
    assert arguments["column"] > 0
    assert len(page) <= 20_000
    assert (await read("NEEDLE" * 100_000, pattern="NEEDLE", **arguments)).startswith("1: [from column ")


@given(lines=st.lists(st.sampled_from(["", "a", "x" * 70_000]), max_size=9), offset=st.integers(0, 10))
def test_any_line_is_found_whatever_stands_before_it(lines: list[str], offset: int):
    kept = KeptText("".join(f"{line}\n" for line in lines))

    assert kept.total == len(lines)
    assert [line.text for line in kept.lines(offset)] == lines[offset:]


@each_row("pattern", ["(", "(?=x)", r"(a)\1", "[", "x{2000}", "a**"])
async def test_what_is_no_pattern_is_told_with_the_reason(pattern: str):
    with pytest.raises(ToolError, match="pattern = ") as error:
        await read(LOG, pattern=pattern)
    assert error.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert len(str(error.value)) < 400


async def test_a_pattern_that_would_backtrack_for_ever_does_not():
    assert (await read("a" * 100_000 + "!", pattern="^(a+)+$")).startswith("No matches")


async def test_a_bounded_repeat_over_one_long_line_ends_with_its_task_and_with_its_time(
    monkeypatch: pytest.MonkeyPatch,
):
    text, pattern = "x=1;" * 2_500_000, "(x=1;){1,1000}y"
    started = time.monotonic()
    with anyio.move_on_after(0.1) as scope:
        await read(text, pattern=pattern)
    assert scope.cancelled_caught
    monkeypatch.setattr(read_overflow, "_SECONDS", 0.1)
    with pytest.raises(ToolError, match=r"longer than 0\.1 seconds") as error:
        await read(text, pattern=pattern)
    assert error.value.failure.category is ToolErrorCategory.TIMEOUT
    assert time.monotonic() - started < 8


@given(
    text=st.text(st.sampled_from("ab\né "), max_size=60),
    pattern=st.sampled_from(["a", "b$", "^", "^$", "a*", "é", r"\s", "a|b", "[^a]", "x"]),
    first=st.integers(1, 9),
)
async def test_a_search_finds_the_lines_pythons_engine_finds(text: str, pattern: str, first: int):
    lines = text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    wanted = [n for n, line in enumerate(lines, 1) if n >= first and re.search(pattern, line)]

    page = await read(text, pattern=pattern, offset=first)

    assert [int(number) for number in re.findall(r"^(\d+): ", page, re.MULTILINE)] == wanted


@given(
    lines=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1500)), max_size=40),
    arguments=st.fixed_dictionaries(
        {}, optional={"offset": st.integers(-50, 50), "column": st.integers(0, 2000), "limit": st.integers(1, 30)}
    ),
    max_chars=st.integers(800, 3000),
)
async def test_no_page_of_a_search_is_too_long(lines: list[tuple[str, int]], arguments: dict[str, int], max_chars: int):
    text = "\n".join(letter * count for letter, count in lines)

    assert len(await read(text, pattern="a|^$", max_chars=max_chars, **arguments)) <= max_chars


# ------------------------------------------------------------------------------------- the tool


async def test_it_reads_only_touches_nothing_and_is_never_kept():
    invocation = await Workbench(tools=[ReadOverflow()]).understand("read_overflow", id=ID)

    assert (invocation.spec.kind, invocation.spec.mutates, invocation.spec.cacheable) == (ToolKind.READ, False, False)
    assert (invocation.subjects, invocation.diffs, invocation.locations) == ((), (), ())
    assert invocation.predicted_failure is None


def test_it_costs_the_catalogue_little():
    spec = ReadOverflow().spec()

    assert len(json.dumps([spec.name, spec.description, spec.parameters], separators=(",", ":"))) < 700


def test_a_page_too_small_for_a_match_and_its_notice_is_refused():
    with pytest.raises(ValueError, match="max_chars = 799"):
        ReadOverflow(max_chars=799)
