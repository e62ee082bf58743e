"""Room is set aside before it is needed: on a disk that fills up later, what was promised can be written."""

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from acp_agent.store import audit as disk_room
from acp_agent.store.audit import AuditLog, reserve_space
from tests.unit.store.audit_files import Warnings, call, read, whole


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte of a disk."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(folder).f_bavail == 0


def refusing(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernel's call fail."""

    def fail(*_: int) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(disk_room, "_fallocate", lambda: fail)


def test_what_was_set_aside_can_be_written_when_the_disk_is_full(disk: Path):
    fd = os.open(disk / "file", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    reserve_space(fd, 204_800)
    assert os.fstat(fd).st_size == 0, "nobody sees it"
    fill(disk)
    assert os.write(fd, b"x" * 204_800) == 204_800
    with pytest.raises(OSError, match="No space left"):
        reserve_space(fd, 1)
    os.close(fd)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_without_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    refusing(code, monkeypatch)
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match=os.strerror(code)):
        reserve_space(file.fileno(), 1)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_can_promise_nothing_is_asked_for_its_free_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    refusing(code, monkeypatch)
    with (disk / "file").open("wb") as file:
        reserve_space(file.fileno(), 204_800)
        fill(disk)
        with pytest.raises(OSError, match="No space left"):
            reserve_space(file.fileno(), 204_800)


def test_a_log_has_the_record_of_a_call_during_which_the_disk_fills_up_and_lets_no_further_one_start(disk: Path):
    warnings = Warnings()
    log = AuditLog(str(disk / "data" / "audit.jsonl"), warnings)
    assert log.trouble() == ""
    fill(disk)
    assert log.append(call(command="x" * 60_000))
    assert "No space left" in log.trouble()
    assert len(read(disk / "data" / "audit.jsonl")) == 1
    assert whole(disk / "data" / "audit.jsonl") == []
    (disk / "filler").unlink()
    assert log.trouble() == ""
    assert warnings == []
