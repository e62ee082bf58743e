"""`truncate` keeps both ends and counts what is between them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Confidence
from acp_agent.output.filters.line_rules import Truncate
from acp_agent.output.filters.strategy import CommandRun

RUN = CommandRun("x", ("x",))


@given(
    st.lists(st.sampled_from(["a", "", "bb", "日本"]), min_size=1, max_size=60),
    st.booleans(),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 20),
)
def test_head_and_tail_are_the_texts_own_and_the_line_between_counts_the_rest(
    lines: list[str], ends: bool, head: int, tail: int, more: int
) -> None:
    head += not head + tail
    text = "\n".join(lines) + ("\n" if ends else "")
    count = len(lines) - (lines[-1] == "" and not ends)
    applied = Truncate(head + tail + more, head, tail).apply(text, RUN)
    if count <= head + tail + more:
        assert applied.text == text
        assert applied.confidence is Confidence.FALLBACK
        return
    assert applied.confidence is Confidence.PARTIAL
    shown = applied.text.removesuffix("\n").split("\n") if ends or tail == 0 else applied.text.split("\n")
    shown = shown[: head + 1 + tail]
    assert shown[:head] == lines[:head]
    assert shown[head + 1 :] == lines[count - tail : count]
    marker = re.fullmatch(r"\.\.\. \((\d+) lines? omitted\) \.\.\.", shown[head])
    assert marker is not None
    assert int(marker[1]) == count - head - tail


def test_a_text_of_just_the_limit_stays_whole() -> None:
    text = "line\n" * 80
    assert Truncate(80, 15, 15).apply(text, RUN).text == text
    shown = Truncate(80, 15, 15).apply(text + "line\n", RUN).text
    assert shown == "line\n" * 15 + "... (51 lines omitted) ...\n" + "line\n" * 15


def test_without_a_tail_the_omission_comes_last() -> None:
    text = "".join(f"{number}\n" for number in range(30))
    assert Truncate(20, 20, 0).apply(text, RUN).text.endswith("19\n... (10 lines omitted) ...\n")


def test_lines_between_the_ends_that_match_stay_as_far_as_there_is_room() -> None:
    text = "".join(f"warning: {number}\n" if number % 10 == 5 else f"{number}\n" for number in range(60))
    shown = Truncate(8, 2, 2, keep=["^warning: "]).apply(text, RUN)
    assert shown.confidence is Confidence.PARTIAL
    kept = "warning: 5\nwarning: 15\nwarning: 25\nwarning: 35\n"
    assert shown.text == f"0\n1\n... (52 lines omitted around the next 4) ...\n{kept}58\n59\n"


def test_a_text_of_which_every_line_would_stay_but_for_the_limit_is_cut_to_it() -> None:
    shown = Truncate(9, 2, 2, keep=["a"]).apply("a\n" * 30, RUN)
    assert shown.text == "a\n" * 2 + "... (21 lines omitted around the next 5) ...\n" + "a\n" * 7


@pytest.mark.parametrize(("most", "head", "tail"), [(10, 6, 5), (10, 0, 0), (10, -1, 5), (0, 0, 0)])
def test_ends_that_do_not_fit_are_an_error_that_names_them(most: int, head: int, tail: int) -> None:
    with pytest.raises(ValueError, match=f"head = {head} and tail = {tail}: expected 1 to max_lines = {most}"):
        Truncate(most, head, tail)
