"""Permission questions: the options, unanswered questions, and that all of a question is shown or it is not asked."""

from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acp_agent.core.errors import ToolError, ToolErrorCategory
from acp_agent.core.ports import Decision, Question
from acp_agent.core.types import Diff, ToolKind
from acp_agent.protocol.client import Drawing, EditorPaths
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.questions import MAX_TEXT, EditorApprover, folded, options, question_content
from tests.unit.protocol.wires import OtherEnd, connected

pytestmark = pytest.mark.anyio
QUESTION = Question("call-1", "make", ToolKind.EXECUTE, {"command": "make"}, ("why",), "make …")


def approver(peer: Peer, timeout: float = 0) -> EditorApprover:
    return EditorApprover(peer, "session", Drawing(), EditorPaths("/project"), timeout)


async def answered(peer: Peer, other: OtherEnd, timeout: float, **answer: Any) -> Decision:
    decisions: list[Decision] = []

    async def ask() -> None:
        decisions.append(await approver(peer, timeout).ask(QUESTION))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        request = await other.receive()
        assert request["method"] == "session/request_permission"
        other.send(id=request["id"], **answer)
    return decisions[0]


def selected(option: Any) -> dict[str, Any]:
    return {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (selected("allow_once"), Decision.ALLOW_ONCE),
        (selected("reject_always"), Decision.REJECT_ALWAYS),
        ({"result": {"outcome": {"outcome": "cancelled"}}}, Decision.CANCELLED),
        (selected("allow"), Decision.UNANSWERED),
        (selected("unanswered"), Decision.UNANSWERED),
        (selected(None), Decision.UNANSWERED),
        ({"result": "allow_once"}, Decision.UNANSWERED),
        ({"result": {}}, Decision.UNANSWERED),
        ({"error": {"code": -32601, "message": "Method not found"}}, Decision.UNANSWERED),
    ],
)
@pytest.mark.parametrize("timeout", [0, 60])
async def test_only_a_known_option_grants_with_and_without_a_limit(answer, decision: Decision, timeout: float):
    async with connected() as (peer, other):
        assert await answered(peer, other, timeout, **answer) is decision


async def test_a_question_nobody_answers_in_time_is_refused_with_the_time_in_the_text():
    async with connected() as (peer, _other):
        with pytest.raises(ToolError, match=r"the user did not answer within 0\.01 s") as caught:
            await approver(peer, 0.01).ask(QUESTION)
        assert caught.value.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED


async def test_a_question_leaves_the_status_of_its_call_alone():
    """The call is shown as in progress, and nothing follows an answer that allows it."""
    async with connected() as (peer, other):
        with pytest.raises(ToolError):
            await approver(peer, 0.01).ask(QUESTION)
        request = await other.receive()
        assert request["params"]["toolCall"]["title"]
        assert "status" not in request["params"]["toolCall"]


async def test_a_question_that_ran_out_is_withdrawn_and_one_that_was_answered_is_not():
    async with connected() as (peer, other):
        assert await answered(peer, other, 60, **selected("reject_once")) is Decision.REJECT_ONCE
        with pytest.raises(ToolError):
            await approver(peer, 0.01).ask(QUESTION)
        request = await other.receive()
        assert request["method"] == "session/request_permission"
        withdrawn = await other.receive()
        assert withdrawn == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": request["id"]}}


async def test_a_question_is_withdrawn_if_its_call_is_cancelled_since_the_turn_may_go_on():
    async with connected() as (peer, other), anyio.create_task_group() as run_of_a_sub_agent:
        run_of_a_sub_agent.start_soon(approver(peer).ask, QUESTION)
        request = await other.receive()
        run_of_a_sub_agent.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(20):
            withdrawn = await other.receive()
    assert withdrawn == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": request["id"]}}


async def test_an_answer_that_comes_too_late_grants_nothing_neither_then_nor_to_the_next_question():
    async with connected() as (peer, other):
        with pytest.raises(ToolError):
            await approver(peer, 0.01).ask(QUESTION)
        late = await other.receive()
        decisions: list[Decision] = []

        async def ask() -> None:
            decisions.append(await approver(peer, 60).ask(QUESTION))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while (request := await other.receive())["method"] != "session/request_permission":
                pass
            other.send(id=late["id"], **selected("allow_always"))
            other.send(id=request["id"], **selected("reject_once"))
        assert decisions == [Decision.REJECT_ONCE]


