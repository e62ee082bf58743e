import errno
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.core.backends import EntryKind, GrepQuery
from acp_agent.core.errors import AgentError, Refused, ToolError, ToolErrorCategory
from acp_agent.execution.atomic_write import replace_file
from acp_agent.execution.local_files import LocalFileSystem
from acp_agent.execution.path_errors import path_error
from acp_agent.execution.roots import Roots

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
        lambda: files.write_text("odd", "x"),
        lambda: files.list_directory("odd"),
        lambda: files.grep(GrepQuery("x", "odd")),
    ]
    with anyio.fail_after(5):
        for attempt in attempts:
            with pytest.raises(ToolError, match="odd"):
                await attempt()
        assert (await files.grep(GrepQuery("x", "."))).matches == ()
    assert not stat.S_ISREG((project / "odd").lstat().st_mode)


@pytest.mark.parametrize(
    ("code", "category"),
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
    await files.write_text("a", "new")
    assert stat.S_IMODE((project / "a").stat().st_mode) == mode


async def test_a_replaced_file_loses_set_user_id_as_by_any_write(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    (project / "a").chmod(0o4755)
    await files.write_text("a", "new")
    assert stat.S_IMODE((project / "a").stat().st_mode) == 0o755


async def test_a_new_file_gets_the_mode_the_umask_leaves(files: LocalFileSystem, project: Path):
    before = os.umask(0o027)
    try:
        await files.write_text("d/a", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((project / "d" / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((project / "d").stat().st_mode) == 0o750


@pytest.mark.skipif(not ROOT_USER, reason="only root has files of others to write")
async def test_a_replaced_file_keeps_its_owner(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    os.chown(project / "a", 12345, 23456)
    await files.write_text("a", "new")
    status = (project / "a").stat()
    assert (status.st_uid, status.st_gid) == (12345, 23456)


@pytest.mark.skipif(ROOT_USER, reason="root may write anything")
async def test_a_read_only_file_is_left_alone(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    (project / "a").chmod(0o444)
    with pytest.raises(ToolError, match="a: permission denied") as raised:
        await files.write_text("a", "new")
    assert raised.value.failure.category is ToolErrorCategory.POLICY_BLOCKED
    assert (project / "a").read_text() == "old"


async def test_the_other_name_of_a_hard_linked_file_keeps_the_old_text(
    files: LocalFileSystem, project: Path, outside: Path
):
    os.link(outside / "secret", project / "a")
    await files.write_text("a", "new")
    assert (project / "a").read_text() == "new"
    assert (outside / "secret").read_text() == "SECRET\n"


async def test_nothing_but_the_file_is_left_in_its_directory(files: LocalFileSystem, project: Path):
    await files.write_text("a", "1")
    await files.write_text("a", "2")
    assert names(project) == ["a"]


async def test_a_full_disk_leaves_the_old_file_and_nothing_else(files: LocalFileSystem, project: Path):
    (project / "a").write_text("old")
    with no_file_larger_than(4096), pytest.raises(ToolError, match="a: too large") as raised:
        await files.write_text("a", "x" * 100_000)
    assert raised.value.failure.category is ToolErrorCategory.PERMANENT_FAILURE
    assert names(project) == ["a"]
    assert (project / "a").read_text() == "old"


async def test_parents_made_for_a_file_that_could_not_be_written_are_taken_back(files: LocalFileSystem, project: Path):
    with no_file_larger_than(4096), pytest.raises(ToolError):
        await files.write_text("new/deep/a", "x" * 100_000)
    assert names(project) == []


async def test_content_over_the_limit_or_with_a_nul_is_refused_before_anything_is_touched(roots: Roots, project: Path):
    files = LocalFileSystem(roots, write_limit=10)
    for text, word in (("x" * 11, "at most 10"), ("a\0b", "NUL"), ("\ud800", "surrogate")):
        with pytest.raises(ToolError, match=word) as raised:
            await files.write_text("new/a", text)
        assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS
    assert names(project) == []
    await files.write_text("new/a", "x" * 10)


async def test_a_binary_file_is_not_written_over(files: LocalFileSystem, project: Path):
    (project / "blob").write_bytes(b"\x7fELF\0")
    with pytest.raises(ToolError, match="blob is a binary file"):
        await files.write_text("blob", "text")
    assert (project / "blob").read_bytes() == b"\x7fELF\0"


async def test_what_names_a_directory_cannot_be_written(files: LocalFileSystem, project: Path):
    for path in (".", str(project), "x/..", "new/", "./"):
        with pytest.raises(AgentError):
            await files.write_text(path, "x")
    assert names(project) == []


async def test_names_and_texts_a_path_cannot_be_are_errors_everywhere(files: LocalFileSystem):
    for path in ("x" * 300, "a/" * 2100, "\ud800"):
        for attempt in (
            lambda path=path: files.read_text(path),
            lambda path=path: files.write_text(path, "x"),
            lambda path=path: files.list_directory(path),
            lambda path=path: files.find(path, "*", 1),
            lambda path=path: files.grep(GrepQuery("x", path)),
        ):
            with pytest.raises(ToolError) as raised:
                await attempt()
            assert raised.value.failure.category is ToolErrorCategory.INVALID_PARAMETERS


def test_a_write_that_fails_half_way_unlinks_its_temporary_file(project: Path):
    (project / "directory").mkdir()
    fd = os.open(project, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        replace_file(fd, "directory", b"x", None)
    os.close(fd)
    assert names(project) == ["directory"]


# A leading U+FEFF is the BOM of the file and not part of the text.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).filter(lambda t: t[:1] != "\ufeff")


@settings(max_examples=60, deadline=None)
@given(first=texts, second=texts)
def test_whatever_text_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, first: str, second: str):
    async def round_trip() -> list[str]:
        folder = tmp_path_factory.mktemp("trip")
        with Roots(str(folder)) as roots:
            files, read = LocalFileSystem(roots), list[str]()
            for text in (first, second):
                await files.write_text("dir/file", text)
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
            lambda path=path: files.write_text(path, "x"),
            lambda path=path: files.list_directory(path),
            lambda path=path: files.find(path, "*", 1),
            lambda path=path: files.grep(GrepQuery("x", path)),
        ):
            try:
                await attempt()
            except AgentError:
                continue
    assert len(os.listdir("/dev/fd")) == before
