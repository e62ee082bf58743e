"""Reading the audit: the last lines, the next ones, records through all files, and whether it is complete."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from acp_agent.store.audit import BEGINNING, MAX_LINE, ChainLink, seal
from acp_agent.store.audit_read import last_of, records, tail, verify
from tests.rows import each_row
from tests.unit.store.audit_files import call, log_at, verified, whole


class Stop(Exception):
    """Nobody waits any longer."""


@each_row("text, count", product([b"", b"a\n", b"a\nb\nc\n", b"a\nb\nc", b"\n\n", b"a\n" * 50_000], [1, 2, 3, 10]))
def test_the_last_lines_are_what_anybody_would_say(tmp_path, text, count):
    file = tmp_path / "f"
    file.write_bytes(text)
    expected = text.removesuffix(b"\n").split(b"\n")[-count:] if text else []
    assert list(tail(str(file), count)) == expected


def test_following_gives_every_further_line_once_it_is_whole(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"one\ntwo\n")
    additions = iter([b"three\nfo", b"ur\n", b"", b"five\n"])

    def wait() -> None:
        try:
            more = next(additions)
        except StopIteration:
            raise Stop from None
        with file.open("ab") as out:
            out.write(more)

    lines = []
    with pytest.raises(Stop):
        lines.extend(line for line in collecting(tail(str(file), 1, wait), lines))
    assert lines == [b"two", b"three", b"four", b"five"]


def collecting(source, into):
    for line in source:
        into.append(line)
    yield from ()


def test_following_goes_over_to_the_file_that_takes_its_place(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = log_at(path)
    log.append(call(command="1"))
    steps = iter(
        [
            lambda: log.append(call(command="2")),
            lambda: log_at(path, max_bytes=100).append(call(command="3")),
            lambda: log.append(call(command="4")),
            path.unlink,
        ]
    )

    def wait() -> None:
        try:
            next(steps)()
        except StopIteration:
            raise Stop from None

    lines: list[bytes] = []
    with pytest.raises(Stop):
        list(collecting(tail(str(path), 10, wait), lines))
    kinds = [b'"continues"' in line for line in lines]
    assert kinds == [False, False, True, False, False]


def test_records_are_found_through_all_files_and_past_broken_lines(tmp_path):
    path = tmp_path / "audit.jsonl"
    log_at(path).append(call(command="1"))
    log_at(path).append(call(command="2"))
    log_at(path, max_bytes=100).append(call(command="3"))
    with path.open("ab") as file:
        file.write(b"broken\n" + b"x" * 200_000)
    assert [sealed.link.seq for sealed in records(str(path))] == [3, 4, 1, 2]


def test_a_file_that_names_itself_ends(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(seal({"kind": "continues", "file": "audit.jsonl"}, BEGINNING, "t")[0])
    assert len(list(records(str(path)))) == 1


def test_the_last_records_of_one_session_are_found_among_others_and_in_older_files(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = log_at(path)
    for number in range(4):
        log.append(replace(call(command=str(number)), caller_id="mine/explore-1" if number % 2 else "mine"))
        log.append(replace(call(command="x", caller_id="mine"), caller_id="mine2"))
    log_at(path, max_bytes=100).append(replace(call(command="4"), caller_id="mine"))
    with path.open("ab") as file:
        file.write(b'{"caller_id":"mine", damaged\n')

    def commands(count: int) -> list[str]:
        calls: Any = [each["call"] for each in last_of(str(path), "mine", count)]
        return [each["command"] for each in calls]

    assert commands(3) == ["2", "3", "4"]
    assert commands(1) == ["4"]
    assert commands(100) == ["0", "1", "2", "3", "4"]
    assert last_of(str(path), "nobody", 3) == ()
    assert last_of(str(tmp_path / "none"), "mine", 3) == ()


def test_the_last_records_of_a_file_nobody_could_read_in_full_are_found(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no space; to read it takes hours
    log = log_at(path)
    for command in ("one", "two", "three"):
        log.append(replace(call(command=command), caller_id="mine"))
    found: Any = last_of(str(path), "mine", 2)
    assert [each["call"]["command"] for each in found] == ["two", "three"]


def sealed(number: int, size: int) -> bytes:
    """A record of a session, of so many bytes or as many as there may be."""
    line, _ = seal({"caller_id": "mine", "call": {"n": number, "x": "x" * size}}, ChainLink(number, "0" * 64), "t")
    return line


@given(
    st.lists(
        st.one_of(
            st.sampled_from([sealed(1, 0), sealed(2, 40_000), sealed(3, MAX_LINE - 300)]),
            st.sampled_from([b"\n", b'"caller_id":"mine"\n', b"x" * (MAX_LINE - 1) + b"\n"]),
            st.integers(MAX_LINE, 4 * MAX_LINE).map(lambda size: b"x" * size + b"\n"),
        ),
        max_size=6,
    ),
    st.sampled_from([b"", b'"caller_id":"mine"', b"x" * (3 * MAX_LINE)]),
    st.integers(1, 4),
)
def test_read_backwards_the_last_records_are_those_found_forwards(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, count: int
):
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    path.write_bytes(b"".join(lines) + end)
    mine = [each.record for each in records(str(path))]
    assert list(last_of(str(path), "mine", count)) == mine[-count:]


COUNT = 6


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of six records with its head; tests put other bytes in it."""
    path = tmp_path_factory.mktemp("verify") / "audit.jsonl"
    log = log_at(path)
    for number in range(COUNT):
        log.append(call(command=f"echo {number}", text="é\u202e\n"))
    (path.parent / "original").write_bytes(path.read_bytes())
    return path


