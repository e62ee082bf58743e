"""A descriptor that is closed by one thread while others use it."""

import errno
import os
import threading

import pytest

from acp_agent.workspace.roots import Root, Roots, SharedFd
from tests.unit.workspace.trees import is_open


def test_close_closes_at_once_when_nobody_uses_it():
    number = os.open("/", os.O_RDONLY)
    fd = SharedFd(number)
    assert fd.use(os.fstat).st_ino == os.stat("/").st_ino
    fd.close()
    assert not is_open(number)
    fd.close()
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        fd.use(os.fstat)
    assert caught.value.errno == errno.EBADF


def test_close_waits_for_a_use_under_way():
    number = os.open("/", os.O_RDONLY)
    fd, inside, go_on = SharedFd(number), threading.Event(), threading.Event()

    def act(_fd: int) -> None:
        inside.set()
        go_on.wait(10)

    thread = threading.Thread(target=fd.use, args=(act,))
    thread.start()
    assert inside.wait(10)
    fd.close()
    assert is_open(number)
    go_on.set()
    thread.join()
    assert not is_open(number)


def test_it_is_closed_with_its_object():
    number = os.open("/", os.O_RDONLY)
    fd = SharedFd(number)
    del fd
    assert not is_open(number)


def test_a_closed_root_opens_nothing(tmp_path):
    root = Root(str(tmp_path))
    root.close()
    for use in (lambda: root.open(".", os.O_RDONLY), lambda: root.status("."), lambda: root.status("a")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()


def test_roots_that_cannot_all_be_opened_leave_nothing_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    with pytest.raises(Exception, match="missing"):
        Roots(str(tmp_path), [str(tmp_path / "missing")])
    assert len(os.listdir("/proc/self/fd")) == len(before)
