"""Only sequences every model API accepts can be built."""

import pytest

from acp_agent.agent.history import History
from acp_agent.core.errors import ToolErrorCategory, ToolFailure
from acp_agent.core.messages import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThoughtPart,
    ToolResultPart,
    ToolUsePart,
)
from tests.rows import each_row
from tests.unit.agent.conversation_rules import assert_acceptable

FAILURE = ToolFailure(ToolErrorCategory.CANCELLED, "stopped")


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part | str) -> Message:
    return Message(Role.ASSISTANT, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def use(id_: str) -> ToolUsePart:
    return ToolUsePart(id_, "read", {})


def result(id_: str) -> ToolResultPart:
    return ToolResultPart(id_, "text")


def test_two_user_messages_in_a_row_become_one() -> None:
    history = History([user("one"), user("two")])
    assert history.messages() == (user("one", "two"),)


def test_a_prompt_after_tool_results_stands_behind_them() -> None:
    history = History([user("one"), assistant(use("a")), user(result("a")), user("two")])
    assert history.messages()[-1] == user(result("a"), "two")


def test_blank_texts_and_messages_without_content_are_left_out() -> None:
    history = History([user("one", "  "), assistant(" \n", ThoughtPart("Hm."))])
    assert history.messages() == (user("one"),)
    assert history.awaits_reply


@pytest.mark.parametrize(
    "message",
    [
        assistant("hello"),
        user(result("a")),
    ],
)
def test_a_conversation_begins_with_the_user(message: Message) -> None:
    with pytest.raises(ValueError, match="expected"):
        History([message])


@each_row(
    "wrong",
    [
        user("no results"),
        user(result("a")),
        user(result("b"), result("a")),
        user(result("a"), "in between", result("b")),
        user("before", result("a"), result("b")),
        user(result("a"), result("b"), result("b")),
        user(result("a"), result("c")),
        assistant("words"),
    ],
)
def test_open_calls_take_exactly_their_results_in_order_and_first(wrong: Message) -> None:
    history = History([user("one"), assistant(use("a"), use("b"))])
    before = history.messages()
    with pytest.raises(ValueError, match="expected"):
        history.append(wrong)
    assert history.messages() == before
    history.append(user(result("a"), result("b"), "and more"))
    assert_acceptable(history.messages())


@pytest.mark.parametrize("wrong", [assistant(use("")), assistant(use("b"), use("b")), assistant(use("a"))])
def test_tool_use_ids_are_new_and_not_empty(wrong: Message) -> None:
    history = History([user("one"), assistant(use("a")), user(result("a"))])
    with pytest.raises(ValueError, match="new and not empty"):
        history.append(wrong)


@pytest.mark.parametrize("wrong", [user(use("a")), user(ThoughtPart("Hm."))])
def test_uses_and_thoughts_are_the_assistants(wrong: Message) -> None:
    with pytest.raises(ValueError, match="expected text, images and results"):
        History([wrong])


@pytest.mark.parametrize("wrong", [assistant("a", result("a")), assistant("a", ImagePart("", "image/png"))])
def test_results_and_images_are_the_users(wrong: Message) -> None:
    with pytest.raises(ValueError, match="expected text, thoughts and tool uses"):
        History([user("one"), wrong])


def test_the_highest_id_is_found_in_texts_calls_and_results() -> None:
    history = History()
    assert history.highest_id("p") == 0
    history.append(user("the 95p of p0, p07, xp8, p-9, p10-11 and up12"))
    assert history.highest_id("p") == 0
    history.append(user("p2 runs"))
    history.append(assistant(ToolUsePart("a", "process", {"action": "stop", "id": "p3"})))
    assert history.highest_id("p") == 3
    history.append(user(ToolResultPart("a", "ok\n[running as p12]\n[general-4: done]")))
    assert (history.highest_id("p"), history.highest_id("general-"), history.highest_id("eral-")) == (12, 4, 0)


def test_repair_answers_open_calls_once() -> None:
    history = History([user("one"), assistant(use("a"), use("b"))])
    history.repair(FAILURE)
    history.repair(FAILURE)
    parts = history.messages()[-1].parts
    assert parts == tuple(ToolResultPart(id_, FAILURE.block(), is_error=True) for id_ in "ab")
    assert_acceptable(history.messages())


def test_repair_leaves_a_complete_history_alone() -> None:
    history = History([user("one"), assistant("two")])
    before = history.messages()
    history.repair(FAILURE)
    assert history.messages() == before


def test_a_turn_can_be_taken_back_and_the_ids_it_used_are_free_again() -> None:
    history = History([user("one"), assistant("two")])
    before = history.messages()
    history.begin_turn()
    assert history.turn_is_empty
    history.append(user("three"))
    assert not history.turn_is_empty
    history.append(assistant(use("a")))
    history.forget_turn()
    assert history.turn_is_empty
    assert history.messages() == before
    history.append(user("four"))
    history.append(assistant(use("a")))
    assert history.call_ids == {"a"}


def test_a_prompt_that_joined_a_message_is_taken_back_without_that_message() -> None:
    history = History([user("one"), assistant(use("a")), user(result("a"), "cancelled")])
    before = history.messages()
    history.begin_turn()
    history.append(user("two"))
    history.append(assistant("three"))
    history.forget_turn()
    assert history.messages() == before
    assert history.call_ids == {"a"}


def test_a_turn_that_is_over_cannot_be_taken_back() -> None:
    history = History()
    history.begin_turn()
    history.append(user("one"))
    history.end_turn()
    history.forget_turn()
    assert history.messages() == (user("one"),)


def test_taking_a_turn_back_brings_back_what_was_measured() -> None:
    history = History([user("x" * 4000)])
    history.append(assistant("ok"))
    history.measured(42)
    history.begin_turn()
    history.append(user("more"))
    history.append(assistant("y" * 4000))
    history.measured(2000)
    history.forget_turn()
    assert history.estimate() == 42
    history.append(user("z" * 400))
    assert 140 < history.estimate() < 160


def test_clear_forgets_everything() -> None:
    history = History([user("one"), assistant(use("a"))])
    history.measured(500)
    history.clear()
    assert history.messages() == ()
    assert history.estimate() == 0
    assert history.call_ids == frozenset()
    assert history.knowledge == ()


def test_the_estimate_grows_with_every_kind_of_part() -> None:
    history = History()
    last = 0
    for message in (
        user("x" * 400),
        assistant(ThoughtPart("y" * 400), ThoughtPart("", "p", {"signature": "z" * 400}), use("a")),
        user(result("a"), ImagePart("", "image/png")),
        assistant("x", OpaquePart("p", {"data": "z" * 400})),
        user("日本語" * 100),
    ):
        history.append(message)
        assert history.estimate() > last + 20
        last = history.estimate()


def test_a_picture_costs_what_it_costs_a_model_whatever_its_bytes() -> None:
    picture = ImagePart("A" * 4_000_000, "image/png")
    history = History([user("look", picture)])
    prompt = history.estimate()
    history.append(assistant(use("a")))
    before = history.estimate()
    history.append(user(ToolResultPart("a", "Image: a.png", images=(picture, picture))))
    assert 1_500 < prompt < 2_000
    assert 3_000 < history.estimate() - before < 4_000


def test_what_the_model_measured_replaces_the_estimate_so_far() -> None:
    history = History([user("x" * 4000), assistant("ok")])
    history.measured(42)
    assert history.estimate() == 42
    history.append(user("x" * 400))
    assert 140 < history.estimate() < 160


def test_a_part_merged_into_a_measured_message_is_counted_once() -> None:
    history = History([user("x" * 4000)])
    history.measured(900)
    history.append(user("y" * 400))
    assert history.estimate() == 1000


# ----------------------------------------------------------------------------------- shortening

SIGNED = ThoughtPart("Hm.", "anthropic", {"type": "thinking", "thinking": "Hm.", "signature": "fake"})
UNSIGNED = ThoughtPart("Hm.", "deepseek", {"reasoning_content": "Hm."})
RECORD = TextPart("record")


def talk() -> History:
    """One whole turn, and one under way."""
    history = History([user("one"), assistant(SIGNED, use("a")), user(result("a")), assistant(SIGNED, "done")])
    history.begin_turn()
    history.append(user("two"))
    history.append(assistant(SIGNED, UNSIGNED, use("b")))
    return history


def test_a_summary_takes_the_place_of_what_lies_before_the_turn_and_the_turn_stays() -> None:
    history = talk()
    assert [message.text for message in history.earlier] == ["one", "", "", "done"]
    history.sum_up([RECORD])
    assert history.messages() == (user("record", "two"), assistant(UNSIGNED, use("b")))
    assert history.knowledge == (RECORD,)
    assert history.earlier == ()
    assert history.call_ids == {"b"}
    history.append(user(result("b")))
    assert_acceptable(history.messages())


def test_a_further_summary_stands_behind_the_first() -> None:
    history = talk()
    history.sum_up([RECORD])
    history.append(user(result("b")))
    history.append(assistant("done"))
    history.end_turn()
    assert [message.text for message in history.earlier] == ["two", "", "", "done"]
    history.sum_up([*history.knowledge, TextPart("more")])
    assert history.messages() == (user("record", "more"),)
    history.begin_turn()
    history.append(user("three"))
    assert history.messages() == (user("record", "more", "three"),)
    assert history.earlier == ()


def test_results_before_a_prompt_in_the_same_message_go_with_their_calls() -> None:
    history = History([user("one"), assistant(use("a")), user(result("a"), "cancelled")])
    history.begin_turn()
    history.append(user("two"))
    history.sum_up([RECORD])
    assert history.messages() == (user("record", "two"),)


def test_a_turn_taken_back_after_a_summary_leaves_the_summary() -> None:
    history = talk()
    history.sum_up([RECORD])
    history.forget_turn()
    assert history.messages() == (user("record"),)
    assert history.knowledge == (RECORD,)
    assert history.estimate() < 20


def test_a_stub_takes_a_results_place_and_signed_thoughts_behind_it_go() -> None:
    history = talk()
    stub = ToolResultPart("a", "stub")
    history.replace_results({"a": stub, "unknown": ToolResultPart("unknown", "x")})
    assert history.messages() == (
        user("one"),
        assistant(SIGNED, use("a")),
        user(stub),
        assistant("done"),
        user("two"),
        assistant(UNSIGNED, use("b")),
    )


def test_replacing_nothing_changes_nothing() -> None:
    history = talk()
    before = history.messages()
    history.replace_results({})
    assert history.messages() == before


def test_the_measure_shrinks_by_what_was_taken_away_and_never_below_what_is_left() -> None:
    history = History([user("one"), assistant(use("a")), user(ToolResultPart("a", "x" * 40_000))])
    history.append(assistant("ok"))
    history.measured(15_000)
    history.replace_results({"a": ToolResultPart("a", "x" * 4_000)})
    assert 5_900 < history.estimate() < 6_100
    history.measured(500)
    history.replace_results({"a": ToolResultPart("a", "x" * 2_000)})
    assert 500 < history.estimate() < 540


def test_messages_are_copied_only_when_they_have_changed() -> None:
    history = talk()
    assert history.messages() is history.messages()
    before = history.messages()
    history.append(user(result("b")))
    assert len(before) == len(history.messages()) - 1
