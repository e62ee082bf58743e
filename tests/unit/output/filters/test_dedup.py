"""`dedup` shows what a log repeats once, and counts it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_rules import MAX_PATTERNS, Dedup, normalised
from acp_agent.output.filters.strategy import CommandRun

RUN = CommandRun("journalctl", ("journalctl",))


def shown(text: str) -> str:
    return Dedup().apply(text, RUN).text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-21T16:59:28.123Z a", "2025-01-02T03:04:05Z a"),
        ("2026-11-21 16:59:28,123 a", "2026-11-21 17:00:00,001 a"),
        ("2026-11-21T16:59:28+01:00 a", "2026-11-22T16:59:28-0500 a"),
        ("2026/11/21 16:59:28 a", "2026/11/21 16:59:29 a"),
        ("Nov 21 16:59:28 a", "Nov 22 16:59:28 a"),
        ("Nov  1 16:59:28 a", "Nov  2 17:59:28 a"),
        ("[21/Nov/2026:16:59:28 +0000] a", "[22/Nov/2026:00:00:00 +0200] a"),
        ("at 1700000000 a", "at 1700000001.5 a"),
        ("id 123e4567-e89b-12d3-a456-426614174000 a", "id FFFFFFFF-0000-0000-0000-00000000000f a"),
        ("from 10.0.0.1 a", "from 192.168.100.254 a"),
        ("from 10.0.0.1:80 a", "from 10.0.0.1:65535 a"),
        ("port 1 a", "port 65535 a"),
        ("Port=80 a", "Port=8080 a"),
        ("pid 7 a", "pid 77777 a"),
        ("PID: 7", "PID: 8"),
        ("port: 80", "port: 8080"),
        ("sshd[1]: a", "sshd[31337]: a"),
    ],
)
def test_lines_that_differ_in_when_and_where_are_one(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert normalised(f"x\n{one}\n{other}\n").count("\n") == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("status 200", "status 500"),
        ("took 12 ms", "took 12000 ms"),
        ("worker 1 died", "worker 2 died"),
        ("version 1.2.3", "version 1.2.4"),
        ("errno[2]x", "errno[3]y"),
        ("id 123e4567-e89b", "id 123e4567-e89c"),
        ("item a[x]", "item a[y]"),
    ],
)
def test_lines_that_differ_in_what_they_say_are_two(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_a_repeated_line_is_shown_at_its_first_place_with_its_number() -> None:
    text = "10:00:00 up\n10:00:01 down\n10:00:02 up\n10:00:03 up\nend\n"
    assert shown(text) == "10:00:00 up (x3)\n10:00:01 down\nend\n3 unique patterns (5 total lines)\n"


def test_full_when_only_equal_lines_went_and_partial_when_they_differed() -> None:
    assert Dedup().apply("a\na\nb\n", RUN).confidence is Confidence.FULL
    assert Dedup().apply("10:00:00 a\n10:00:01 a\nb\n", RUN).confidence is Confidence.PARTIAL


@pytest.mark.parametrize("text", ["", "a\na\n", "a\nb\nc\n"])
def test_fallback_below_three_lines_or_without_repeats(text: str) -> None:
    applied = Dedup().apply(text, RUN)
    assert applied.text == text
    assert applied.confidence is Confidence.FALLBACK


def test_only_so_many_lines_are_remembered_and_what_is_new_behind_them_stays() -> None:
    text = "".join(f"line {number}\n" for number in range(MAX_PATTERNS)) + "late\nlate\nline 0\n"
    lines = shown(text).splitlines()
    assert lines[0] == "line 0 (x2)"
    assert lines[-3:] == ["late", "late", f"{MAX_PATTERNS + 2} unique patterns ({MAX_PATTERNS + 3} total lines)"]


@given(st.lists(st.sampled_from(["a", "b", "", "10:00:00 c", "10:00:01 c", "e-0000-0000-0000-000000000000"])))
def test_the_counts_add_up_to_the_lines_and_every_line_is_the_texts_own(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    applied = Dedup().apply(text, RUN)
    if applied.confidence is Confidence.FALLBACK:
        assert applied.text == text
        return
    *first, total = applied.text.removesuffix("\n").split("\n")
    counts = [re.search(r" \(x(\d+)\)$", line) for line in first]
    assert sum(int(count[1]) if count else 1 for count in counts) == len(lines)
    assert {re.sub(r" \(x\d+\)$", "", line) for line in first} <= set(lines)
    assert total == f"{len(first)} unique patterns ({len(lines)} total lines)"
