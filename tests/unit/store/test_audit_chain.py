"""A line: whatever is in a record, it is one, ASCII, no longer than it may be, and reads back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.store.audit import BEGINNING, MAX_LINE, BrokenLine, ChainLink, seal, unseal

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


@pytest.mark.parametrize(
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