async def test_without_a_limit_a_question_stands_until_the_editor_goes():
    async with connected() as (peer, other):

        async def hang_up() -> None:
            await other.receive()
            other.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang_up)
            assert await approver(peer).ask(QUESTION) is Decision.UNANSWERED


def test_a_question_about_no_call_says_in_its_options_what_always_covers_too():
    asked = Question("1", "use these settings?", ToolKind.OTHER, {}, always="exactly these contents of this folder")
    names = [option["name"] for option in options(asked)]
    assert names[1::2] == [
        "Always allow exactly these contents of this folder",
        "Always reject exactly these contents of this folder",
    ]


PATHS = EditorPaths("/project")
DIFFS = Drawing(question_diffs=True)
TITLES = Drawing(question_titles=True)


def question(text: str = "", *diffs: Diff, command: str = "") -> Question:
    return Question("1", "title", ToolKind.EXECUTE, {}, ("why",), "make …", diffs, command=command, text=text)


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
    (shown,) = question_content(PATHS, question("a\n````\n“Always” covers nothing\nb"), DIFFS)
    text = shown["content"]["text"]
    assert text.endswith("`````\na\n````\n“Always” covers nothing\nb\n`````")
    assert text.index("why") < text.index("“Always” covers make …") < text.index("The whole text:")


@pytest.mark.parametrize(
    "command", ["ls", "git push --force-with-lease origin main", "make all_b && ./run 'a b' | tail"]
)
def test_an_ordinary_short_command_is_shown_once_where_the_title_is_drawn(command: str):
    (shown,) = question_content(PATHS, question(command=command), TITLES)
    assert command not in shown["content"]["text"]
    (shown,) = question_content(PATHS, question(command=command), Drawing())
    assert shown["content"]["text"].startswith(f"```\n{command}\n```\n\nwhy")


@pytest.mark.parametrize(
    "command", ["rm *.o _a_ [x](y) &amp; `z`", "echo <!-- ; rm -rf x ; echo -->", "a\nb", "x" * 201]
)
def test_a_command_that_reads_otherwise_as_markdown_is_shown_beside_its_title(command: str):
    (shown,) = question_content(PATHS, question(command=command), TITLES)
    assert folded(command) in shown["content"]["text"]


def test_a_new_file_of_a_megabyte_is_shown_whole():
    new = "".join(f"line {number}\n" for number in range(100_000))
    diff, _ = question_content(PATHS, question("", Diff("/project/a", None, new)), DIFFS)
    assert len(new) > 2**20
    assert diff["newText"] == new


def test_of_a_change_of_a_huge_file_every_changed_line_is_shown():
    lines = [f"line {number}" for number in range(500_000)]
    changed = [*lines[:1000], "evil", *lines[1001:]]
    diff, _ = question_content(PATHS, question("", Diff("/project/a", "\n".join(lines), "\n".join(changed))), DIFFS)
    assert "evil" in diff["newText"]
    assert "line 1000" in diff["oldText"]


def test_the_name_of_a_changed_file_adds_no_line_to_the_question_and_moves_no_cursor():
    name = "a\n```\nAllowed by your administrator.\x1b[2J\u202e.txt"
    *_, shown = question_content(PATHS, question("", Diff(f"/project/{name}", None, "x\n")), Drawing())
    text = shown["content"]["text"]
    assert all(line.isprintable() for line in text.split("\n"))
    assert not any(line.startswith(("Allowed", "    Allowed")) for line in text.split("\n"))
    assert "Allowed by your administrator." in text


@pytest.mark.parametrize(
    "asked",
    [
        question("x" * MAX_TEXT),
        question(command="x" * MAX_TEXT),
        question("", Diff("/project/a", None, "x" * 5_000_000)),
        question("", *(Diff(f"/project/{number}", None, "x" * 1_500_000) for number in range(3))),
    ],
)
def test_what_cannot_be_shown_whole_is_not_asked(asked: Question):
    with pytest.raises(ToolError, match="too large for a question") as caught:
        question_content(PATHS, asked, DIFFS)
    assert caught.value.failure.category is ToolErrorCategory.CONFIRMATION_REQUIRED
