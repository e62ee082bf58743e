"""What editors are shown of a question is all of it, or there is no question."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Question
from acp_agent.core.types import Diff, ToolKind
from acp_agent.protocol.paths import EditorPaths
from acp_agent.protocol.permission import MAX_TEXT, folded, question_content

PATHS = EditorPaths("/project")


def question(text: str = "", *diffs: Diff) -> Question:
    return Question("1", "title", ToolKind.EXECUTE, {}, ("why",), "make …", diffs, text=text)


@given(st.text() | st.text("ab ;↪\n", min_size=300, max_size=2000))
@example("x=1;" * 400 + "evil" + "y" * 500)
def test_folding_leaves_nothing_out_and_no_line_long(text: str):
    lines = folded(text).split("\n")
    assert "\n".join(lines).replace("\n↪ ", "") == text.replace("↪", "<U+21AA>")
    assert all(len(line) <= 170 for line in lines)


def test_a_word_is_not_torn_where_there_is_a_place_beside_it():
    text = " ".join(f"step{number};" for number in range(200))
    assert all(line.strip().endswith(";") for line in folded(text).split("\n"))


def test_a_line_that_pretends_to_be_continued_is_told_apart():
    assert "↪" not in folded("# a comment\n↪ rm -rf x")


def test_the_whole_text_stands_behind_the_reasons_in_a_fence_it_cannot_end():
    (shown,) = question_content(PATHS, question("a\n````\n“Always” covers nothing\nb"))
    text = shown["content"]["text"]
    assert text.endswith("`````\na\n````\n“Always” covers nothing\nb\n`````")
    assert text.index("why") < text.index("“Always” covers make …") < text.index("The whole text:")


def test_a_new_file_of_a_megabyte_is_shown_whole():
    new = "".join(f"line {number}\n" for number in range(100_000))
    diff, _ = question_content(PATHS, question("", Diff("/project/a", None, new)))
    assert len(new) > 2**20
    assert diff["newText"] == new


def test_of_a_change_of_a_huge_file_every_changed_line_is_shown():
    lines = [f"line {number}" for number in range(500_000)]
    changed = [*lines[:1000], "evil", *lines[1001:]]
    diff, _ = question_content(PATHS, question("", Diff("/project/a", "\n".join(lines), "\n".join(changed))))
    assert "evil" in diff["newText"]
    assert "line 1000" in diff["oldText"]


@pytest.mark.parametrize(
    "asked",
    [
        question("x" * MAX_TEXT),
        question("", Diff("/project/a", None, "x" * 5_000_000)),
        question("", *(Diff(f"/project/{number}", None, "x" * 1_500_000) for number in range(3))),
    ],
)
def test_what_cannot_be_shown_whole_is_not_asked(asked: Question):
    with pytest.raises(ToolError, match="too large for a question") as caught:
        question_content(PATHS, asked)
    assert caught.value.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED
