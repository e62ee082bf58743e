"""Writing the audit: sealed lines, one chain, private files, and what happens when it cannot be written."""

import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.audit import BEGINNING, MAX_LINE, AuditLog, BrokenLine, ChainLink, seal, unseal
from acp_agent.store.audit_read import verify
from acp_agent.store.private_file import private_file
from tests.rows import each_row
from tests.sizes import sized
from tests.unit.store.audit_files import Warnings, call, log_at, read, verified, whole

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "audit.jsonl"


def run_writer(*arguments: object) -> str:
    command = [sys.executable, "-m", "tests.unit.store.writer", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=50).stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_records_are_numbered_dated_and_chained(path):
    log = log_at(path, now=lambda: datetime(2025, 11, 21, 13, 31, 2, 123456, tzinfo=UTC))
    assert log.append(call(command="git status"))
    assert log.append(call("read", path="a"))
    first, second = read(path)
    assert (first["seq"], first["prev"]) == (1, BEGINNING.hash)
    assert (second["seq"], second["prev"]) == (2, first["hash"])
    assert first["ts"] == "2025-11-21T13:31:02.123Z"
    assert first["call"] == {"command": "git status"}
    assert whole(path) == []


def test_what_is_none_is_left_out_but_the_exit_code(path):
    log_at(path).append(call())
    assert set(read(path)[0]) == {
        *("seq", "ts", "prev", "kind", "tool", "call", "result", "correlation_id", "duration_ms", "exit_code", "hash")
    }
    assert read(path)[0]["exit_code"] is None


def test_files_are_private_whatever_the_umask(path):
    for umask in (0, 0o777):
        before = os.umask(umask)
        try:
            log = log_at(path)
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
            path.parent.chmod(0o700)
            assert log.append(call())
        finally:
            os.umask(before)
        assert [mode(file) for file in sorted(path.parent.iterdir())] == [0o600, 0o600]
        for file in path.parent.iterdir():
            file.unlink()


def test_the_folder_is_made_private(path):
    before = os.umask(0)
    try:
        log_at(path).append(call())
    finally:
        os.umask(before)
    assert mode(path.parent) == 0o700


def test_a_file_that_others_could_read_is_closed_to_them(path):
    log_at(path).append(call())
    path.chmod(0o644)
    log_at(path).append(call())
    assert mode(path) == 0o600


def in_its_place(path: Path, what: str) -> None:
    target = path.parent / "target"
    match what:
        case "link":
            target.touch()
            path.symlink_to(target)
        case "dangling link":
            path.symlink_to(target)
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()


@pytest.mark.parametrize("suffix", ["", ".head"])
@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "folder"])
def test_nothing_is_written_through_what_is_no_file(path, what, suffix):
    path.parent.mkdir()
    in_its_place(path.parent / f"{path.name}{suffix}", what)
    warnings = Warnings()
    log = AuditLog(str(path), warnings)
    assert not log.append(call())
    assert log.trouble()
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    target = path.parent / "target"
    assert not target.exists() or target.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_left_alone(path):
    path.parent.mkdir()
    path.touch()
    os.chown(path, 12345, -1)
    warnings = Warnings()
    assert not AuditLog(str(path), warnings).append(call())
    assert "another user" in warnings[0]


def test_trouble_is_told_before_anything_was_lost_and_leaves_no_record(path):
    log = log_at(path)
    assert log.trouble() == ""
    assert path.read_bytes() == b""
    path.unlink()
    path.mkdir()
    assert "directory" in log.trouble()


def test_it_warns_once_and_tells_later_how_many_records_are_missing(path):
    path.parent.mkdir()
    path.mkdir()
    warnings = Warnings()
    log = AuditLog(str(path), warnings)
    assert [log.append(call()) for _ in range(3)] == [False] * 3
    assert len(warnings) == 1
    path.rmdir()
    assert log.append(call())
    lost, _ = read(path)
    assert (lost["kind"], lost["count"], lost["error"]) == ("lost", 3, "Is a directory")
    assert whole(path) == ["3 records could not be written before this one"]
    path.rename(path.with_suffix(".old"))
    path.mkdir()
    assert not log.append(call())
    assert len(warnings) == 2, "a new outage is a new warning"


def test_a_lock_that_is_never_given_back_stops_nobody_for_ever(path, monkeypatch):
    monkeypatch.setattr("acp_agent.store.private_file.lock.__defaults__", (fcntl.LOCK_EX, 0.01))
    log_at(path).append(call())
    warnings = Warnings()
    with private_file(f"{path}.head") as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert not AuditLog(str(path), warnings).append(call())
    assert "another process" in warnings[0]


