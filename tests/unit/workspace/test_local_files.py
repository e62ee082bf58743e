import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.backends import EntryKind, GrepQuery
from acp_agent.core.errors import AgentError, Refused, ToolError, ToolErrorCategory
from acp_agent.core.new_file import hold
from acp_agent.workspace.beneath import holding, path_error
from acp_agent.workspace.entries import OldFile, replace_file
from acp_agent.workspace.local_files import LocalFileSystem
from acp_agent.workspace.roots import Roots
from tests.rows import each_row
from tests.unit.workspace.trees import state

pytestmark = pytest.mark.anyio

ROOT_USER = os.geteuid() == 0


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """The disk is full, as far as this process can tell: writes end early, then fail with EFBIG."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# ---------------------------------------------------------------------------------------- reading


async def test_a_file_over_the_limit_is_an_error_that_says_both_sizes(roots: Roots, project: Path):
    files = LocalFileSystem(roots, read_limit=10)
    (project / "ten").write_text("x" * 10)
    (project / "eleven").write_text("x" * 11)
    assert await files.read_text("ten") == "x" * 10
    with pytest.raises(ToolError, match=r"eleven: 11 bytes are too large .*10") as raised:
        await files.read_text("eleven")
    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE


async def test_a_path_that_cannot_be_read_comes_with_what_to_do_next(files: LocalFileSystem, project: Path):
    (project / "folder").mkdir()
    for path, advice in (("folder", "List it"), ("missing", "Look for it by its name"), ("folder/x/y", "Look for it")):
        with pytest.raises(ToolError) as raised:
            await files.read_lines(path, 0, 10)
        assert raised.value.failure.suggestion.startswith(advice), path


async def test_a_file_that_hides_its_size_is_bounded_all_the_same():
    with Roots("/proc") as roots:
        assert "Name:" in await LocalFileSystem(roots).read_text("self/status")
        with pytest.raises(ToolError, match="too large"):
            await LocalFileSystem(roots, read_limit=100).read_text("self/status")


@pytest.mark.parametrize("make", ["fifo", "socket", "device"])
async def test_what_is_no_regular_file_is_refused_at_once_and_not_waited_for(
    files: LocalFileSystem, project: Path, make: str
):
    match make:
        case "fifo":
            os.mkfifo(project / "odd")
        case "socket":
            os.mknod(project / "odd", stat.S_IFSOCK | 0o666)
        case _:
            if not ROOT_USER:
                pytest.skip("only root makes devices")
            os.mknod(project / "odd", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    attempts = [
        lambda: files.read_text("odd"),
        lambda: files.write_text("odd", "x", expected=None),
        lambda: files.list_directory("odd"),
        lambda: files.grep(GrepQuery("x", "odd")),
    ]
    with anyio.fail_after(20):
        for attempt in attempts:
            with pytest.raises(ToolError, match="odd"):
                await attempt()
        assert (await files.grep(GrepQuery("x", "."))).matches == ()
    assert not stat.S_ISREG((project / "odd").lstat().st_mode)


@each_row(
    "code, category",
    [
        (errno.ENOENT, ToolErrorCategory.PERMANENT_FAILURE),
        (errno.EACCES, ToolErrorCategory.POLICY_BLOCKED),
        (errno.ETIMEDOUT, ToolErrorCategory.TIMEOUT),
        (errno.ECONNRESET, ToolErrorCategory.NETWORK_ERROR),
        (errno.EPIPE, ToolErrorCategory.NETWORK_ERROR),
        (errno.EAGAIN, ToolErrorCategory.SERVER_ERROR),
        (errno.EINTR, ToolErrorCategory.SERVER_ERROR),
        (errno.ENAMETOOLONG, ToolErrorCategory.INVALID_PARAMETERS),
        (errno.ENOSPC, ToolErrorCategory.PERMANENT_FAILURE),
        (errno.EIO, ToolErrorCategory.PERMANENT_FAILURE),
    ],
)
def test_system_errors_become_the_categories_of_the_requirements(code: int, category: ToolErrorCategory):
    told = path_error(OSError(code, os.strerror(code), "/real/path"), "as given")
    assert isinstance(told, ToolError)
    assert told.failure.category is category
    assert str(told).startswith("as given: ")
    assert "/real/path" not in str(told)


@pytest.mark.parametrize("code", [errno.ELOOP, errno.EXDEV])
def test_a_path_that_changed_under_us_is_a_violation(code: int):
    assert isinstance(path_error(OSError(code, "x"), "p"), Refused)


# ---------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o664])
async def test_a_replaced_file_keeps_its_mode(files: LocalFileSystem, project: Path, mode: int):
    (project / "a").write_text("old")
    (project / "a").chmod(mode)
    await files.write_text("a", "new", expected="old")
    assert stat.S_IMODE((project / "a").stat().st_mode) == mode


async def test_a_replaced_file_loses_set_user_id_as_by_any_write(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    (project / "a").chmod(0o4755)
    await files.write_text("a", "new", expected="old")
    assert stat.S_IMODE((project / "a").stat().st_mode) == 0o755


async def test_a_new_file_gets_the_mode_the_umask_leaves(files: LocalFileSystem, project: Path):
    before = os.umask(0o027)
    try:
        await files.write_text("d/a", "new", expected=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE((project / "d" / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((project / "d").stat().st_mode) == 0o750


@pytest.mark.skipif(not ROOT_USER, reason="only root has files of others to write")
async def test_a_replaced_file_keeps_its_owner(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    os.chown(project / "a", 12345, 23456)
    await files.write_text("a", "new", expected="old")
    status = (project / "a").stat()
    assert (status.st_uid, status.st_gid) == (12345, 23456)


@pytest.mark.skipif(ROOT_USER, reason="root may write anything")
async def test_a_read_only_file_is_left_alone(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    (project / "a").chmod(0o444)
    with pytest.raises(ToolError, match="a: permission denied") as raised:
        await files.write_text("a", "new", expected="old")
    assert raised.value.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert (project / "a").read_text() == "old"


async def test_the_other_name_of_a_hard_linked_file_keeps_the_old_text(
    files: LocalFileSystem, project: Path, outside: Path
):
    os.link(outside / "secret", project / "a")
    await files.write_text("a", "new", expected="SECRET\n")
    assert (project / "a").read_text() == "new"
    assert (outside / "secret").read_text() == "SECRET\n"


async def test_nothing_but_the_file_is_left_in_its_directory(files: LocalFileSystem, project: Path):
    await files.write_text("a", "1", expected=None)
    await files.write_text("a", "2", expected="1")
    assert names(project) == ["a"]


async def test_a_full_disk_leaves_the_old_file_and_nothing_else(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    with no_file_larger_than(4096), pytest.raises(ToolError, match="a: too large") as raised:
        await files.write_text("a", "x" * 100_000, expected="old")
    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert names(project) == ["a"]
    assert (project / "a").read_text() == "old"


async def test_parents_made_for_a_file_that_could_not_be_written_are_taken_back(files: LocalFileSystem, project: Path):
    with no_file_larger_than(4096), pytest.raises(ToolError):
        await files.write_text("new/deep/a", "x" * 100_000, expected=None)
    assert names(project) == []


async def test_content_over_the_limit_or_with_a_nul_is_refused_before_anything_is_touched(roots: Roots, project: Path):
    files = LocalFileSystem(roots, write_limit=10)
    for text, word in (("x" * 11, "at most 10"), ("a\0b", "NUL"), ("\ud800", "surrogate")):
        with pytest.raises(ToolError, match=word) as raised:
            await files.write_text("new/a", text, expected=None)
        assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert names(project) == []
    await files.write_text("new/a", "x" * 10, expected=None)


async def test_a_binary_file_is_not_written_over(files: LocalFileSystem, project: Path):
    (project / "blob").write_bytes(b"\x7fELF\0")
    with pytest.raises(ToolError, match="blob is a binary file"):
        await files.write_text("blob", "text", expected="old")
    assert (project / "blob").read_bytes() == b"\x7fELF\0"


async def test_what_names_a_directory_cannot_be_written(files: LocalFileSystem, project: Path):
    for path in (".", str(project), "x/..", "new/", "./"):
        with pytest.raises(AgentError):
            await files.write_text(path, "x", expected=None)
    assert names(project) == []


async def test_names_and_texts_a_path_cannot_be_are_errors_everywhere(files: LocalFileSystem):
    for path in ("x" * 300, "a/" * 2100, "\ud800"):
        for attempt in (
            lambda path=path: files.read_text(path),
            lambda path=path: files.write_text(path, "x", expected=None),
            lambda path=path: files.list_directory(path),
            lambda path=path: files.find(path, "*", 1),
            lambda path=path: files.grep(GrepQuery("x", path)),
        ):
            with pytest.raises(ToolError) as raised:
                await attempt()
            assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


def test_a_write_that_fails_half_way_unlinks_its_temporary_file(project: Path):
    (project / "a").write_text("old")
    with holding(os.open(project, os.O_RDONLY)) as folder, holding(os.open(project / "a", os.O_RDONLY)) as fd:
        old = OldFile(fd, os.fstat(fd), b"old")
        with no_file_larger_than(4096), pytest.raises(OSError, match="File too large"):
            replace_file(folder, "a", b"x" * 100_000, old)
    assert names(project) == ["a"]


# ------------------------------------------------------------------------- changed by somebody else


CHANGED = "a: file changed between diff preview and write; aborting"


@pytest.mark.parametrize(("there", "expected"), [("theirs", "old"), ("theirs", None), (None, "old"), ("", None)])
async def test_a_file_that_is_not_what_was_expected_is_left_alone(
    files: LocalFileSystem, project: Path, there: str | None, expected: str | None
):
    if there is not None:
        (project / "a").write_text(there)
    with pytest.raises(ToolError, match=CHANGED) as raised:
        await files.write_text("a", "new", expected=expected)
    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert names(project) == ([] if there is None else ["a"])
    assert there is None or (project / "a").read_text() == there


async def test_a_refused_write_makes_no_folders(files: LocalFileSystem, project: Path):
    with pytest.raises(ToolError, match=CHANGED):
        await files.write_text("new/deep/a", "new", expected="old")
    assert names(project) == []


async def test_what_is_expected_is_the_text_without_its_mark(files: LocalFileSystem, project: Path):
    (project / "a").write_bytes(b"\xef\xbb\xbfold\r\n")
    await files.write_text("a", "new\n", expected="old\r\n")
    assert (project / "a").read_bytes() == b"\xef\xbb\xbfnew\n"


def append(project: Path) -> None:
    with (project / "a").open("a") as file:
        file.write(" more")


def overwrite(project: Path) -> None:
    (project / "a").write_text("OLD")


def put_another(project: Path) -> None:
    (project / "b").write_text("old")
    (project / "b").rename(project / "a")


def put_a_link(project: Path) -> None:
    (project / "a").rename(project / "b")
    (project / "a").symlink_to("b")


def take_away(project: Path) -> None:
    (project / "a").unlink()


@pytest.mark.parametrize("meddle", [append, overwrite, put_another, put_a_link, take_away])
def test_what_happens_to_the_old_file_while_the_new_one_is_written_is_not_lost(
    project: Path, meddle: Callable[[Path], None]
):
    (project / "a").write_text("old")
    os.utime(project / "a", (1, 1))
    with holding(os.open(project, os.O_RDONLY)) as folder, holding(os.open(project / "a", os.O_RDONLY)) as fd:
        old = OldFile(fd, os.fstat(fd), b"old")
        meddle(project)
        before = state(project)
        assert not replace_file(folder, "a", b"new", old)
    assert state(project) == before


def test_a_file_made_while_a_new_one_is_written_is_not_replaced(project: Path):
    with holding(os.open(project, os.O_RDONLY)) as folder:
        assert replace_file(folder, "a", b"mine", None)
        assert not replace_file(folder, "a", b"new", None)
    assert (project / "a").read_text() == "mine"
    assert names(project) == ["a"]


# ------------------------------------------------------------------------------------- leftovers


LEFT = ".acp-agent-0123456789abcdef.tmp"
HOURS_AGO = 1_000_000_000


async def test_what_is_half_written_is_shown_by_no_tool(roots: Roots, project: Path):
    (project / "sub" / LEFT).mkdir(parents=True)
    for path in (LEFT, f"sub/{LEFT}/inner", "sub/shown"):
        (project / path).write_text("needle\n")
    files = LocalFileSystem(roots)
    assert [entry.name for entry in await files.list_directory(".")] == ["sub"]
    assert [entry.name for entry in await files.list_directory("sub")] == ["shown"]
    assert (await files.find(".", "**/.*", 10)).paths == ()
    assert (await files.find(".", "**/inner", 10)).paths == ()
    assert [match.path for match in (await files.grep(GrepQuery("needle", "."))).matches] == [
        str(project / "sub" / "shown")
    ]


async def test_names_that_only_look_half_written_are_shown(files: LocalFileSystem, project: Path):
    alike = (".acp-agent-x.tmp", LEFT.upper(), f"{LEFT}x", LEFT[1:], ".acp-agent-0123456789abcdeg.tmp")
    for name in alike:
        (project / name).write_text("")
        os.utime(project / name, (HOURS_AGO, HOURS_AGO))
    assert {entry.name for entry in await files.list_directory(".")} == set(alike)
    await files.write_text("a", "", expected=None)
    assert set(names(project)) == {"a", *alike}


@pytest.mark.parametrize("touch", ["write", "copy", "move"])
async def test_leftovers_of_the_dead_are_swept_up_by_the_next_who_comes_by(
    files: LocalFileSystem, project: Path, touch: str
):
    """However short a time ago they died: what nobody holds is nobody's."""
    (project / "d" / LEFT / "deep").mkdir(parents=True)
    (project / "d" / LEFT / "deep" / "file").write_text("")
    (project / "d" / LEFT / "deep").chmod(0o500)
    other = LEFT.replace("0", "1")
    (project / "d" / other).write_text("half")
    (project / "source").write_text("x")
    match touch:
        case "write":
            await files.write_text("d/a", "x", expected=None)
        case "copy":
            await files.copy("source", "d/a")
        case _:
            await files.move("source", "d/a")
    assert names(project / "d") == ["a"]


