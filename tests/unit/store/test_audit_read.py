"""Reading back: the last lines, the next ones, and records through all files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.audit import BEGINNING, MAX_LINE, ChainLink, seal
from acp_agent.store.audit_read import last_of, records, tail
from tests.unit.store.audit_files import call, log_at


class Stop(Exception):
    """Nobody waits any longer."""


@pytest.mark.parametrize("text", [b"", b"a\n", b"a\nb\nc\n", b"a\nb\nc", b"\n\n", b"a\n" * 50_000])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
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
        log.append(replace(call(command=str(number)), caller_id="mine"))
        log.append(replace(call(command="x", caller_id="mine"), caller_id="another's"))
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
