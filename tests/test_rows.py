"""Rows of a table in one test: all of them run, and the failed ones are named."""

from pathlib import Path

import pytest

from tests.rows import each_row


@each_row("text, number", [("a", 1), ("b", 2)])
def test_a_row_has_its_values_and_the_fixtures(text: str, number: int, tmp_path_factory: pytest.TempPathFactory):
    assert tmp_path_factory
    assert (text, number) in (("a", 1), ("b", 2))


def test_every_row_is_run_in_order():
    seen: list[object] = []

    @each_row("text, number", [("a", 1), ("b", 2)])
    def noted(text: str, number: int) -> None:
        seen.append((text, number))

    noted()
    assert seen == [("a", 1), ("b", 2)]


@pytest.mark.anyio
@each_row("number", range(3))
async def test_a_test_may_be_asynchronous(number: int):
    assert number < 3


@each_row("name", ["a", "b"])
def test_a_row_has_a_folder_of_its_own(name: str, tmp_path: Path):
    (tmp_path / "file").touch(exist_ok=False)


def test_the_failed_rows_are_named_and_the_first_is_shown():
    @each_row("number", [1, 0, 2, 0], ids=["one", "none", "two", "none again"])
    def divided(number: int) -> None:
        assert 2 % number == 0, "never"

    with pytest.raises(AssertionError, match="2 of 4 rows:\n  1: none\n  3: none again") as raised:
        divided()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_row_in_which_nothing_is_raised_fails_too():
    @each_row("text", ["1", "x"])
    def refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(AssertionError, match="1 of 2 rows:\n  0: 1"):
        refused()