def test_a_full_disk_leaves_a_torn_line_that_is_kept_and_told(path):
    written, warning = run_writer("full", path, 3000).splitlines()
    assert int(written) > 2
    assert str(path) in warning
    notes = whole(path)
    assert notes[0].endswith("bytes of a record that was not finished")
    assert notes[1] == "2 records could not be written before this one"
    assert verified(path).records == int(written) + 3, "the mark, what is lost, and the last"


def test_processes_that_write_keep_one_chain(path):
    log_at(path).append(call())
    lines = sized(150, 500)
    command = [sys.executable, "-m", "tests.unit.store.writer", "append", str(path), str(lines)]
    writers = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    while any(writer.poll() is None for writer in writers):
        assert whole(path) == [], "also while they write"
    assert [writer.wait() for writer in writers] == [0, 0]
    _, *records = read(path)
    authors = [record["correlation_id"].partition("-")[0] for record in records]
    assert sorted(map(authors.count, set(authors))) == [lines, lines]


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.soak)])
def test_whoever_is_killed_loses_nothing_that_was_written(path, kills):
    acknowledged = int(run_writer("kills", path, kills))
    notes = whole(path)
    assert len(notes) <= 1, "at most the last record is not in the head"
    assert acknowledged <= verified(path).records <= acknowledged + kills


# ----------------------------------------------------------------------------------------- rotation


def clock() -> datetime:
    return datetime(2025, 11, 21, 13, 31, 2, tzinfo=UTC)


def fill(path: Path, count: int = 3) -> None:
    log = log_at(path)
    for number in range(count):
        log.append(call(command=str(number)))


def test_a_large_file_gets_another_name_when_a_process_first_writes(path):
    fill(path)
    before = path.read_bytes()
    log = log_at(path, max_bytes=100, now=clock)
    assert log.append(call(command="new"))
    older = path.parent / "audit-20251121T133102Z.jsonl"
    assert older.read_bytes() == before
    start, record = read(path)
    assert (start["kind"], start["file"], start["seq"]) == ("continues", older.name, 4)
    assert start["prev"] == read(older)[-1]["hash"]
    assert record["seq"] == 5
    assert [file.name for file in sorted(path.parent.iterdir())] == [older.name, path.name, f"{path.name}.head"]
    assert whole(path) == []


def test_a_file_is_large_that_is_larger_than_it_may_be(path):
    fill(path)
    size = path.stat().st_size
    assert log_at(path, max_bytes=size, now=clock).append(call())
    assert len(read(path)) == 4
    assert log_at(path, max_bytes=size, now=clock).append(call())
    assert read(path)[0]["kind"] == "continues"


