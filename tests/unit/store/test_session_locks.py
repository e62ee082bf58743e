"""Which process has a session open."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from acp_agent.core.errors import StoreUnavailable
from acp_agent.store import session_locks
from acp_agent.store.session_locks import SessionLocks, _byte

PROCESS = """
import os, sys
from acp_agent.store.session_locks import SessionLocks
locks = SessionLocks(sys.argv[1])
for line in sys.stdin:
    action, _, session = line.strip().partition(" ")
    if action == "fork":  # a child that lives on, as a command of the model's may
        if os.fork() == 0:
            os.close(0)
            os.read(int(session), 1)
            os._exit(0)
        answer = None
    else:
        answer = getattr(locks, action)(*[session] * bool(session))
    print(answer, flush=True)
"""


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "data" / "sessions.lock")


class Other:
    """Another process with the same locks."""

    def __init__(self, child: subprocess.Popen) -> None:
        self.child = child

    def __call__(self, line: str) -> str:
        assert self.child.stdin
        assert self.child.stdout
        self.child.stdin.write(f"{line}\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


@contextmanager
def other_process(path: str, *fds: int) -> Iterator[Other]:
    command = [sys.executable, "-c", PROCESS, path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=fds) as child:
        try:
            yield Other(child)
        finally:
            child.kill()


def test_a_session_is_one_processs_until_it_is_given_back_or_the_process_dies(path):
    reading, writing = os.pipe()
    try:
        with closing(SessionLocks(path)) as locks, other_process(path, reading) as other:
            assert other("take a") == "True"
            assert not locks.take("a")
            assert locks.take("b")
            assert locks.take("b"), "what one has one may have again"
            assert other("take b") == "False"
            locks.give_back("b")
            locks.give_back("never taken")
            assert other("take b") == "True"
            other("give_back a")
            assert locks.take("a")
            assert other("take a") == "False"
            assert other("take c") == "True"
            other(f"fork {reading}")
            other.kill()
            assert locks.take("b"), "not even a child of the dead keeps it"
            assert locks.take("c")
    finally:
        os.close(writing)
        os.close(reading)


def test_all_is_given_back_at_the_end(path):
    with other_process(path) as other:
        locks = SessionLocks(path)
        assert locks.take("a")
        assert other("take a") == "False"
        locks.close()
        locks.close()
        assert other("take a") == "True"
        with pytest.raises(StoreUnavailable, match="it is closed"):
            locks.take("b")


def test_the_file_is_nobody_elses_and_stays_empty(path):
    old = os.umask(0)
    try:
        with closing(SessionLocks(path)) as locks:
            assert not Path(path).parent.exists(), "nothing is made before it is needed"
            for name in ("", "half \ud800", "x" * 10_000):
                assert locks.take(name)
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert os.path.getsize(path) == 0


def test_a_second_one_in_a_process_would_end_the_locks_of_the_first_and_is_refused(path):
    with closing(SessionLocks(path)) as locks, closing(SessionLocks(path)) as second, other_process(path) as other:
        assert locks.take("a")
        with pytest.raises(StoreUnavailable, match="this process has it open already"):
            second.take("b")
        assert other("take a") == "False"


def test_when_the_file_was_removed_the_new_one_has_the_same_locks(path):
    with closing(SessionLocks(path)) as locks, other_process(path) as other:
        assert locks.take("a")
        os.unlink(path)
        assert locks.take("b")
        assert other("take a") == "False"
        assert other("take b") == "False"


def test_what_another_process_took_in_a_new_file_is_not_ours_any_more(path):
    with closing(SessionLocks(path)) as locks, other_process(path) as other:
        assert locks.take("a")
        assert locks.take("b")
        os.unlink(path)
        assert other("take a") == "True", "nothing told it"
        assert not locks.take("a")
        assert not locks.holds("a")
        assert locks.holds("b")
        assert other("take b") == "False", "what nobody took is ours in the new file, too"
        other("give_back a")
        assert locks.take("a")


def test_a_lock_in_a_file_that_is_removed_at_that_moment_does_not_count(path, monkeypatch):
    before = session_locks.fcntl.lockf

    def removed_first(*given):
        monkeypatch.setattr(session_locks.fcntl, "lockf", before)
        os.unlink(path)
        return before(*given)

    with closing(SessionLocks(path)) as locks, other_process(path) as other:
        monkeypatch.setattr(session_locks.fcntl, "lockf", removed_first)
        assert locks.take("a")
        assert other("take a") == "False"


def test_a_link_a_folder_and_a_read_only_place_are_errors_that_say_so(path, tmp_path):
    os.mkdir(os.path.dirname(path))
    target = tmp_path / "precious"
    target.write_text("mine")
    os.symlink(target, path)
    with closing(SessionLocks(path)) as locks:
        with pytest.raises(StoreUnavailable, match=r"cannot be locked with .*a link stands in its place"):
            locks.take("a")
        os.unlink(path)
        os.mkdir(path)
        with pytest.raises(StoreUnavailable, match="Is a directory"):
            locks.take("a")
        os.rmdir(path)
        assert locks.take("a"), "and it works once it can"
    assert target.read_text() == "mine"


def test_sessions_are_far_apart():
    places = {_byte(f"session {number}") for number in range(10_000)}
    assert len(places) == 10_000
    assert 0 <= min(places) <= max(places) < 2**62
