"""Lines of files on disk, of any size: the same as of a text in memory, and bounded."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.backends import Lines
from acp_agent.core.errors import Refused, ToolError, ToolErrorCategory
from acp_agent.core.types import Access
from acp_agent.workspace import local_files as file_lines
from acp_agent.workspace.beneath import walk_open
from acp_agent.workspace.local_files import LONGEST_LINE, MOST_KEPT, LocalFileSystem
from acp_agent.workspace.roots import Roots
from acp_agent.workspace.text_files import MOST_COMPARED, stretch, text_digest

pytestmark = pytest.mark.anyio

CHUNK = 256 * 1024
MILLION = 1_000_000


def read(
    project: Path,
    offset: int,
    limit: int,
    check: Callable[[], None] = lambda: None,
    chunk: int = CHUNK,
    most_counted: int = MOST_COMPARED,
) -> Lines:
    """Lines of the file `a`."""
    with Roots(str(project)) as roots:
        place = roots.place("a", Access.READ)
        return file_lines.read_lines(place, offset, limit, check, chunk=chunk, most_counted=most_counted)


# Line ends of every kind, what other tools take for one, and characters of many bytes.
TEXTS = st.text(st.sampled_from("\n\n\n\r\r\x0c\u2028\x85\x1cxé日😀\ufeff"), max_size=40)
OFFSETS = st.integers(-15, 15) | st.sampled_from([-(10**9), 10**9])


@given(text=TEXTS, offset=OFFSETS, limit=st.integers(0, 12) | st.just(10**9), chunk=st.integers(1, 50))
def test_a_file_gives_the_lines_its_text_would(
    tmp_path_factory: pytest.TempPathFactory, text: str, offset: int, limit: int, chunk: int
):
    folder = tmp_path_factory.getbasetemp()
    (folder / "a").write_bytes(text.encode())
    assert read(folder, offset, limit, chunk=chunk) == stretch(text.removeprefix("\ufeff"), offset, limit)


@given(text=TEXTS, last=st.integers(1, 15), limit=st.integers(0, 12), chunk=st.integers(1, 50))
def test_a_large_file_read_from_its_end_gives_the_lines_its_text_would(
    tmp_path_factory: pytest.TempPathFactory, text: str, last: int, limit: int, chunk: int
):
    folder = tmp_path_factory.getbasetemp()
    (folder / "a").write_bytes(text.encode())
    expected = stretch(text.removeprefix("\ufeff"), -last, limit)
    if expected.first > 0:
        expected = Lines(expected.lines, -last, None)
    assert read(folder, -last, limit, chunk=chunk, most_counted=0) == expected


def test_a_nul_in_the_first_or_the_last_part_of_a_large_file_makes_it_binary(project: Path):
    for data in (b"\0" + b"line\n" * 1000, b"line\n" * 1000 + b"\0\n"):
        (project / "a").write_bytes(data)
        with pytest.raises(ToolError, match="binary"):
            read(project, -3, 3, chunk=64, most_counted=0)


def test_many_lines_are_found_at_both_ends_and_in_the_middle(project: Path):
    text = "".join(f"line {number}\r\n" for number in range(200_000))  # more than ten chunks
    (project / "a").write_text(text, newline="")
    for offset in (0, 1, 99_999, 199_999, 200_000, -1, -20, -150_000, -200_000, -200_001):
        assert read(project, offset, 3) == stretch(text, offset, 3)


@pytest.mark.parametrize("newlines", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_empty_lines_that_fill_chunks_are_counted_one_by_one(project: Path, newlines: int):
    (project / "a").write_bytes(b"\n" * newlines + b"end")
    assert read(project, -2, 5) == Lines(("", "end"), newlines - 1, newlines + 1)


# --------------------------------------------------------------------------------------- bounds


def test_a_line_of_ten_million_bytes_is_cut_and_what_follows_it_is_found(project: Path):
    (project / "a").write_bytes(b"before\n" + b"x" * (10 * MILLION) + b"\r\nafter\n")
    found = read(project, 0, 10)
    assert found.total == 3
    assert found.lines[0::2] == ("before", "after")
    assert found.lines[1] == "x" * LONGEST_LINE
    assert read(project, -1, 1).lines == ("after",)


@pytest.mark.parametrize("before", range(4))
def test_a_line_is_cut_between_two_characters(project: Path, before: int):
    (project / "a").write_bytes(b"x" * before + "😀".encode() * (LONGEST_LINE // 2))
    (line,) = read(project, 0, 1).lines
    assert line == "x" * before + "😀" * ((LONGEST_LINE - before) // 4)


@pytest.mark.parametrize("extra", [-1, 0])
def test_a_line_of_the_longest_length_is_whole(project: Path, extra: int):
    line = "x" * (LONGEST_LINE + extra - 1) + "y"
    (project / "a").write_text(f"{line}\r\nz", newline="")
    assert read(project, 0, 2).lines == (line, "z")


def test_no_more_is_kept_than_a_reader_can_use_and_the_next_read_goes_on(project: Path):
    line = b"x" * (MILLION - 1) + b"\n"
    (project / "a").write_bytes(line * 40)
    first = read(project, 0, 2000)
    assert first.total == 40
    assert MOST_KEPT // MILLION <= len(first.lines) <= MOST_KEPT // MILLION + 1
    assert read(project, len(first.lines), 1).first == len(first.lines)


@pytest.mark.parametrize(
    ("offset", "limit"), [(0, 20), (-20, 20), (-20, 10**9), (150, 10)], ids=["head", "tail", "rest", "middle"]
)
def test_memory_does_not_grow_with_the_file(project: Path, offset: int, limit: int):
    with (project / "a").open("wb") as file:
        for _ in range(30):
            file.write(b"x" * (MILLION // 2) + b"\n" + b"short line\n" * 50_000)
    tracemalloc.start()
    try:
        found = read(project, offset, limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.total == 30 * 50_001
    assert peak < 4 * MILLION


# --------------------------------------------------------------------------- what is no text


@pytest.mark.parametrize("at", [0, 10, CHUNK - 1, CHUNK, 3 * CHUNK])
@pytest.mark.parametrize("offset", [0, -1, 10**9])
def test_nul_anywhere_makes_a_file_binary_and_the_error_says_its_size(project: Path, at: int, offset: int):
    data = bytearray(b"line\n" * (CHUNK // 5 * 4))
    data[at] = 0
    (project / "a").write_bytes(data)
    with pytest.raises(ToolError, match=rf"^a is a binary file \({len(data)} bytes\)$") as raised:
        read(project, offset, 1)
    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("one\ncaf\u00e9 \u20ac\n".encode("cp1252"), "Windows-1252"),
        (b"\xfe\xff" + "one\ncaf\u00e9 \u20ac\n".encode("utf-16-be"), "UTF-16BE"),
    ],
)
def test_a_file_that_is_no_utf8_is_read_in_its_encoding_and_has_the_digest_of_its_text(
    project: Path, data: bytes, encoding: str
):
    (project / "a").write_bytes(data)
    found = read(project, 1, 1)
    assert (found.lines, found.encoding) == (("caf\u00e9 \u20ac",), encoding)
    assert found.digest == text_digest("one\ncaf\u00e9 \u20ac\n")


# ------------------------------------------------------------------------------------- changes


def at_the_second_look(act: Callable[[], object]) -> Callable[[], None]:
    """A check that acts once the file was counted: at the second chunk that is read."""
    looks = iter((False, True))

    def check() -> None:
        if next(looks, False):
            act()

    return check


def test_a_file_that_grows_meanwhile_is_read_as_it_was(project: Path):
    path = project / "a"
    path.write_text("1\n2\n")

    def grow() -> None:
        with path.open("a") as file:
            file.write("3\n" * MILLION)

    assert read(project, 0, 10, at_the_second_look(grow)) == Lines(("1", "2"), 0, 2)


def test_a_file_that_never_stops_growing_is_no_hang(project: Path):
    path = project / "a"
    path.write_bytes(b"x\n" * CHUNK)

    def grow() -> None:
        with path.open("ab") as file:
            file.write(b"x\n" * CHUNK)

    assert read(project, -1, 1, grow) == Lines(("x",), CHUNK - 1, CHUNK)


@pytest.mark.parametrize("left", [0, 5, CHUNK])
@pytest.mark.parametrize("offset", [0, -2])
def test_a_file_that_shrinks_meanwhile_gives_what_there_is(project: Path, left: int, offset: int):
    path = project / "a"
    path.write_bytes(b"line\n" * CHUNK)
    looks: list[int] = []

    def shrink() -> None:
        looks.append(1)
        if len(looks) == 5:  # the last chunk of the count
            os.truncate(path, left)

    found = read(project, offset, 10, shrink)
    assert found.total == CHUNK
    assert len(found.lines) <= 10


def test_a_file_that_hides_its_size_is_read_all_the_same():
    with Roots("/proc") as roots:
        place = roots.place("self/status", Access.READ)
        found = file_lines.read_lines(place, 0, 1, lambda: None)
        last = file_lines.read_lines(place, -1, 1, lambda: None)
    assert found.lines[0].startswith("Name:")
    assert found.total is not None
    assert found.total > 10
    assert last.first == found.total - 1


# ---------------------------------------------------------------------------- through the port


async def test_a_read_that_is_cancelled_ends_at_the_next_chunk(project: Path):
    (project / "a").write_text("1\n")
    scope = anyio.CancelScope()

    def cancelling(root_fd: int, relative: str, flags: int) -> int:
        anyio.from_thread.run_sync(scope.cancel)
        return walk_open(root_fd, relative, flags)

    with scope, Roots(str(project), opener=cancelling) as roots:
        await LocalFileSystem(roots).read_lines("a", -1, 1)
    assert scope.cancelled_caught


@pytest.mark.parametrize("path", ["missing", "folder", "pipe", "folder/../pipe"])
async def test_only_regular_files_have_lines(files: LocalFileSystem, project: Path, path: str):
    (project / "folder").mkdir()
    os.mkfifo(project / "pipe")
    with anyio.fail_after(20), pytest.raises(ToolError, match=path):
        await files.read_lines(path, 0, 1)


async def test_lines_outside_are_refused(files: LocalFileSystem, project: Path, outside: Path):
    (project / "link").symlink_to(outside / "secret")
    for path in ("../outside/secret", "link"):
        with pytest.raises(Refused):
            await files.read_lines(path, 0, 1)