async def test_neither_what_is_being_written_nor_links_nor_what_they_lead_to_are_swept_up(
    files: LocalFileSystem, project: Path, outside: Path
):
    fresh, link, to_folder, folder = (LEFT.replace("0", digit) for digit in "1234")
    (project / fresh).write_text("half")
    (project / folder).mkdir()
    held = [os.open(project / name, os.O_RDONLY) for name in (fresh, folder)]
    assert all(hold(fd) for fd in held)
    (project / link).symlink_to(outside / "secret")
    (project / to_folder).symlink_to(outside)
    os.mkfifo(project / LEFT)
    os.utime(outside / "secret", (HOURS_AGO, HOURS_AGO))
    os.utime(outside, (HOURS_AGO, HOURS_AGO))
    for name in (link, to_folder, LEFT):
        os.utime(project / name, (HOURS_AGO, HOURS_AGO), follow_symlinks=False)
    await files.write_text("a", "x", expected=None)
    assert names(project) == sorted(["a", fresh, link, to_folder, folder, LEFT])
    for fd in held:
        os.close(fd)
    await files.write_text("b", "x", expected=None)
    assert names(project) == sorted(["a", "b", link, to_folder, LEFT])
    assert (outside / "secret").read_text() == "SECRET\n"


# -------------------------------------------------------------------------------------- encodings


