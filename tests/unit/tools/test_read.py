"""read: line numbers, parts of files, notices; pictures and other files that are no text."""

import base64
import json
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access, ImagePart, Location, PathSubject
from acp_agent.tools.read import MAX_PICTURE
from acp_agent.tools.registry import ToolLimits, default_tools
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.text_files import binary_error
from tests.unit.tools.workbench import Workbench

pytestmark = pytest.mark.anyio


async def test_lines_come_numbered_from_one():
    bench = Workbench({"a.py": "import os\n\nprint(os)\n"})

    result = await bench.run("read", path="a.py")

    assert result.text == "   1\timport os\n   2\t\n   3\tprint(os)"
    assert result.locations == (Location("/project/a.py"),)


async def test_offset_is_the_first_line_as_grep_counts_and_all_of_limit_needs_no_notice():
    bench = Workbench({"a": "1\n2\n3\n4\n5\n"})

    result = await bench.run("read", path="a", offset=2, limit=2)

    assert result.text == "   2\t2\n   3\t3"
    assert result.locations == (Location("/project/a", 2),)


async def test_the_last_part_has_no_notice():
    bench = Workbench({"a": "1\n2\n3"})

    assert (await bench.run("read", path="a", offset=3, limit=5)).text == "   3\t3"


async def test_going_on_where_the_notice_says_gives_every_line_once():
    bench = Workbench({"a": "".join(f"line {n}\n" for n in range(10))}, tools=default_tools(ToolLimits(read_lines=3)))
    pages = [await bench.run("read", path="a", offset=offset) for offset in (0, 4, 7, 10)]

    lines = [line for page in pages for line in page.text.split("\n") if "\t" in line]

    assert lines == [f"{n + 1:>4}\tline {n}" for n in range(10)]
    assert [page.text.rpartition("offset=")[2] for page in pages[:3]] == ["4]", "7]", "10]"]


async def test_a_limit_above_the_cap_is_cut_to_the_cap_with_a_notice():
    bench = Workbench({"a": "x\n" * 10}, tools=default_tools(ToolLimits(read_lines=4)))

    text = (await bench.run("read", path="a", limit=9)).text

    assert text.endswith("   4\tx\n[6 more lines: go on with offset=5]")


async def test_only_lf_and_crlf_end_a_line():
    bench = Workbench({"a": "a\x0cb\u2028c\x85d\re\r\nf\x1cg\n"})

    assert (await bench.run("read", path="a")).text == "   1\ta\x0cb\u2028c\x85d\re\n   2\tf\x1cg"


async def test_blanks_of_a_line_are_kept():
    bench = Workbench({"a": "\t  x \r\n  y\t\n"})

    assert (await bench.run("read", path="a")).text == "   1\t\t  x \n   2\t  y\t"


async def test_a_long_line_is_cut_and_says_how_much_is_missing():
    bench = Workbench({"a": "x" * 65 + "\n" + "y" * 50 + "\n"}, tools=default_tools(ToolLimits(line_chars=10)))

    assert (await bench.run("read", path="a")).text == f"   1\t{'x' * 10}… [55 more characters]\n   2\t{'y' * 50}"


@pytest.mark.parametrize(
    ("content", "offset", "notice"),
    [
        ("", 0, "Empty file: a"),
        ("1\n2\n", 3, "Nothing at offset 3: a has 2 lines"),
        ("1\n2\n", 10**9, "Nothing at offset 1000000000: a has 2 lines"),
    ],
)
async def test_nothing_to_show_is_a_notice_and_no_error(content: str, offset: int, notice: str):
    bench = Workbench({"a": content})

    result = await bench.run("read", path="a", offset=offset)

    assert (result.text, result.failure) == (notice, None)


@pytest.mark.parametrize("offset", [-(10**9) - 1, 10**9 + 1, 10**4000], ids=["low", "high", "huge"])
async def test_an_offset_out_of_range_is_refused(offset: int):
    with pytest.raises(ToolError, match=r"expected a whole number from -1000000000 to 1000000000"):
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

    invocation = await bench.understand("read", path="short/a", offset=2)

    assert invocation.locations == (Location("/project/real/a", 2),)
    assert bench.files.reads == []


async def test_null_for_an_optional_parameter_means_not_given():
    bench = Workbench({"a": "1\n"})

    assert (await bench.run("read", path="a", offset=None, limit=None)).text == "   1\t1"


async def test_a_whole_number_written_as_a_float_is_taken():
    bench = Workbench({"a": "1\n2\n"})

    assert (await bench.run("read", path="a", offset=2.0)).text == "   2\t2"


# ----------------------------------------------------------------------------- from the end


async def test_a_negative_offset_counts_from_the_end_and_says_what_is_before():
    bench = Workbench({"a": "".join(f"{n}\n" for n in range(1, 101))})

    result = await bench.run("read", path="a", offset=-2)

    assert result.text == "[98 lines before]\n  99\t99\n 100\t100"
    assert result.locations == (Location("/project/a", 99),)


