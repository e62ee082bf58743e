"""Nothing that goes to the editor is unbounded."""

from hypothesis import given
from hypothesis import strategies as st

from acp_agent.core.types import Diff
from acp_agent.protocol.updates import DIFF_LIMIT, STRING_LIMIT, bounded_diff, bounded_input


def test_a_small_change_of_a_big_file_is_shown_with_its_surroundings() -> None:
    lines = [f"line {number}\n" for number in range(100_000)]
    old = "".join(lines)
    shown = bounded_diff(Diff("/w/a", old, old.replace("line 500\n", "changed\n")))
    assert shown is not None
    assert shown.old_text is not None
    assert "line 500" in shown.old_text
    assert "changed" in shown.new_text
    assert len(shown.new_text.splitlines()) == 7


def test_a_change_of_everything_is_not_sent() -> None:
    assert bounded_diff(Diff("/w/a", None, "x" * (DIFF_LIMIT + 1))) is None


def test_an_ordinary_change_is_sent_whole() -> None:
    diff = Diff("/w/a", "a\nb\n", "a\nc\n")
    assert bounded_diff(diff) is diff


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_the_region_is_cut_from_both_sides_alike(old: list[str], new: list[str]) -> None:
    """What is left out of the old text is left out of the new one: the same lines at both ends."""
    padding = "y" * DIFF_LIMIT
    before, after = "\n".join([padding, *"1234", *old, *"5678"]), "\n".join([padding, *"1234", *new, *"5678"])
    shown = bounded_diff(Diff("/w/a", before, after))
    assert shown is not None
    assert shown.old_text is not None
    assert before.replace(shown.old_text, "@", 1).replace("@", shown.new_text, 1) == after or before == after


def test_long_strings_of_the_input_lose_their_middle_and_short_ones_nothing() -> None:
    given_input = {"path": "a", "content": "x" * 50_000, "list": ["y" * 50_000, 1, None]}
    shown = bounded_input(given_input)
    assert shown["path"] == "a"
    assert isinstance(shown["content"], str)
    assert len(shown["content"]) < STRING_LIMIT + 100
    assert isinstance(shown["list"], list)
    assert len(str(shown["list"][0])) < STRING_LIMIT + 100
