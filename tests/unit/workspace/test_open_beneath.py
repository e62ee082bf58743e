import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_agent.workspace.beneath import Opener, best_opener, kernel_open, walk_open
from tests.unit.workspace.conftest import kernel_works

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@pytest.fixture
def root_fd(project: Path) -> Iterator[int]:
    (project / "a" / "b").mkdir(parents=True)
    (project / "a" / "b" / "file").write_text("inside")
    fd = os.open(project, DIRECTORY)
    yield fd
    os.close(fd)


def read(fd: int) -> str:
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


def errno_of(opener: Opener, root_fd: int, path: str, flags: int = os.O_RDONLY) -> int | None:
    try:
        os.close(opener(root_fd, path, flags))
    except OSError as error:
        return error.errno
    return None


def test_files_and_directories_below_the_root_are_opened_and_not_inherited(opener: Opener, root_fd: int):
    assert read(opener(root_fd, "a/b/file", os.O_RDONLY)) == "inside"
    fd = opener(root_fd, ".", DIRECTORY)
    assert os.listdir(fd) == ["a"]
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.parametrize("target", ["../outside", "a", "/etc", "nowhere"])
def test_a_link_is_never_followed_wherever_it_stands_and_leads(
    opener: Opener, root_fd: int, project: Path, target: str
):
    (project / "link").symlink_to(target)
    (project / "a" / "link").symlink_to(target)
    for path in ("link", "link/secret", "link/b/file", "a/link", "a/link/x"):
        assert errno_of(opener, root_fd, path) == errno.ELOOP
    assert errno_of(opener, root_fd, "link", DIRECTORY) in (errno.ELOOP, errno.ENOTDIR)


@pytest.mark.parametrize("path", ["..", "../outside/secret", "a/../../outside/secret"])
def test_the_way_up_is_closed(opener: Opener, root_fd: int, path: str):
    assert errno_of(opener, root_fd, path) == errno.EXDEV


@pytest.mark.parametrize(
    ("path", "flags", "expected"),
    [
        ("missing", os.O_RDONLY, errno.ENOENT),
        ("missing/x", os.O_RDONLY, errno.ENOENT),
        ("a/b/file/x", os.O_RDONLY, errno.ENOTDIR),
        ("a/b/file", DIRECTORY, errno.ENOTDIR),
        ("x" * 300, os.O_RDONLY, errno.ENAMETOOLONG),
    ],
)
def test_honest_failures_keep_their_own_error(opener: Opener, root_fd: int, path: str, flags: int, expected: int):
    assert errno_of(opener, root_fd, path, flags) == expected


def test_neither_success_nor_failure_leaves_a_descriptor_open(opener: Opener, root_fd: int, project: Path):
    (project / "a" / "link").symlink_to("b")
    errno_of(opener, root_fd, ".")
    before = sorted(os.listdir("/dev/fd"))
    for path in ("a/b/file", "a/link/file", "a/missing/x", "a/b/file/x", "../x"):
        errno_of(opener, root_fd, path)
    assert sorted(os.listdir("/dev/fd")) == before


def test_the_kernel_is_asked_where_it_can_be(root_fd: int, project: Path):
    expected = kernel_open if kernel_works(project) else walk_open
    assert best_opener(root_fd) is expected