async def test_a_part_from_the_middle_counted_from_the_end_says_what_is_on_both_sides():
    bench = Workbench({"a": "1\n2\n3\n4\n5\n"})

    text = (await bench.run("read", path="a", offset=-4, limit=2)).text

    assert text == "[1 line before]\n   2\t2\n   3\t3"


@pytest.mark.parametrize("offset", [-3, -4, -(10**9)])
async def test_as_many_last_lines_as_there_are_or_more_are_the_whole_file(offset: int):
    bench = Workbench({"a": "1\n2\n3"})

    result = await bench.run("read", path="a", offset=offset)

    assert (result.text, result.locations) == ("   1\t1\n   2\t2\n   3\t3", (Location("/project/a"),))


async def test_the_last_lines_of_a_large_file_are_numbered_from_its_end(tmp_path: Path):
    (tmp_path / "log").write_bytes(b"".join(b"%032d\n" % number for number in range(1_100_000)))
    bench = Workbench()
    with Roots(str(tmp_path)) as roots:

        async def read(**arguments: int) -> str:
            invocation = await bench.understand("read", path="log", **arguments)
            context = bench.context(invocation)
            backends = replace(context.backends, files=LocalFileSystem(roots))
            return (await invocation.run(replace(context, cwd=roots.cwd, backends=backends))).text

        head = "[a large file, read from its end: -1 is its last line]\n"
        assert await read(offset=-2) == f"{head}  -2\t{1_099_998:032d}\n  -1\t{1_099_999:032d}"
        assert await read(offset=-3, limit=1) == f"{head}  -3\t{1_099_997:032d}"
        assert (await read(offset=-10_000)).endswith("[9,000 more lines: go on with offset=-9000]")


async def test_the_place_of_the_last_lines_is_not_known_at_the_start():
    invocation = await Workbench({"a": "1\n2\n"}).understand("read", path="a", offset=-1)

    assert invocation.locations == (Location("/project/a"),)


async def test_a_text_is_read_through_the_port_once():
    bench = Workbench({"a.svg": "<svg/>\n"})

    await bench.run("read", path="a.svg", offset=-5)

    assert bench.files.reads == ["/project/a.svg"]


# --------------------------------------------------------------------------------- pictures


