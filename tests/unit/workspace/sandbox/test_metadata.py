"""What the broker of calls for metadata does for a process, which is this one here, and what it refuses."""

import ctypes
import errno
import fcntl
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acp_agent.workspace.sandbox import metadata
from acp_agent.workspace.sandbox.metadata import _HERE, _NO_FOLLOW, _SAME, _Broker, _Call, _Subject, _text, _times
from tests.unit.workspace.trees import open_fds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the calls are those of Linux")

CHMOD = _Call(_Subject.MODE, 2, directory=0, path=1, flags=3)
FCHMOD = _Call(_Subject.MODE, 1, directory=0)
LCHOWN = _Call(_Subject.OWNER, 1, path=0, follows=False)
CHOWN = _Call(_Subject.OWNER, 1, path=0)


class Caller:
    """The memory of a process that calls, and the broker that answers it. `asked` has what the kernel was asked."""

    def __init__(self, writable: Path, *closed: Path) -> None:
        self.broker: Any = _Broker.__new__(_Broker)
        self.broker._listener = 0
        self.broker._writable = (str(writable),)
        self.broker._closed = tuple(map(str, closed))
        self.broker._library = ctypes.CDLL(None, use_errno=True)
        self._kept: list[Any] = []

    def at(self, content: bytes) -> int:
        """Return the address of some bytes."""
        self._kept.append(buffer := ctypes.create_string_buffer(content))
        return ctypes.addressof(buffer)

    def path(self, path: Path | str) -> int:
        return self.at(os.fsencode(path))

    def call(self, call: _Call, *arguments: int) -> None:
        given: Sequence[int] = [each & 0xFFFFFFFFFFFFFFFF for each in (*arguments, *[0] * (6 - len(arguments)))]
        self.broker._perform(7, os.getpid(), call, given)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []
    monkeypatch.setattr(fcntl, "ioctl", lambda *given: asked.append(given))
    return asked


@pytest.fixture
def root(tmp_path: Path, asked: list[Any]) -> Path:
    root = tmp_path.resolve() / "root"
    (root / "closed").mkdir(parents=True)
    for path in (root / "a", root / "closed" / "b", root.parent / "outside"):
        path.touch(mode=0o644)
    (root / "link").symlink_to("a")
    (root / "away").symlink_to("../outside")
    return root


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_modes_are_changed_within_the_walls_only(root: Path, asked: list[Any]):
    caller, before_all = Caller(root, root / "closed"), open_fds()
    caller.call(CHMOD, _HERE, caller.path(root / "a"), 0o600)
    assert asked == [(0, metadata._IS_VALID, struct.pack("=Q", 7))], "that the process still waits for the answer"
    caller.call(CHMOD, _HERE, caller.path(root / "link"), 0o640)
    assert mode(root / "a") == 0o640
    folder = os.open(root, os.O_PATH)
    file = os.open(root / "a", os.O_RDONLY)
    try:
        caller.call(CHMOD, folder, caller.path("a"), 0o700)
        assert mode(root / "a") == 0o700
        caller.call(FCHMOD, file, 0o604)
        assert mode(root / "a") == 0o604
    finally:
        os.close(file)
        os.close(folder)
    for path in (root.parent / "outside", root / "away", root / "closed" / "b", root / "closed"):
        before = mode(path)
        with pytest.raises(PermissionError, match="outside the walls"):
            caller.call(CHMOD, _HERE, caller.path(path), 0o777)
        assert mode(path) == before, path
    assert open_fds() <= before_all


def test_a_link_has_no_mode_and_no_file_gets_the_rights_of_its_owner(root: Path):
    caller = Caller(root)
    with pytest.raises(OSError, match="a link has no mode"):
        caller.call(CHMOD, _HERE, caller.path(root / "link"), 0o600, _NO_FOLLOW)
    for bits in (stat.S_ISUID, stat.S_ISGID):
        with pytest.raises(PermissionError, match="may not be set"):
            caller.call(CHMOD, _HERE, caller.path(root / "a"), 0o600 | bits)
    assert mode(root / "a") == 0o644
    (root / "shared").mkdir()
    caller.call(CHMOD, _HERE, caller.path(root / "shared"), 0o700 | stat.S_ISGID)
    assert mode(root / "shared") & 0o777 == 0o700


def test_files_keep_their_owner(root: Path):
    caller = Caller(root)
    user, group = os.getuid(), (root / "a").stat().st_gid
    for given in ((user, group), (_SAME, group), (user, _SAME), (_SAME, _SAME)):
        caller.call(CHOWN, caller.path(root / "a"), *given)
    caller.call(LCHOWN, caller.path(root / "away"), user, group)
    for given in ((user + 1, group), (user, group + 1)):
        with pytest.raises(PermissionError, match="files keep their owner"):
            caller.call(CHOWN, caller.path(root / "a"), *given)