OLD = ["cp1252", "utf-16-le", "utf-16-be"]
MARKS = {"cp1252": b"", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


@pytest.mark.parametrize("encoding", OLD)
async def test_text_in_another_encoding_is_read_and_written_in_it(files: LocalFileSystem, project: Path, encoding: str):
    old = "café \u20ac\r\nx\r\n"
    (project / "a").write_bytes(MARKS[encoding] + old.encode(encoding))
    assert await files.read_text("a") == old
    await files.write_text("a", old.replace("x", "ÿ"), expected=old)
    assert (project / "a").read_bytes() == MARKS[encoding] + old.replace("x", "ÿ").encode(encoding)


async def test_every_byte_of_an_old_text_is_kept(files: LocalFileSystem, project: Path):
    data = b"\xe9x " + bytes(range(0x80, 0x100))
    (project / "a").write_bytes(data)
    text = await files.read_text("a")
    await files.write_text("a", text.replace("x", "y"), expected=text)
    assert (project / "a").read_bytes() == data.replace(b"x", b"y")


async def test_a_character_that_the_encoding_lacks_is_refused_and_nothing_is_written(
    files: LocalFileSystem, project: Path
):
    (project / "a").write_bytes(b"caf\xe9\n")
    for text in ("日本", "\x80"):
        with pytest.raises(ToolError, match="a is in Windows-1252, which has no U"):
            await files.write_text("a", text, expected="café\n")
    assert (project / "a").read_bytes() == b"caf\xe9\n"


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\xff\xfe", b"\xe9\x01\x02", b"\xff\xfea\0\0\0", b"\xff\xfea"])
async def test_what_is_no_text_in_any_encoding_is_refused(files: LocalFileSystem, project: Path, data: bytes):
    (project / "a").write_bytes(data)
    with pytest.raises(ToolError, match=r"^a is "):
        await files.read_text("a")


# A leading U+FEFF is the BOM of the file and not part of the text.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).filter(lambda t: t[:1] != "\ufeff")


@given(first=texts, second=texts)
def test_whatever_text_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, first: str, second: str):
    async def round_trip() -> list[str]:
        folder = tmp_path_factory.mktemp("trip")
        with Roots(str(folder)) as roots:
            files, read = LocalFileSystem(roots), list[str]()
            for text in (first, second):
                await files.write_text("dir/file", text, expected=read[-1] if read else None)
                read.append(await files.read_text("dir/file"))
            return read

    assert anyio.run(round_trip) == [first, second]


