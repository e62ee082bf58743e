"""A conversation goes on after the process that had it is gone, and every model accepts it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_agent.agent import prompt as notes
from acp_agent.agent.history import History, restored
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.events import ToolFinished
from acp_agent.core.messages import Message, Part, Role, TextPart, ThoughtPart, ToolResultPart, ToolUsePart
from acp_agent.core.sessions import HistoryState
from acp_agent.core.types import ImagePart, ToolResult
from tests.rows import each_row
from tests.unit.agent.conversation_rules import assert_acceptable
from tests.unit.store.records import MESSAGES


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def agent(*parts: Part | str) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def use(name: str) -> ToolUsePart:
    return ToolUsePart(name, "bash", {"command": name})


def result(name: str) -> ToolResultPart:
    return ToolResultPart(name, "done")


WHOLE = (
    user("a summary", "another", "go"),
    agent("I look.", use("1"), use("2")),
    user(result("1"), result("2")),
    agent("I do.", use("3")),
    user(result("3")),
    agent("Done."),
)


def texts(history: History) -> list[str]:
    return [part.text for message in history.messages() for part in message.parts if isinstance(part, TextPart)]


def test_a_whole_conversation_is_as_it_was() -> None:
    history = restored(HistoryState(WHOLE, 2, 4711))
    assert history.messages() == WHOLE
    assert (history.summaries, history.estimate()) == (2, 4711)
    assert [part.text for part in history.knowledge] == ["a summary", "another"]


def test_nothing_is_an_empty_conversation() -> None:
    history = restored(HistoryState())
    assert (history.messages(), history.summaries, history.estimate()) == ((), 0, 0)


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_wherever_it_was_killed_the_next_prompt_can_be_sent(count: int) -> None:
    history = restored(HistoryState(WHOLE[:count], 2, 100), cut="")
    assert_acceptable(history.messages())
    assert history.messages()[: count - 1] == WHOLE[: count - 1], "what was said stays"
    assert history.messages()[-1].parts[-1] == TextPart(notes.INTERRUPTED)
    assert history.summaries == 2
    history.append(user("go on"))
    assert_acceptable(history.messages())


def test_calls_without_results_are_answered_as_interrupted() -> None:
    history = restored(HistoryState(WHOLE[:2], 0, 100), cut="")
    one, two, note = history.messages()[-1].parts
    for answer, name in ((one, "1"), (two, "2")):
        assert isinstance(answer, ToolResultPart)
        assert (answer.id, answer.is_error) == (name, True)
        assert answer.text.startswith("[error] ")
        assert "its outcome is not known" in answer.text
    assert note == TextPart(notes.INTERRUPTED)
    assert history.open_calls == ()


def test_calls_that_had_ended_are_answered_by_what_they_gave_and_the_others_as_interrupted() -> None:
    gave = ToolResult("four lines", images=(ImagePart("aGk=", "image/png"),))
    failed = ToolResult.failed(ToolFailure(ToolErrorCategory.TIMEOUT, "too slow"))
    ended = [ToolFinished("c", "bash", failed, 1.0, "0"), ToolFinished("d", "bash", gave, 1.0, "2")]
    history = restored(HistoryState(WHOLE[:2], 0, 100), cut="", ended=ended)
    one, two, note = history.messages()[-1].parts
    assert isinstance(one, ToolResultPart)
    assert "not known" in one.text
    assert two == ToolResultPart("2", "four lines", images=gave.images)
    assert note == TextPart(notes.INTERRUPTED)
    (answer,) = restored(HistoryState(WHOLE[:4], 0, 100), cut="", ended=[replace(ended[0], use_id="3")]).messages()[-1:]
    assert answer.parts[0] == ToolResultPart("3", failed.text, is_error=True)


@pytest.mark.parametrize("shown", ["", " \n", "I will lo"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_model_has_what_the_user_saw_of_an_answer_that_was_cut_off(count: int, shown: str) -> None:
    history = restored(HistoryState(WHOLE[:count], 2, 100), cut=shown)
    assert_acceptable(history.messages())
    if shown.strip():
        assert history.messages() == (*WHOLE[:count], agent(shown), user(notes.INTERRUPTED))
    else:
        assert history.messages()[:-1] == WHOLE[: count - 1]
        assert history.messages()[-1].parts == (*WHOLE[count - 1].parts, TextPart(notes.INTERRUPTED))
    assert history.summaries == 2


def test_of_an_endless_answer_the_model_has_what_fits() -> None:
    history = restored(HistoryState(WHOLE[:1], 0, 100), cut="la " * 100_000)
    assert len(history.messages()[1].text) == 64 * 1024


def test_an_answer_that_came_to_its_end_before_the_agent_did_is_there_once_and_without_a_note() -> None:
    assert restored(HistoryState(WHOLE, 2, 100), cut="Done.").messages() == WHOLE


@pytest.mark.parametrize("messages", [
    WHOLE[:1],  # the model could not be reached
    WHOLE[:3],  # it was stopped by a limit
    (user("go"), agent(use("1")), user(result("1"), notes.CANCELLED)),
    (user("a summary"),),  # all was summed up
    (user("go"), agent("Done."), user(notes.ran("ls", "a b"))),
], ids=["failed", "stopped", "cancelled", "summed up", "ran"])  # fmt: skip
def test_nothing_is_called_interrupted_that_was_not(messages: tuple[Message, ...]) -> None:
    assert restored(HistoryState(messages, 0, 9)).messages() == messages


@pytest.mark.parametrize("count", range(1, len(WHOLE)))
def test_what_was_taken_up_once_is_taken_up_again_as_it_is(count: int) -> None:
    once = restored(HistoryState(WHOLE[:count], 2, 100), cut="I wi")
    twice = restored(HistoryState(once.messages(), once.summaries, once.estimate()))
    assert twice.messages() == once.messages()
    assert texts(twice).count(notes.INTERRUPTED) == 1


def test_what_was_measured_counts_and_what_was_added_since() -> None:
    whole, killed = restored(HistoryState(WHOLE, 0, 5000)), restored(HistoryState(WHOLE[:4], 0, 5000), cut="")
    assert whole.estimate() == 5000
    assert 5000 < killed.estimate() < 5200


def test_where_nobody_measured_the_size_is_estimated() -> None:
    history = restored(HistoryState(WHOLE, 0, 0))
    assert history.estimate() == History(WHOLE).estimate() > 0


@pytest.mark.parametrize("knowledge", [-1, 4, 10**9])
def test_no_more_parts_are_summaries_than_there_are(knowledge: int) -> None:
    history = restored(HistoryState(WHOLE, knowledge, 100))
    assert 0 <= history.summaries <= 3 or knowledge < 0
    assert_acceptable(history.messages())
    history.begin_turn()
    history.append(user("next"))
    history.sum_up([TextPart("all of it")])
    assert_acceptable(history.messages())


@each_row("lost", range(len(WHOLE)))
def test_around_a_damaged_row_what_is_left_is_sound_and_begins_as_it_did(lost: int) -> None:
    history = restored(HistoryState(WHOLE[:lost] + WHOLE[lost + 1 :], 2, 100))
    assert_acceptable(history.messages())
    assert history.messages()[: max(lost - 1, 0)] == WHOLE[: max(lost - 1, 0)]
    history.append(user("go on"))
    assert_acceptable(history.messages())


@given(
    messages=st.lists(MESSAGES, max_size=6),
    knowledge=st.integers(),
    tokens=st.integers(0, 10**6),
    cut=st.none() | st.text(max_size=9),
)
def test_whatever_is_in_the_store_a_model_accepts_what_comes_of_it(
    messages: list[Message], knowledge: int, tokens: int, cut: str | None
) -> None:
    history = restored(HistoryState(tuple(messages), knowledge, tokens), cut=cut)
    history.append(user("go on"))
    assert_acceptable(history.messages())


@given(kept=st.sets(st.sampled_from(range(len(WHOLE)))))
def test_whichever_rows_are_damaged_a_model_accepts_the_rest(kept: set[int]) -> None:
    history = restored(HistoryState(tuple(WHOLE[index] for index in sorted(kept)), 2, 100))
    history.append(user("go on"))
    assert_acceptable(history.messages())


def test_thoughts_stay_byte_for_byte() -> None:
    thought = ThoughtPart("hm", "anthropic", {"signature": "abc=="})
    messages = (user("go"), agent(thought, "Done."))
    assert restored(HistoryState(messages, 0, 5)).messages() == messages


@each_row("lost", range(len(WHOLE)))
def test_a_damaged_row_takes_little_with_it_and_is_told(lost: int) -> None:
    told: list[str] = []
    state = HistoryState(WHOLE[:lost] + WHOLE[lost + 1 :], 2, 100, lost=1)
    history = restored(state, lambda: told.append("damaged"))
    assert told == ["damaged"]
    assert_acceptable(history.messages())
    left = [part.text for message in state.messages for part in message.parts if isinstance(part, TextPart)]
    assert [text for text in texts(history) if text in left] == left, "what can be read is there"
    assert lost or texts(history)[0] == notes.LOST


def test_a_whole_conversation_is_not_called_damaged() -> None:
    told: list[str] = []
    for count in range(len(WHOLE) + 1):
        restored(HistoryState(WHOLE[:count], 2, 100), lambda: told.append("damaged"))
    assert told == []


def test_behind_a_damaged_row_no_thought_is_signed_for_what_stood_before_it() -> None:
    thought = ThoughtPart("hm", "anthropic", {"signature": "abc=="})
    history = restored(HistoryState((user("go"), agent(thought, "Done.")), 0, 5, lost=1))
    assert history.messages() == (user("go"), agent("Done."))