def original(audit: Path) -> bytes:
    return (audit.parent / "original").read_bytes()


def lines_of(audit: Path) -> list[bytes]:
    return original(audit).splitlines(keepends=True)


def fault_of(audit: Path, data: bytes) -> tuple[int, str]:
    """Where and what is wrong with a file of these bytes."""
    audit.write_bytes(data)
    fault = verified(audit).fault
    assert fault is not None
    return fault.line, fault.text


LINE = st.integers(0, COUNT - 1)


@given(where=st.integers(0, 10_000), other=st.integers(1, 255))
@example(where=-1, other=1)
def test_any_byte_that_is_changed_is_found_on_its_line(audit, where, other):
    data = bytearray(original(audit))
    where %= len(data)
    data[where] = (data[where] + other) % 256
    line, _ = fault_of(audit, bytes(data))
    ends = {COUNT, COUNT + 1} if where == len(data) - 1 else {COUNT}  # the last record has no line end any more
    assert line in {original(audit)[:where].count(b"\n") + 1, *ends}


@given(removed=st.sets(LINE, min_size=1))
def test_any_lines_that_are_removed_are_missed(audit, removed):
    kept = [line for number, line in enumerate(lines_of(audit)) if number not in removed]
    line, text = fault_of(audit, b"".join(kept))
    assert line == min(removed) + 1
    assert "missing" in text


@given(at=st.integers(0, COUNT), which=LINE)
def test_a_line_that_is_put_in_twice_is_found(audit, at, which):
    lines = lines_of(audit)
    lines.insert(at, lines[which])
    line, text = fault_of(audit, b"".join(lines))
    assert line in {at + 1, which + 2}
    assert text


@given(at=st.integers(0, COUNT), text=st.binary(max_size=80))
def test_any_foreign_line_is_found(audit, at, text):
    lines = lines_of(audit)
    lines.insert(at, text.replace(b"\n", b"") + b"\n")
    assert fault_of(audit, b"".join(lines))[0] == at + 1


@given(at=LINE)
def test_a_forged_record_with_a_right_seal_does_not_fit_between_two(audit, at):
    lines = lines_of(audit)
    before = json.loads(lines[at - 1]) if at else {"seq": 0, "hash": BEGINNING.hash}
    forged, _ = seal(json.loads(lines[at]) | {"tool": "read"}, ChainLink(before["seq"], before["hash"]), "t")
    # seq, ts and prev of the record itself win over what seal would put there, as they would for a forger
    assert fault_of(audit, b"".join([*lines[:at], forged, *lines[at + 1 :]]))[0] in {at + 1, at + 2}
    assert fault_of(audit, b"".join([*lines[:at], forged, *lines[at:]]))[0] in {at + 1, at + 2}


@given(order=st.permutations(range(COUNT)))
def test_any_other_order_is_found(audit, order):
    assume(order != sorted(order))
    lines = lines_of(audit)
    first = next(number for number, place in enumerate(order) if number != place)
    assert fault_of(audit, b"".join(lines[number] for number in order))[0] == first + 1


@given(size=st.integers(0, 10_000))
def test_a_file_that_was_cut_anywhere_is_found(audit, size):
    data = original(audit)
    size %= len(data)
    assert "missing" in fault_of(audit, data[:size])[1] or size == len(data) - 1
    assert fault_of(audit, data[:-1])[1] == "the file is 1 bytes shorter than it was"


@given(size=st.integers(0, 10_000), more=st.integers(1, 3))
def test_nor_does_it_help_to_go_on_writing_behind_the_damage(audit, size, more):
    """The next writer trusts the head, so the gap stays open for ever."""
    data = original(audit)
    head = Path(f"{audit}.head")
    kept = head.read_bytes()
    audit.write_bytes(data[: size % (len(data) - 1)])
    try:
        log = log_at(audit)
        for _ in range(more):
            assert log.append(call())
        fault = verified(audit).fault
    finally:
        head.write_bytes(kept)
    assert fault is not None
    assert "missing" in fault.text or "follows" in fault.text


