"""Searches are bounded by the call: whoever waits for one is asked between its windows, and nothing is lost by them."""

import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import pairwise, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent import regex
from acp_agent.regex import LinearRegex
from tests.rows import each_row
from tests.sizes import sized

PATTERNS = ["a", "^b", "a$", "^$", "^", "$", "", r"\bb", r"b\b", r"\Ba", "[^a]", "b+ ?", "é", ".é", r"\Aa", r"b\z"]


@contextmanager
def windows_of(size: int) -> Generator[None]:
    """Give one call of the engine `size` bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regex, "_SMALLEST", size)
        patch.setattr(regex, "_LARGEST", size)
        yield


@given(
    st.lists(st.text("ab é", max_size=3), max_size=12).map("\n".join),
    st.sampled_from(PATTERNS),
    st.integers(0, 40),
)
def test_lines_that_fit_a_window_are_searched_as_if_there_were_none(text: str, pattern: str, start: int):
    data = text.encode()
    at = data.rfind(b"\n", 0, min(start, len(data))) + 1
    whole = LinearRegex(pattern, by_line=True).find(data, at)
    with windows_of(8):
        assert LinearRegex(pattern, by_line=True).find(data, at) == whole


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 8))
@example(8, 1, 8)
def test_a_match_of_half_a_window_is_found_wherever_it_is_in_a_long_line(before: int, after: int, size: int):
    data = b"-" * before + b"x" * size + b"-" * after
    with windows_of(2 * (size + 2)):  # the dashes belong to the match
        assert LinearRegex(f"-x{{{size}}}-|^x{{{size}}}|x{{{size}}}$", by_line=True).find(data, 0) is not None


HOSTILE = ["(x=1;){1,1000}y", "a[xab]{999}c", "(.{1,30}){1,30}Z", r"(\pL?){200}Z", r"[\pL=1;]{250}Z", "." * 4000 + "Z"]
LINES = [b"x=1;", b"ab", "αβ".encode()]
ALIKE = [(HOSTILE[0], LINES[0]), (HOSTILE[1], LINES[1]), *((each, LINES[2]) for each in HOSTILE[2:])]
"""Each pattern with a line that takes it far."""


@each_row("pattern, line", sized(ALIKE, [*product(HOSTILE, LINES)]))
def test_no_hostile_pattern_holds_a_thread_for_long(pattern: str, line: bytes):
    times = [time.perf_counter()]

    def check() -> None:
        times.append(time.perf_counter())
        if len(times) > 3:
            raise TimeoutError

    with suppress(TimeoutError):
        LinearRegex(pattern, by_line=True).find(line * 2_000_000, 0, check)
    steps = [after - before for before, after in pairwise(times)]
    assert all(step < 3 for step in steps), steps  # 0.2 s on a quiet machine


def test_a_search_goes_on_while_nobody_ends_it():
    data = b"-" * 100_000 + b"needle"
    with windows_of(1024):
        assert LinearRegex("needle", by_line=True).find(data, 0) == 100_000
