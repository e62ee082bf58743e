"""read: line numbers, parts of files, notices."""

import pytest

from acp_agent.core.errors import Refused, ToolError
from acp_agent.core.types import Access, Location, PathSubject
from acp_agent.tools.registry import default_tools
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


async def test_lines_come_numbered_from_one():
    bench = Workbench({"a.py": "import os\n\nprint(os)\n"})

    result = await bench.run("read", path="a.py")

    assert result.text == "   1\timport os\n   2\t\n   3\tprint(os)"
    assert result.locations == (Location("/project/a.py"),)


async def test_offset_skips_lines_and_limit_counts_them():
    bench = Workbench({"a": "1\n2\n3\n4\n5\n"})

    result = await bench.run("read", path="a", offset=1, limit=2)

    assert result.text == "   2\t2\n   3\t3\n... 2 more lines (go on with offset=3)"
    assert result.locations == (Location("/project/a", 2),)


async def test_the_last_part_has_no_notice():
    bench = Workbench({"a": "1\n2\n3"})

    assert (await bench.run("read", path="a", offset=2, limit=5)).text == "   3\t3"


async def test_going_on_where_the_notice_says_gives_every_line_once():
    bench = Workbench({"a": "".join(f"line {n}\n" for n in range(10))}, tools=default_tools(read_lines=3))
    pages = [await bench.run("read", path="a", offset=offset) for offset in (0, 3, 6, 9)]

    lines = [line for page in pages for line in page.text.split("\n") if "\t" in line]

    assert lines == [f"{n + 1:>4}\tline {n}" for n in range(10)]
    assert [page.text.rpartition("offset=")[2] for page in pages[:3]] == ["3)", "6)", "9)"]


async def test_a_limit_above_the_cap_is_cut_to_the_cap_with_a_notice():
    bench = Workbench({"a": "x\n" * 10}, tools=default_tools(read_lines=4))

    text = (await bench.run("read", path="a", limit=9)).text

    assert text.endswith("   4\tx\n... 6 more lines (go on with offset=4)")


async def test_only_lf_and_crlf_end_a_line():
    bench = Workbench({"a": "a\x0cb\u2028c\x85d\re\r\nf\x1cg\n"})

    assert (await bench.run("read", path="a")).text == "   1\ta\x0cb\u2028c\x85d\re\n   2\tf\x1cg"


async def test_blanks_of_a_line_are_kept():
    bench = Workbench({"a": "\t  x \r\n  y\t\n"})

    assert (await bench.run("read", path="a")).text == "   1\t\t  x \n   2\t  y\t"


async def test_a_long_line_is_cut_and_says_how_much_is_missing():
    bench = Workbench({"a": "x" * 15 + "\nshort\n"}, tools=default_tools(line_chars=10))

    assert (await bench.run("read", path="a")).text == f"   1\t{'x' * 10}… [5 more characters]\n   2\tshort"


@pytest.mark.parametrize(
    ("content", "offset", "notice"),
    [
        ("", 0, "Empty file: a"),
        ("1\n2\n", 2, "Nothing at offset 2: a has 2 lines"),
        ("1\n2\n", 10**9, "Nothing at offset 1000000000: a has 2 lines"),
    ],
)
async def test_nothing_to_show_is_a_notice_and_no_error(content: str, offset: int, notice: str):
    bench = Workbench({"a": content})

    result = await bench.run("read", path="a", offset=offset)

    assert (result.text, result.failure) == (notice, None)


@pytest.mark.parametrize("offset", [-1, 10**9 + 1, 10**4000])
async def test_an_offset_out_of_range_is_refused(offset: int):
    with pytest.raises(ToolError, match=r"expected a whole number from 0 to 1000000000"):
        await Workbench({"a": "1\n"}).run("read", path="a", offset=offset)


async def test_an_offset_between_two_lines_is_refused():
    with pytest.raises(ToolError, match=r"offset = 1\.5 \(expected a whole number"):
        await Workbench({"a": "1\n"}).run("read", path="a", offset=1.5)


async def test_a_limit_of_any_size_is_fine():
    assert (await Workbench({"a": "1\n"}).run("read", path="a", limit=10**4000)).text == "   1\t1"


async def test_a_file_of_one_empty_line_is_not_empty():
    bench = Workbench({"a": "\n"})

    assert (await bench.run("read", path="a")).text == "   1\t"


@pytest.mark.parametrize("path", ["missing", "folder", "binary"])
async def test_what_cannot_be_read_is_an_error_of_the_file_system(path: str):
    bench = Workbench({"folder/x": "", "binary": b"\x7fELF\0"})

    with pytest.raises(ToolError, match=path):
        await bench.run("read", path=path)


async def test_a_path_outside_the_roots_is_refused_by_the_run_and_shows_no_location():
    bench = Workbench()

    invocation = await bench.understand("read", path="../secret")

    assert invocation.locations == ()
    assert invocation.subjects == (PathSubject("../secret", Access.READ),)
    with pytest.raises(Refused):
        await bench.execute(invocation)


async def test_the_place_to_open_is_known_at_the_start_with_links_resolved():
    bench = Workbench({"real/a": "1\n2\n"})
    bench.files.link("short", "real")

    invocation = await bench.understand("read", path="short/a", offset=1)

    assert invocation.locations == (Location("/project/real/a", 2),)
    assert bench.files.reads == []


async def test_null_for_an_optional_parameter_means_not_given():
    bench = Workbench({"a": "1\n"})

    assert (await bench.run("read", path="a", offset=None, limit=None)).text == "   1\t1"


async def test_a_whole_number_written_as_a_float_is_taken():
    bench = Workbench({"a": "1\n2\n"})

    assert (await bench.run("read", path="a", offset=1.0)).text == "   2\t2"