def test_the_place_and_the_kind_of_the_damage_are_told(audit):
    lines = lines_of(audit)
    tell = partial(fault_of, audit)
    assert tell(b"".join(lines).replace(b"echo 2", b"echo 9")) == (3, "was changed: its hash does not fit")
    assert tell(b"".join(lines[:1] + lines[3:])) == (2, "is record 4: records 2 to 3 are missing in front of it")
    assert tell(b"".join(lines[2:])) == (1, "is record 3: records 1 to 2 are missing in front of it")
    assert tell(b"".join(lines[:-1])) == (COUNT, "the file ends too early: record 6 is missing")
    assert tell(b"".join([lines[0], lines[0], *lines[1:]])) == (2, "is record 1, where record 2 belongs")
    assert tell(b"".join([*lines[:4], b"\n", *lines[4:]])) == (5, "not a record")
    assert tell(b"x" * 3 * MAX_LINE + b"\n" + b"".join(lines))[0] == 1
    assert tell(b"") == (1, "the file ends too early: records 1 to 6 are missing")


def changed(audit: Path, change: Callable[[Path], object]) -> tuple[str, list[str]]:
    """The fault and the notes after a change to the head, which is put back."""
    head = Path(f"{audit}.head")
    kept = head.read_bytes()
    audit.write_bytes(original(audit))
    change(head)
    try:
        report = verified(audit)
    finally:
        head.write_bytes(kept)
    return report.fault.text if report.fault else "", [note.text for note in report.notes]


def test_a_head_that_is_gone_or_garbled_is_told(audit):
    gone = ("", ["without its head file, nobody can say whether lines are missing at the end"])
    assert changed(audit, Path.unlink) == gone
    garbled = "the head file does not hold what was written to it"
    assert changed(audit, lambda head: head.write_bytes(b"x")) == (garbled, [])
    other = f"{COUNT:020d} {0:020d} {'1' * 64}\n".encode()
    assert changed(audit, lambda head: head.write_bytes(other)) == ("is another record 6 than the head file names", [])


def test_records_the_head_does_not_name_are_noted(audit):
    """As after a kill, or when somebody sealed a record of his own and forgot the head."""
    last = json.loads(lines_of(audit)[-1])
    forged, _ = seal({"kind": "torn"} | {"kind": "lost", "count": 1, "error": ""}, ChainLink(COUNT, last["hash"]), "t")
    audit.write_bytes(original(audit) + forged)
    assert whole(audit) == [
        "1 records could not be written before this one",
        "the head file names record 6 as the last",
    ]


def test_a_mark_without_its_torn_line_is_a_fault(audit):
    last = json.loads(lines_of(audit)[-1])
    mark, _ = seal({"kind": "torn", "bytes": 4, "sha256": "0" * 64}, ChainLink(COUNT, last["hash"]), "t")
    assert "which is not there" in fault_of(audit, original(audit) + mark)[1]
    assert fault_of(audit, original(audit) + b"half\n" + mark)[1] == "not a record"


def test_a_file_that_names_itself_as_the_older_one_ends_the_search(tmp_path):
    path = tmp_path / "audit.jsonl"
    for name in ("audit.jsonl", "../audit.jsonl", "/etc/hostname", ""):
        line, _ = seal({"kind": "continues", "file": name}, BEGINNING, "t")
        path.write_bytes(line)
        reports = list(verify(str(path)))
        assert reports[0].fault is None
        assert [report.fault.text for report in reports[1:] if report.fault] == (
            ["the newer file names it as the older one, but it cannot be that"] if name else []
        )


def test_a_file_that_is_gone_is_missed_while_its_head_is_there(tmp_path):
    path = tmp_path / "audit.jsonl"
    log_at(path).append(call())
    path.unlink()
    assert verified(path).fault is not None
    (tmp_path / "audit.jsonl.head").unlink()
    with pytest.raises(FileNotFoundError):
        verified(path)


def test_a_large_file_is_read_in_little_memory(tmp_path):
    path = tmp_path / "audit.jsonl"
    link = BEGINNING
    with path.open("wb") as file:
        for _ in range(400):
            line, link = seal({"kind": "tool", "call": {"content": "x" * 50_000}}, link, "t")
            file.write(line)
        file.write(b"y" * 10_000_000)
    tracemalloc.start()
    try:
        report = verified(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.records == 400
    assert report.fault is None, "what was not finished is a note"
    assert peak < 2_000_000