def png(width: int, height: int) -> bytes:
    """A whole grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    """The start of one: JFIF, padding, a quantization table, a progressive frame."""
    jfif = b"\xff\xe0\x00\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    table = b"\xff\xff\xff\xdb\x00\x43" + b"\1" * 65
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + b"\3\1\x22\0\2\x11\1\3\x11\1"
    scan = b"\xff\xda\x00\x08\x01\x01\0\0\x3f\0" + b"x"
    return b"\xff\xd8" + jfif + table + frame + scan + b"\xff\xd9"


GIF_BODY = b"\0\0\0," + b"\0" * 9 + b"\x02\x01\x44\0;"


def riff(kind: bytes, payload: bytes, more: bytes = b"") -> bytes:
    body = b"WEBP" + kind + struct.pack("<I", len(payload)) + payload + more
    return b"RIFF" + struct.pack("<I", len(body)) + body


PICTURES: dict[str, tuple[bytes, str, str]] = {
    "png": (png(640, 480), "image/png", "640x480"),
    "jpeg": (jpeg(300, 200), "image/jpeg", "300x200"),
    "gif87": (b"GIF87a" + struct.pack("<HH", 10, 20) + GIF_BODY, "image/gif", "10x20"),
    "gif89": (b"GIF89a" + struct.pack("<HH", 1, 2) + GIF_BODY, "image/gif", "1x2"),
    "lossy webp": (
        riff(b"VP8 ", b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", 0x4000 | 176, 144)),
        "image/webp",
        "176x144",
    ),
    "lossless webp": (riff(b"VP8L", b"\x2f" + struct.pack("<I", 99 | 199 << 14)), "image/webp", "100x200"),
    "extended webp": (
        riff(b"VP8X", b"\x10\0\0\0" + b"\x2b\x01\0" + b"\xc7\0\0", b"VP8L" + struct.pack("<I", 4) + b"...."),
        "image/webp",
        "300x200",
    ),
}


@pytest.mark.parametrize("case", PICTURES)
@pytest.mark.parametrize("name", ["logo", "logo.txt"])
async def test_a_picture_is_known_by_its_bytes_and_comes_with_one_line_about_it(case: str, name: str):
    data, mime_type, size = PICTURES[case]
    bench = Workbench({name: data})

    result = await bench.run("read", path=name)

    kilobytes = -(-len(data) // 1024)
    assert result.text == f"Image: {name} ({mime_type}, {size}, {kilobytes} KB)"
    assert result.images == (ImagePart(base64.b64encode(data).decode(), mime_type),)
    assert (result.envelope, result.failure) == (None, None)
    assert result.locations == (Location(f"/project/{name}"),)


@pytest.mark.parametrize("case", PICTURES)
@pytest.mark.parametrize("left", [13, 20])
async def test_a_picture_without_its_header_is_not_sent_to_a_model(case: str, left: int):
    """An API that refuses a picture refuses the conversation it is in from then on."""
    bench = Workbench({"a": PICTURES[case][0][:left].ljust(left, b"\0")})
    if case.startswith("gif"):
        bench.files.put("a", PICTURES[case][0][:6] + b"\0" * 7)

    with pytest.raises(ToolError, match=r"a: a damaged picture \(image/"):
        await bench.run("read", path="a")


async def test_a_picture_of_too_many_pixels_is_refused_with_its_size_and_a_hint():
    bench = Workbench({"wide.png": png(8001, 2), "fits.png": png(8000, 2)})

    with pytest.raises(ToolError, match=r"wide\.png: too large .*8001x2.*at most 8000 pixels") as raised:
        await bench.run("read", path="wide.png")

    assert "smaller copy" in raised.value.failure.suggestion
    assert (await bench.run("read", path="fits.png")).images


async def test_a_picture_of_too_many_bytes_is_refused_with_its_size_and_a_hint():
    picture = png(1, 1)
    bench = Workbench({"fits.png": picture.ljust(MAX_PICTURE, b"\0")})
    assert len((await bench.run("read", path="fits.png")).images[0].data) == 5 * 1024 * 1024
    bench.files.put("big.png", picture.ljust(MAX_PICTURE + 1, b"\0"))

    with pytest.raises(ToolError, match=r"big\.png"):
        await bench.run("read", path="big.png")


def test_the_hint_about_binary_files_knows_the_largest_picture():
    hint = binary_error("a.bin", 12).failure.suggestion
    named = re.search(r"at most ([\d.]+) MiB", hint)

    assert named is not None
    assert float(named[1]) * 1024 * 1024 == MAX_PICTURE
    assert str(binary_error("a.bin", 12)) == "a.bin is a binary file (12 bytes)"


async def test_a_text_that_begins_like_a_picture_is_text():
    assert (await Workbench({"a": "GIF89a\n"}).run("read", path="a")).text == "   1\tGIF89a"


# -------------------------------------------------------------------------- other formats


@pytest.mark.parametrize("data", [b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\0", b"%PDF-1.4\n1 0 obj\n"])
async def test_a_pdf_is_refused_with_a_hint(data: bytes):
    with pytest.raises(ToolError, match="paper is a PDF") as raised:
        await Workbench({"paper": data}).run("read", path="paper")

    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert "pdftotext" in raised.value.failure.suggestion


async def test_a_notebook_is_refused_with_a_hint_and_the_editor_is_not_asked_for_it():
    notebook: dict[str, Any] = {"cells": [{"cell_type": "code", "source": ["1"]}], "nbformat": 4}
    bench = Workbench({"a b.ipynb": json.dumps(notebook)})

    with pytest.raises(ToolError, match=r"a b\.ipynb is a notebook") as raised:
        await bench.run("read", path="a b.ipynb")

    assert "jq" in raised.value.failure.suggestion
    assert "'a b.ipynb'" in raised.value.failure.suggestion
    assert bench.files.reads == []


async def test_the_lines_of_a_notebook_that_an_edit_needs_can_be_read():
    notebook: dict[str, Any] = {"cells": [{"cell_type": "code", "source": ["a = 1\n", "a"]}], "nbformat": 4}
    bench = Workbench({"a.ipynb": json.dumps(notebook, indent=1)})

    assert (await bench.run("read", path="a.ipynb", offset=6, limit=1)).text == '   6\t    "a = 1\\n",'


@pytest.mark.parametrize("text", ["", "{", '{"cell": 1}', '["cells"]', "[" * 100_000])
async def test_what_only_has_the_name_of_a_notebook_is_text(text: str):
    bench = Workbench({"a.ipynb": text, "b.json": '{"cells": []}'})

    assert (await bench.run("read", path="a.ipynb")).failure is None
    assert (await bench.run("read", path="b.json")).text == '   1\t{"cells": []}'


async def test_a_notebook_that_does_not_exist_is_an_error_of_the_file_system():
    with pytest.raises(ToolError, match=r"a\.ipynb: no such file"):
        await Workbench().run("read", path="a.ipynb")


async def test_a_page_ends_at_a_whole_line_and_says_where_to_go_on():
    bench = Workbench({"a": "".join(f"{'x' * 90}{number:09}\n" for number in range(1000))})

    page = (await bench.run("read", path="a")).text.split("\n")
    shown = len(page) - 1
    assert 300 < shown < 400
    assert page[-2] == f"{shown:>4}\t{'x' * 90}{shown - 1:09}"
    assert page[-1] == f"[{1000 - shown} more lines: go on with offset={shown + 1}]"
    again = (await bench.run("read", path="a", offset=shown + 1)).text
    assert again.startswith(f"{shown + 1:>4}\t{'x' * 90}{shown:09}\n")


async def test_one_line_is_shown_however_long_its_escapes_are():
    bench = Workbench({"a": "\u200b" * 1500 + "\nb\n"}, tools=default_tools(ToolLimits(read_chars=1000)))

    assert (await bench.run("read", path="a")).text.endswith("[1 more line: go on with offset=2]")