def test_times_are_set_as_each_call_gives_them(root: Path):
    caller, path = Caller(root), root / "a"
    for subject, times, accessed, modified in (
        (_Subject.TIMES, struct.pack("=4q", 1, 5, 2, 6), 1_000_000_005, 2_000_000_006),
        (_Subject.MICROSECONDS, struct.pack("=4q", 3, 7, 4, 8), 3_000_007_000, 4_000_008_000),
        (_Subject.SECONDS, struct.pack("=2q", 5, 6), 5_000_000_000, 6_000_000_000),
    ):
        caller.call(_Call(subject, 2, directory=0, path=1), _HERE, caller.path(path), caller.at(times))
        found = path.stat()
        assert (found.st_atime_ns, found.st_mtime_ns) == (accessed, modified), subject
    caller.call(_Call(_Subject.TIMES, 2, directory=0, path=1), _HERE, caller.path(path), 0)
    assert path.stat().st_mtime_ns > 6_000_000_000, "without times they are those of now"
    file = os.open(path, os.O_RDONLY)
    try:
        times = struct.pack("=4q", 7, 0, 8, 0)
        caller.call(_Call(_Subject.TIMES, 2, directory=0, path=1), file, 0, caller.at(times))
    finally:
        os.close(file)
    assert path.stat().st_mtime_ns == 8_000_000_000, "without a path they are those of the open file"
    with pytest.raises(OSError, match="the times cannot be set"):
        caller.call(
            _Call(_Subject.TIMES, 2, directory=0, path=1),
            _HERE,
            caller.path(path),
            caller.at(struct.pack("=4q", 7, -1, 8, 0)),
        )


def test_a_path_is_read_to_its_end_and_no_further(root: Path):
    caller = Caller(root)
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        longest = b"x" * (metadata._PATH_BYTES - 1)
        for path in (b"a", longest):
            assert _text(memory.fileno(), caller.at(path)) == path
        with pytest.raises(FileNotFoundError):
            _text(memory.fileno(), caller.at(b""))
        with pytest.raises(OSError, match="too long") as caught:
            _text(memory.fileno(), caller.at(longest + b"x"))
        assert caught.value.errno == errno.ENAMETOOLONG
    with open("/dev/zero", "rb") as zeros, pytest.raises(FileNotFoundError):
        _text(zeros.fileno(), 0)
    endless = root / "endless"
    endless.write_bytes(b"x" * 5000)
    with endless.open("rb") as memory, pytest.raises(OSError, match="too long"):
        _text(memory.fileno(), 0)


def test_memory_that_is_not_there_is_an_error():
    """Each of these once ended the thread that answers, or kept it busy for ever."""
    end_of_memory, kernel = 2**47 - 4096, 2**64 - 1
    sleeping = subprocess.Popen(["sleep", "60"])
    with open(f"/proc/{sleeping.pid}/mem", "rb", buffering=0) as memory:
        sleeping.kill()
        sleeping.wait()
        for address in (4096, kernel):
            with pytest.raises(OSError, match=r"cannot be read|no memory"):
                _text(memory.fileno(), address)
        for subject in (_Subject.TIMES, _Subject.MICROSECONDS, _Subject.SECONDS):
            for address in (4096, kernel):
                with pytest.raises(OSError, match=r"cannot be read|no memory"):
                    _times(memory.fileno(), address, subject)
    with open("/proc/self/mem", "rb", buffering=0) as memory, pytest.raises(OSError, match=r"rror"):
        _times(memory.fileno(), end_of_memory, _Subject.TIMES)


def test_a_fraction_of_a_second_that_no_clock_has_is_an_error(tmp_path: Path):
    (tmp_path / "memory").write_bytes(struct.pack("=4q", 1, 2**62, 1, 0) + bytes(8))
    with (tmp_path / "memory").open("rb") as memory, pytest.raises(OSError, match="cannot be read"):
        _times(memory.fileno(), 0, _Subject.MICROSECONDS)
    with (tmp_path / "memory").open("rb") as memory, pytest.raises(OSError, match="cannot be read"):
        _times(memory.fileno(), 24, _Subject.TIMES)  # the memory ends within the times


def test_each_call_is_answered_once_with_its_error(monkeypatch: pytest.MonkeyPatch, asked: list[Any]):
    call, failure, performed = CHMOD, list[OSError](), list[Any]()

    def perform(*given: Any) -> None:
        performed.append(given)
        for each in failure:
            raise each

    broker: Any = _Broker.__new__(_Broker)
    broker._listener, broker._calls, broker._perform = 3, {99: call}, perform

    def ioctl(listener: int, request: int, data: bytearray) -> None:
        if request == metadata._RECEIVE:
            data[:] = metadata._NOTICE.pack(7, 42, 0, 99, 0, 0, 1, 2, 3, 4, 5, 6)
        else:
            asked.append((listener, request, struct.unpack("=QqiI", data)))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    for error, fault in ((None, 0), (OSError(errno.ENOENT, "none"), -errno.ENOENT), (OSError("odd"), -errno.EPERM)):
        failure[:] = [] if error is None else [error]
        asked.clear()
        broker._answer()
        assert asked == [(3, metadata._SEND, (7, 0, fault, 0))], error
    assert performed == [(7, 42, call, [1, 2, 3, 4, 5, 6])] * 3