# ---------------------------------------------------------------------------------------- listing


async def test_every_kind_of_entry_is_listed_as_what_it_is(files: LocalFileSystem, project: Path):
    (project / "file").write_text("12345")
    (project / "folder").mkdir()
    (project / "link").symlink_to("folder")
    os.mkfifo(project / "pipe")
    assert {entry.name: entry.kind for entry in await files.list_directory(".")} == {
        "file": EntryKind.FILE,
        "folder": EntryKind.DIRECTORY,
        "link": EntryKind.SYMLINK,
        "pipe": EntryKind.OTHER,
    }


async def test_a_file_that_should_be_a_directory_is_told_from_a_path_that_leads_through_one(
    files: LocalFileSystem, project: Path
):
    (project / "file").write_text("")
    (project / "link").symlink_to("file")
    for path in ("file", "link", str(project / "file")):
        for attempt in (lambda path=path: files.list_directory(path), lambda path=path: files.find(path, "*", 1)):
            with pytest.raises(ToolError, match=f"^{path}: is a file, not a directory$"):
                await attempt()
    for attempt in (lambda: files.list_directory("file/x"), lambda: files.find("file/x", "*", 1)):
        with pytest.raises(ToolError, match=r"^file/x: a part of the path is a file, not a directory$"):
            await attempt()


async def test_a_name_that_is_no_utf_8_shows_with_a_replacement(files: LocalFileSystem, project: Path):
    os.mkdir(os.fsencode(project) + b"/caf\xe9")
    assert [entry.name for entry in await files.list_directory(".")] == ["caf\ufffd"]
    assert (await files.find(".", "*", 10)).paths == ()


async def test_no_operation_leaves_a_descriptor_open(files: LocalFileSystem, project: Path):
    (project / "a").write_text("x")
    (project / "blob").write_bytes(b"\0")
    os.mkfifo(project / "pipe")
    await files.list_directory(".")
    before = len(os.listdir("/dev/fd"))
    for path in ("a", "blob", "pipe", "missing", "..", "new/b"):
        for attempt in (
            lambda path=path: files.read_text(path),
            lambda path=path: files.write_text(path, "x", expected=None),
            lambda path=path: files.list_directory(path),
            lambda path=path: files.find(path, "*", 1),
            lambda path=path: files.grep(GrepQuery("x", path)),
        ):
            try:
                await attempt()
            except AgentError:
                continue
    assert len(os.listdir("/dev/fd")) == before