def test_a_torn_line_behind_many_records_is_kept_and_told(path):
    log = log_at(path)
    while not path.exists() or path.stat().st_size < 5 * MAX_LINE:
        assert log.append(call(command="x" * (MAX_LINE // 4)))
    count = len(read(path))
    (path.parent / f"{path.name}.head").unlink()
    with path.open("ab") as file:
        file.write(b'{"seq": 99')
    assert log_at(path).append(call())
    (note,) = [each for each in whole(path) if "not finished" in each]
    assert note.endswith("10 bytes of a record that was not finished")
    assert verified(path).records >= count + 1


def test_a_process_that_has_written_leaves_the_file_alone(path):
    log = log_at(path, max_bytes=1000)
    for _ in range(20):
        log.append(call())
    assert len(read(path)) == 20


def test_names_of_older_files_never_meet(path):
    for _ in range(4):
        fill(path)
        assert log_at(path, max_bytes=100, now=clock).append(call())
    stems = sorted(file.stem for file in path.parent.glob("audit-*.jsonl"))
    assert stems == [f"audit-20251121T133102Z{suffix}" for suffix in ("", "-1", "-2", "-3")]
    assert whole(path) == []


def test_a_process_that_wrote_before_goes_on_in_the_new_file(path):
    old = log_at(path, max_bytes=100)
    old.append(call())
    old.append(call())
    log_at(path, max_bytes=100).append(call())
    assert old.append(call(command="last"))
    assert read(path)[-1]["call"] == {"command": "last"}
    assert whole(path) == []


def test_an_older_file_that_is_gone_is_told_and_no_fault(path):
    fill(path)
    log_at(path, max_bytes=100, now=clock).append(call())
    (path.parent / "audit-20251121T133102Z.jsonl").unlink()
    assert whole(path) == ["the file is missing, and with it records 1 to 3"]


def test_an_older_file_that_was_changed_is_found(path):
    fill(path)
    log_at(path, max_bytes=100, now=clock).append(call())
    older = path.parent / "audit-20251121T133102Z.jsonl"
    lines = older.read_bytes().splitlines(keepends=True)
    older.write_bytes(b"".join(lines[:-1]))
    newest, report = verify(str(path))
    assert newest.fault is None
    assert report.fault is not None
    assert report.fault.line == 3
    assert "does not end with the record 3" in report.fault.text


LEAVES = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.text(st.characters())
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=5), LEAVES, max_size=3)
NAMES = st.text(max_size=20).filter(lambda name: name not in {"seq", "ts", "prev", "hash"})
RECORDS = st.dictionaries(NAMES, VALUES, max_size=4)


@given(record=RECORDS)
def test_any_record_is_one_line_of_plain_ascii_that_reads_back(record):
    line, link = seal(record, BEGINNING, "2025-11-21T13:31:02.123Z")
    assert line.endswith(b"\n")
    assert line[:-1].isascii()
    assert line[:-1].decode().isprintable()
    sealed = unseal(line[:-1])
    assert sealed.link == link == ChainLink(1, sealed.record["hash"])
    assert {name: sealed.record[name] for name in record} == record


@each_row(
    "hostile",
    ['"}\n{"seq":1', "\r\n", "\u2028\u2029\x85", "\x1b[2K", "\u202e", "\ud800", "\0", "\\", "é" * 9, '","hash":"'],
)
def test_no_text_can_end_its_line_or_reach_a_terminal_as_itself(hostile):
    line, _ = seal({"tool": hostile, hostile: "x"}, BEGINNING, "t")
    assert line.count(b"\n") == 1
    assert line[:-1].decode("ascii").isprintable()
    assert unseal(line[:-1]).record["tool"] == hostile


@pytest.mark.parametrize(
    "call",
    [
        {"content": "x" * 200_000},
        {"content": "\U0001f600" * 6000},
        {f"{number}" * 50: "\x00" * 500 for number in range(256)},
        [["\U0001f600" * 200] * 100] * 5,
    ],
)
def test_a_record_that_is_too_long_is_cut_until_it_fits_and_says_so(call):
    others = {f"field{number}": "\U0001f600" * 1000 for number in range(20)}
    for record in ({"call": call}, {"call": call, **others}):
        line, _ = seal(record, ChainLink(10**17, "0" * 64), "2025-11-21T13:31:02.123Z")
        assert len(line) <= MAX_LINE
        assert b"[cut]" in line or b"[left out" in line
        assert unseal(line[:-1]).link.seq == 10**17 + 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not a record"),
        (b"[]", "not a record"),
        (b"{}", "not a record of ours"),
        (b'{"seq":"1","prev":"","hash":""}', "not a record of ours"),
        (b'{"seq":1,"prev":"","hash":"' + b"0" * 64 + b'"}', "was changed"),
        (b"\xff\xfe{\x00}\x00", "not a record"),
        (b"[" * 50_000, "not a record"),
        (b'{"seq":' + b"1" * 5000 + b"}", "not a record"),
        (b"x" * MAX_LINE, "longer than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_record_is_told_from_one(line, why):
    with pytest.raises(BrokenLine, match=why):
        unseal(line)


def test_a_second_seal_behind_the_first_is_no_seal():
    line, _ = seal({"tool": "bash"}, BEGINNING, "t")
    forged = line[:-2] + b"," + json.dumps({"hash": "0" * 64})[1:].encode()
    with pytest.raises(BrokenLine):
        unseal(forged)


def test_a_record_that_just_fits_is_not_cut():
    def length(size: int) -> tuple[int, bool]:
        line, _ = seal({"tool": "x" * size}, BEGINNING, "t")
        unseal(line[:-1])
        return len(line), b"cut" in line

    room = MAX_LINE - length(0)[0]
    assert length(room) == (MAX_LINE, False)
    assert length(room + 1)[1]


@pytest.mark.parametrize("missing", ["seq", "prev"])
def test_a_record_without_its_place_in_the_chain_is_none_of_ours(missing: str):
    members = {"seq": 1, "prev": "0" * 64, "tool": "x"}
    del members[missing]
    body = json.dumps(members, separators=(",", ":")).encode()[:-1]
    with pytest.raises(BrokenLine, match="missing"):
        unseal(body + f',"hash":"{hashlib.sha256(body).hexdigest()}"}}'.encode())
